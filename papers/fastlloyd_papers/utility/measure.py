"""Measures the cells of a utility benchmark on all cores, each at once kept for an interrupted one to go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

from fastlloyd.net.cores import cores
from fastlloyd_papers.engine.cells import Cell, open_cells, worker_pool
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import Summary, summarise
from fastlloyd_papers.utility.data import Source, find_missing
from fastlloyd_papers.utility.design import EPSILONS
from fastlloyd_papers.utility.run import Workbench

Job = tuple[Source, Cell]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, cell by cell.

    Attributes
    ----------
    cells : list of cells
    values : list of mapping
        Per metric, one number for each run.
    """

    cells: list[Cell]
    values: list[Mapping[str, list[float | None]]]

    def runs(self, name: str, method: str, epsilon: float, metric: str = "nicv") -> list[float]:
        """Return one metric of all runs of a method on a set; runs without a value are left out."""
        for cell, value in zip(self.cells, self.values, strict=True):
            if (cell["name"], cell["method"]) == (name, method) and cell["epsilon"] in (epsilon, None):
                return [number for number in value[metric] if number is not None]
        raise KeyError((name, method, epsilon))

    def summary(self, name: str, method: str, epsilon: float, metric: str = "nicv") -> Summary:
        """Summarise one metric."""
        return summarise(self.runs(name, method, epsilon, metric))

    def areas(self, name: str, method: str, epsilons: Sequence[float] = EPSILONS) -> list[float]:
        """Return each run's area under NICV against epsilon (§6.2.1), by the trapezoidal rule."""
        columns = [self.runs(name, method, epsilon) for epsilon in epsilons]
        steps = [high - low for low, high in pairwise(epsilons)]
        return [
            sum(0.5 * (a + b) * step for a, b, step in zip(row[:-1], row[1:], steps, strict=True))
            for row in zip(*columns, strict=True)
        ]


def measure_jobs(bench: str, jobs: Sequence[Job], options: Options) -> tuple[Measured, Callable[[], None]]:
    """Measure all jobs that a former run has not.

    Returns
    -------
    Measured
    callable
        Removes the partial results: to be called when the report is written.
    """
    from tqdm import tqdm

    store = open_cells(options, bench)
    missing = [job for job in jobs if store.find(job[1]) is None]
    bar = tqdm(
        total=len(jobs), initial=len(jobs) - len(missing), unit="cell", disable=not options.progress, file=sys.stderr
    )
    with bar:
        for found in _measure(missing, options.data_dir, options.jobs or cores()):
            store.keep_all(found)
            bar.set_postfix_str(f"{found[-1][0]['name']} {found[-1][0]['method']}")
            bar.update(len(found))
    store.count([cell for _, cell in jobs])
    return Measured([cell for _, cell in jobs], [store.find(cell) for _, cell in jobs]), store.remove


def present(sources: Sequence[Source], data_dir: str | None) -> tuple[list[Source], list[str]]:
    """Leave out sets that are not there, with a note each."""
    found, notes = [], []
    for source in sources:
        missing = find_missing(source, data_dir)
        if missing:
            notes.append(f"{source.name} is left out: {missing}.")
        else:
            found.append(source)
    return found, notes


def batches_of(jobs: Sequence[Job]) -> list[list[Job]]:
    """Put jobs with the same set and method together: its records are made once for all of them."""
    return [list(group) for _, group in groupby(jobs, key=lambda job: (job[0], job[1]["method"]))]


def _measure(jobs: Sequence[Job], data_dir: str | None, processes: int) -> Iterator[list[tuple[Cell, Any]]]:
    """Measure jobs, as they become ready; with one process or few jobs in this one."""
    batches = batches_of(jobs)
    if min(processes, len(batches)) <= 1:
        with _one_thread():
            bench = Workbench(data_dir)
            for source, cell in jobs:
                yield [(cell, bench.measure(source, cell))]
        return
    # The long ones first, so that no process is left with one at the end.
    batches.sort(key=lambda batch: batch[0][0].k * max(batch[0][0].d, 1), reverse=True)
    with worker_pool(min(processes, len(batches))) as pool:
        waiting: dict[Future[Any], list[Job]] = {
            pool.submit(_measure_batch, batch, data_dir): batch for batch in batches
        }
        for done in as_completed(waiting):
            yield [(cell, value) for (_, cell), value in zip(waiting[done], done.result(), strict=True)]


def _measure_batch(batch: Sequence[Job], data_dir: str | None) -> list[Any]:
    """Measure jobs in a worker process, which keeps its records for the next."""
    with _one_thread():
        bench = _workbench(data_dir)
        return [bench.measure(source, cell) for source, cell in batch]


@lru_cache(maxsize=1)
def _workbench(data_dir: str | None) -> Workbench:
    return Workbench(data_dir)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep BLAS to one thread: the processes share the cores."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        yield
