"""Runs all parties of a horizontal protocol in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.link.signature import Credentials
from fastlloyd.kmeans.grid import quantise
from fastlloyd.life.sealed import relay_seed
from fastlloyd.party.stored import StoredRounds
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.face import make_masks
from fastlloyd.protocols.fastlloyd.plan import Plan, PublicParameters, make_plan
from fastlloyd.protocols.fastlloyd.plus_reference import plus_update
from fastlloyd.protocols.fastlloyd.rounds import Centers, draw_noise, draw_share, first_centers, post_process
from fastlloyd.protocols.fastlloyd.server import server
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.agreement import MaskAgreement
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients

RUN_ID = bytes(range(16))


def parameters(n: int, k: int, **changes: Any) -> PublicParameters:
    """Public parameters with the defaults of a test."""
    values: dict[str, Any] = {
        "protocol": "fastlloyd",
        "clients": 2,
        "k": k,
        "n_total": n,
        "epsilon": 1.0,
        "delta": None,
        "rounds": None,
        "seed": 0,
        "ring_bits": 32,
        "settings": {},
        **changes,
    }
    values.setdefault("min_clients", values["clients"])
    return PublicParameters(**values)


def plan_for(points: NDArray[np.float64], k: int, **changes: Any) -> Plan:
    """A plan for these points."""
    n, d = points.shape
    return make_plan(parameters(n, k, **changes), d=d, names=tuple(f"x{i + 1}" for i in range(d)))


@dataclass
class Run:
    """The result of a simulated run."""

    simulation: Simulation
    results: Mapping[PartyId, Any]

    @property
    def first(self) -> ClientResult:
        result: ClientResult = self.results[PartyId(1)]
        return result


def agreement(me: PartyId, n_clients: int) -> MaskAgreement:
    """How a client of these runs comes by secrets: as in a whole life, of a run with a known number."""
    return MaskAgreement(
        me=me, clients=clients(n_clients), run_id=RUN_ID, context=bytes(32), facts={}, resumed=False, kept=False
    )


def no_noise(plan: Plan) -> Callable[[int], NDArray[np.int64]]:
    return lambda t: np.zeros(plan.elements(t), dtype=np.int64)


def run(
    points: NDArray[np.float64],
    plan: Plan,
    *,
    noise: Callable[[int], NDArray[np.int64]] | None = None,
    tap: Tap | None = None,
    start: NDArray[np.float64] | None = None,
    parts: list[NDArray[np.int64]] | None = None,
    stored: Mapping[PartyId, StoredRounds] | None = None,
    share: Callable[[PartyId, int], NDArray[np.int64]] | None = None,
) -> Run:
    """Run server and clients in one thread on a split of the points."""
    everybody = clients(plan.clients)
    secret = SecretRandom()
    if parts is None:
        parts = list(np.array_split(np.arange(len(points)), plan.clients))

    def one(me: PartyId):
        own = quantise(points[parts[me.rank - 1]], plan.fraction_bits)
        before = (stored or {}).get(me)
        masks, _ = yield from make_masks(agreement(me, plan.clients), plan)
        mine = None
        if plan.masking == "pairwise":
            mine = partial(share, me) if share is not None else partial(draw_share, plan, secret=SecretRandom())
        return (yield from client(me, own, plan, masks, share=mine, stored=before, start=start))

    def serve():
        if plan.masking != "pairwise":
            yield from relay_seed(everybody, run=b"", credentials=Credentials(), resumed=False)
        return (yield from server(plan, source))

    source = noise if noise is not None else (lambda t: draw_noise(plan, t, secret))
    simulation = Simulation({SERVER: serve(), **{me: one(me) for me in everybody}}, tap)
    return Run(simulation, simulation.run())


def central_plus(points: NDArray[np.float64], plan: Plan, noise: Callable[[int], NDArray[np.int64]]) -> Centers:
    """fastlloyd-plus on pooled data: the reference's updates, and what the clients make of noisy answers."""
    centers = first_centers(plan)
    for t in range(len(plan.rounds)):
        assert centers.state is not None
        update = plus_update(points, plan, t, centers=centers.grid, spread=centers.state.spread)
        centers = post_process(update + noise(t), centers, plan, t)
    return centers


def blobs(n: int, k: int, d: int, seed: int = 0, spread: float = 0.08) -> NDArray[np.float64]:
    """Gaussian blobs inside [-1, 1]^d."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    return np.clip(centers[rng.integers(0, k, n)] + rng.normal(0, spread, (n, d)), -1, 1)
