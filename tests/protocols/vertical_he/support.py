"""Runs all parties of vertical-he in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Party
from fastlloyd.protocols.vertical_he.computing import computing_party
from fastlloyd.protocols.vertical_he.holder import key_holder
from fastlloyd.protocols.vertical_he.math.computer import Engine
from fastlloyd.protocols.vertical_he.math.engine import make_engine
from fastlloyd.protocols.vertical_he.owner import owner
from fastlloyd.protocols.vertical_he.parameters import PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.rounds import Released, draw_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import PartyId


def parameters(n: int, k: int, *, parties: int = 2, rounds: int | None = 2, **settings: Any) -> PublicParameters:
    return PublicParameters(
        parties=parties, k=k, n=n, epsilon=1.0, delta=None, rounds=rounds, seed=1, settings=settings
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


def columns(plan: Plan, points: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    return np.ascontiguousarray(points[:, list(plan.columns(rank))].T)


def parties(
    plan: Plan, points: NDArray[np.float64], start: NDArray[np.float64], engine: Engine | None, quiet: bool
) -> dict[PartyId, Party[Released]]:
    def noise() -> partial[NDArray[np.int64]]:
        return partial(lambda secret, t, grid=1.0: draw_noise(plan, secret, grid) * (not quiet), SecretRandom())

    engine = engine or make_engine(plan, columns(plan, points, plan.computing))
    result: dict[PartyId, Party[Released]] = {
        PartyId(plan.computing): computing_party(plan, engine, noise(), start=start)
    }
    if plan.holder != plan.computing:
        result[PartyId(plan.holder)] = key_holder(plan, columns(plan, points, plan.holder), noise(), start=start)
    for rank in plan.owners:
        if rank not in (plan.computing, plan.holder):
            result[PartyId(rank)] = owner(PartyId(rank), plan, columns(plan, points, rank), noise(), start=start)
    return result


def simulate(
    plan: Plan,
    points: NDArray[np.float64],
    start: NDArray[np.float64],
    tap: Tap | None = None,
    *,
    engine: Any = None,
    quiet: bool = False,
) -> tuple[dict[PartyId, Released], Simulation]:
    """Run to the end; `quiet` leaves the noise out, which no party would."""
    simulation = Simulation(parties(plan, points, start, engine, quiet), tap)
    return simulation.run(), simulation


def linear_plan(n: int, k: int, **settings: Any) -> Plan:
    return make_plan(parameters(n, k, scheme="linear", **settings), names(1, 1))
