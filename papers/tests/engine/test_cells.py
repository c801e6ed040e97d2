"""Partial results survive an interruption and are not mixed with another machine's."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd_papers.engine import cells as engine
from fastlloyd_papers.engine.cells import CellStore, earlier_commits, measure_cells

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


@pytest.mark.parametrize("text", ["[1]", "{", '{"commits": 3}'])
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


def test_the_file_names_the_commits_at_which_its_cells_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.json"
    assert earlier_commits(path) == []
    for place, commit in enumerate(("one", "two", "two")):
        monkeypatch.setattr(engine, "describe_commit", lambda *_, commit=commit: commit)
        CellStore(path, {}).keep(CELLS[place], place)
    assert earlier_commits(path) == ["one", "two"]
    assert [CellStore(path, {}).find(cell) for cell in CELLS] == [0, 1, 2, None]
    path.write_text("{}")
    assert earlier_commits(path) == []
    path.write_text('{"a cell of before": 1}')
    CellStore(path, {}).keep(CELLS[0], 0)
    assert earlier_commits(path) == ["?", "two"]
