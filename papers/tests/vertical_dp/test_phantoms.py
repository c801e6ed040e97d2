"""Phantoms: the least number that keeps the promise, and one that nobody can solve."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocols.vertical_dp.sketch.sketch import SketchShape, paper_phantoms, sketch_release
from fastlloyd_papers.vertical_dp.phantoms import solve_phantoms

SHAPE = SketchShape(rows=16, clusters=3, gamma=1.0, phantoms=1)


@pytest.mark.parametrize(("groups", "epsilon"), [(1, 0.5), (6, 0.5), (1, 4.0)])
def test_solved_phantoms_meet_the_target_and_one_fewer_does_not(groups: int, epsilon: float) -> None:
    shape = SketchShape(rows=1024, clusters=3, gamma=0.05, phantoms=1)
    phantoms = solve_phantoms(shape, groups, epsilon, 1e-5)
    costs = [
        spent([sketch_release(dataclasses.replace(shape, phantoms=count), groups)], 1e-5)
        for count in (phantoms, phantoms - 1)
    ]
    assert costs[0] <= epsilon < costs[1]


def test_tight_composition_needs_fewer_phantoms_than_the_papers_formula() -> None:
    shape = SketchShape(rows=4096, clusters=5, gamma=0.05, phantoms=1)
    ours = solve_phantoms(shape, 1, 0.5, 1e-5)
    papers = paper_phantoms(4096, 0.5, 1e-5)
    assert 3.0 < papers / ours < 4.5
    # The paper also splits epsilon and delta over its S = 2 parties.
    assert paper_phantoms(4096, 0.25, 0.5e-5) > 6 * ours


def test_no_number_of_phantoms_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="larger --epsilon"):
        solve_phantoms(SketchShape(rows=1 << 16, clusters=2, gamma=1.0, phantoms=1), 120, 1e-5, 0.0)


def test_the_largest_number_of_phantoms_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = solve_phantoms(SHAPE, 1, 1.0, 0.0)
    most = 1 << (needed - 1).bit_length()
    monkeypatch.setattr("fastlloyd_papers.vertical_dp.phantoms.MAX_PHANTOMS", most)
    assert solve_phantoms(SHAPE, 1, 1.0, 0.0) == needed
    monkeypatch.setattr("fastlloyd_papers.vertical_dp.phantoms.MAX_PHANTOMS", most - 1)
    with pytest.raises(ConfigError, match="needs more than"):
        solve_phantoms(SHAPE, 1, 1.0, 0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (1.0, -1e-9), (1.0, 1.0), (1.0, math.nan)],
)
def test_phantoms_for_no_promise_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError, match="expected a positive epsilon and delta from 0 to below 1"):
        solve_phantoms(SHAPE, 1, epsilon, delta)
