"""A table is opened once and read once: what stands beside a record, its id or its person, is of the same row."""

from __future__ import annotations

import contextlib
import csv
import gzip
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.__main__ import main
from fastlloyd.cli.check import main as check
from fastlloyd.cli.label import main as label
from fastlloyd.data import delimited, table
from fastlloyd.data.database import Place, find_place
from fastlloyd.data.form import Form
from fastlloyd.data.merge import Unit
from fastlloyd.data.source import open_source
from fastlloyd.data.table import MemoryLimit, StoredTable, read_table, read_table_within
from fastlloyd.data.vertical import read_vertical
from fastlloyd.errors import EXIT_INPUT, EXIT_OK, DataError, FormError
from tests.reading import opens, texts_of

ROWS = "visit,person,ward,a,b\n" + "".join(f"v{i},p{i // 2},{'AB'[i % 2]},{i}.5,{-i}\n" for i in range(3000))
QUOTED = ROWS + '"v,3000",p1500,A,1,2\n'


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("text", [ROWS, QUOTED, ROWS.replace(",7.5", ", 7.50 ")])
@pytest.mark.parametrize("name", ["r.csv", "r.csv.gz"])
def test_check_label_and_readers_open_a_table_once(tmp_path: Path, text: str, name: str) -> None:
    path = write(tmp_path / name, text)
    (tmp_path / "lists.csv").write_text("feature,category\nward,A\nward,B\n")
    (tmp_path / "bounds.csv").write_text("feature,lo,hi\na,0,3000\nb,-3000,0\n")
    (tmp_path / "centroids.csv").write_text("a,b\n0,0\n3000,-3000\n")
    (tmp_path / "run.toml").write_text('protocol = "vertical-dp"\n[vertical]\nid = "visit"\n')
    flags = ["--data", str(path), "--bounds", str(tmp_path / "bounds.csv")]
    people = ["--id", "visit", "--unit", "person", "--categories", str(tmp_path / "lists.csv")]
    labels = ["--centroids", str(tmp_path / "centroids.csv"), "--id", "visit", "--own-columns"]
    for call in (
        lambda: check([*flags, *people]),
        lambda: check([*flags, "--config", str(tmp_path / "run.toml")]),
        lambda: label([*flags, *labels, "--out", str(tmp_path / "labels.csv")]),
        lambda: read_table(path, columns=["a"], unit=Unit("person"), texts=["visit", "ward"]),
        lambda: read_vertical(path, id_column="visit"),
        lambda: read_table_within(path, MemoryLimit(1, tmp_path)),
    ):
        with opens() as counted:
            call()
        assert counted[name] == 1, counted
    with (tmp_path / "labels.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == list(texts_of(path, "visit"))


@pytest.mark.parametrize("suffix", ["npy", "npz", "parquet"])
def test_other_files_are_read_once(tmp_path: Path, suffix: str) -> None:
    values = np.arange(12.0).reshape(4, 3)
    path = tmp_path / f"r.{suffix}"
    if suffix == "parquet":
        arrow = pytest.importorskip("pyarrow")
        made = arrow.table({f"x{i + 1}": values[:, i].astype(np.int64) for i in range(3)})
        pytest.importorskip("pyarrow.parquet").write_table(made, path)
    elif suffix == "npy":
        np.save(path, values)
    else:
        np.savez(path, values)
    with opens() as counted:
        read = read_table(path, ignore=["x1"], unit=Unit("x2"), texts=["x1"])
    # numpy opens a file two or three times to map it, one after the other, and reads its header twice.
    assert counted[path.name] <= {"npy": 4, "npz": 1, "parquet": 1}[suffix]
    assert read.raw_texts == {"x1": ["0", "3", "6", "9"]}
    assert read.values.tolist() == values[:, 2:].tolist()


CELL = st.sampled_from(["1", "-2.5", " 4", "", "NA", '"2"', '"3\n"'])
TEXT = st.sampled_from(["A", " B ", '"C,D"', '"E\nF"', "", '"G""H"', "ü"])


@given(
    rows=st.lists(st.tuples(CELL, TEXT, CELL, TEXT), min_size=1, max_size=30),
    chars=st.integers(1, 80),
    header=st.booleans(),
)
def test_text_is_that_of_the_same_row_in_any_chunks(
    rows: list[tuple[str, ...]], chars: int, header: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = [["a", '"who\nis it"' if header else "who", "b", "ward"], *rows]
    path = tmp_path_factory.mktemp("any") / "r.csv"
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    with path.open(newline="") as file:
        (_, who, _, _), *cells = csv.reader(file, skipinitialspace=True)
    numbers = [[float(cell) if cell.strip() not in ("", "NA") else 0.25 for cell in row[::2]] for row in cells]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_BLOCK_CHARS", chars)
        patch.setattr(delimited, "_BLOCK_ROWS", max(1, chars // 8))
        with open_source(path) as source:
            chunks = list(source.chunks((0, 2), (3, 1), None))
    values = np.concatenate([chunk.values for chunk in chunks])
    assert np.where(np.isnan(values), 0.25, values).tolist() == numbers
    assert [text for chunk in chunks for text in chunk.texts[0]] == [row[3].strip() for row in cells]
    assert [text for chunk in chunks for text in chunk.texts[1]] == [row[1].strip() for row in cells]
    assert source.names == ("a", who, "b", "ward")


def test_a_table_larger_than_memory_stays_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_CHARS", 1 << 14)
    monkeypatch.setattr(table, "_CHUNK_VALUES", 1 << 12)
    path = write(tmp_path / "r.csv", ROWS.partition("\n")[0] + "\n" + ROWS.partition("\n")[2] * 30)
    tracemalloc.start()
    try:
        read = read_table_within(path, MemoryLimit(1 << 16, tmp_path), columns=["a", "b"])
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 3
    finally:
        tracemalloc.stop()
    assert isinstance(read, StoredTable) and len(read.rows) == 90_000


@pytest.mark.parametrize("how", ["longer", "shorter", "same size"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_CHARS", 100)
    path = write(tmp_path / "r.csv", ROWS)
    with (
        pytest.raises(DataError, match=r"r\.csv changed while it was read \(its .*\); wait until nothing writes to it"),
        open_source(path) as source,
    ):
        chunks = source.chunks((3, 4), (0,), None)
        next(chunks)
        os.utime(path, ns=(1, 1))
        if how != "same size":
            os.truncate(path, 20_000 if how == "shorter" else 200_000)
        list(chunks)
    with open_source(path) as source:
        pass
    # A file that takes its name is another one: what is open stays whole.
    path = write(tmp_path / "r.csv", ROWS)
    other = write(tmp_path / "other.csv", ROWS.replace("v", "w"))
    with open_source(path) as source:
        chunks = source.chunks((3, 4), (0,), None)
        first = next(chunks)
        other.replace(path)
        texts = [text for cells in (first, *chunks) for text in cells.texts[0]]
    assert texts == [f"v{i}" for i in range(3000)]


def test_no_labels_of_a_file_that_somebody_writes_to(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", ROWS.partition("\n")[0] + "\n" + ROWS.partition("\n")[2] * 50)
    (tmp_path / "centroids.csv").write_text("a,b\n0,0\n3000,-3000\n")
    done = threading.Event()

    def append() -> None:
        with path.open("a") as file:
            while not done.wait(0.001):
                file.write("v1,p1,A,1,")  # half a row
                file.flush()

    writer = threading.Thread(target=append)
    writer.start()
    try:
        argv = ["--centroids", str(tmp_path / "centroids.csv"), "--data", str(path), "--id", "visit"]
        with pytest.raises(DataError, match="changed while it was read") as caught:
            label([*argv, "--out", str(tmp_path / "labels.csv")])
    finally:
        done.set()
        writer.join()
    assert caught.value.exit_code == EXIT_INPUT
    assert not (tmp_path / "labels.csv").exists()


@contextlib.contextmanager
def pipe(path: Path, data: bytes) -> Iterator[Path]:
    """A named pipe that somebody writes to, once."""
    os.mkfifo(path)

    def feed() -> None:
        with contextlib.suppress(BrokenPipeError):  # who reads it may stop
            path.write_bytes(data)

    writer = threading.Thread(target=feed)
    writer.start()
    try:
        yield path
    finally:
        writer.join()


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "pipe"])
@pytest.mark.parametrize("text", [ROWS, QUOTED])
def test_a_pipe_will_do(tmp_path: Path, name: str, text: str) -> None:
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    expected = read_table(write(tmp_path / "r.csv", text), columns=["a"], unit=Unit("person"), texts=["visit"])
    with pipe(tmp_path / name, data) as path:
        read = read_table(path, columns=["a"], unit=Unit("person"), texts=["visit"])
    np.testing.assert_array_equal(read.values, expected.values)
    assert read.raw_texts == expected.raw_texts


def test_a_pipe_that_does_not_fit(tmp_path: Path) -> None:
    with (
        pipe(tmp_path / "p.csv", ROWS.encode("utf-16")) as path,
        pytest.raises(FormError, match="add --encoding utf-16"),
    ):
        read_table(path)
    os.mkfifo(tmp_path / "p.npy")
    with pytest.raises(DataError, match="is a pipe, and npy cannot be read from one; write it to a file first"):
        read_table(tmp_path / "p.npy")


def arrow_bytes(kind: str, **options: Any) -> bytes:
    """The rows of `ROWS` as Arrow writes them."""
    arrow = pytest.importorskip("pyarrow")
    visit, person, ward, a, b = zip(*csv.reader(ROWS.splitlines()[1:]), strict=True)
    names = {"visit": visit, "person": person, "ward": arrow.array(ward).dictionary_encode()}
    table = arrow.table(names | {"a": [*map(float, a)], "b": [*map(int, b)]})
    made = getattr(arrow.ipc, f"new_{kind}")(sink := arrow.BufferOutputStream(), table.schema, **options)
    with made as writer:
        writer.write_table(table, max_chunksize=700)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("name", "kind"), [("p.arrow", "file"), ("p.arrows", "stream"), ("p.feather", "file"), ("pipe", "stream")]
)
def test_arrow_is_read_once_and_in_order(tmp_path: Path, name: str, kind: str) -> None:
    data = arrow_bytes(kind)
    expected = read_table(write(tmp_path / "r.csv", ROWS), columns=["a", "b"], unit=Unit("person"), texts=["visit"])
    (tmp_path / f"file-{name}.arrow").write_bytes(data)
    with opens() as counted, pipe(tmp_path / name, data) as path:
        for own in (path, tmp_path / f"file-{name}.arrow"):
            read = read_table(own, columns=["a", "b"], unit=Unit("person"), texts=["visit"])
            np.testing.assert_array_equal(read.values, expected.values)
            assert read.raw_texts == expected.raw_texts
        assert counted[f"file-{name}.arrow"] == 1
    stored = read_table_within(own, MemoryLimit(1 << 12, tmp_path), columns=["a", "b"])
    assert isinstance(stored, StoredTable) and len(stored.rows) == 3000


def test_an_arrow_stream_that_was_cut_off_or_is_damaged_is_refused(tmp_path: Path) -> None:
    data, path = arrow_bytes("stream"), tmp_path / "r.arrows"
    ends = [at for at in range(len(data)) if data.startswith(b"\xff\xff\xff\xff", at)][-3:]
    for end in (len(data) - 8, len(data) - 4, *ends, *range(8, len(data), len(data) // 40)):
        path.write_bytes(data[:end])
        with pytest.raises(DataError, match="no end mark|cannot read .* as Arrow"):
            read_table(path, texts=["visit"])
    for at in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x84]) + data[at + 1 :])
        with contextlib.suppress(DataError):  # another number will do: that nothing else happens is the test
            read_table(path, texts=["visit"])
    for start, said in ((b"FEA1", "as Arrow"), (b"hello, world", "as Arrow"), (b"", "is empty")):
        path.write_bytes(start)
        with pytest.raises(DataError, match=said):
            read_table(path)


@contextlib.contextmanager
def standard_input(file: int) -> Iterator[Place]:
    """This process has a file as its standard input."""
    before = os.dup(0)
    try:
        os.dup2(file, 0)
        yield find_place("-")
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_standard_input_is_what_it_begins_with(tmp_path: Path) -> None:
    expected = read_table(write(tmp_path / "r.csv", ROWS), columns=["a"], texts=["visit"])
    np.savez(tmp_path / "r.npz", [[1.0]])
    for at, data in enumerate(
        (ROWS.encode(), gzip.compress(ROWS.encode()), arrow_bytes("stream"), arrow_bytes("file"))
    ):
        (tmp_path / "file").write_bytes(data)
        with pipe(tmp_path / f"{at}", data) as path:
            for own in (path, tmp_path / "file"):
                with own.open("rb") as file, standard_input(file.fileno()) as place:
                    read = read_table(place, columns=["a"], texts=["visit"])
                assert str(place) == "standard input" and read.raw_texts == expected.raw_texts
                np.testing.assert_array_equal(read.values, expected.values)
    for data, said in (
        (b"", "standard input is empty"),
        (b"\x93NUMPY\1", "standard input is a pipe, and npy cannot be read from one"),
        ((tmp_path / "r.npz").read_bytes(), "standard input is a pipe, and zip cannot be read"),
        # What docs/data-sources.md puts behind an export that fails.
        (ROWS.encode() + b"the export failed\n", r"standard input, row 3001 \(line 3002\): expected 5 cells"),
        (b"age\n40\n50\nthe export failed\n", r"row 3 \(line 4\), column 'age': expected a number, got text"),
    ):
        (tmp_path / "file").write_bytes(data)
        with (
            (tmp_path / "file").open("rb") as file,
            standard_input(file.fileno()) as place,
            pytest.raises(DataError, match=said),
        ):
            read_table(place)
    (tmp_path / "file").write_bytes(arrow_bytes("stream"))
    with (
        (tmp_path / "file").open("rb") as file,
        standard_input(file.fileno()),
        pytest.raises(FormError, match="standard input holds an Arrow table, .* leave out --decimal"),
    ):
        read_table(find_place("-", Form(delimiter=";", decimal=",")))
    # What sqlcmd writes without its underline, and SQLcl without empty lines.
    for text, form in (
        ("person_id|age|bmi\n1|40|24.500000000000000\n2|NULL|2.75E1\n", Form(delimiter="|")),
        ('"person_id","age","bmi"\n1,40,24.5\n2,,27.5\n', Form()),
    ):
        (tmp_path / "file").write_text(text)
        with (tmp_path / "file").open("rb") as file, standard_input(file.fileno()):
            read = read_table(find_place("-", form), missing="gaps", texts=["person_id"])
        np.testing.assert_array_equal(read.values, [[40, 24.5], [np.nan, 27.5]])
        assert read.raw_texts == {"person_id": ["1", "2"]}
    leader, follower = os.openpty()
    with standard_input(follower) as place, pytest.raises(DataError, match="the standard input is a terminal"):
        read_table(place)
    os.close(leader)
    os.close(follower)


def test_standard_input_is_for_one_party(capsys: pytest.CaptureFixture[str]) -> None:
    needed = ["--bounds", "0,1", "--n-total", "100", "--k", "2"]
    assert main(["run", "-n", "2", "--data", "-", *needed]) == EXIT_INPUT
    assert "--data -: several parties would read one standard input; name a file" in capsys.readouterr().err


def test_records_from_another_command(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv.gz", ROWS)
    text = f'"{sys.executable}" -m fastlloyd check --columns a,b --id visit --data <(gunzip -c "{path}")'
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert "rows      3,000" in done.stdout
