"""k-FED on the mixture of FedDP-KMeans, Figure 1, with both local steps: which one the paper took it does not say.

Source: FedDP-KMeans, §5 (k-FED "also performs optimally in this setting"); Dennis et al. 2021, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.kfed.server import merge_centers
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise
from fastlloyd_papers.feddp.data import Problem, mixture_source
from fastlloyd_papers.feddp.run import Workbench

NAME = "feddp-kfed"
SPECTRAL, PLAIN = "Awasthi and Sheffet, best of 3 starts", "k-means, best of 10 starts"
_SOURCE = mixture_source("record", clients=100, points=1000)
_STARTS, _RUNS, _QUICK_RUNS = 10, 10, 2


def run(options: Options) -> str:
    """Measure, write Markdown and CSV, and give the Markdown."""
    runs = _QUICK_RUNS if options.quick else _RUNS
    cells: list[Cell] = [{"name": _SOURCE.label, "run": run} for run in range(runs)]
    store = open_cells(options, NAME)
    values = measure_cells(
        cells, partial(measure, Workbench(None)), store, progress=options.progress, jobs=options.jobs
    )
    ratios = {name: summarise([value[name] for value in values]) for name in (SPECTRAL, PLAIN)}
    rows = [[name, found.text(4), f"{found.least:.4f}", f"{found.largest:.4f}"] for name, found in ratios.items()]
    parts = [
        f"# k-FED on the mixture of FedDP-KMeans, by local step{' (quick)' if options.quick else ''}",
        f"{describe_machine()}. {_SOURCE.title}, 1,000 records each, k' = k; {runs} runs, each with new records. Cost "
        "over that of k-means on the pooled records (scikit-learn, best of five starts), with its 95 % interval. "
        "FedDP-KMeans says of k-FED that all clients cluster their data locally, and that it performs optimally here: "
        "which local step it ran it does not say. `kfed` has that of k-FED's authors.",
        markdown_table(["local step", "cost over the optimum's", "least", "largest"], rows),
    ]
    lines = [[cell["run"], name, value[name]] for cell, value in zip(cells, values, strict=True) for name in ratios]
    text = write_files(options.output, NAME, parts, csv_table(["run", "local_step", "over_optimum"], lines))
    store.remove()
    return text


def measure(bench: Workbench, cell: Cell) -> dict[str, Any]:
    """Cluster one draw of the mixture by both local steps; each cost over the optimum's."""
    problem = bench.problem(_SOURCE, cell["run"])
    optimum = problem.cost(bench.optimal(problem, cell["run"]))
    local = [plain_centers(rows, problem.source.k, cell["run"]) for rows in _parts(problem)]
    merged = merge_centers(local, problem.source.k, problem.points.shape[1])
    return {
        SPECTRAL: problem.cost(bench.kfed(problem, cell["run"])) / optimum,
        PLAIN: problem.cost(merged) / optimum,
    }


def plain_centers(points: NDArray[np.float64], k: int, seed: int) -> NDArray[np.float64]:
    """Cluster one client's records by scikit-learn's k-means; shape (k, d)."""
    from sklearn.cluster import KMeans

    centers: NDArray[np.float64] = KMeans(k, n_init=_STARTS, random_state=seed).fit(points).cluster_centers_
    return centers


def _parts(problem: Problem) -> Sequence[NDArray[np.float64]]:
    """Return each client's records."""
    return [problem.points[problem.owners == owner] for owner in np.unique(problem.owners)]
