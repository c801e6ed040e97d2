"""How good the clusters are: the soft rules in clear from many starts, and (slow) the ciphertexts on S1 and in 4-d."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tenseal")

from scipy import stats

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.math.grid import count_cells
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.reference import soft_steps, soft_sums
from fastlloyd.protocols.vertical_he.rounds import first_centers
from fastlloyd.protocols.vertical_he.settings import Settings
from fastlloyd_papers.vertical_he.clear import circuit_weights, grid_sums, with_sums
from fastlloyd_papers.vertical_he.data import load_points
from fastlloyd_papers.vertical_he.run import Case, plain_lloyd, plan_case, run_case

DATA = os.environ.get("FASTLLOYD_DATA", str(Path(__file__).parents[4] / "shared" / "data"))
STARTS = range(8)
ROUNDS = 10
DEGREE = Settings().degree

Array = NDArray[np.float64]
Step = Callable[[Array, Array, int], Array]


def points_of(name: str) -> Array:
    try:
        return load_points(name, DATA)[0]
    except ConfigError:
        pytest.skip(f"{name} is absent")


def loss(points: Array, centers: Array) -> float:
    return nearest(points, centers)[1] / 4.0


def split(points: Array, hidden: int) -> tuple[range, range]:
    d = points.shape[1]
    return range(d - hidden), range(d - hidden, d)


def on_grid(points: Array, centers: Array, hidden: int) -> Array:
    """Counts and sums of the linear scheme whose last columns are encrypted, shape (k, d + 1)."""
    known, columns = split(points, hidden)
    return grid_sums(points, centers, known=known, hidden=columns, cells=count_cells(DEGREE, hidden))


def by_circuit(points: Array, centers: Array, hidden: int) -> Array:
    """The same of the pairwise circuit."""
    return with_sums(circuit_weights(points, centers, known=split(points, hidden)[0]), points)


def soft_lloyd(points: Array, start: Array, step: Step, hidden: int) -> Array:
    centers = start
    for _ in range(ROUNDS):
        sums = step(points, centers, hidden)
        counts = sums[:, :1]
        centers = np.where(counts >= 1.0, sums[:, 1:] / np.maximum(counts, 1.0), centers)
    return centers


def cost_of_noise(plan: Plan, points: Array, centers: Array) -> float:
    """Bound what the flooding noise of the last round adds to the loss, but for a chance of 1e-6.

    Each side's noise on the circuit's numbers is that of several records: a centre of n records is off by it over n, in
    its sum and, times a coordinate of at most 1, in its count.
    """
    counts = np.bincount(nearest(points, centers)[0], minlength=plan.k)
    variance = plan.noises * (plan.count_scale**2 + plan.sum_scale**2) / plan.unit**2
    squares = stats.chi2(plan.k * plan.d).isf(1e-6)
    return float(squares * variance / counts[counts > 0].min() / len(points) / 4.0)


@pytest.mark.parametrize("hidden", [1, 2])
def test_the_quick_rule_is_the_reference(hidden: int) -> None:
    points, centers = points_of("synth-40-3-2"), points_of("synth-3-3-2")
    expected = soft_sums(points, centers, hidden=split(points, hidden)[1], grid=count_cells(DEGREE, hidden))
    np.testing.assert_allclose(on_grid(points, centers, hidden), expected, atol=1e-9)


def test_the_quick_rule_of_steps_is_the_reference() -> None:
    points, centers = points_of("synth-40-3-3"), points_of("synth-3-3-3")
    found = grid_sums(points, centers, known=[0, 2], hidden=[1], cells=32, radius=0.3)
    expected = soft_steps(points, centers, hidden=[1], grid=32, radius=0.3)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(
    "name,k,columns,step",
    [
        ("s1", 15, (1, 1), on_grid),
        ("g2_4_30", 2, (3, 1), on_grid),
        ("g2_4_30", 2, (2, 2), on_grid),
        ("g2_4_30", 2, (2, 2), by_circuit),
        ("synth-4000-5-4", 5, (3, 1), on_grid),
        ("synth-4000-5-4", 5, (2, 2), on_grid),
        ("synth-4000-5-4", 5, (2, 2), by_circuit),
    ],
)
def test_ten_soft_rounds_are_within_one_per_cent_of_lloyd_s(
    name: str, k: int, columns: tuple[int, ...], step: Step
) -> None:
    points = points_of(name)
    for seed in STARTS:
        start = first_centers(plan_case(Case(k=k, widths=columns, noise="flooding", seed=seed), len(points)))
        plain = loss(points, plain_lloyd(points, start, ROUNDS))
        assert loss(points, soft_lloyd(points, start, step, columns[1])) <= 1.01 * plain


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name,k,columns,scheme",
    [
        ("s1", 15, (1, 1), "linear"),
        ("g2_4_30", 2, (2, 2), "pairwise"),
        ("g2_4_30", 2, (2, 2), "linear"),
        ("synth-4000-5-4", 5, (3, 1), "linear"),
        ("synth-4000-5-4", 5, (2, 2), "pairwise"),
        ("synth-4000-5-4", 5, (2, 2), "linear"),
    ],
)
def test_ten_encrypted_rounds_are_within_one_per_cent_and_their_flooding_noise_of_lloyd_s(
    name: str, k: int, columns: tuple[int, ...], scheme: str
) -> None:
    points = points_of(name)
    for seed in range(3):
        case = Case(k=k, widths=columns, rounds=ROUNDS, noise="flooding", scheme=scheme, seed=seed)
        plan = plan_case(case, len(points))
        plain = plain_lloyd(points, first_centers(plan), ROUNDS)
        assert run_case(case, points, 2)["loss"] <= 1.01 * loss(points, plain) + cost_of_noise(plan, points, plain)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_s1_at_epsilon_1_is_near_the_published_loss() -> None:
    points = points_of("s1")
    losses = [run_case(Case(k=15, widths=(1, 1), rounds=None, seed=seed), points, 2)["loss"] for seed in range(5)]
    # Published: 0.00566. Seen over ten starts: mean 0.0049, deviation about 0.0009, so eight of a mean of five's.
    assert np.mean(losses) <= 1.5 * 0.00566
