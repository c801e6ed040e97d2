"""A run that finds its bounds first: what is refused before anything is spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fastlloyd.errors import BudgetError, ConfigError
from fastlloyd.protocols.private_bounds.inputs import split_run
from fastlloyd.run.config import RunConfig
from fastlloyd.run.state import StateDir
from fastlloyd.supervise.launch import run_with_private_bounds
from fastlloyd.wire.header import PartyId


def start(words: list[str], config: RunConfig) -> NoReturn:
    raise AssertionError(f"nothing may start, got {words}")


def config_in(folder: Path, **more: Any) -> RunConfig:
    base: dict[str, Any] = {"data": "x.csv", "bounds": "private", "n_total": 5000, "k": 3, "columns": ("a", "b")}
    return RunConfig(**{**base, "masking": "threshold", "output": str(folder / "res"), "quiet": True, **more})


def test_a_folder_with_files_of_another_run_is_refused_before_the_bounds_are_found(tmp_path: Path) -> None:
    (tmp_path / "res").mkdir()
    (tmp_path / "res" / "centroids.csv").write_text("")
    with pytest.raises(ConfigError, match=r"--output .*res: expected a new or an empty folder"):
        run_with_private_bounds(config_in(tmp_path), 4, start)


def test_results_that_wait_for_a_person_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a run without --review"):
        run_with_private_bounds(config_in(tmp_path, review=True, state_dir=str(tmp_path)), 4, start)


def test_a_budget_that_only_one_of_the_two_fits_in_is_refused(tmp_path: Path) -> None:
    """Of 1.04, an earlier release of the same cost as these bounds leaves too little for both."""
    state = str(tmp_path / "state")
    config = config_in(tmp_path, state_dir=state, budget=1.04)
    earlier = replace(split_run(config, 3).releases[0], run="ab" * 16)
    for rank in range(4):
        with StateDir(state, PartyId(rank), new=True).open_ledger() as ledger:
            ledger.record([earlier])
    with pytest.raises(BudgetError, match="would be exceeded"):
        run_with_private_bounds(config, 4, start)
