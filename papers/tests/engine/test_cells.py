"""Partial results survive an interruption and are not mixed with another machine's."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd_papers.engine.cells import CellStore, measure_cells, stream_of
from fastlloyd_papers.engine.publish import Desk

CELLS = [{"name": name, "run": run} for run in range(2) for name in ("a", "b")]


def test_an_interrupted_benchmark_goes_on_where_it_was(tmp_path: Path) -> None:
    path, measured = tmp_path / "new" / "x.partial.json", []

    def measure(cell: Any) -> dict[str, int]:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(cell)
        return {"value": len(measured)}

    with pytest.raises(KeyboardInterrupt):
        measure_cells(CELLS, measure, CellStore(path, {"version": 1}))
    measured_again: list[Any] = []
    values = measure_cells(
        CELLS, lambda cell: measured_again.append(cell) or {"value": 9}, CellStore(path, {"version": 1})
    )
    assert measured_again == CELLS[3:]
    assert values == [{"value": 1}, {"value": 2}, {"value": 3}, {"value": 9}]


def test_another_version_or_machine_is_measured_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    CellStore(path, {"version": 1, "machine": "this"}).keep(CELLS[0], 1)
    assert CellStore(path, {"version": 1, "machine": "this"}).find(CELLS[0]) == 1
    assert CellStore(path, {"version": 2, "machine": "this"}).find(CELLS[0]) is None
    assert CellStore(path, {"version": 1, "machine": "that"}).find(CELLS[0]) is None
    assert CellStore(path, {"version": 1, "machine": "this"}).find(CELLS[1]) is None


def test_the_file_goes_when_all_is_done(tmp_path: Path) -> None:
    store = CellStore(tmp_path / "x.json", {})
    store.keep(CELLS[0], 1)
    assert (tmp_path / "x.json").exists()
    store.remove()
    store.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["[1]", "{"])
def test_another_file_in_its_place_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="remove the file"):
        CellStore(path, {})


def test_an_output_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--output"):
        CellStore(tmp_path / "file" / "x.json", {})


def test_groups_are_measured_by_several_processes_and_kept(tmp_path: Path) -> None:
    cells = [{"name": "set", "run": run, "method": method} for run in range(3) for method in ("one", "two")]
    store = CellStore(tmp_path / "partial.json", {"bench": "test"})
    store.keep(cells[0], "kept")
    values = measure_cells(cells, operator.itemgetter("run"), store, together=("name", "run"), jobs=2)
    assert values == ["kept", 0, 1, 1, 2, 2]
    again = CellStore(tmp_path / "partial.json", {"bench": "test"})
    assert [again.find(cell) for cell in cells] == values


def test_a_complete_run_takes_its_own_cells_away_and_leaves_those_of_other_data(tmp_path: Path) -> None:
    path, desk = tmp_path / "x.json", Desk(folder=tmp_path)
    CellStore(path, {"data": "one"}).keep(CELLS[0], 1)
    store = CellStore(path, {"data": "two"}, desk)
    assert not desk.resumed
    values = measure_cells(CELLS, lambda cell: cell["run"], store)
    assert (values, desk.cells, desk.runs) == ([0, 0, 1, 1], 4, 2)
    store.remove()
    assert CellStore(path, {"data": "two"}).find(CELLS[1]) == 0  # until the files are in place
    assert CellStore(path, {"data": "two"}, desk) and desk.resumed
    for drop in desk.drops[:1]:
        drop()
    assert CellStore(path, {"data": "two"}).find(CELLS[1]) is None
    assert CellStore(path, {"data": "one"}).find(CELLS[0]) == 1
    last = Desk(folder=tmp_path)
    CellStore(path, {"data": "one"}, last)
    last.drops[0]()
    assert not path.exists()


def test_noise_of_a_cell_is_the_same_each_time_and_another_for_another_use() -> None:
    first, again, other = stream_of(CELLS[0]), stream_of(CELLS[0]), stream_of(CELLS[0], "keys")
    assert first.bytes(32) == again.bytes(32) != other.bytes(32)
    assert stream_of(CELLS[1]).bytes(32) != stream_of(CELLS[0]).bytes(32)
