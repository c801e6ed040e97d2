"""A table that is read chunk by chunk is the table that memory would hold, and its faults are named alike."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data import delimited, table
from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.data.categories import Categories
from fastlloyd.data.merge import Unit
from fastlloyd.data.records import OwnRecords, RawRows, StoredRecords
from fastlloyd.data.table import MemoryLimit, StoredTable, Table, read_table, read_table_within
from fastlloyd.errors import DataError, InternalError
from fastlloyd.protocols.fastlloyd import protocol as lloyd_module
from fastlloyd.protocols.fastlloyd import rounds
from fastlloyd.report.files import labels_csv
from fastlloyd.run.config import RunConfig
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import clients

BOUNDS = Bounds(np.array([-5.0, -5.0]), np.array([5.0, 7.0]), ("a", "b"))
LISTS = Categories((("ward", (("A", 1.0), ("B", 0.5), ("other", 1.0))),))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut files every few rows."""
    cut(monkeypatch, 16)


def cut(monkeypatch: pytest.MonkeyPatch, chars: int) -> None:
    monkeypatch.setattr(delimited, "_BLOCK_CHARS", chars)
    monkeypatch.setattr(delimited, "_BLOCK_ROWS", max(1, chars // 8))
    monkeypatch.setattr(table, "_CHUNK_VALUES", max(2, chars // 4))


def stored(path: Path, memory: int = 1, **wanted: Any) -> StoredTable:
    """Read a file that memory may not hold."""
    table = read_table_within(path, MemoryLimit(memory, path.parent), **wanted)
    assert isinstance(table, StoredTable)
    return table


def values_of(table: StoredTable) -> list[list[float]]:
    return [row for block in table.rows.blocks() for row in block.tolist()]


def labels_of(rows: RawRows, n: int) -> list[tuple[int | str, ...]]:
    return list(rows.label(np.arange(n)))


def same(path: Path, **wanted: Any) -> None:
    """Compare with what memory would hold."""
    held, kept = read_table(path, **wanted), stored(path, **wanted)
    assert values_of(kept) == held.values.tolist()
    assert kept.names == held.names
    n = len(held.values)
    assert labels_of(RawRows(raw_kept=kept.raw_kept), n) == labels_of(RawRows(raw_records=held.raw_records), n)


CELL = st.sampled_from(["1", "-2.5", "3e-1", " 4", "", "NA", '"2"'])


@given(
    rows=st.lists(st.tuples(CELL, CELL, st.sampled_from(["A", "B", "C", ""])), min_size=1, max_size=30),
    chars=st.integers(1, 200),
    memory=st.integers(0, 600),
    rule=st.sampled_from(["refuse", "drop", "midpoint"]),
)
def test_any_table_in_any_chunks(
    rows: list[tuple[str, str, str]], chars: int, memory: int, rule: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "r.csv"
    path.write_text("a,ward,b\n" + "".join(f"{a},{ward},{b}\n" for a, b, ward in rows))
    wanted: dict[str, Any] = {"categories": LISTS, "missing": rule, "bounds": LISTS.bounds(BOUNDS)}
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, chars)
        try:
            held = read_table(path, **wanted)
        except DataError as error:
            with pytest.raises(DataError) as other:
                read_table_within(path, MemoryLimit(memory, path.parent), **wanted)
            assert str(other.value) == str(error)
            return
        kept = read_table_within(path, MemoryLimit(memory, path.parent), **wanted)
    if isinstance(kept, Table):
        np.testing.assert_array_equal(kept.values, held.values)
        return
    assert values_of(kept) == held.values.tolist()
    n = len(held.values)
    assert labels_of(RawRows(raw_kept=kept.raw_kept), n) == labels_of(RawRows(raw_records=held.raw_records), n)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "npy", "parquet"])
def test_every_format(tmp_path: Path, suffix: str) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (101, 3))
    values[[5, 6, 80], [0, 2, 1]] = np.nan
    path = tmp_path / f"r.{suffix}"
    text = "x1,x2,x3\n" + "".join(
        ",".join("" if np.isnan(v) else repr(v) for v in row) + "\n" for row in values.tolist()
    )
    if suffix == "csv":
        path.write_text(text)
    elif suffix == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif suffix == "npy":
        np.save(path, values)
    else:
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({f"x{i + 1}": arrow.array(values[:, i], from_pandas=True) for i in range(3)})
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    same(path, missing="drop")
    same(path, missing="drop", columns=("x3", "x1"))
    same(path, missing="midpoint", bounds=Bounds(np.array([-1.0]), np.array([2.0])))
    fits = read_table_within(path, MemoryLimit(1 << 20, tmp_path), missing="drop")
    assert isinstance(fits, Table)
    assert len(fits.values) == 98


@pytest.mark.usefixtures("small_chunks")
def test_columns_of_categories_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("ward\n" + "A\nB\nZ\n" * 20)
    same(path, categories=LISTS, bounds=LISTS.bounds(None))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("1,x,A", r"row 41 \(line 42\), column 'b': expected a number, got text"),
        ("1,2", r"row 41 \(line 42\): expected 3 cells as in the first row, got 2"),
        ("1,inf,A", r"row 41 \(line 42\), column 'b': expected a finite number"),
        ("1,,A", r"row 41 \(line 42\), column 'b': the value is missing or NaN \(missing values: 2 in 'b'\)"),
        ("1,2,Q", r"row 41, column 'ward': expected a category of the list"),
        ("\n1,2,A", r"row 41 \(line 43\): an empty line stands before it"),
    ],
)
def test_faults_of_a_later_chunk_name_their_row(tmp_path: Path, row: str, sentence: str) -> None:
    path = tmp_path / "r.csv"
    last = "1,,A\n" if ",," in row else ""
    path.write_text("a,b,ward\n" + "1,2,A\n" * 40 + row + "\n" + "3,4,B\n" * 40 + last)
    lists = Categories((("ward", (("A", 1.0), ("B", 1.0))),))
    with pytest.raises(DataError, match=sentence):
        stored(path, categories=lists)


@pytest.mark.usefixtures("small_chunks")
def test_nothing_is_left_after_dropping(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("a,b\n" + "1,\n" * 40)
    with pytest.raises(DataError, match="every row lacks a value"):
        stored(path, missing="drop")


@pytest.mark.usefixtures("small_chunks")
def test_what_needs_all_records_at_once_is_refused_beyond_memory(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("who,a\n" + "".join(f"{i},{i}\n" for i in range(50)))
    unit = Unit("who")
    with pytest.raises(DataError, match=r"merging the rows of people \(--unit\) needs all of them in memory"):
        read_table_within(path, MemoryLimit(100, tmp_path), unit=unit)
    assert isinstance(read_table_within(path, MemoryLimit(1 << 20, tmp_path), unit=unit), Table)
    np.savez(tmp_path / "r.npz", X=np.ones((50, 2)))
    with pytest.raises(DataError, match="an npz file needs all of them in memory; .* save the array as npy"):
        read_table_within(tmp_path / "r.npz", MemoryLimit(100, tmp_path))


@pytest.mark.usefixtures("small_chunks")
def test_a_stored_client_has_the_digest_and_the_grid_of_one_in_memory(tmp_path: Path) -> None:
    values = np.random.default_rng(3).uniform(-9, 9, (200, 2))
    path = tmp_path / "r.npy"
    np.save(path, values)
    bounds = Bounds(np.array([-8.0, -2.0]), np.array([8.0, 9.0]), ("x1", "x2"))
    limit, key = MemoryLimit(100, tmp_path), bytes(32)
    kept = StoredRecords(stored=stored(path).rows, limit=limit, names=bounds.names or (), bounds=bounds, threads=2)
    held = OwnRecords(raw_points=scale(values, bounds), names=bounds.names or (), bounds=bounds)
    assert kept.digest(key) == held.digest(key)
    points, other = kept.quantise(16), held.quantise(16)
    np.testing.assert_array_equal(points.raw_coordinates, other.raw_coordinates)
    np.testing.assert_array_equal(points.raw_squared_norms, other.raw_squared_norms)
    with pytest.raises(InternalError):
        kept.quantise(16)


@pytest.fixture
def sites(tmp_path: Path) -> str:
    """Two sites with more records than 1 MiB holds, some of them with gaps; one site has text, the other an array."""
    random = np.random.default_rng(5)
    values = np.round(random.choice([-1.0, 0.2, 0.9], (80_000, 1)) + random.normal(0, 0.05, (80_000, 2)), 3)
    values[::1000, 1] = np.nan
    for number in (1, 2):
        np.savetxt(tmp_path / f"s_{number}.csv", values[number - 1 :: 2], delimiter=",", header="x1,x2", comments="")
    return str(tmp_path / "s_{client}.csv")


def config(sites: str, **wanted: Any) -> RunConfig:
    common = {"data": sites, "bounds": "-2,2", "n_total": 80_000, "k": 3, "rounds": 3, "missing": "drop"}
    return RunConfig(**{**common, **wanted})


@pytest.mark.parametrize("protocol", ["fastlloyd-plus", "fastlloyd", "lloyd"])
def test_a_run_has_the_result_that_it_has_in_memory(
    protocol: str, sites: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "draw_noise", lambda plan, t, secret: np.zeros(plan.elements(t), dtype=np.int64))
    monkeypatch.setattr(lloyd_module, "draw_noise", rounds.draw_noise)
    wanted = {"protocol": protocol, "ring_bits": 64, "output": str(tmp_path / "none" / "yet")}
    held = run_together(config(sites, memory="1G", **wanted), 2)
    kept = run_together(config(sites, memory="1M", **wanted), 2)
    for client in clients(2):
        one, other = held.outcomes[client], kept.outcomes[client]
        assert one.result is not None
        assert other.result is not None
        np.testing.assert_array_equal(one.result.centroids, other.result.centroids)
        assert one.raw_rows is not None
        assert other.raw_rows is not None
        assert (one.raw_rows.raw_records is None) == (other.raw_rows.raw_kept is None) == (client.rank == 2)
        assert other.raw_rows.raw_records is None
        labels = ["".join(labels_csv(np.asarray(own.raw_labels), own.raw_rows)) for own in (one, other)]
        assert labels[0] == labels[1]
        assert labels[0].splitlines()[1].endswith(",") == (client.rank == 1)  # row 1 of the first site was dropped
    assert not (tmp_path / "none").exists()


def test_what_a_stored_client_refuses(sites: str, tmp_path: Path) -> None:
    lloyd = find_protocol("lloyd")

    def load(**wanted: Any) -> object:
        settings, common = lloyd.gather(config(sites, protocol="lloyd", memory="1M", **wanted), 2)
        return lloyd.load(settings, common, clients(2)[0])

    with pytest.raises(DataError, match=r"has more than 10 records, the public cap of client 1"):
        load(client_caps=(10, 10))
    with pytest.raises(DataError, match="--id needs the names of all rows in memory; give more --memory, or leave"):
        load(id="x1", columns=("x2",))
    assert isinstance(load(state_dir=str(tmp_path)), StoredRecords)
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv"}
