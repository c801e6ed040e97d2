"""Sketches drawn as of an ideal hash function have the distribution of those that are made by hashing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.sketch.sketch import (
    GRID_PHANTOMS,
    PAPER_PHANTOMS,
    Levels,
    SketchShape,
    make_sketch,
)
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.vertical_dp.data import MIXTURE, even
from fastlloyd_papers.vertical_dp.design import CORRECTED_BASIC, CORRECTED_PAIRS, PAPER_PAIRS
from fastlloyd_papers.vertical_dp.ideal import MOST_CELLS, draw_group
from fastlloyd_papers.vertical_dp.run import Method, draw_sketches, make_sketches, plan_of
from tests.protocols.vertical_dp.support import replays

ROWS, CLUSTERS, N = 4096, 3, 300
# Of each comparison; some hundred are made, with fixed noise.
FALSE_ALARM = 1e-9

Labels = NDArray[np.int64]


def labels_of(parties: int) -> list[Labels]:
    """Clusters that go together, of unequal sizes; the last one of the first party is empty."""
    rng = np.random.default_rng(5)
    first = np.sort(rng.integers(0, CLUSTERS - 1, N))
    return [first, *(np.where(rng.random(N) < 0.7, first, rng.integers(0, CLUSTERS, N)) for _ in range(parties - 1))]


def law(users: int, phantom_cells: int, shape: SketchShape) -> NDArray[np.float64]:
    """P(reported level <= a), a = 0..top: the largest of some users, some cells' phantoms, and the floor."""
    own = shape.user_levels.cumulative() ** users
    entered = np.array([total / 2.0**64 for total in shape.phantom_levels.totals]) ** phantom_cells
    return np.where(np.arange(len(own)) < shape.floor, 0.0, own * entered)


def apart(levels: Levels, expected: NDArray[np.float64]) -> float:
    """The largest distance of a column of levels from a law (Kolmogorov)."""
    found = np.searchsorted(np.sort(levels), np.arange(len(expected)), side="right") / len(levels)
    return float(np.abs(found - expected).max())


def distances(sketches: Sequence[Levels], labels: Sequence[Labels], shape: SketchShape) -> list[float]:
    """Distances from the exact law: of each entry, and of the larger of two entries of two parties."""
    several = 1 if shape.scheme == PAPER_PHANTOMS else CLUSTERS ** (len(labels) - 1)
    found = []
    for sketch, own in zip(sketches, labels, strict=True):
        for a in range(CLUSTERS):
            found.append(apart(sketch[:, a], law(int((own == a).sum()), several, shape)))
    for a, b in product(range(CLUSTERS), repeat=2):
        union = int(((labels[0] == a) | (labels[1] == b)).sum())
        cells = 2 if shape.scheme == PAPER_PHANTOMS else 2 * several - several // CLUSTERS
        found.append(apart(np.maximum(sketches[0][:, a], sketches[1][:, b]), law(union, cells, shape)))
    return found


@pytest.mark.parametrize("scheme", [GRID_PHANTOMS, PAPER_PHANTOMS])
@pytest.mark.parametrize("parties", [2, 3])
def test_drawn_sketches_have_the_exact_law_and_made_ones_too(scheme: str, parties: int) -> None:
    labels, secret = labels_of(parties), replays()()
    shape = SketchShape(rows=ROWS, clusters=CLUSTERS, parties=parties, phantoms=20, scheme=scheme)
    # Dvoretzky, Kiefer and Wolfowitz, with Massart's constant.
    most = math.sqrt(math.log(2.0 / FALSE_ALARM) / (2.0 * ROWS))
    drawn = draw_group(labels, shape, secret)
    assert [sketch.shape for sketch in drawn] == [(ROWS, CLUSTERS)] * parties
    assert max(distances(drawn, labels, shape)) < most
    key = secret.bytes(32)
    made = [make_sketch(own, place, key, shape, secret) for place, own in enumerate(labels)]
    assert max(distances(made, labels, shape)) < most
    # The test sees it when users of both parties have levels of their own: a union is then as large as a sum.
    parted = [draw_group(labels, shape, secret)[0], *drawn[1:]]
    assert max(distances(parted, labels, shape)) > most


@pytest.mark.parametrize("method", [CORRECTED_PAIRS, CORRECTED_BASIC, PAPER_PAIRS])
def test_all_parties_have_the_sketches_of_their_groups(method: Method) -> None:
    rng = np.random.default_rng(1)
    labels = [rng.integers(0, 5, N) for _ in range(4)]

    class Problem:
        n = N
        columns = tuple(np.zeros((N, width)) for width in even(MIXTURE, 4).sizes)

    plan = plan_of(Problem(), method, 4.0, 0)  # type: ignore[arg-type]
    shapes = [
        [[sketch.shape for sketch in own] for own in sketches(labels, plan, SecretRandom())]
        for sketches in (draw_sketches, make_sketches)
    ]
    assert shapes[0] == shapes[1]
    assert 5**4 <= MOST_CELLS < 5**8
