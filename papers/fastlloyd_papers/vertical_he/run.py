"""Runs vertical-he once on points, all parties on this machine, and says what it took.

The parties are the real ones, and so are the ciphertexts and the worker processes; messages pass through memory, so the
time is that of computing alone and the bytes are counted as they would be sent. Alignment and the agreement on the
plan are left out: `benchmarks/vertical_he_cost.py` reads processor time and memory of a whole case, and the ids of a
million records would be a part of both. `vertical_he_mpi` runs it all.

Source: Vertical HE, §5.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.metrics import nearest
from fastlloyd.party.effects import Party, Publish, Record
from fastlloyd.protocols.vertical_he.computing import ENCRYPTED
from fastlloyd.protocols.vertical_he.math.workers import WorkerEngine
from fastlloyd.protocols.vertical_he.parameters import PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.protocol import play
from fastlloyd.protocols.vertical_he.rounds import Released, fresh_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation
from fastlloyd.wire.header import SETUP_ROUND, PartyId

_LLOYD_ROUNDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is run.

    Attributes
    ----------
    widths : tuple of int
        Columns of each owner, in order.
    rounds : int or None
        None: the protocol's choice.
    noise, scheme, mode : str
        As `--set vertical-he.NAME=`.
    computing : int
        Likewise; -1: the cheaper choice.
    shrink : bool
        Likewise; the paper's tables are about what it does, which is not to weigh.
    """

    k: int
    widths: tuple[int, ...]
    rounds: int | None = 10
    epsilon: float = 1.0
    noise: str = "dp"
    scheme: str = "auto"
    mode: str = "auto"
    computing: int = -1
    shrink: bool = False
    seed: int = 0

    @property
    def ranks(self) -> int:
        """The owners, and from three of them on a server without data."""
        return len(self.widths) if len(self.widths) == 2 else len(self.widths) + 1

    @property
    def settings(self) -> dict[str, Any]:
        """What belongs to vertical-he alone."""
        return {
            "noise": self.noise,
            "scheme": self.scheme,
            "mode": self.mode,
            "computing": self.computing,
            "shrink": self.shrink,
        }


def plan_case(case: Case, n: int) -> Plan:
    """Make the plan of one case."""
    public = PublicParameters(
        parties=case.ranks,
        k=case.k,
        n_total=n,
        epsilon=case.epsilon,
        delta=1.0 / n,  # as in the paper
        rounds=case.rounds,
        seed=case.seed,
        settings=case.settings,
    )
    return make_plan(public, [[f"x{i}_{j}" for j in range(width)] for i, width in enumerate(case.widths)])


def run_case(case: Case, points: NDArray[np.float64], workers: int) -> dict[str, Any]:
    """Run one case from sphere packing.

    Parameters
    ----------
    case : Case
    points : float64 array, shape (n, d), scaled to [-1, 1]
    workers : int

    Returns
    -------
    dict
        scheme, rounds, setup_seconds, round_seconds (mean), setup_bytes, round_bytes, loss (scaled to [0, 1]), centers.
    """
    plan = plan_case(case, len(points))
    marks: dict[str, float] = {"start": time.perf_counter()}
    computing, parties = PartyId(plan.computing), dict[PartyId, Party[Released]]()
    for rank in sorted({plan.computing, plan.holder, *plan.owners}):
        me, columns = PartyId(rank), np.ascontiguousarray(points[:, list(plan.columns(rank))].T)
        noise = fresh_noise(plan, SecretRandom())
        parties[me] = play(me, plan, columns, noise, partial(WorkerEngine, plan, columns, workers))
    parties[computing] = _marked(parties[computing], marks)
    simulation = Simulation(parties)
    result: Released = simulation.run()[PartyId(plan.holder)]
    end = time.perf_counter()
    setup_bytes = _bytes(simulation, setup=True)
    loss = nearest(points, result.centers)[1] / 4.0
    return {
        "scheme": plan.scheme,
        "rounds": result.rounds,
        "setup_seconds": marks["setup"] - marks["start"],
        "round_seconds": (end - marks["setup"]) / result.rounds,
        "setup_bytes": setup_bytes,
        "round_bytes": _bytes(simulation, setup=False) / result.rounds,
        "loss": loss,
        "centers": result.centers.tolist(),
    }


def plain_lloyd(points: NDArray[np.float64], start: NDArray[np.float64], rounds: int) -> NDArray[np.float64]:
    """Run Lloyd's algorithm in clear, shape (k, d): the baseline. An empty cluster keeps its centre."""
    centers = start.copy()
    for _ in range(min(rounds, _LLOYD_ROUNDS)):
        labels, _ = nearest(points, centers)
        counts = np.bincount(labels, minlength=len(centers))
        sums = np.stack([np.bincount(labels, points[:, h], len(centers)) for h in range(points.shape[1])], axis=1)
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)
    return centers


def synthetic(n: int, k: int, d: int, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Draw Gaussian clusters in the style of the paper's: points (n, d) within [-1, 1], and their clusters (n,)."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    labels = np.arange(n, dtype=np.int64) % k
    return np.clip(centers[labels] + rng.normal(0.0, 0.1, (n, d)), -1.0, 1.0), labels


def _marked(party: Party[Released], marks: dict[str, float]) -> Party[Released]:
    """Note when the last encrypted block has come that comes before the rounds, or when these begin; pass all on."""
    answer: Any = None
    begun = False
    while True:
        try:
            effect = party.send(answer)
        except StopIteration as end:
            result: Released = end.value
            return result
        if isinstance(effect, Record) and not begun:
            begun = True
            marks.setdefault("setup", time.perf_counter())
        elif isinstance(effect, Publish) and effect.values.get("stage") == ENCRYPTED and not begun:
            marks["setup"] = time.perf_counter()
        answer = yield effect


def _bytes(simulation: Simulation, *, setup: bool) -> int:
    """Count what all parties sent, in the set-up or in the rounds."""
    return sum(
        count.link_bytes
        for meter in simulation.meters.values()
        for (_, round_), count in meter.sent.items()
        if (round_ == SETUP_ROUND) == setup
    )
