"""Runs the parties of vertical-he in memory, from the plan on."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Party
from fastlloyd.protocols.vertical_he.math.coefficients import CHAIN, LARGEST
from fastlloyd.protocols.vertical_he.math.pairwise import normalise
from fastlloyd.protocols.vertical_he.math.workers import make_engine
from fastlloyd.protocols.vertical_he.parameters import PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.protocol import play
from fastlloyd.protocols.vertical_he.rounds import Draw, Released, fresh_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import PartyId


def parameters(n: int, k: int, *, parties: int = 2, rounds: int | None = 2, **settings: Any) -> PublicParameters:
    return PublicParameters(
        parties=parties, k=k, n_total=n, epsilon=1.0, delta=None, rounds=rounds, seed=1, settings=settings
    )


def names(*widths: int) -> list[list[str]]:
    return [[f"x{party}{i}" for i in range(width)] for party, width in enumerate(widths)]


def blobs(n: int, k: int, d: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points around k centres, and starts near those."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    points = np.clip(centers[rng.integers(0, k, n)] + rng.normal(0, 0.1, (n, d)), -1, 1)
    return points, np.clip(centers + rng.normal(0, 0.1, (k, d)), -1, 1)


def lloyd(points: NDArray[np.float64], centers: NDArray[np.float64], rounds: int) -> NDArray[np.float64]:
    for _ in range(rounds):
        labels = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.array(
            [points[labels == j].mean(axis=0) if (labels == j).any() else centers[j] for j in range(len(centers))]
        )
    return centers


def loss(points: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    return float(((points[:, None] - centers) ** 2).sum(axis=2).min(axis=1).mean())


def columns_of(plan: Plan, points: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    return np.ascontiguousarray(points[:, list(plan.columns(rank))].T)


def make_parties(
    plan: Plan, points: NDArray[np.float64], engine: Any, start: NDArray[np.float64], *, quiet: bool = False
) -> dict[PartyId, Party[Released]]:
    """All parties; `engine` holds the computing party's columns."""
    return {
        PartyId(rank): play(
            PartyId(rank),
            plan,
            columns_of(plan, points, rank),
            no_noise(plan) if quiet else fresh_noise(plan, SecretRandom()),
            partial(nullcontext, engine),
            start=start,
        )
        for rank in sorted({plan.computing, plan.holder, *plan.owners})
    }


def simulate(
    plan: Plan,
    points: NDArray[np.float64],
    start: NDArray[np.float64],
    tap: Tap | None = None,
    *,
    engine: Any = None,
    quiet: bool = False,
) -> tuple[dict[PartyId, Released], Simulation]:
    """Run from the plan to the last round.

    For tests that choose plan, start, engine or noise, which no whole run lets them; those of whole runs are in
    `tests.protocols.test_vertical_he_whole`.
    """
    engine = engine or make_engine(plan, columns_of(plan, points, plan.computing))
    simulation = Simulation(make_parties(plan, points, engine, start, quiet=quiet), tap)
    return simulation.run(), simulation


def no_noise(plan: Plan) -> Draw:
    """Leave the noise out, which no real run can."""
    return lambda t, grid=1.0: np.zeros(plan.outputs, dtype=np.int64)


def sign(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluate the pairwise circuit's polynomials, about the sign, on [-1, 1]."""
    for kappa, lead, gamma, pairs in CHAIN:
        u = kappa * x
        square = u * u
        x = lead * u * (square + gamma)
        for alpha, beta in pairs:
            x = x * (square * (square + alpha) + beta)
    return x


def circuit_weights(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, known: list[int]
) -> NDArray[np.float64]:
    """Return each record's weights by the pairwise circuit in clear, shape (n, k)."""
    hidden = [column for column in range(points.shape[1]) if column not in known]
    weights = np.ones((len(points), len(centers)))
    for low in range(len(centers)):
        for high in range(low + 1, len(centers)):
            step = centers[high] - centers[low]
            apart = (centers[high] ** 2 - centers[low] ** 2).sum() - 2.0 * points[:, known] @ step[known]
            part, rest = normalise(apart, -2.0 * step[hidden])
            ahead = sign(part + points[:, hidden] @ rest) / LARGEST
            weights[:, low] *= (1.0 + ahead) / 2.0
            weights[:, high] *= (1.0 - ahead) / 2.0
    return weights


def linear_plan(n: int, k: int, **settings: Any) -> Plan:
    return make_plan(parameters(n, k, scheme="linear", **settings), names(1, 1))
