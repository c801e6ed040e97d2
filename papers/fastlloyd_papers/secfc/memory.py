"""All parties of SecFC or k-FED in this thread, each one's own computation timed.

Run as a program (`python -m fastlloyd_papers.secfc.memory JSON`) it measures one point of Figure 1 and prints it as
JSON; whoever starts it so gives it one BLAS thread.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.party.effects import Effect, Party, Publish
from fastlloyd.protocols.kfed.client import client as kfed_client
from fastlloyd.protocols.kfed.plan import PublicParameters as KfedParameters
from fastlloyd.protocols.kfed.plan import make_plan as make_kfed_plan
from fastlloyd.protocols.kfed.server import server as kfed_server
from fastlloyd.protocols.secfc.client import ClientResult, client
from fastlloyd.protocols.secfc.math.masks import draw_rotation, rotate
from fastlloyd.protocols.secfc.plan import Plan, make_plan
from fastlloyd.protocols.secfc.server import server
from fastlloyd.protocols.secfc.settings import PublicParameters
from fastlloyd.protocols.secfc.sharing import await_shared, share_points
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SERVER, PartyId, clients
from fastlloyd_papers.secfc.data import gaussian_mixture

_SEED_BYTES = 32
_RUN_ID_BYTES = 16
_KFED_SIGMA = 1.0
_KFED_RESTARTS = 3


@dataclass(slots=True)
class Clock:
    """Processor time that one party has used, and how much of it at the end of each round."""

    seconds: float = 0.0
    rounds: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRun:
    """A run in memory.

    Attributes
    ----------
    grid : int64 array, shape (m, d)
        All records, client by client, as they were shared: rotated and rounded.
    labels : int64 array, shape (m,)
    rounds : int
    clocks : mapping from party to Clock
    payload : mapping from party to int
        Bytes sent: shares and answers.
    """

    grid: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    rounds: int
    clocks: Mapping[PartyId, Clock]
    payload: Mapping[PartyId, int]


def timed(party: Party[Any], clock: Clock) -> Party[Any]:
    """Drive a party on behalf of its runner, and count the processor time that it takes."""
    answer: Any = None
    while True:
        start = time.thread_time()
        try:
            effect: Effect = party.send(answer)
        except StopIteration as end:
            return end.value
        finally:
            clock.seconds += time.thread_time() - start
        if isinstance(effect, Publish) and effect.event == "round":
            clock.rounds.append(clock.seconds)
        answer = yield effect


def run_secfc(points: NDArray[np.float64], parts: Sequence[NDArray[np.int64]], plan: Plan) -> MemoryRun:
    """Run server and clients of SecFC from the plan on.

    The clients get a common seed here instead of agreeing on one, and nobody proves who it is: their labels are
    compared with those of a pooled run on the same rotated grid, and in whole runs nobody else learns the seed that
    the rotation follows from.

    Parameters
    ----------
    points : float64 array, shape (m, d)
        Scaled to [-1, 1].
    parts : sequence of int64 array
        Each client's rows.
    plan : Plan
        Without membership privacy, its sizes are those of the parts.
    """
    secret = SecretRandom()
    seed, run_id = secret.bytes(_SEED_BYTES), secret.bytes(_RUN_ID_BYTES)
    clocks = {party: Clock() for party in (SERVER, *clients(plan.clients))}

    def serve() -> Party[Any]:
        yield from await_shared(plan)
        return (yield from server(plan))

    def take_part(me: PartyId, own: GridPoints) -> Party[ClientResult]:
        shares = yield from share_points(me, own, plan, run_id=run_id, secret=secret)
        return (yield from client(me, shares, own, plan, rotation=rotation, seed=seed, run_id=run_id))

    rotation = draw_rotation(plan.d, seed=seed, run_id=run_id)
    grids = [rotate(points[rows], rotation, plan.fraction_bits) for rows in parts]
    parties = {SERVER: timed(serve(), clocks[SERVER])}
    for me, own in zip(clients(plan.clients), grids, strict=True):
        parties[me] = timed(take_part(me, own), clocks[me])
    simulation = Simulation(parties)
    results = simulation.run()
    first = results[clients(plan.clients)[0]]
    payload = {party: meter.total_sent().payload_bytes for party, meter in simulation.meters.items()}
    grid = np.concatenate([own.raw_coordinates.T for own in grids]).astype(np.int64)
    return MemoryRun(grid=grid, labels=first.labels, rounds=len(first.included), clocks=clocks, payload=payload)


def shape_plan(shape: Mapping[str, Any], sizes: tuple[int, ...]) -> Plan:
    """Make the plan of a measured point.

    Parameters
    ----------
    shape : mapping
        m, d, k, n, l, t, rounds, run.
    sizes : tuple of int
    """
    public = PublicParameters(
        protocol="secfc",
        clients=shape["n"],
        k=shape["k"],
        n_total=shape["m"],
        rounds=shape["rounds"],
        seed=shape["run"],
        settings={"segments": shape["l"], "threshold": shape["t"], "start": "random", "starts": 1},
    )
    return make_plan(public, d=shape["d"], names=_names(shape["d"]), sizes=sizes)


def make_points(shape: Mapping[str, Any], sigma: float) -> NDArray[np.float64]:
    """Generate the records of a measured point."""
    return gaussian_mixture(shape["m"], shape["d"], shape["k"], sigma, shape["run"])[0]


def measure(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Measure one point of Figure 1.

    Returns
    -------
    dict
        `client`, `server`, `total`: processor seconds of the slowest client, the server, and all parties together, for
        each iteration but the first; `sharing`: of the slowest client until the end of the first; `rounds`; `bytes`,
        `formula`: payload of client 1, counted, and m_j d (n - 1) / l + (k - 1) m s field elements; `clusters`
        that have records at the end; `kfed`: seconds of a whole run.
    """
    points = make_points(shape, shape["sigma"])
    parts = np.array_split(np.arange(len(points)), shape["n"])
    plan = shape_plan(shape, tuple(len(rows) for rows in parts))
    run = run_secfc(points, parts, plan)
    steps = {party: np.diff(clock.rounds) for party, clock in run.clocks.items()}
    own = np.max([values for party, values in steps.items() if not party.is_server], axis=0)
    first = PartyId(1)
    elements = len(parts[0]) * plan.width * (plan.clients - 1) + (plan.k - 1) * len(points) * run.rounds
    return {
        "client": own.tolist(),
        "server": steps[SERVER].tolist(),
        "total": np.sum(list(steps.values()), axis=0).tolist(),
        "sharing": max(clock.rounds[0] for party, clock in run.clocks.items() if not party.is_server),
        "rounds": run.rounds,
        "bytes": run.payload[first],
        "formula": elements * plan.field.element_bytes,
        "element_bytes": plan.field.element_bytes,
        "clusters": len(np.unique(run.labels)),
        "kfed": time_kfed(shape),
    }


def time_kfed(shape: Mapping[str, Any]) -> float:
    """Return the processor seconds of a whole run of k-FED: its slowest client's and the server's."""
    points = make_points(shape, _KFED_SIGMA)
    public = KfedParameters(
        protocol="kfed",
        clients=shape["n"],
        k=shape["k"],
        n_total=len(points),
        seed=shape["run"],
        settings={"restarts": _KFED_RESTARTS},
    )
    plan = make_kfed_plan(public, d=shape["d"], names=_names(shape["d"]))
    clocks = {party: Clock() for party in (SERVER, *clients(plan.clients))}
    parties: dict[PartyId, Party[Any]] = {SERVER: timed(kfed_server(plan), clocks[SERVER])}
    for me, own in zip(clients(plan.clients), np.array_split(points, plan.clients), strict=True):
        parties[me] = timed(kfed_client(me, quantise(own, plan.fraction_bits), plan), clocks[me])
    Simulation(parties).run()
    return clocks[SERVER].seconds + max(clock.seconds for party, clock in clocks.items() if not party.is_server)


def _names(d: int) -> tuple[str, ...]:
    return tuple(f"x{i + 1}" for i in range(d))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(json.loads(sys.argv[1]))) + "\n")
