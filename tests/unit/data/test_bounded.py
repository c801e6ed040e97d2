"""Tables that are damaged, endless or very wide: one sentence, soon, and no more is read than a cap allows."""

from __future__ import annotations

import gzip
import io
import os
import random
import resource
import sqlite3
import struct
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.database import Database, find_place
from fastlloyd.data.form import Cap
from fastlloyd.data.merge import Unit
from fastlloyd.data.table import MemoryLimit, read_table, read_table_within
from fastlloyd.errors import DataError

CAP = Cap(100, "the public cap of client 1; agree on a larger one")


def npy(shape: str, descr: str = "'<f8'", body: bytes = b"") -> bytes:
    """Write an npy file as its header says."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize(
    "content",
    [
        npy("(1000000000000, 2)"),
        npy("(1099511627776, 1099511627776)"),
        npy("(-5, 2)", body=bytes(160)),
        npy("(4611686018427387904, 0)"),
        npy("(2, 2", body=bytes(32)),
        npy("(2, 2)", "__import__('os').getcwd()", bytes(32)),
        npy("(2, 2)", "'<q99'", bytes(32)),
        npy("(2, 2)", body=bytes(31)),
        npy("(2.0, 2)", body=bytes(32)),
        b"\x93NUMPY\x09\x00" + bytes(40),
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    ],
)
def test_an_npy_file_that_lies_is_refused_before_anything_is_made_of_it(content: bytes, tmp_path: Path) -> None:
    for path, whole in ((tmp_path / "v.npy", content), (tmp_path / "v.npz", archive(content))):
        path.write_bytes(whole)
        with pytest.raises(DataError, match=r"v\.np[yz]"):
            read_table(path)


def archive(content: bytes) -> bytes:
    """Put an npy file into an npz file."""
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        whole.writestr("X.npy", content)
    return file.getvalue()


def test_an_npz_file_that_exceeds_a_limit_is_never_unpacked(tmp_path: Path) -> None:
    """64 MiB of zeros are 64 KiB in the file."""
    path = tmp_path / "v.npz"
    np.savez_compressed(path, X=np.zeros((1 << 22, 2)))
    tracemalloc.start()
    with pytest.raises(DataError, match="4,194,304 records, expected at most 100"):
        read_table(path, cap=CAP)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 23


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv.gz", ".parquet"])
def test_a_damaged_file_is_one_sentence(suffix: str, tmp_path: Path) -> None:
    """Bits that are flipped, and ends that are cut: a result or our own error, never another one."""
    path, draw, values = tmp_path / f"v{suffix}", random.Random(suffix), np.arange(12.0).reshape(6, 2)
    if suffix == ".npy":
        np.save(path, values)
    elif suffix == ".npz":
        np.savez_compressed(path, X=values)
    elif suffix == ".csv.gz":
        path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 6))
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"a": values[:, 0], "b": values[:, 1]}), path)
    whole, refused = path.read_bytes(), 0
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content[: draw.choice([len(whole), draw.randrange(len(whole))])])
        try:
            read_table(path)
        except DataError as error:
            refused += 1
            assert len(str(error)) < 1000
    assert refused > 200


class Endless:
    """A pipe that gives rows of CSV for as long as somebody reads."""

    def __init__(self, path: Path, rows: bytes) -> None:
        os.mkfifo(path)
        self._path, self._rows, self.written = path, rows, 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with suppress(BrokenPipeError), self._path.open("wb", 0) as pipe:
            pipe.write(b"who,a\n")
            while True:
                self.written += pipe.write(self._rows)

    def end(self) -> None:
        """Wait until the reader has gone."""
        self._thread.join(30.0)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("way", ["refuse", "drop", "unit", "within"])
def test_no_more_rows_are_read_than_a_cap_allows(way: str, tmp_path: Path) -> None:
    people = b"".join(b"p%d,1\n" % at for at in range(1000))
    endless = Endless(tmp_path / "v.csv", people if way == "unit" else b"p,1\n" * 1000)
    with pytest.raises(DataError, match=r"has more than 100 records, the public cap of client 1; agree on a larger"):
        if way == "within":
            read_table_within(tmp_path / "v.csv", MemoryLimit(1 << 20, tmp_path), columns=("a",), cap=CAP)
        elif way == "unit":
            read_table(tmp_path / "v.csv", unit=Unit("who", "mean"), cap=CAP)
        else:
            read_table(tmp_path / "v.csv", columns=("a",), missing=way, cap=CAP)
    endless.end()
    assert endless.written < 1 << 24


def test_rows_that_are_dropped_or_merged_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("who,a\n" + "p,1\n" * 60 + "q,\n" * 100 + "p,2\n" * 40)
    assert len(read_table(path, columns=("a",), missing="drop", cap=CAP).values) == 100
    path.write_text("who,a\n" + "p,1\n" * 500 + "q,2\n" * 500)
    assert len(read_table(path, unit=Unit("who", "mean"), cap=CAP).values) == 2


def test_a_file_that_says_its_rows_is_not_read_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": np.zeros(101)}), tmp_path / "v.parquet")
    np.save(tmp_path / "v.npy", np.zeros((101, 1)))
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", None)
    for name in ("v.parquet", "v.npy"):
        with pytest.raises(DataError, match="has 101 records, expected at most 100, the public cap"):
            read_table(tmp_path / name, cap=CAP)


def test_a_query_without_an_end_is_stopped_at_the_cap(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "v.db").execute("CREATE TABLE t (a)").connection.close()
    endless = "WITH RECURSIVE n(a) AS (SELECT 1.0 UNION ALL SELECT a + 1 FROM n) SELECT a FROM n"
    place = find_place(f"sqlite:///{tmp_path}/v.db", query=endless)
    with pytest.raises(DataError, match="has more than 100 records, the public cap"):
        read_table(place, cap=CAP)


@pytest.fixture
def duckdb_file(tmp_path: Path) -> Path:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "v.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1.0 AS a")
    return tmp_path / "v.duckdb"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT repeat('a', 2000000000) AS a",
        "SELECT unnest(range(200000000)) AS a",
        "SELECT len(list(range)) AS a FROM range(300000000)",
    ],
)
def test_a_query_of_duckdb_that_needs_much_memory_is_refused(query: str, duckdb_file: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(DataError, match="a query may take 1 GB for its tables and 2 GB in all"):
        read_table(Database(kind="duckdb", place=str(duckdb_file), query=query), cap=CAP)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_line_without_an_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    class Pieces(Endless):
        pass

    for rows, words in ((b"1" * (1 << 20), "a line has more than"), (b"\n" * (1 << 16), "empty lines")):
        path = tmp_path / f"{len(rows)}.csv"
        endless = Pieces(path, rows)
        with pytest.raises(DataError, match=words):
            read_table(path, columns=("a",))
        endless.end()
        assert endless.written < 1 << 28


def wide(folder: Path, columns: int) -> Iterator[tuple[Path, Bounds]]:
    """Write a table of that many columns in each format."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values, names = np.ones((4, columns)), [f"g{at}" for at in range(columns)]
    bounds = np.zeros(columns), np.ones(columns)
    parquet.write_table(arrow.table(dict(zip(names, values.T, strict=True))), folder / "v.parquet")
    yield folder / "v.parquet", Bounds(*bounds, tuple(names))
    (folder / "v.csv").write_text("\n".join([",".join(names), *[",".join("1" * columns)] * 4]) + "\n")
    yield folder / "v.csv", Bounds(*bounds, tuple(names))
    np.save(folder / "v.npy", values)
    yield folder / "v.npy", Bounds(*bounds, tuple(f"x{at + 1}" for at in range(columns)))


def test_time_is_linear_in_the_number_of_columns(tmp_path: Path) -> None:
    """Processor time of this process, the faster of two; four times the columns, under ten times the time."""
    times: dict[str, list[float]] = {}
    for columns in (2_500, 10_000):
        for path, bounds in wide(tmp_path, columns):
            taken = []
            for _ in range(2):
                begun = time.process_time()
                table = read_table(path, columns=bounds.names or (), bounds=bounds)
                bounds.match(table.names)
                taken.append(time.process_time() - begun)
            assert len(table.names) == columns
            times.setdefault(path.suffix, []).append(min(taken))
    for suffix, (few, many) in times.items():
        assert many < 10 * few + 0.1, (suffix, few, many)
