"""Runs of the FastLloyd family for measurements: the clients' own arithmetic on pooled records, numpy's noise.

A run is the same as `protocols/fastlloyd/reference.py`, bit by bit, for the same noise; what differs from a run of the
parties is the source of the noise: numpy's generator, seeded from the name of what is measured, so that a figure can be
had again. That is fine for measurements and for nothing else. It is independent of the public seed, from which the
start follows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.calibration import paper_delta
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, local_update, post_process
from fastlloyd.protocols.fastlloyd.settings import PublicParameters
from fastlloyd_papers.baselines.table import BASELINES
from fastlloyd_papers.engine.cells import Cell, seed_of
from fastlloyd_papers.utility.data import Source, load_points
from fastlloyd_papers.utility.metric import Metrics

Noise = Callable[[int], NDArray[np.int64]]


def simulate(points: GridPoints, plan: Plan, noise: Noise) -> Centers:
    """Run all rounds that move centres on pooled records.

    Parameters
    ----------
    points : GridPoints
    plan : Plan
    noise : callable
        Round number t to noise in grid units, int64, shape (plan.elements(t),).
    """
    centers = first_centers(plan)
    for t in range(plan.moving):
        centers = post_process(local_update(points, centers, plan, t) + noise(t), centers, plan, t)
    return centers


def generator_noise(plan: Plan, rng: np.random.Generator) -> Noise:
    """Return noise of the plan's distribution from numpy's generator: for measurements only."""
    draw = {"gaussian": rng.normal, "laplace": rng.laplace}.get(plan.mechanism)

    def noise(t: int) -> NDArray[np.int64]:
        if draw is None:
            return np.zeros(plan.elements(t), dtype=np.int64)
        planned, (sums, counts) = plan.rounds[t], plan.lengths(t)
        parts = [draw(0.0, planned.sum_scale, sums), draw(0.0, planned.count_scale, counts)]
        return np.rint(np.concatenate(parts)).astype(np.int64)

    return noise


def plan_run(protocol: str, epsilon: float, *, k: int, d: int, n: int, settings: Mapping[str, Any]) -> Plan:
    """Make the plan of a run with the paper's delta, 1 / (N ln N), and rounds by the protocol's formula."""
    public = PublicParameters(
        protocol=protocol,
        clients=2,
        min_clients=2,
        k=k,
        n_total=n,
        epsilon=epsilon,
        delta=paper_delta(n),
        rounds=None,
        seed=0,
        ring_bits=64,
        masking="common",
        known_shares=1,
        settings=settings,
    )
    return make_plan(public, d=d, names=tuple(f"x{h + 1}" for h in range(d)))


class Workbench:
    """Keeps the records of the last source at hand, as figures are measured source by source.

    Parameters
    ----------
    data_dir : str or None
    """

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir
        self._source: Source | None = None
        self._points: NDArray[np.float64] = np.empty((0, 0))
        self._grids: dict[int, GridPoints] = {}
        self._metrics: Metrics | None = None

    def measure(self, source: Source, cell: Cell) -> dict[str, list[float | None]]:
        """Measure one cell: the metrics of each of its runs, by name.

        Parameters
        ----------
        source : Source
        cell : mapping
            protocol, settings, epsilon (None without privacy), runs, and `all` for all metrics, not NICV alone.
        """
        self._open(source)
        rng = np.random.default_rng(seed_of(cell))
        runs = self._run_baseline if cell["protocol"] in BASELINES else self._run_protocol
        results: dict[str, list[float | None]] = {}
        for centers in runs(source, cell, rng):
            for name, value in self._judge(centers, everything=cell["all"]).items():
                results.setdefault(name, []).append(value)
        return results

    def _run_protocol(self, source: Source, cell: Cell, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
        """Run one of the FastLloyd family; its start follows from the number of the run."""
        n, d = self._points.shape
        epsilon = 1.0 if cell["epsilon"] is None else cell["epsilon"]
        plan = plan_run(cell["protocol"], epsilon, k=source.k, d=d, n=n, settings=cell["settings"])
        if plan.fraction_bits not in self._grids:
            self._grids = {plan.fraction_bits: quantise(self._points, plan.fraction_bits)}
        points = self._grids[plan.fraction_bits]
        for run in range(cell["runs"]):
            seeded = dataclasses.replace(plan, seed=run)
            yield simulate(points, seeded, generator_noise(seeded, rng)).exact

    def _run_baseline(self, source: Source, cell: Cell, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
        """Run what the protocols are compared with, on the same records and budget."""
        epsilon, delta = cell["epsilon"] or 0.0, paper_delta(len(self._points))
        for _ in range(cell["runs"]):
            yield BASELINES[cell["protocol"]](self._points, source.k, rng, epsilon=epsilon, delta=delta)

    def _open(self, source: Source) -> None:
        if source == self._source:
            return
        self._points = load_points(source, self._data_dir)
        self._grids, self._metrics, self._source = {}, None, source

    def _judge(self, centers: NDArray[np.float64], *, everything: bool) -> dict[str, float | None]:
        labels, nicv = nearest(self._points, centers)
        if not everything:
            return {"nicv": nicv}
        if self._metrics is None:
            self._metrics = Metrics(self._points, len(centers))
        return {"nicv": nicv, **self._metrics.judge(centers, labels)}
