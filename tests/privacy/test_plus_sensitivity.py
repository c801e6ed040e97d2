"""fastlloyd-plus: what one record changes is at most what the ledger states, for every radius that may come up.

Every comparison is in integers, so there are no false alarms and no tolerances.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import accumulate
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.update import join, split
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.plus import radius
from fastlloyd.protocols.fastlloyd.plus_plan import square_limit
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, local_update, post_process
from tests.protocols.support import parameters

Vector = NDArray[np.int64]
Update = Callable[[NDArray[np.float64], Centers, Plan, int], Vector]
ROUNDS = 4


@functools.cache
def plan_of(k: int, d: int, start: str = "survey", wide: str | float = "auto") -> Plan:
    chosen = {**({"survey": 0.0, "grid": 0.0} if start == "nothing" else {"start": start}), "wide": wide}
    public = parameters(1000, k, protocol="fastlloyd-plus", rounds=ROUNDS, settings=chosen)
    return make_plan(public, d=d, names=("x",) * d)


def tiny(k: int, d: int, bits: int, nominal: int, start: str = "survey", wide: str | float = "auto") -> Plan:
    """The same plan on a grid so coarse that all records can be tried."""
    plan = plan_of(k, d, start, wide)
    rounds = tuple(dataclasses.replace(r, radius=None if r.radius is None else nominal) for r in plan.rounds)
    return dataclasses.replace(plan, fraction_bits=bits, rounds=rounds)


def real(points: NDArray[np.float64], centers: Centers, plan: Plan, t: int) -> Vector:
    return local_update(quantise(points, plan.fraction_bits), centers, plan, t)


def broken_promise(change: Vector, plan: Plan, t: int) -> str | None:
    """Say which promise of round t's releases a change by one record breaks, if any."""
    if plan.rounds[t].cells:
        (histogram,) = plan.releases(t)
        return "cells" if sum(int(v) ** 2 for v in change) > round(histogram.sensitivity**2) else None
    sums, counts = split(change, plan.rounds[t].clusters, plan.d)
    rows = (sums.any(axis=1) | (counts != 0)).sum()
    if not plan.is_survey(t) and rows > 1:
        return "rows"
    stated, stated_counts = (release.sensitivity for release in plan.releases(t))
    if sum(int(v) ** 2 for v in sums.ravel()) > round(stated**2):
        return "sums"
    if sum(int(v) ** 2 for v in counts) > round(stated_counts**2):
        return "counts"
    return None


def with_spread(centers: Centers, spread: float) -> Centers:
    """The same centres after a survey that found this spread."""
    state = centers.state
    assert state is not None
    deviation = np.full(len(state.deviation), spread / math.sqrt(len(state.deviation)))
    return dataclasses.replace(centers, state=dataclasses.replace(state, deviation=deviation))


def after_any_releases(rng: np.random.Generator, plan: Plan, t: int) -> Centers:
    centers = first_centers(plan, rng.uniform(-1, 1, (plan.rounds[0].clusters, plan.d)) if rng.random() < 0.5 else None)
    for earlier in range(t):
        scale = 2.0 ** rng.integers(0, plan.fraction_bits + 12)
        noisy = np.rint(rng.normal(0, scale, plan.elements(earlier))).astype(np.int64)
        centers = post_process(noisy, centers, plan, earlier)
    return centers


def grid_records(d: int, bits: int) -> NDArray[np.float64]:
    axis = np.arange(-(2**bits), 2**bits + 1) / 2.0**bits
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)


@pytest.mark.parametrize("k,d,bits", [(2, 1, 4), (3, 2, 3), (1, 2, 3)])
def test_every_record_in_the_survey_and_the_bound_is_met(k: int, d: int, bits: int) -> None:
    plan = tiny(k, d, bits, 5)
    start = first_centers(plan)
    largest = 0
    for x in grid_records(d, bits):
        change = real(x[None], start, plan, 0)
        assert broken_promise(change, plan, 0) is None
        largest = max(largest, sum(int(v) ** 2 for v in split(change, plan.rounds[0].clusters, d)[0].ravel()))
    assert largest == round(plan.releases(0)[0].sensitivity ** 2)
    assert plan.releases(0)[0].sensitivity > math.sqrt(d) * 2**bits or k == 1


@pytest.mark.parametrize("k,d,bits", [(2, 1, 4), (3, 2, 3), (1, 3, 2)])
def test_every_record_lies_in_one_cell_of_the_histogram(k: int, d: int, bits: int) -> None:
    plan = tiny(k, d, bits, 5, start="grid")
    start, cells = first_centers(plan), plan.rounds[0].cells
    records = grid_records(d, bits)
    whole = real(records, start, plan, 0)
    assert whole.shape == (cells,) and whole.sum() == len(records) << bits
    for i, x in enumerate(records):
        change = whole - real(np.delete(records, i, axis=0), start, plan, 0)
        assert broken_promise(change, plan, 0) is None
        assert change.sum() == 1 << bits and (change == real(x[None], start, plan, 0)).all()


def test_a_record_in_two_cells_is_found_out() -> None:
    """As a histogram would be that shares a record between neighbours, without less weight for each."""
    plan = plan_of(3, 2, "grid")
    right = real(np.zeros((1, 2)), first_centers(plan), plan, 0)
    assert broken_promise(right, plan, 0) is None
    assert broken_promise(right + np.roll(right, 1), plan, 0) == "cells"


@pytest.mark.parametrize("d,bits,nominal", [(1, 4, 40), (2, 3, 11)])
@pytest.mark.parametrize("spread", [0.01, 0.2, 0.35, 0.5, 0.8, 1.0, 5.0])
def test_every_record_of_a_grid_for_every_kind_of_radius(d: int, bits: int, nominal: int, spread: float) -> None:
    plan = tiny(3, d, bits, nominal, wide=1.0)
    records = grid_records(d, bits)
    places = itertools.product([-8, 0, 5], repeat=d)
    grid = np.array(list(itertools.islice(places, 3)), dtype=np.int64)
    start = dataclasses.replace(first_centers(plan), grid=grid, exact=grid / 2.0**bits)
    centers = with_spread(start, spread)
    assert centers.state is not None
    reach, multiple = radius(centers.state, plan, 1)
    assert 1 <= reach * multiple <= nominal
    for base in (records[:0], records[::5]):
        without = real(base, centers, plan, 1)
        for x in records:
            change = real(np.concatenate([base, x[None]]), centers, plan, 1) - without
            assert broken_promise(change, plan, 1) is None
            assert split(change, 3, d)[1].sum() == 1 << bits


@given(
    st.sampled_from([(1, 1), (3, 1), (4, 2), (40, 2), (3, 5)]),
    st.integers(0, 2**32),
    st.sampled_from(["survey", "grid", "nothing"]),
)
@settings(max_examples=60, deadline=None)
def test_adding_and_removing_records_in_every_round_after_any_releases(
    shape: tuple[int, int], seed: int, start: str
) -> None:
    plan = plan_of(*shape, "survey" if start == "grid" and shape[1] > 3 else start)
    assert bool(plan.rounds[0].cells) == (start == "grid" and shape[1] < 4)
    assert (plan.rounds[0].radius is None) == (start != "nothing")
    rng = np.random.default_rng(seed)
    for t in range(ROUNDS):
        centers = after_any_releases(rng, plan, t)
        d = shape[1]
        step = 2.0**-plan.fraction_bits
        directions = rng.normal(size=(6, d))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        assert centers.state is not None
        reach = 1 if plan.rounds[t].radius is None else radius(centers.state, plan, t)[0]
        at = centers.exact[rng.integers(0, len(centers.exact), 6)]
        corners = rng.choice([-1.0, 1.0, 3.0], (4, d))
        records = np.concatenate([at + directions * reach * step, at + 3 * directions * reach * step, corners])
        everybody = real(records, centers, plan, t)
        for i in range(len(records)):
            alone = real(records[i : i + 1], centers, plan, t)
            removed = everybody - real(np.delete(records, i, axis=0), centers, plan, t)
            assert broken_promise(removed, plan, t) is None
            # The record's effect is the same whoever else is there.
            assert (removed == alone).all()


# Updates that look right and are not. Each must be found out by the same search that the real one passes.


def multiplied_once_too_often(points: NDArray[np.float64], centers: Centers, plan: Plan, t: int) -> Vector:
    assert centers.state is not None
    reach, multiple = radius(centers.state, plan, t)
    grid = quantise(points, plan.fraction_bits)
    sums, counts = accumulate(grid, centers.grid, radius=reach, relative=True, shorten=True)
    return join((multiple + 1) * sums, counts << plan.fraction_bits)


def radius_of_the_wish_not_of_the_fraction(points: NDArray[np.float64], centers: Centers, plan: Plan, t: int) -> Vector:
    assert centers.state is not None
    _, multiple = radius(centers.state, plan, t)
    nominal = plan.rounds[t].radius
    assert nominal is not None
    grid = quantise(points, plan.fraction_bits)
    sums, counts = accumulate(grid, centers.grid, radius=nominal // multiple + 1, relative=True, shorten=True)
    return join(multiple * sums, counts << plan.fraction_bits)


def rounded_to_the_nearest(points: NDArray[np.float64], centers: Centers, plan: Plan, t: int) -> Vector:
    assert centers.state is not None
    reach, multiple = radius(centers.state, plan, t)
    x = quantise(points, plan.fraction_bits).raw_coordinates.T.astype(np.int64)
    squared = ((x[:, None] - centers.grid[None]) ** 2).sum(axis=2)
    labels = squared.argmin(axis=1)
    offset = (x - centers.grid[labels]).astype(np.float64)
    length = np.maximum(np.sqrt(squared.min(axis=1)), 1.0)
    offset = np.rint(offset * np.minimum(1.0, reach / length)[:, None])
    clusters = len(centers.grid)
    sums = np.zeros((clusters, plan.d))
    np.add.at(sums, labels, offset)
    counts = np.bincount(labels, minlength=clusters)
    return join(multiple * sums.astype(np.int64), counts.astype(np.int64) << plan.fraction_bits)


def first_broken_promise(update: Update) -> str | None:
    plan = plan_of(4, 2)
    rng = np.random.default_rng(2)
    for _ in range(40):
        centers = after_any_releases(rng, plan, 2)
        for x in rng.uniform(-1, 1, (20, 1, 2)):
            found = broken_promise(update(x, centers, plan, 2), plan, 2)
            if found:
                return found
    return None


@pytest.mark.parametrize(
    "update", [multiplied_once_too_often, radius_of_the_wish_not_of_the_fraction, rounded_to_the_nearest]
)
def test_wrong_updates_are_found_out(update: Update) -> None:
    assert first_broken_promise(real) is None
    assert first_broken_promise(update) == "sums"


def test_squares_rounded_to_the_nearest_or_unbounded_are_found_out() -> None:
    plan = plan_of(3, 2)
    start = first_centers(plan)
    corner = np.ones((1, 2))
    right = real(corner, start, plan, 0)
    assert broken_promise(right, plan, 0) is None
    wrong = right.copy()
    wrong[2:4] += 1  # row 1: its squares
    assert (right[2:4] == square_limit(plan.fraction_bits)).all()
    assert broken_promise(wrong, plan, 0) == "sums"
