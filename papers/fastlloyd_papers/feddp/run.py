"""One clustering of a benchmark's records by one method, and what it costs.

The private methods run centrally (`central.py`), which gives the parties' results bit by bit, with the sum of all
clients' shares of noise drawn at once.

Source: FedDP-KMeans, §5 "Baselines" and "Evaluation Procedure", App. G.3.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.passes import Passes
from fastlloyd.protocols.feddp.plan import Plan, PublicParameters
from fastlloyd.protocols.feddp.proposal import check_plan, make_plan
from fastlloyd.protocols.feddp.settings import OUTER
from fastlloyd.protocols.kfed.client import local_centers
from fastlloyd.protocols.kfed.plan import PublicParameters as KfedParameters
from fastlloyd.protocols.kfed.plan import make_plan as make_kfed_plan
from fastlloyd.protocols.kfed.server import merge_centers
from fastlloyd.wire.header import PartyId
from fastlloyd_papers.engine.cells import stream_of
from fastlloyd_papers.feddp.central import CentralResult, Pool, draw_total, grids_of, run_central
from fastlloyd_papers.feddp.data import Problem, Source, load_problem

DELTA = 1e-6
OPTIMAL, KFED = "optimal", "k-fed"
# In the place of the paper's SpherePacking (App. G.3): see `math/stage.py`.
PACKED = "sphere packing (ours)"
STARTS: Mapping[str, str] = {
    "FedDP-KMeans": "feddp",
    "ServerKMeans++": "server-kmeans++",
    "ServerLloyds": "server-lloyds",
    PACKED: "sphere-packing",
}
_OPTIMAL_STARTS = 5
_LOCAL_STARTS = 3
# Grids change with epsilon; each takes 4 bytes for a value.
_POOLS = 4


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One private clustering.

    Attributes
    ----------
    start : str
        See `STARTS`.
    epsilon : float
    rounds : int
        Paper: T.
    run : int
        Repetition: the seed of data and public draws.
    settings : mapping
        Further settings of `feddp`.
    published : bool
        Give the outer product the published code's noise, Delta times too little: no privacy claim.
    noise : bool
        False: no noise at all, to see what the noise does; no privacy.
    choose_k : int
        Choose k by the elbow, at most this; 0 for the data's own k.
    """

    start: str
    epsilon: float
    rounds: int
    run: int
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    published: bool = False
    noise: bool = True
    choose_k: int = 0


class Workbench:
    """Keeps the records of the last source, and what is computed from them alike for several trials.

    Parameters
    ----------
    data_dir : str or None
    """

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir
        self._problem: tuple[tuple[Source, int], Problem] | None = None
        self._pools: dict[tuple[object, ...], Pool] = {}
        self._open: dict[tuple[object, ...], NDArray[np.float64]] = {}
        self._passes = Passes()

    def problem(self, source: Source, run: int) -> Problem:
        """Return the records of one repetition."""
        key = (source, run if source.mixture is not None else 0)
        if self._problem is None or self._problem[0] != key:
            self._problem = None  # two large sets do not stand beside each other
            self._pools.clear()
            self._problem = (key, load_problem(source, self._data_dir, run))
        return self._problem[1]

    def optimal(self, problem: Problem, run: int) -> NDArray[np.float64]:
        """Return what `run_optimal` finds; the same clients' records are clustered once."""
        return self._once(OPTIMAL, problem, 0 if problem.source.mixture is None else run, lambda: run_optimal(problem))

    def kfed(self, problem: Problem, run: int) -> NDArray[np.float64]:
        """Return what `run_kfed` finds, likewise."""
        return self._once(KFED, problem, run, lambda: run_kfed(problem, run))

    def _once(
        self, method: str, problem: Problem, run: int, find: Callable[[], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return centres that depend on the clients' records and the repetition alone."""
        source = problem.source
        # What the server has or lacks leaves the clients' records as they are.
        made = None if source.mixture is None else dataclasses.replace(source.mixture, missing=0)
        key = (method, made or source, source.k, run)
        if key not in self._open:
            self._open[key] = find()
        return self._open[key]

    def private(self, problem: Problem, trial: Trial) -> tuple[Plan, float, CentralResult]:
        """Run one private clustering; gives the plan, the epsilon it spends and the result; noise from the names."""
        public = public_parameters(problem, trial)
        names = feature_names(problem.points.shape[1])
        plan = make_plan(public, d=len(names), names=names, server_points=problem.server_points)
        epsilon = check_plan(plan, public, d=len(names), names=names)
        if trial.published:
            plan = published_calibration(plan, problem.half_width)
        secret = stream_of({"name": problem.source.label, **dataclasses.asdict(trial)})

        def noise(t: int, k: int) -> NDArray[np.int64]:
            return draw_total(plan, t, k, secret) if trial.noise else np.zeros(plan.elements(t, k), dtype=np.int64)

        return plan, epsilon, run_central(self._pool(problem, plan), problem.server_points, plan, noise)

    def _pool(self, problem: Problem, plan: Plan) -> Pool:
        """Return the records on a plan's grids; the latest few stay."""
        key = grids_of(plan)
        found = self._pools.pop(key, None)
        if found is None:
            if len(self._pools) == _POOLS:
                del self._pools[next(iter(self._pools))]
            found = Pool(problem.points, plan, problem.owners if plan.by_user else None, self._passes)
        self._pools[key] = found
        return found


def public_parameters(problem: Problem, trial: Trial) -> PublicParameters:
    """Return the public parameters of a trial: every owner is a client that adds a share of the noise."""
    source = problem.source
    return PublicParameters(
        protocol="feddp",
        known_shares=1,
        clients=problem.clients,
        min_clients=problem.clients,
        k=trial.choose_k or source.k,
        choose_k=trial.choose_k > 0,
        n_total=len(problem.points),
        epsilon=trial.epsilon,
        delta=DELTA,
        rounds=trial.rounds,
        seed=trial.run,
        ring_bits=64,
        settings={"privacy_level": source.level, "start": trial.start, **trial.settings},
    )


def published_calibration(plan: Plan, half_width: float) -> Plan:
    """Return the outer product the noise of the published code: for sensitivity Delta, not Delta^2.

    Parameters
    ----------
    plan : Plan
    half_width : float
        Original units in a scaled one: the published code's Delta is in the former, so its noise is Delta times less.

    Notes
    -----
    Privacy: none is claimed. One record moves the outer product by Delta^2 (Alg. 1, line 6; the paper's text is right).
    """
    factor = plan.norm_bound * half_width
    rounds = tuple(
        dataclasses.replace(step, sigma=step.sigma / factor) if step.kind == OUTER else step for step in plan.rounds
    )
    return dataclasses.replace(plan, rounds=rounds)


def run_kfed(problem: Problem, run: int) -> NDArray[np.float64]:
    """Run k-FED with k' = k, three local starts; float64, shape (k, d), scaled."""
    names = feature_names(problem.points.shape[1])
    owners, place = np.unique(problem.owners, return_inverse=True)
    public = KfedParameters(
        protocol="kfed",
        clients=len(owners),
        k=problem.source.k,
        n_total=len(problem.points),
        seed=run,
        settings={"restarts": _LOCAL_STARTS},
    )
    plan = make_kfed_plan(public, d=len(names), names=names)
    parts = np.split(np.argsort(place, kind="stable"), np.cumsum(np.bincount(place))[:-1])
    local = [
        local_centers(PartyId(rank), quantise(problem.points[rows], plan.fraction_bits), plan)
        for rank, rows in enumerate(parts, start=1)
    ]
    return merge_centers(local, plan.k, plan.d)


def run_optimal(problem: Problem) -> NDArray[np.float64]:
    """Cluster the pooled records without any privacy: scikit-learn, best of five starts; shape (k, d), scaled."""
    from sklearn.cluster import KMeans

    found = KMeans(problem.source.k, n_init=_OPTIMAL_STARTS, random_state=0).fit(problem.points)
    centers: NDArray[np.float64] = found.cluster_centers_
    return centers


@functools.lru_cache(maxsize=8)
def feature_names(d: int) -> tuple[str, ...]:
    """Name features x1..xd."""
    return tuple(f"x{h + 1}" for h in range(d))
