"""Whole runs, all parties in memory and without noise, against the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("tenseal")

from fastlloyd.protocols.vertical_he import rounds as party_rounds
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.reference import reference
from fastlloyd.randomness.secret import SecretRandom
from tests.protocols.vertical_he.support import blobs, names, parameters, simulate
from tests.vectors import make_vertical_he

ROUNDS = 3
Update = Callable[[NDArray[np.float64], NDArray[np.float64], int], NDArray[np.float64]]


def plan_of(k: int, *widths: int, n: int, **settings: Any) -> Plan:
    public = parameters(n, k, parties=len(widths), computing=0, **{"rounds": ROUNDS, **settings})
    return make_plan(dataclasses.replace(public, seed=make_vertical_he.SEED), names(*widths))


def decimals(rows: NDArray[np.float64]) -> list[list[Decimal]]:
    return [[Decimal(x) for x in row] for row in rows.tolist()]


def compare(
    plan: Plan, points: np.ndarray, start: np.ndarray | None, tolerance: float, update: Update | None = None
) -> None:
    results, _ = simulate(plan, points, start, quiet=True)
    expected = reference(points, plan, start=start, update=update)
    for rank, result in results.items():
        assert len(result.path) == len(expected), rank
        far = [float(np.abs(got - exact).max()) for got, exact in zip(result.path, expected, strict=True)]
        assert max(far) < tolerance, rank
    assert np.abs(expected[-1] - expected[0]).max() > 10 * tolerance
    assert len(expected) == plan.rounds + 1 or plan.tolerance > 0.0


@pytest.mark.parametrize(
    "k,widths,settings,tolerance",
    [
        # Errors of the encryption and rounding of weights: up to 1e-5 seen.
        (4, (1, 1), {"scheme": "linear"}, 1e-3),
        (4, (1, 1), {"scheme": "linear", "rounds": 20, "tolerance": 0.02}, 1e-3),
        (3, (2, 2), {"scheme": "linear", "mode": "threshold"}, 1e-3),
        (2, (2, 2), {"scheme": "projection"}, 1e-3),
        (3, (3, 3), {"scheme": "landmarks", "degree": 4}, 1e-3),
        # The circuit is the paper's comparison only where a record is clearly nearer to one centre.
        (2, (1, 2), {"scheme": "pairwise", "rounds": 2}, 0.02),
    ],
)
def test_a_run_is_the_paper_s(k: int, widths: tuple[int, ...], settings: dict[str, Any], tolerance: float) -> None:
    points, start = blobs(600, k, sum(widths), seed=3)
    compare(plan_of(k, *widths, n=600, noise="flooding", **{"degree": 60, **settings}), points, start, tolerance)


def test_noise_is_added_before_the_division(monkeypatch: pytest.MonkeyPatch) -> None:
    points, start = blobs(600, 3, 2, seed=3)
    plan = plan_of(3, 1, 1, n=600, scheme="linear", degree=60, shrink=False)
    drawn: list[NDArray[np.int64]] = []

    def draw(plan: Plan, secret: SecretRandom, grid: float = 1.0) -> NDArray[np.int64]:
        scales = np.tile([plan.count_scale, plan.sum_scale, plan.sum_scale], 3)
        drawn.append(np.rint(np.random.default_rng(len(drawn)).normal(0.0, scales)).astype(np.int64))
        return drawn[-1]

    monkeypatch.setattr(party_rounds, "draw_noise", draw)
    results, _ = simulate(plan, points, start)
    assert len(drawn) == 2 * ROUNDS  # both sides' of each round, one after the other
    expected = reference(points, plan, start=start, noise=lambda t: drawn[2 * t] + drawn[2 * t + 1])
    without = reference(points, plan, start=start)
    for result in results.values():
        assert np.abs(result.centers - expected[-1]).max() < 1e-3 < np.abs(expected[-1] - without[-1]).max()


@pytest.mark.parametrize(
    "k,widths,rounds,given",
    [(2, (1, 1), 3, False), (5, (1, 1), 4, True), (4, (2, 1), 6, True), (3, (3, 3), 6, True)],
)
def test_a_run_that_weighs_is_the_document_s(k: int, widths: tuple[int, ...], rounds: int, given: bool) -> None:
    points, near = blobs(900, k, sum(widths), seed=3)
    start = near if given else None
    scheme, degree = ("landmarks", 4) if min(widths) > 2 else ("linear", 60)
    plan = plan_of(k, *widths, n=900, scheme=scheme, rounds=rounds, degree=degree)
    assert plan.shrinks and bool(plan.stepping) == (rounds == 6)
    scales = [scale / plan.unit for scale in (plan.count_scale, plan.sum_scale, plan.step_scale)]
    known = make_vertical_he.Run(
        {
            "k": k,
            "d": plan.d,
            "n": plan.n_total,
            "rounds": plan.rounds,
            "deviations": [repr(scale) for scale in scales[:2]],
            "own": len(plan.stepping),
            "radius": repr(plan.radius),
            "step_deviation": repr(scales[2]),
        }
    )
    if given:
        known.centers = decimals(near)

    def update(table: NDArray[np.float64], before: NDArray[np.float64], t: int) -> NDArray[np.float64]:
        known.advance(decimals(table), t)
        return np.array(known.centers, dtype=np.float64)

    compare(plan, points, start, 1e-3, update)
