"""Measures a table of SecFC: accuracy of centralised Lloyd, k-FED and SecFC.

Centralised Lloyd is scikit-learn's on the records before rounding, from the start that SecFC makes of the same public
seed, so that the two differ by rounding and nothing else.

Source: SecFC, §5.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import accuracy, nearest
from fastlloyd.protocols.kfed.client import local_centers
from fastlloyd.protocols.kfed.plan import PublicParameters as KfedParameters
from fastlloyd.protocols.kfed.plan import make_plan as make_kfed_plan
from fastlloyd.protocols.kfed.server import merge_centers
from fastlloyd.protocols.secfc.plan import Plan, make_plan
from fastlloyd.protocols.secfc.settings import PublicParameters
from fastlloyd.wire.header import PartyId
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.secfc.data import Problem, Source, load_problem
from fastlloyd_papers.secfc.design import FULL, KFED, PROTOCOL, QUICK, SEPARATION, Table, code_for, list_cells
from fastlloyd_papers.secfc.lloyd import least_inertia, run_course, run_pooled
from fastlloyd_papers.secfc.memory import run_secfc
from fastlloyd_papers.secfc.report import write_report
from fastlloyd_papers.secfc.separation import local_separation, separation

_MOST_ITERATIONS = 300
_KFED_RESTARTS = 3


def run_table(table: Table, options: Options) -> str:
    """Measure all columns whose data are there, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        A file of the user's does not fit, or the folder cannot be written.
    """
    bench = Workbench(options.data_dir)
    sources, notes = {}, []
    for source in {column.source.label: column.source for column in table.columns}.values():
        try:
            bench.problem(source, 0)
        except ConfigError as error:
            notes.append(f"{source.title} is left out: {error}.")
        else:
            sources[source.label] = source
    size = QUICK if options.quick else FULL
    cells = list_cells(table, size, set(sources))
    machine = describe_machine()
    store = open_cells(options, table.name)
    values = measure_cells(
        cells,
        partial(_measure, Workbench(options.data_dir), sources),
        store,
        progress=options.progress,
        together=("name", "draw"),
        jobs=options.jobs,
    )
    text = write_report(
        table,
        list(zip(cells, values, strict=True)),
        options.output,
        notes=notes,
        machine=machine,
        quick=options.quick,
    )
    store.remove()
    return text


def _measure(bench: Workbench, sources: Mapping[str, Source], cell: Cell) -> Any:
    return measure(bench.problem(sources[cell["name"]], cell["draw"]), cell)


class Workbench:
    """Keeps the records of the last source and draw.

    Parameters
    ----------
    data_dir : str or None
    """

    def __init__(self, data_dir: str | None) -> None:
        self._data_dir = data_dir
        self._last: Problem | None = None

    def problem(self, source: Source, draw: int) -> Problem:
        """Return the records of one draw."""
        last = self._last
        if last is not None and last.source == source and source.digit is not None:
            # The same pictures, dealt out anew: no need to read them again.
            last = dataclasses.replace(last, seed=draw)
        elif last is None or (last.source, last.seed) != (source, draw):
            last = load_problem(source, self._data_dir, draw)
        self._last = last
        return last


def measure(problem: Problem, cell: Cell) -> dict[str, Any]:
    """Measure one cell."""
    parts = problem.deal(cell["local"])
    if cell["method"] == KFED:
        return measure_kfed(problem, parts, cell["local"], cell["run"])
    if cell["method"] == PROTOCOL:
        return measure_protocol(problem, parts, cell["run"])
    if cell["method"] == SEPARATION:
        return measure_separation(problem, parts)
    return measure_secfc(problem, parts, cell["run"])


def measure_secfc(problem: Problem, parts: Sequence[NDArray[np.int64]], run: int) -> dict[str, Any]:
    """Run SecFC's iterations on pooled records, and scikit-learn's from the groups of the start that wins.

    Returns
    -------
    dict
        `accuracy`, `cost` (mean squared distance, scaled), `iterations`; `one`: accuracy of the first start; `starts`:
        how many there are; `lloyd`: scikit-learn's accuracy; `differ`,
        `differ_rounded`: records that it labels otherwise, given the same records before and after rounding; `empty`:
        clusters that lost all their records.
    """
    points, truth = _in_order(problem, parts)
    plan = make_secfc_plan(problem, parts, run)
    grid = quantise(points, plan.fraction_bits).raw_coordinates.T.astype(np.int64)
    courses = [run_course(grid, plan, number) for number in range(plan.starts)]
    history = courses[least_inertia(grid, [course[-1] for course in courses], plan)]
    labels, groups = history[-1], history[plan.start_rounds]
    lloyd = central_lloyd(points, groups, plan.k)
    rounded = central_lloyd(grid / float(1 << plan.fraction_bits), groups, plan.k)
    used = np.unique(labels)
    centers = np.stack([points[labels == h].mean(axis=0) for h in used])
    return {
        "accuracy": accuracy(labels, truth),
        "one": accuracy(courses[0][-1], truth),
        "starts": plan.starts,
        "cost": nearest(points, centers)[1],
        "iterations": len(history) - 1 - plan.start_rounds,
        "lloyd": accuracy(lloyd, truth),
        "differ": int((lloyd != labels).sum()),
        "differ_rounded": int((rounded != labels).sum()),
        "empty": plan.k - len(used),
    }


def central_lloyd(points: NDArray[np.float64], groups: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Run scikit-learn's Lloyd from the means of k groups until the labels repeat; gives the labels."""
    from sklearn.cluster import KMeans

    start = np.stack([points[groups == h].mean(axis=0) for h in range(k)])
    found = KMeans(k, init=start, n_init=1, tol=0.0, max_iter=_MOST_ITERATIONS, algorithm="lloyd").fit(points)
    return np.asarray(found.labels_, dtype=np.int64)


def measure_protocol(problem: Problem, parts: Sequence[NDArray[np.int64]], run: int) -> dict[str, Any]:
    """Run the parties in memory and compare their labels with those of the table's way, on the same rotated grid."""
    plan = make_secfc_plan(problem, parts, run)
    made = run_secfc(problem.points, parts, plan)
    differ = int((made.labels != run_pooled(made.grid, plan)[-1]).sum())
    return {"differ": differ, "rounds": made.rounds, "records": len(made.labels)}


def measure_kfed(problem: Problem, parts: Sequence[NDArray[np.int64]], local: int, run: int) -> dict[str, Any]:
    """Run k-FED, whose clients know k'."""
    d = problem.points.shape[1]
    public = KfedParameters(
        protocol="kfed",
        clients=len(parts),
        k=problem.source.k,
        n_total=len(problem.points),
        seed=run,
        settings={"local_k": local, "restarts": _KFED_RESTARTS},
    )
    plan = make_kfed_plan(public, d=d, names=_names(d))
    found = [
        local_centers(PartyId(rank), quantise(problem.points[rows], plan.fraction_bits), plan)
        for rank, rows in enumerate(parts, start=1)
    ]
    centers = merge_centers(found, plan.k, d)
    scores = (centers**2).sum(axis=1) - 2.0 * problem.points @ centers.T
    return {"accuracy": accuracy(scores.argmin(axis=1), problem.truth)}


def measure_separation(problem: Problem, parts: Sequence[NDArray[np.int64]]) -> dict[str, Any]:
    """Measure what k-FED's local step assumes: of all records, and the worst client's own; None where none has two."""
    own = local_separation(problem.points, problem.truth, parts)
    return {"apart": separation(problem.points, problem.truth), "apart_locally": own if math.isfinite(own) else None}


def make_secfc_plan(problem: Problem, parts: Sequence[NDArray[np.int64]], run: int) -> Plan:
    """Make the plan of one run: the defaults, and t = ceil(n / 3) as in §5.1."""
    d = problem.points.shape[1]
    segments, threshold = code_for(len(parts))
    public = PublicParameters(
        protocol="secfc",
        clients=len(parts),
        k=problem.source.k,
        n_total=len(problem.points),
        rounds=_MOST_ITERATIONS,
        seed=run,
        settings={"segments": segments, "threshold": threshold},
    )
    return make_plan(public, d=d, names=_names(d), sizes=tuple(len(rows) for rows in parts))


def _in_order(problem: Problem, parts: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return records and true labels in the order of the run: client by client."""
    rows = np.concatenate(list(parts))
    return problem.points[rows], problem.truth[rows]


def _names(d: int) -> tuple[str, ...]:
    return tuple(f"x{i + 1}" for i in range(d))
