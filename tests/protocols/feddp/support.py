"""Runs the rounds of FedDP-KMeans in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.pairwise import PairwiseMasks
from fastlloyd.party.effects import Party
from fastlloyd.protocols.feddp.client import ClientResult, client, draw_share
from fastlloyd.protocols.feddp.plan import Plan, PublicParameters, StepPlan
from fastlloyd.protocols.feddp.proposal import make_plan
from fastlloyd.protocols.feddp.server import ServerResult, server
from fastlloyd.protocols.feddp.settings import settings_from
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import fresh_pairs, pairwise_masks

USERS = {"privacy_level": "client"}


@dataclass(frozen=True, eq=False)
class Data:
    """Clients' records with their users, and the server's points; all scaled."""

    points: NDArray[np.float64]
    users: NDArray[np.int64]
    server_points: NDArray[np.float64]
    means: NDArray[np.float64]


def mixture(n: int, k: int, d: int, *, seed: int = 0, spread: float = 0.08, n_server: int = 40, rows: int = 10) -> Data:
    """Gaussian blobs for the clients; two thirds of such points and one third of noise for the server."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(-0.7, 0.7, (k, d))

    def blobs(count: int) -> NDArray[np.float64]:
        return np.clip(means[np.arange(count) % k] + rng.normal(0, spread, (count, d)), -1, 1)

    near = blobs(n_server - n_server // 3)
    server_points = np.concatenate([near, rng.uniform(-0.7, 0.7, (n_server // 3, d))])
    return Data(blobs(n)[rng.permutation(n)], np.arange(n) // rows, server_points, means)


def parameters(n: int, k: int, **changes: Any) -> PublicParameters:
    """Public parameters with the defaults of a test."""
    values: dict[str, Any] = {
        "protocol": "feddp",
        "clients": 3,
        "k": k,
        "n_total": n,
        "epsilon": 1.0,
        "delta": 1e-6,
        "seed": 0,
        "choose_k": False,
        "ring_bits": 32,
        "known_shares": 1,
    }
    values = {**values, **changes}
    return PublicParameters(**{"min_clients": values["clients"], **values})


def names(d: int) -> tuple[str, ...]:
    return tuple(f"x{i + 1}" for i in range(d))


_PLANS: dict[tuple[bytes, int, str], Plan] = {}


def plan_for(data: Data, k: int, **changes: Any) -> Plan:
    """A plan for these data; the same question is calibrated once."""
    n, d = data.points.shape
    key = (data.points.tobytes() + data.server_points.tobytes(), k, repr(sorted(changes.items())))
    if key not in _PLANS:
        public = parameters(n, k, **changes)
        points = data.server_points if settings_from(public.settings).needs_points else None
        _PLANS[key] = make_plan(public, d=d, names=names(d), server_points=points)
    return _PLANS[key]


@dataclass
class Run:
    """The result of a simulated run."""

    simulation: Simulation
    results: Mapping[PartyId, Any]

    @property
    def server(self) -> ServerResult:
        result: ServerResult = self.results[SERVER]
        return result

    @property
    def first(self) -> ClientResult:
        result: ClientResult = self.results[PartyId(1)]
        return result


def parts_of(data: Data, m: int, *, by_user: bool) -> list[NDArray[np.int64]]:
    """Rows of each client; users stay whole."""
    if not by_user:
        return list(np.array_split(np.arange(len(data.points)), m))
    return [np.flatnonzero(data.users % m == i) for i in range(m)]


def no_noise(plan: Plan) -> Callable[[int, int], NDArray[np.int64]]:
    return lambda t, k: np.zeros(plan.elements(t, k), dtype=np.int64)


def run(
    data: Data,
    plan: Plan,
    *,
    share: Callable[[PartyId, int, int], NDArray[np.int64]] | None = None,
    tap: Tap | None = None,
    stored: Mapping[PartyId, StoredRounds] | None = None,
    replies: Mapping[int, bytes] | None = None,
    done: Mapping[PartyId, int] | None = None,
    masks: Mapping[PartyId, PairwiseMasks] | None = None,
) -> Run:
    """Run the rounds, without set-up and closing exchange, as `tests.protocols.support.run` does."""
    everybody = clients(plan.clients)
    masks = masks or pairwise_masks(fresh_pairs(plan.clients))
    parts = parts_of(data, plan.clients, by_user=plan.by_user)

    def one(me: PartyId) -> Party[ClientResult]:
        rows = parts[me.rank - 1]
        own = quantise(data.points[rows], plan.fraction_bits)
        users = data.users[rows] if plan.by_user else None
        mine = partial(share, me) if share is not None else partial(draw_share, plan, secret=SecretRandom())
        before = (stored or {}).get(me)
        return client(me, own, plan, masks[me], share=mine, raw_users=users, stored=before)

    points = None if plan.start == "private" else data.server_points
    serving = server(plan, points, stored=StoredRounds(replies=replies or {}, clients_done=done or {}))
    simulation = Simulation({SERVER: serving, **{me: one(me) for me in everybody}}, tap)
    return Run(simulation, simulation.run())


def louder(plan: Plan, factor: float) -> Plan:
    """The same plan with another amount of noise."""
    steps = tuple(StepPlan(kind=s.kind, sigma=s.sigma * factor, scale=s.scale * factor) for s in plan.rounds)
    return replace(plan, rounds=steps)
