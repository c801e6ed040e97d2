"""Plans of every protocol with one value changed: the client goes on or names the server, soon."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.adversary.plans import MORE, build, fuzz, run_with
from tests.adversary.play import PLAYS


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stage")
    build(folder)
    return folder


@pytest.mark.parametrize("play", [*PLAYS, *MORE])
@pytest.mark.parametrize("most", [60, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_value_of_a_plan_is_an_unforeseen_error(play: str, most: int, stage: Path) -> None:
    draw = random.Random(play)
    tally = fuzz(play, stage, most, draw)
    assert not tally.faults
    assert tally.outcomes["refused"] > most / 2 or most > 60
    runs = min(len(tally.accepted), 1 if most == 60 else 10)
    for where, value in draw.sample(tally.accepted, runs if play not in MORE or most > 60 else 0):
        end = run_with(play, stage, where, value)
        assert not end.startswith("fault"), (where, value, end)
