"""Runs all parties of SecFC in memory, from their sizes to the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.life.hello import await_ready, gather_schema, propose_plan, receive_plan, tell_ready
from fastlloyd.life.seed import agree_seed
from fastlloyd.protocols.secfc import client as client_module
from fastlloyd.protocols.secfc.client import ClientResult, client
from fastlloyd.protocols.secfc.math.masks import RoundMasks
from fastlloyd.protocols.secfc.math.turn import draw_rotation, rotate
from fastlloyd.protocols.secfc.parameters import PublicParameters
from fastlloyd.protocols.secfc.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.secfc.server import ServerResult, server
from fastlloyd.protocols.secfc.sharing import await_shared, gather_sizes, share_points, tell_size
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients

RUN_ID = bytes(range(16))
DATA = Path(__file__).parents[4] / "shared" / "data"


def parameters(n: int, k: int, **changes: Any) -> PublicParameters:
    """Public parameters with the defaults of a test."""
    values: dict[str, Any] = {
        "clients": 3,
        "k": k,
        "n_total": n,
        "rounds": None,
        "seed": 0,
        "settings": {},
        **changes,
    }
    return PublicParameters(**values)


def plan_for(n: int, d: int, k: int, sizes: tuple[int, ...] | None = None, **changes: Any) -> Plan:
    """A plan for n points of d features, spread evenly."""
    public = parameters(n, k, **changes)
    if sizes is None:
        sizes = tuple(len(part) for part in np.array_split(np.arange(n), public.clients))
    return make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)), sizes=sizes)


@dataclass
class Run:
    """The result of a simulated run."""

    simulation: Simulation
    results: Mapping[PartyId, Any]
    plan: Plan
    own: Mapping[PartyId, NDArray[np.int64]]
    rotation: NDArray[np.float64]
    masks: list[RoundMasks] = field(repr=False)
    assignments: list[NDArray[np.int64]] = field(repr=False)

    @property
    def first(self) -> ClientResult:
        result: ClientResult = self.results[PartyId(1)]
        return result

    @property
    def server(self) -> ServerResult:
        result: ServerResult = self.results[SERVER]
        return result

    @property
    def points(self) -> NDArray[np.int64]:
        """All grid points in the order of the run."""
        ordered = np.zeros((len(self.first.labels), self.plan.d), dtype=np.int64)
        for party, rows in self.own.items():
            ordered[self.results[party].raw_rows] = rows
        return ordered

    @property
    def history(self) -> list[NDArray[np.int64]]:
        """The first assignment and those that client 1 worked on, in the order of the run."""
        return self.assignments


def run(
    points: NDArray[np.float64],
    k: int,
    *,
    parts: list[NDArray[np.int64]] | None = None,
    sizes: tuple[int, ...] | None = None,
    tap: Tap | None = None,
    **changes: Any,
) -> Run:
    """Run server and clients in one thread on a split of the points, shape (n, d), scaled to [-1, 1]."""
    n, d = points.shape
    public = parameters(changes.pop("n_total", n if sizes is None else sum(sizes)), k, **changes)
    everybody, names = clients(public.clients), tuple(f"x{i + 1}" for i in range(d))
    if parts is None:
        parts = list(np.array_split(np.arange(n), public.clients))
    caps = tuple(len(part) for part in parts) if sizes is None else sizes
    grids: dict[PartyId, GridPoints] = {}
    made: list[Plan] = []
    rotations: dict[PartyId, NDArray[np.float64]] = {}
    assignments: list[NDArray[np.int64]] = []
    masks: list[RoundMasks] = []

    class Watched(client_module._Exchange):
        """Notes what client 1 works on, and its masks."""

        def _masks(self):
            masks_ = super()._masks()
            if self._me.rank == 1:
                masks.append(masks_)
            return masks_

        def start(self, coder, labels):
            return self._noted(labels, super().start(coder, labels))

        def iterate(self, coder, labels):
            return self._noted(labels, super().iterate(coder, labels))

        def _noted(self, labels, party):
            if self._me.rank == 1:
                assignments.append(labels)
            return (yield from party)

    def one(me: PartyId):
        raw_points = points[parts[me.rank - 1]]
        told = caps[me.rank - 1]
        yield from tell_size(told)
        proposal = yield from receive_plan(names, 0)
        plan = Plan.from_json(proposal.plan)
        check_plan(plan, public, me=me, names=names, told=told, caps=caps)
        seed = yield from agree_seed(me, everybody, run_id=RUN_ID, context=b"", secret=SecretRandom())
        rotations[me] = draw_rotation(d, seed=seed, run_id=RUN_ID)
        grids[me] = rotate(raw_points, rotations[me], plan.fraction_bits)
        shares = yield from share_points(me, grids[me], plan, run_id=RUN_ID, secret=SecretRandom())
        yield from tell_ready()
        return (yield from client(me, shares, grids[me], plan, rotation=rotations[me], seed=seed, run_id=RUN_ID))

    def serve():
        told = yield from gather_sizes(everybody, caps, padded=public.chosen.membership)
        schema = yield from gather_schema(everybody)
        plan = make_plan(public, d=d, names=schema.names, sizes=told)
        made.append(plan)
        yield from propose_plan(everybody, plan.to_json(), 0)
        records = yield from await_shared(plan)
        yield from await_ready(everybody)
        return (yield from server(plan, records))

    simulation = Simulation({SERVER: serve(), **{me: one(me) for me in everybody}}, tap)
    with mock.patch.object(client_module, "_Exchange", Watched):
        results = simulation.run()
    assignments.append(results[PartyId(1)].labels)
    own = {me: grids[me].raw_coordinates.T.astype(np.int64) for me in everybody}
    return Run(simulation, results, made[0], own, rotations[PartyId(1)], masks, assignments)


def named(name: str) -> NDArray[np.float64]:
    """A public data set, scaled to [-1, 1]; skips the test where it is absent."""
    if name != "iris" and not DATA.is_dir():
        pytest.skip("the folder of real data sets is absent")
    values = load_named(name, DATA if DATA.is_dir() else None).values
    return scale(values, auto_public(values))


def mixture(n: int, k: int, d: int, *, sigma: float = 1.0, seed: int = 0) -> NDArray[np.float64]:
    """A Gaussian mixture as in §5.1, scaled to [-1, 1]."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-10, 10, (k, d))
    points = centers[rng.integers(0, k, n)] + rng.normal(0, sigma, (n, d))
    return np.asarray(points / np.abs(points).max())


def uneven(n: int, m: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """A split of n shuffled rows among m clients, of very different sizes; the last has none."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, n + 1, m - 2))
    return [*np.split(rng.permutation(n), cuts), np.arange(0)]
