"""Runs all parties of SecFC in memory, from their sizes to the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.named import load_named
from fastlloyd.kmeans.grid import quantise
from fastlloyd.privacy.secret import SecretRandom
from fastlloyd.protocols.secfc.client import ClientResult, client
from fastlloyd.protocols.secfc.messages import Assignment, AssignmentFormat
from fastlloyd.protocols.secfc.parameters import PublicParameters
from fastlloyd.protocols.secfc.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.secfc.server import ServerResult, server
from fastlloyd.protocols.secfc.sharing import await_shared, gather_sizes, share_points, tell_size
from fastlloyd.protocols.secfc.start import first_labels
from fastlloyd.protocols.seed import agree_seed
from fastlloyd.protocols.session import await_ready, gather_schema, propose_plan, receive_plan, tell_ready
from fastlloyd.simulate import Simulation, Tap
from fastlloyd.wire import SERVER, PartyId, clients

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
    assignments: list[bytes] = field(repr=False)

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
        """The first assignment and those that client 1 received."""
        records = len(self.first.labels)
        shape = AssignmentFormat(records, self.plan.k, self.plan.clients)
        return [first_labels(self.plan, records), *(Assignment.read(body, shape).labels for body in self.assignments)]


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
    grids = {me: quantise(points[parts[me.rank - 1]], public.chosen.fraction_bits) for me in everybody}
    made: list[Plan] = []
    assignments: list[bytes] = []

    def watch(sender, receiver, header, body):
        passed = body if tap is None else tap(sender, receiver, header, body)
        if header.type == Assignment.TYPE and receiver == PartyId(1):
            assignments.append(passed)
        return passed

    def one(me: PartyId):
        told = grids[me].n if sizes is None else sizes[me.rank - 1]
        yield from tell_size(told)
        proposal = yield from receive_plan(names, 0)
        plan = Plan.from_json(proposal.plan)
        check_plan(plan, public, me=me, d=d, names=names, told=told)
        seed = yield from agree_seed(me, everybody, run_id=RUN_ID, context=b"", secret=SecretRandom())
        shares = yield from share_points(me, grids[me], plan, run_id=RUN_ID, secret=SecretRandom())
        yield from tell_ready()
        return (yield from client(me, shares, grids[me], plan, seed=seed, run_id=RUN_ID))

    def serve():
        told = yield from gather_sizes(everybody)
        schema = yield from gather_schema(everybody)
        plan = make_plan(public, d=d, names=schema.names, sizes=told)
        made.append(plan)
        yield from propose_plan(everybody, plan.to_json(), 0)
        records = yield from await_shared(plan)
        yield from await_ready(everybody)
        return (yield from server(plan, records))

    simulation = Simulation({SERVER: serve(), **{me: one(me) for me in everybody}}, watch)
    results = simulation.run()
    own = {me: grids[me].raw_coordinates.T.astype(np.int64) for me in everybody}
    return Run(simulation, results, made[0], own, assignments)


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
