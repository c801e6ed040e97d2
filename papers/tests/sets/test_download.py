"""Data sets fetched from a server on this machine: whole and checked, or not at all."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from fastlloyd.cli import datasets
from fastlloyd.data.public.named import FACTS, load_named
from fastlloyd.errors import ConfigError, DataError
from fastlloyd_papers.sets import command, store
from fastlloyd_papers.sets.download import Get, download
from fastlloyd_papers.sets.fetch import fetch, https_opener
from fastlloyd_papers.sets.origin import ORIGINS, Origin, Remote, content_digest

VALUES = np.array([[0.5, 3.0], [-1e-7, 12345678.25], [1.0, 0.1]])
LABELS = np.array([0, 1, 1])
TEXT = b" 0.5   3\r\n-1e-7 12345678.25\r\n1 0.10\r\n\r\n"
CLASSES = gzip.compress(b"1\n2\n2\n", mtime=0)


def remote(url: str, data: bytes) -> Remote:
    return Remote(url, len(data), hashlib.sha256(data).hexdigest())


class Shelf(HTTPServer):
    """Serves bytes by path; counts what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        shelf = self.server
        assert isinstance(shelf, Shelf)
        shelf.asked.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"{shelf.url}/a.txt")
            self.end_headers()
            return
        data = shelf.files.get(self.path)
        self.send_response(404 if data is None else 200)
        # One byte that never comes, for a file of that name.
        length = len(data or b"") + (self.path == "/cut")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def plain_opener() -> urllib.request.OpenerDirector:
    """Opens http as well, and asks no proxy."""
    opener = https_opener()
    opener.handlers = [h for h in opener.handlers if not isinstance(h, urllib.request.ProxyHandler)]
    opener.process_request.clear()
    opener.add_handler(urllib.request.HTTPHandler())
    return opener


@pytest.fixture
def get(shelf: Shelf) -> Get:
    def one(file: Remote) -> bytes:
        return fetch(file.url, limit_bytes=file.size, opener=plain_opener(), timeout_s=60.0)

    return one


@pytest.fixture
def toy(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Origin:
    """A set of two files on the shelf, known as `toy`."""
    shelf.files.update({"/a.txt": TEXT, "/classes.gz": CLASSES})
    origin = Origin(
        files=(remote(f"{shelf.url}/a.txt", TEXT), remote(f"{shelf.url}/classes.gz", CLASSES)),
        names=("u", "v"),
        build=ORIGINS["lsun"].build,
        sha256=content_digest(("u", "v"), VALUES, LABELS),
    )
    monkeypatch.setitem(ORIGINS, "toy", origin)
    return origin


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("toy")
def test_a_set_is_fetched_checked_and_read_back_exactly(tmp_path: Path, get: Get, shelf: Shelf) -> None:
    folder = tmp_path / "new" / "sets"
    assert download("toy", folder, get=get) == "toy: 3 rows, 2 features, with classes"
    found = load_named("toy", folder)
    assert found.names == ("u", "v")
    assert (found.values == VALUES).all()
    assert found.labels is not None
    assert (found.labels == LABELS).all()
    assert sorted(everything(folder)) == ["toy.csv.gz", "toy.labels.csv.gz"]
    assert gzip.decompress(everything(folder)["toy.csv.gz"]).startswith(b"u,v\n0.5,3\n")
    assert shelf.asked == ["/a.txt", "/classes.gz"]
    # Again: the same bytes are left alone, nothing is fetched.
    before = everything(folder)
    assert download("toy", folder, get=get) == "toy: there already, and as it should be"
    assert len(shelf.asked) == 2
    download("toy", folder, get=get, force=True)
    assert everything(folder) == before
    assert len(shelf.asked) == 4


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("name", ["toy.csv.gz", "toy.labels.csv.gz"])
def test_what_is_there_is_not_overwritten_without_force(tmp_path: Path, get: Get, shelf: Shelf, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"u,v\n1,2\n"))
    before = everything(tmp_path)
    with pytest.raises(ConfigError, match="other content already; --force replaces it"):
        download("toy", tmp_path, get=get)
    assert everything(tmp_path) == before
    assert shelf.asked == []
    download("toy", tmp_path, get=get, force=True)
    assert (load_named("toy", tmp_path).values == VALUES).all()


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("path,data", [("/a.txt", TEXT.replace(b"3", b"4")), ("/classes.gz", CLASSES[:-1])])
def test_another_file_than_expected_leaves_nothing(
    tmp_path: Path, get: Get, shelf: Shelf, path: str, data: bytes
) -> None:
    shelf.files[path] = data
    with pytest.raises(DataError, match=r"SHA-256 .*, expected .*; nothing was kept"):
        download("toy", tmp_path, get=get)
    assert everything(tmp_path) == {}


def test_files_read_as_something_else_leave_nothing(
    tmp_path: Path, get: Get, toy: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ORIGINS, "toy", dataclasses.replace(toy, names=("u", "w")))
    with pytest.raises(DataError, match="read as something else"):
        download("toy", tmp_path, get=get)
    assert everything(tmp_path) == {}


@pytest.mark.usefixtures("toy")
def test_a_disk_that_fails_between_the_files_leaves_nothing(
    tmp_path: Path, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    packed = store._packed

    def full(file: BinaryIO) -> gzip.GzipFile:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, os.strerror(28))
        return packed(file)

    monkeypatch.setattr(store, "_packed", full)
    with pytest.raises(ConfigError, match="No space left"):
        download("toy", tmp_path, get=get)
    assert everything(tmp_path) == {}


@pytest.mark.parametrize(
    "path,limit,text",
    [
        ("/gone", 100, "the answer 404"),
        ("/moved", 100, "the answer 302"),
        ("/a.txt", len(TEXT) - 1, "at most 38 bytes, got more"),
        ("/cut", 100, "broke off after 39 of 40 bytes"),
    ],
)
def test_what_is_no_such_file_is_refused(shelf: Shelf, path: str, limit: int, text: str) -> None:
    shelf.files.update({"/a.txt": TEXT, "/cut": TEXT})
    with pytest.raises(DataError, match=text):
        fetch(shelf.url + path, limit_bytes=limit, opener=plain_opener(), timeout_s=60.0)


def test_a_server_that_is_not_there_or_too_slow(shelf: Shelf) -> None:
    shelf.files["/a.txt"] = TEXT
    with pytest.raises(DataError, match="not there in time"):
        fetch(f"{shelf.url}/a.txt", limit_bytes=100, opener=plain_opener(), whole_s=-1.0)
    port = shelf.server_address[1]
    shelf.shutdown()
    shelf.server_close()
    with pytest.raises(DataError, match=r"cannot be fetched \(.*refused"):
        fetch(f"http://127.0.0.1:{port}/a.txt", limit_bytes=100, opener=plain_opener())


@pytest.mark.parametrize("url", ["http://example.org/a", "file:///etc/hostname", "ftp://127.0.0.1/a"])
def test_nothing_but_https_is_opened(url: str) -> None:
    for opener in (None, plain_opener()):
        with pytest.raises(DataError, match="expected an https address"):
            fetch(url, limit_bytes=10, opener=opener)


def test_http_to_this_machine_needs_an_opener_of_the_callers_own(shelf: Shelf) -> None:
    with pytest.raises(DataError, match="expected an https address"):
        fetch(f"{shelf.url}/a.txt", limit_bytes=100)
    assert shelf.asked == []


def main(argv: list[str], get: Get | None = None) -> int:
    """As the command, but fetched by `get`."""
    options = datasets.parser().parse_args(argv)
    return datasets.main(argv) if options.action is None or get is None else command.run(options, get=get)


@pytest.mark.usefixtures("toy")
def test_the_command_fetches_what_it_can(
    tmp_path: Path, get: Get, shelf: Shelf, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTLLOYD_DATA", raising=False)
    bad = dataclasses.replace(ORIGINS["toy"], files=(remote(f"{shelf.url}/gone", b"x"),))
    monkeypatch.setattr("fastlloyd_papers.sets.command.ORIGINS", {"bad": bad, "toy": ORIGINS["toy"]})
    monkeypatch.setitem(ORIGINS, "bad", bad)
    with pytest.raises(DataError, match="the answer 404"):
        main(["download", "all", "iris", "--data-dir", str(tmp_path)], get=get)
    assert capsys.readouterr().out.splitlines() == [
        "bad: failed",
        "toy: 3 rows, 2 features, with classes",
        "iris: part of this package, nothing to fetch",
    ]
    assert main(["download", "toy", "toy", "--data-dir", str(tmp_path), "--force"], get=get) == 0
    assert main(["--data-dir", str(tmp_path)]) == 0
    assert "toy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv,text",
    [
        (["download"], "expected the names of sets"),
        (["download", "wine"], "expected --data-dir DIR"),
        (["download", "wine", "beer", "--data-dir", "x"], "no address is known for beer"),
        (["--force"], "--force has no meaning for a list"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_fetched(
    argv: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTLLOYD_DATA", raising=False)
    with pytest.raises(ConfigError, match=text):
        main(argv, get=partial(pytest.fail, "fetched"))


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no address is known for 'beer'"):
        download("beer", tmp_path)


def test_addresses_are_fixed_and_their_sets_known() -> None:
    for name, origin in ORIGINS.items():
        assert FACTS[name].k is not None
        for file in origin.files:
            parts = file.url.removeprefix("https://raw.githubusercontent.com/").split("/")
            assert len(parts[2]) == 40, "an address without a commit may change under its checksum"
            assert len(file.sha256) == len(origin.sha256) == 64
            assert 0 < file.size < 1 << 23


@pytest.mark.parametrize("name", sorted(ORIGINS))
def test_the_digests_are_those_of_the_sets_at_hand(name: str) -> None:
    """What a download makes is what the benchmarks were measured on."""
    folder = os.environ.get("FASTLLOYD_DATA", "")
    if not Path(folder, f"{name}.csv.gz").is_file():
        pytest.skip(f"FASTLLOYD_DATA has no {name}")
    found = load_named(name, folder)
    assert content_digest(found.names, found.values, found.labels) == ORIGINS[name].sha256


def test_conversions_on_small_files() -> None:
    adult = [
        b"39, Private, 7, B, 13, x, x, x, x, x, 2174, 0, 40, U, <=50K\n\n",
        b"25, x, 8, C, 7, x, x, x, x, x, 0, 5, 41, U, >50K.\n",
    ]
    values, labels = ORIGINS["adult"].build(adult)
    assert values.tolist() == [[39, 7, 13, 2174, 0, 40], [25, 8, 7, 0, 5, 41]]
    assert labels is not None and labels.tolist() == [0, 1]
    values, labels = ORIGINS["breast"].build([b"1,5,1,1,1,2,?,3,1,1,2\n2,8,10,10,8,7,10,9,7,1,4\n"])
    assert values[:, 5].tolist() == [1, 10]
    assert labels is not None and labels.tolist() == [0, 1]
    values, labels = ORIGINS["letter"].build([b"Letter,1,2\nT,2,8\nA,5,12\n"])
    assert values.tolist() == [[2, 8], [5, 12]]
    assert labels is not None and labels.tolist() == [19, 0]
    images = gzip.compress(bytes(16) + bytes(range(256)) * 3 + bytes(range(16)))
    values, labels = ORIGINS["mnist"].build([images, gzip.compress(bytes(8) + b"\x07")])
    assert values.shape == (1, 784)
    assert values[0, 255] == 255
    assert labels is not None and labels.tolist() == [7]
    whole = gzip.compress(b" 1 2\n 3 4\n")
    values, labels = ORIGINS["birch2"].build([b"3   4\n", whole, gzip.compress(b"1\n2\n")])
    assert values.tolist() == [[3, 4]]
    assert labels is not None and labels.tolist() == [1]
    values, labels = ORIGINS["house"].build([b" 24 0 40\n 1 2 3"])
    assert values.shape == (2, 3)
    assert labels is None
    values, labels = ORIGINS["wine"].build([gzip.compress(b"1.5 2\n"), gzip.compress(b"3\n")])
    assert (values.tolist(), labels.tolist() if labels is not None else None) == ([[1.5, 2.0]], [2])
