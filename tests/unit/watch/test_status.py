"""The status page: what it shows, to whom, and that nobody who asks can hold it or the run up."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fastlloyd.errors import ConfigError
from fastlloyd.net.tcp.address import Address, listen, parse_address
from fastlloyd.report.view import View
from fastlloyd.watch import status
from fastlloyd.watch.status import StatusPage, check_address, render_page, status_values
from fastlloyd.wire.header import SERVER
from tests.contracts.page import _can_be_heard, parse

LIMIT_S = 60.0


def seen() -> View:
    view = View(me=SERVER, protocol="fastlloyd-plus", clients=3, epsilon=1.0, absent=lambda: [3], run="ab" * 16)
    view.names = {0: "Hub", 1: "North", 2: "St <b>Mary</b>\x1b[2J"}
    view.waiting = lambda: "waiting for client 2 (MaskedUpdate)"
    view.take("setup", {"seconds": 1.25, "sent_bytes": 1000, "received_bytes": 3000})
    view.take("round", {"round": 1, "rounds": 6, "clients": 2, "seconds": 0.5, "bytes": 96})
    return view


@pytest.fixture
def page() -> Iterator[StatusPage]:
    made = StatusPage(listen(Address("127.0.0.1", 0), "--status"), seen(), "status.example.org")
    yield made
    made.close()


def ask(page: StatusPage, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=LIMIT_S)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read().decode()


def raw(page: StatusPage, *pieces: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", page.port), timeout=LIMIT_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while more := connection.recv(1 << 16):
                answer += more
        return answer


def test_json_says_who_has_joined_what_is_done_and_what_is_waited_for(page: StatusPage) -> None:
    code, headers, text = ask(page, "/status.json")
    document = json.loads(text)
    assert code == 200 and headers["content-type"] == "application/json"
    assert document["clients"] == [
        {"rank": 1, "name": "North", "joined": True},
        {"rank": 2, "name": "St <b>Mary</b>\x1b[2J", "joined": True},
        {"rank": 3, "name": "", "joined": False},
    ]
    assert document["rounds"] == {"planned": 6, "closed": 2, "last_seconds": 0.5, "last_included": 2}
    assert document["bytes"] == {"payload": 96, "sent": 1000, "received": 3000}
    assert document["waiting"].startswith("waiting for client 2 (St <b>Mary</b>") and document["stage"] == "rounds"
    assert (document["run"], document["exit_code"], document["party"]) == ("ab" * 16, None, "the server")


def test_the_page_is_valid_without_scripts_and_shows_names_as_text(page: StatusPage) -> None:
    code, headers, text = ask(page)
    assert code == 200 and headers["content-type"] == "text/html; charset=utf-8"
    _can_be_heard(parse(text))
    assert "St &lt;b&gt;Mary&lt;/b&gt;\\x1b[2J" in text and "<b>" not in text and "<script" not in text
    for words in ("in the rounds", "2 of 6", "2 of 3 have joined", "waiting for client 2", "1.0 kB sent", "client 3"):
        assert words in text, words


@pytest.mark.parametrize("stage", ["starting", "setup", "done", "failed"])
def test_the_page_is_valid_at_every_stage(stage: str) -> None:
    view = View(me=SERVER, clients=2)
    view.stage = stage
    if stage in ("done", "failed"):
        view.end(3 if stage == "failed" else 0)
    text = render_page(status_values(view))
    _can_be_heard(parse(text))
    assert ("exit code" in text) == (stage in ("done", "failed"))


def test_metrics_can_be_fetched_too(page: StatusPage) -> None:
    code, headers, text = ask(page, "/metrics")
    assert code == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "fastlloyd_run_clients_joined" in {family.name for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:4401", 200),
        ("localhost", 200),
        ("LOCALHOST:80", 200),
        ("[::1]:4401", 200),
        ("192.0.2.7", 200),
        ("status.example.org:4401", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example#localhost", 421),
        ("", 421),
        ("[::1", 200),
        ("[evil.example]", 421),
    ],
)
def test_a_name_that_was_bound_to_this_address_does_not_do(page: StatusPage, host: str, code: int) -> None:
    assert ask(page, "/status.json", Host=host)[0] == code


def test_two_hosts_or_none_do_not_do(page: StatusPage) -> None:
    for lines in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        assert b" 421 " in raw(page, b"GET / HTTP/1.1\r\n" + lines + b"\r\n").split(b"\r\n")[0]


def test_no_other_origin_may_read_or_frame_it(page: StatusPage) -> None:
    for path, origin in (("/", "http://evil.example"), ("/status.json", "null"), ("/nothing", "http://evil.example")):
        _, headers, _ = ask(page, path, Origin=origin)
        assert not any(name.startswith("access-control") for name in headers)
        assert headers["cross-origin-resource-policy"] == "same-origin" and headers["cache-control"] == "no-store"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "script" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers and "Python" not in headers["server"]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/", 501),
        ("OPTIONS", "/status.json", 501),
        ("DELETE", "/", 501),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/status.json/", 404),
        ("GET", "http://evil.example/", 421),
        ("GET", "/?x=<script>", 200),
    ],
)
def test_only_reading_is_possible(page: StatusPage, method: str, path: str, code: int) -> None:
    assert ask(page, path, method)[0] == code


def test_an_error_repeats_nothing_that_could_run(page: StatusPage) -> None:
    assert "<script>" not in ask(page, "/<script>alert(1)</script>")[2]
    assert b"<script>" not in raw(page, b"<script>x / HTTP/1.1\r\nHost: localhost\r\n\r\n").partition(b"\r\n\r\n")[2]


def test_head_gives_the_headers_alone(page: StatusPage) -> None:
    code, headers, text = ask(page, "/", "HEAD")
    assert code == 200 and int(headers["content-length"]) > 100 and text == ""


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * (1 << 16),
        b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n\r\n",
        b"\x00" * 5000,
        b"",
    ],
)
def test_nonsense_ends_with_that_connection(
    page: StatusPage, request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "REQUEST_S", 0.2)
    with contextlib.suppress(ConnectionError):
        raw(page, request_bytes)
    assert ask(page, "/status.json")[0] == 200


@pytest.mark.parametrize(
    "line", [b"GET", b"GET / HTTP/9.9", b"GET / / /", b"\r\n", b"GET / HTTP/1.1\r\n: x", b"\xff\xfe / HTTP/1.1"]
)
def test_a_malformed_request_does_not_end_the_thread(page: StatusPage, line: bytes) -> None:
    raw(page, line + b"\r\n\r\n")
    assert ask(page, "/status.json")[0] == 200


def test_whoever_sends_slowly_is_dropped_in_time(page: StatusPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "REQUEST_S", 0.3)
    with socket.create_connection(("127.0.0.1", page.port), timeout=LIMIT_S) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        over, dropped = threading.Event(), threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.02):
                    slow.sendall(b"X: y\r\n")
            dropped.set()

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert ask(page, "/status.json")[0] == 200
            assert dropped.wait(LIMIT_S)
        finally:
            over.set()
            thread.join()


def test_who_asks_all_the_time_takes_a_tenth_of_the_time(page: StatusPage) -> None:
    spent: list[float] = []
    real = status.render_page

    def counted(values: object) -> str:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.02:
            pass
        spent.append(0.02)
        return real(values)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status, "render_page", counted)
        begun = time.monotonic()
        for _ in range(8):
            assert ask(page)[0] == 200
        # Each answer is followed by a rest of at least nine times its own time, but for the last.
        assert time.monotonic() - begun >= 7 * (9 + 1) * 0.02


def test_a_view_that_changes_under_the_reader_is_no_error(page: StatusPage) -> None:
    def changing() -> str:
        raise RuntimeError("dictionary changed size during iteration")

    page._view.waiting = changing
    assert json.loads(ask(page, "/status.json")[2])["waiting"] == "working"


def test_a_page_that_cannot_be_made_ends_nothing(page: StatusPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(values: object) -> str:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(status, "render_page", broken)
        assert raw(page, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""
    assert ask(page)[0] == 200


def test_closing_frees_the_port() -> None:
    made = StatusPage(listen(Address("127.0.0.1", 0), "--status"), seen(), "")
    made.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", made.port))


@pytest.mark.parametrize("text", ["127.0.0.1:4401", "[::1]:4401", "localhost:0", "127.8.8.8:80"])
def test_this_machine_alone(text: str) -> None:
    check_address(parse_address(text, "--status", listening=True), remote=False)


@pytest.mark.parametrize(
    "text", ["*:4401", ":4401", "0.0.0.0:4401", "[::]:4401", "192.0.2.7:80", "status.example.org:80"]
)
def test_others_only_if_allowed(text: str) -> None:
    address = parse_address(text, "--status", listening=True)
    with pytest.raises(ConfigError, match="expected a loopback address .*; add --status-remote"):
        check_address(address, remote=False)
    check_address(address, remote=True)


def test_an_address_in_use_names_the_flag(page: StatusPage) -> None:
    with pytest.raises(ConfigError, match=rf"--status 127.0.0.1:{page.port}: "):
        listen(Address("127.0.0.1", page.port), "--status")


def test_earlier_runs_are_shown_as_text_and_only_where_there_are_some():
    view = seen()
    assert "Earlier runs" not in render_page(status_values(view)) and status_values(view)["earlier"] == []
    one = {
        "begun": "2026-11-01T08:00:00Z",
        "run": "ab12cd34",
        "protocol": "fastlloyd",
        "title": "<i>Heights</i>\x1b[2J",
    }
    view.earlier = [{**one, "with": "North, St <b>Mary</b>", "outcome": "failed (3)"}]
    page = render_page(status_values(view))
    parse(page)
    assert "Earlier runs of this server" in page and "&lt;i&gt;Heights" in page and "failed (3)" in page
    assert "<i>" not in page and "<b>" not in page and "\x1b" not in page
    json.dumps(status_values(view), allow_nan=False)
