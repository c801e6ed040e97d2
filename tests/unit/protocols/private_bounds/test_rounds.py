"""Bins that double in width, and the rule that finds bounds in noisy counts of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.protocols.private_bounds.rounds import (
    ALPHA,
    BINS,
    DOUBLINGS,
    EDGES,
    GROW,
    cores,
    count,
    ends,
    find,
    place,
)

NOISE = 10.0


def test_every_value_lies_in_its_bin_and_an_edge_in_the_inner_one() -> None:
    rng = np.random.default_rng(1)
    values = rng.choice([-1.0, 1.0], 2000) * 2.0 ** rng.uniform(-70, 0, 2000)
    values = np.concatenate([values, EDGES, np.nextafter(EDGES, 2), np.nextafter(EDGES, -2)])
    values = np.clip(values, -1.0, 1.0)
    bins = place(values[:, None])[:, 0]
    low, high = EDGES[bins], EDGES[bins + 1]
    assert ((low <= values) & (values <= high)).all()
    assert (np.where(values < 0, low < 0, low >= 0)).all(), "bins do not cross the origin"
    inner = np.where(values < 0, high, low)
    assert ((np.abs(inner) < np.abs(values)) | (values == 0)).all(), "an edge belongs to the bin nearer to the origin"
    assert EDGES[0] == -1.0 and EDGES[-1] == 1.0 and len(EDGES) == BINS + 1 and (np.diff(EDGES) > 0).all()


def test_a_missing_value_counts_nowhere() -> None:
    counts = count(np.array([[np.nan, 0.5], [0.0, np.nan], [-0.0, 0.7]]))
    assert counts.shape == (2, BINS) and counts.sum(axis=1).tolist() == [2, 2]
    assert counts[0, DOUBLINGS + 1] == 2, "both zeros are in the first bin above the origin"


@pytest.mark.parametrize("m", [1, 3, 30])
def test_a_record_reaches_the_sensitivity_and_none_exceeds_it(m: int) -> None:
    rng = np.random.default_rng(m)
    points = rng.uniform(-1, 1, (50, m))
    points[rng.random((50, m)) < 0.2] = np.nan
    records = [*points, rng.choice([-1.0, 1.0], m), np.zeros(m), np.full(m, np.nan), points[0]]
    moved = [float(np.linalg.norm(count(np.vstack([points, record])) - count(points))) for record in records]
    assert max(moved) == math.sqrt(m) and all(step <= math.sqrt(m) for step in moved)
    assert moved[-2] == 0.0, "a record of missing values moves nothing"


def noisy(*columns: dict[int, float]) -> NDArray[np.float64]:
    """Counts that are 0 but in some bins."""
    counts = np.zeros((len(columns), BINS))
    for row, column in zip(counts, columns, strict=True):
        for at, value in column.items():
            row[at] = value
    return counts


def test_the_core_grows_while_the_next_bin_is_more_than_noise() -> None:
    more, less = NOISE * GROW * 1.01, NOISE * GROW * 0.99
    found = find(
        noisy(
            {70: 900.0, 71: 0.0, 72: 900.0},  # a gap within the core stays
            {70: 900.0, 71: more, 72: less, 73: more, 69: less},
            {0: 900.0, BINS - 1: 900.0},
            {60: 4.0 * NOISE},  # below z s
            {DOUBLINGS: 900.0, DOUBLINGS + 1: 900.0, 90: 4.0 * NOISE},  # the origin alone
            {DOUBLINGS + 1: 900.0, DOUBLINGS + 2: more},
        ),
        NOISE,
    )
    assert found == [(65, 72), (70, 71), (0, BINS - 1), None, None, (DOUBLINGS + 1, DOUBLINGS + 2)]


def test_bounds_that_come_near_the_origin_reach_to_it() -> None:
    """Of three bins or more on one side, as 16 to 128: a cluster near 0 is spread over many bins."""
    found = find(noisy({70: 900.0, 71: 900.0}, {70: 900.0, 72: 900.0}, {30: 900.0, 32: 900.0}, {60: 900.0}), NOISE)
    assert found == [(70, 71), (DOUBLINGS + 1, 72), (30, DOUBLINGS), (60, 60)]
    narrow, wide = EDGES[72 + 1] - EDGES[70], EDGES[72 + 1] - EDGES[DOUBLINGS + 1]
    assert wide / narrow == pytest.approx(8 / 7)


def test_empty_bins_count_at_the_stated_rate() -> None:
    """Over 4,000 releases of 10 empty columns; 12 or more false alarms have a probability below 0.001 at alpha."""
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(40):
        drawn = rng.normal(scale=NOISE, size=(100, 10, BINS))
        wrong += sum(any(core is not None for core in cores(release, NOISE)) for release in drawn)
    assert 0 < ALPHA * 4000 < 12 and wrong < 12


def test_an_outer_bin_that_holds_a_tail_is_cut_where_an_exponential_one_would_hold_a_hundredth_beyond() -> None:
    """Ages, of 48,842 people in Adult: 17 to 90, of whom a hundredth are older than 74 and 0.5 % older than 78."""
    unit = EDGES[DOUBLINGS + 2]
    at = {16: DOUBLINGS + 6, 32: DOUBLINGS + 7, 64: DOUBLINGS + 8}  # the bins from 16, 32 and 64 units on
    ages = {at[16]: 18371.0, at[32]: 28384.0, at[64]: 2087.0}
    ((low, high),) = ends(noisy(ages), NOISE)
    density, beside = 2087 / 64, 28384 / 32
    assert high / unit == 64 + 4 * math.ceil(2087 / math.sqrt(density * beside) * math.log(2087 / 488.42) / 4)
    assert low == 0.0 and high / unit == 84.0
    # The same below the origin.
    ((mirrored, zero),) = ends(noisy({BINS - 1 - bin_: own for bin_, own in ages.items()}), NOISE)
    assert (mirrored, zero) == (-high, 0.0)


def test_an_outer_bin_that_is_no_tail_stays_whole() -> None:
    """As dense as its neighbour, with one of noise beside it, alone, or at the origin."""
    found = ends(
        noisy(
            {88: 300.0, 89: 600.0},
            {88: 300.0, 89: 700.0},
            {89: 900.0, 88: GROW * NOISE},
            {89: 900.0},
            {DOUBLINGS + 1: 900.0, DOUBLINGS + 2: 9000.0, DOUBLINGS + 4: 9000.0},
            {DOUBLINGS + 1: 900.0},
        ),
        NOISE,
    )
    edges = [(EDGES[first], EDGES[last + 1]) for first, last in ((88, 89), (88, 89), (89, 89), (89, 89))]
    assert found == [*edges, (0.0, EDGES[DOUBLINGS + 5]), None]


def test_bounds_never_leave_their_bins_nor_cross() -> None:
    rng = np.random.default_rng(11)
    drawn = rng.normal(scale=NOISE, size=(300, BINS)) + rng.choice([0, 0, 60, 900], (300, BINS))
    drawn[:, ::2] *= rng.choice([0.0, 1.0], (300, 1))
    drawn[100:, : DOUBLINGS + 3] = rng.normal(scale=NOISE, size=(200, DOUBLINGS + 3))
    for bins, bounds in zip(find(drawn, NOISE), ends(drawn, NOISE), strict=True):
        assert (bins is None) == (bounds is None)
        if bins is not None and bounds is not None:
            assert EDGES[bins[0]] <= bounds[0] < bounds[1] <= EDGES[bins[1] + 1]
