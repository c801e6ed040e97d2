"""Measures a cost figure of FedDP-KMeans: cost against total epsilon, for our method and the paper's baselines.

Source: FedDP-KMeans, §5.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.feddp.cost_report import Panel, write_report
from fastlloyd_papers.feddp.data import Source, is_there
from fastlloyd_papers.feddp.design import PUBLISHED, Figure, list_cells
from fastlloyd_papers.feddp.run import KFED, OPTIMAL, STARTS, Trial, Workbench
from fastlloyd_papers.sets.make import describe_made


def run_figure(figure: Figure, options: Options) -> str:
    """Measure all panels whose data are there, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        A file of the user's does not fit, or the folder cannot be written.
    DataError
        A record of how a set was made is not one.
    """
    chosen, notes = [], []
    for source, size in figure.quick if options.quick else figure.full:
        missing = is_there(source, options.data_dir)
        if missing:
            notes.append(f"{source.title} is left out: {missing}.")
        else:
            chosen.append((source, size))
            notes += [describe_made(source.file, options.data_dir)] if source.file else []
    sources = {source.label: source for source, _ in chosen}
    cells = [cell for source, size in chosen for cell in list_cells(source, size)]
    machine = describe_machine()
    store = open_cells(options, figure.name)
    values = measure_cells(
        cells,
        partial(_measure, Workbench(options.data_dir), sources),
        store,
        progress=options.progress,
        together=("name", "run"),
        jobs=options.jobs,
    )
    pairs = list(zip(cells, values, strict=True))
    panels = [
        Panel(source, size, [(cell, value) for cell, value in pairs if cell["name"] == source.label])
        for source, size in chosen
    ]
    text = write_report(figure, panels, options.output, notes=notes, machine=machine, quick=options.quick)
    store.remove()
    return text


def _measure(bench: Workbench, sources: Mapping[str, Source], cell: Cell) -> dict[str, Any]:
    return measure(bench, sources[cell["name"]], cell)


def measure(bench: Workbench, source: Source, cell: Cell) -> dict[str, Any]:
    """Measure one cell: the cost per record in original units, and the epsilon spent."""
    problem = bench.problem(source, cell["run"])
    if cell["method"] == OPTIMAL:
        return {"cost": problem.cost(bench.optimal(problem, cell["run"])), "epsilon": None}
    if cell["method"] == KFED:
        return {"cost": problem.cost(bench.kfed(problem, cell["run"])), "epsilon": None}
    published = cell["method"] == PUBLISHED
    trial = Trial(
        start="feddp" if published else STARTS[cell["method"]],
        epsilon=cell["epsilon"],
        rounds=cell["rounds"],
        run=cell["run"],
        published=published,
    )
    _, epsilon, result = bench.private(problem, trial)
    return {"cost": problem.cost(result.centers.exact), "epsilon": None if published else epsilon}
