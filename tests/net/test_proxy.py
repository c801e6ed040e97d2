"""Joining through a proxy: which one, what it is asked for, what it may answer, and real ones."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastlloyd.crypto.link.tls import pinned_context
from fastlloyd.errors import ConfigError, PeerError, PeerTimeout, SecurityError
from fastlloyd.net.tcp.address import Address
from fastlloyd.net.tcp.admission import Keys
from fastlloyd.net.tcp.proxy import Proxy, find_proxy, tunnel
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import join
from fastlloyd.wire.header import SERVER, PartyId
from tests.net.connect_proxy import ConnectProxy
from tests.net.support import identity
from tests.net.test_tcp import LIMIT_S, Site, client_keys, end_of, server_keys, until

ONE, TWO = PartyId(1), PartyId(2)
PASSWORD = "tr0ub4dor&3"
SERVER_AT = Address("server.example.org", 4400)


def at(proxy: ConnectProxy, password: str | None = None) -> Proxy:
    return Proxy(Address("127.0.0.1", proxy.port), password)


# Which proxy


@pytest.mark.parametrize(
    ("text", "address", "password"),
    [
        ("http://proxy.example:3128", "proxy.example:3128", None),
        ("http://proxy.example:3128/", "proxy.example:3128", None),
        ("proxy.example:3128", "proxy.example:3128", None),
        ("http://proxy.example", "proxy.example:80", None),
        ("http://[2001:db8::1]:3128", "[2001:db8::1]:3128", None),
        ("http://me:secret@10.0.0.1:3128", "10.0.0.1:3128", "me:secret"),
        ("http://me@10.0.0.1:3128", "10.0.0.1:3128", "me:"),
        ("me:secret@10.0.0.1:3128", "10.0.0.1:3128", "me:secret"),
        ("http://dom%5Cme:p%40ss%3A@10.0.0.1:3128", "10.0.0.1:3128", "dom\\me:p@ss:"),
    ],
)
def test_the_proxy_of_the_environment(text: str, address: str, password: str | None) -> None:
    found = find_proxy(SERVER_AT, {"HTTPS_PROXY": text})
    assert found is not None and (str(found), found.password) == (address, password)


def test_small_letters_win_and_nothing_is_no_proxy() -> None:
    assert find_proxy(SERVER_AT, {}) is None
    assert find_proxy(SERVER_AT, {"HTTP_PROXY": "http://a:1", "ALL_PROXY": "http://a:1"}) is None
    assert find_proxy(SERVER_AT, {"HTTPS_PROXY": "http://a:1", "https_proxy": ""}) is None
    assert str(find_proxy(SERVER_AT, {"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2"})) == "b:2"


@pytest.mark.parametrize(
    "text",
    [
        f"https://me:{PASSWORD}@proxy.example:3128",
        f"socks5://me:{PASSWORD}@proxy.example:1080",
        f"http://me:{PASSWORD}@proxy.example:port",
        f"http://me:{PASSWORD}@proxy.example:99999",
        f"http://me:{PASSWORD}@[::1:3128",
        f"http://me:{PASSWORD}@",
        f"http://me:#{PASSWORD}@proxy.example:3128",
        f"http://me:{PASSWORD}@proxy.example:3128/path",
        f"http://me:{PASSWORD}@proxy.example:3128?query",
        f"http://me:{PASSWORD}@pro xy.example:3128",
    ],
)
def test_a_proxy_that_cannot_be_read_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ConfigError, match="HTTPS_PROXY: expected http://HOST:PORT") as caught:
        find_proxy(SERVER_AT, {"HTTPS_PROXY": text})
    # Nor in what a log with traces would have of it.
    shown = logging.Formatter().formatException((type(caught.value), caught.value, caught.value.__traceback__))
    assert PASSWORD not in str(caught.value) and PASSWORD not in shown


@pytest.mark.parametrize(
    ("exceptions", "direct"),
    [
        ("*", True),
        ("server.example.org", True),
        ("SERVER.example.org", True),
        ("example.org", True),
        (".example.org", True),
        ("*.example.org", True),
        ("other.example, example.org", True),
        ("server.example.org:4400", True),
        ("server.example.org:443", False),
        ("ample.org", False),
        ("org.uk", False),
        ("10.0.0.0/8", False),
        (",,", False),
        ("", False),
    ],
)
def test_what_is_reached_without_the_proxy(exceptions: str, direct: bool) -> None:
    found = find_proxy(SERVER_AT, {"HTTPS_PROXY": "http://a:1", "NO_PROXY": exceptions})
    assert (found is None) == direct


@pytest.mark.parametrize(
    ("host", "exceptions", "direct"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:4400", True),
        ("10.1.2.3", "10.1.2.3:1", False),
        ("10.1.2.3", "192.168.0.0/16,2001:db8::/32", False),
        ("2001:db8::7", "2001:db8::/32", True),
        ("2001:db8::7", "[2001:db8::7]:4400", True),
        ("2001:db8::7", "[2001:db8::7]", True),
        ("2001:db8::7", "2001:db8::8", False),
        ("localhost", "", True),
        ("127.0.0.1", "", True),
        ("::1", "", True),
    ],
)
def test_numbers_that_are_reached_without_the_proxy(host: str, exceptions: str, direct: bool) -> None:
    found = find_proxy(Address(host, 4400), {"HTTPS_PROXY": "http://a:1", "NO_PROXY": exceptions})
    assert (found is None) == direct


# What it is asked for and what it may answer


def test_sites_behind_a_proxy_join_and_are_relayed() -> None:
    with Site(2, keys=True) as site, ConnectProxy(names={"server.example.org": "127.0.0.1"}) as proxy:
        site.address = Address("server.example.org", site.address.port)  # which this machine cannot look up
        with site.turning():
            one, two = (site.join(rank, proxy=at(proxy)) for rank in (1, 2))
            one.send(TWO, b"relayed" * 10_000)
            assert two.receive(LIMIT_S) == (ONE, b"relayed" * 10_000)
        target = f"server.example.org:{site.address.port}"
        assert proxy.asked == [f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()] * 2


def test_a_proxy_with_a_password_gets_it_and_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    with Site(1) as site, ConnectProxy(password=f"clinic:{PASSWORD}") as proxy, site.turning() as found:
        client = site.join(1, proxy=at(proxy, f"clinic:{PASSWORD}"))
        client.send(SERVER, b"in")
        until(lambda: found == [(ONE, b"in")])
        for password in (None, "clinic:wrong"):
            with pytest.raises(ConfigError, match="407") as caught:
                site.join(1, proxy=at(proxy, password))
            assert ("needs a user" if password is None else "refuses the user or the password") in str(caught.value)
        shown = [repr(client), repr(at(proxy, PASSWORD)), str(at(proxy, PASSWORD)), *site.said, *site.warned]
        assert not any(PASSWORD in text or "wrong" in text for text in [*shown, str(caught.value)])
    assert PASSWORD not in "".join(capsys.readouterr())


def test_a_password_is_not_sent_where_there_is_none() -> None:
    with Site(1) as site, ConnectProxy() as proxy, site.turning():
        site.join(1, proxy=at(proxy))
        assert b"Authorization" not in proxy.asked[0]


@pytest.mark.parametrize("status", [403, 405])
def test_a_proxy_that_does_not_allow_the_port_is_not_asked_again(status: int) -> None:
    with ConnectProxy(status=status) as proxy, pytest.raises(ConfigError, match="ask its operator to allow"):
        join(Route(SERVER_AT, 1, None, at(proxy)), deadline_s=LIMIT_S, note=str)
    assert len(proxy.asked) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_proxy_that_does_not_reach_the_server_is_asked_again(status: int) -> None:
    said: list[str] = []
    with ConnectProxy(status=status) as proxy, pytest.raises(PeerTimeout) as caught:
        join(Route(SERVER_AT, 1, None, at(proxy)), deadline_s=1.0, note=said.append)
    assert f"at server.example.org:4400 through the proxy 127.0.0.1:{proxy.port} within 1 s" in str(caught.value)
    assert f"has no connection to it: it answered {status}" in str(caught.value)
    assert len(proxy.asked) > 1 and len(said) == 1


def test_a_client_behind_a_proxy_may_come_before_its_server() -> None:
    with Site(1) as site, ConnectProxy() as proxy, ThreadPoolExecutor(1) as pool:
        proxy.down = True
        job = pool.submit(site.join, 1, proxy=at(proxy))
        until(lambda: len(proxy.asked) > 1)
        proxy.down = False
        with site.turning():
            job.result(LIMIT_S)


def answering(words: bytes) -> Iterator[Proxy]:
    """Listen as something that says these words to whoever asks."""
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def serve() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                with contextlib.suppress(OSError):
                    connection.sendall(words)
                    connection.shutdown(socket.SHUT_WR)
                    end_of(connection)

        pool.submit(serve)
        yield Proxy(Address(*other.getsockname()))


answer = contextlib.contextmanager(answering)


@pytest.mark.parametrize(
    "words",
    [
        b"220 mail.example.org ESMTP\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 twohundred\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/3.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000,
        b"HTTP/1.1 " + b"2" * 100_000,
        bytes(1000),
    ],
)
def test_what_is_no_proxy_is_refused_after_bounded_bytes(words: bytes) -> None:
    with answer(words) as proxy, pytest.raises(ConfigError, match="is not an HTTP proxy"):
        tunnel(proxy, SERVER_AT, LIMIT_S)


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_proxy_that_hangs_up_may_be_better_later(words: bytes) -> None:
    with answer(words) as proxy, pytest.raises(OSError, match="hung up"):
        tunnel(proxy, SERVER_AT, LIMIT_S)


def test_bytes_behind_the_answer_are_the_servers() -> None:
    with answer(b"HTTP/1.0 200 OK\r\n\r\n220 mail.example.org ESMTP\r\n") as proxy:
        connection = tunnel(proxy, SERVER_AT, LIMIT_S)
        with connection:
            assert end_of(connection) == b"220 mail.example.org ESMTP\r\n"


def test_a_proxy_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        with pytest.raises(OSError, match="does not answer"):
            tunnel(Proxy(Address(*mute.getsockname())), SERVER_AT, 0.3)
        assert time.monotonic() - started < LIMIT_S / 2


def test_a_proxy_that_trickles_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:

        def trickle() -> None:
            connection, _ = other.accept()
            with connection, contextlib.suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\n" + b"X: yyyyyyyy\r\n" * 1000:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.01)

        pool.submit(trickle)
        with pytest.raises(OSError, match="does not answer"):
            tunnel(Proxy(Address(*other.getsockname())), SERVER_AT, 0.5)


def test_a_proxy_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(PeerTimeout, match=rf"the proxy 127.0.0.1:{port} cannot be reached: connection refused"):
        join(Route(SERVER_AT, 1, None, Proxy(Address("127.0.0.1", port))), deadline_s=0.3, note=str)
    with pytest.raises(ConfigError, match="HTTPS_PROXY no-such-host.invalid:1: the host name has no address"):
        join(Route(SERVER_AT, 1, None, Proxy(Address("no-such-host.invalid", 1))), deadline_s=0.3, note=str)


def test_a_proxy_that_looks_into_tls_is_found_out() -> None:
    with Site(1, keys=True) as site, Site(1, keys=True) as inspector:
        own = server_keys(1)
        inspector.server._keys = Keys(pinned_context(identity(7), own.certificates, server_side=True), own.certificates)
        with ConnectProxy(names={"server.example.org": "127.0.0.1"}) as proxy, inspector.turning():
            address = Address("server.example.org", inspector.address.port)
            with pytest.raises(SecurityError, match="Something on the way may look into TLS, .*: ask for an exception"):
                join(Route(address, 1, client_keys(1), at(proxy)), deadline_s=LIMIT_S, note=str)
        assert site.server.joined == 0


def test_what_is_behind_the_proxy_may_be_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool, ConnectProxy() as proxy:

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"220 mail.example.org ESMTP\r\n")
                end_of(connection)

        pool.submit(greet)
        sentence = r"what listens at 127.0.0.1:\d+ through the proxy .* is not a fastlloyd server"
        with pytest.raises(PeerError, match=sentence):
            join(Route(Address(*other.getsockname()), 1, None, at(proxy)), deadline_s=LIMIT_S, note=str)


# Real proxies


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


@contextlib.contextmanager
def started(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Run a program that listens on a port."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:

        def listens() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return True
            return False

        until(listens)
        yield
    finally:
        process.terminate()
        process.wait()


def tinyproxy(folder: Path, port: int) -> list[str]:
    """Write a configuration; give the command."""
    (folder / "tinyproxy.conf").write_text(
        f"Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 20\nAllow 127.0.0.1\nBasicAuth clinic s3cret\n"
        f'PidFile "{folder}/pid"\n'
    )
    return ["tinyproxy", "-d", "-c", str(folder / "tinyproxy.conf")]


def squid(folder: Path, port: int) -> list[str]:
    """Write a configuration; give the command."""
    (folder / "squid.conf").write_text(
        f"http_port 127.0.0.1:{port}\nacl here src 127.0.0.1\nhttp_access allow here\npid_filename none\n"
        f"cache deny all\naccess_log none\ncache_log /dev/stderr\ncoredump_dir {folder}\nshutdown_lifetime 0 seconds\n"
        "cache_effective_user nobody\nlogfile_rotate 0\n"
    )
    return ["squid", "-N", "-f", str(folder / "squid.conf")]


def test_a_site_goes_on_although_a_real_proxy_starts_again(tmp_path: Path) -> None:
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("tinyproxy is not installed (Debian: apt install tinyproxy)")
    port = free_port()
    command = [program, *tinyproxy(tmp_path, port)[1:]]
    proxy = Proxy(Address("127.0.0.1", port), "clinic:s3cret")
    with Site(1, keys=True, options={"reconnect_s": LIMIT_S}) as site, site.turning() as found:
        with started(command, port, tmp_path / "log"):
            one = site.join(1, proxy=proxy, reconnect_s=LIMIT_S)
            one.send(SERVER, b"before")
            until(lambda: found == [(ONE, b"before")])
        one.send(SERVER, b"while it is away")
        with started(command, port, tmp_path / "log again"):
            site.server.send(ONE, b"after")
            assert one.receive(LIMIT_S) == (SERVER, b"after")
            until(lambda: found[1:] == [(ONE, b"while it is away")])


@pytest.mark.parametrize("name", ["tinyproxy", "squid"])
def test_a_real_proxy(name: str, tmp_path: Path) -> None:
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {name})")
    port = free_port()
    command = {"tinyproxy": tinyproxy, "squid": squid}[name](tmp_path, port)
    password = "clinic:s3cret" if name == "tinyproxy" else None
    with started([program, *command[1:]], port, tmp_path / "log"), Site(2, keys=True) as site, site.turning():
        proxy = Proxy(Address("127.0.0.1", port), password)
        one, two = (site.join(rank, proxy=proxy) for rank in (1, 2))
        one.send(TWO, b"relayed" * 100_000)
        assert two.receive(LIMIT_S) == (ONE, b"relayed" * 100_000)
        if password is not None:
            with pytest.raises(ConfigError, match="refuses the user or the password"):
                site.join(1, proxy=Proxy(proxy.address, "clinic:wrong"))
        nobody = Address("127.0.0.1", free_port())
        with pytest.raises(PeerTimeout, match="has no connection to it: it answered 50"):
            join(Route(nobody, 1, None, proxy), deadline_s=1.0, note=str)
