"""Measures one figure of vertical DP: all panels whose data are there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.sets.make import describe_made
from fastlloyd_papers.vertical_dp.data import LOAN, TAXI, Source, missing
from fastlloyd_papers.vertical_dp.design import Figure, Panel, list_cells
from fastlloyd_papers.vertical_dp.report import write_report
from fastlloyd_papers.vertical_dp.run import Method, Workbench


def run_figure(figure: Figure, options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        A file of the user's does not fit, or the folder cannot be written.
    DataError
        A record of how a set was made is not one.
    """
    chosen, notes = [], []
    for source, size in figure.quick if options.quick else figure.full:
        reason = missing(source, options.data_dir)
        if reason:
            notes.append(f"{source.title} is left out: {reason}.")
        else:
            chosen.append((source, size))
            made = describe_made(source.name, options.data_dir) if source.name in (TAXI, LOAN) else ""
            notes += [made] if made and made not in notes else []
    known = {(source.label, method.name): (source, method) for source, size in chosen for method in size.methods}
    cells = [cell for source, size in chosen for cell in list_cells(source, size)]
    machine = describe_machine()
    store = open_cells(options, figure.name)
    measure = partial(_measure, Workbench(options.data_dir), known)
    values = measure_cells(
        cells, measure, store, progress=options.progress, together=("name", "run"), jobs=options.jobs
    )
    pairs = list(zip(cells, values, strict=True))
    panels = [
        Panel(source, size, [pair for pair in pairs if pair[0]["name"] == source.label]) for source, size in chosen
    ]
    text = write_report(figure, panels, options.output, notes=notes, machine=machine, quick=options.quick)
    store.remove()
    return text


def _measure(bench: Workbench, known: Mapping[tuple[str, str], tuple[Source, Method]], cell: Cell) -> dict[str, Any]:
    source, method = known[cell["name"], cell["method"]]
    return bench.measure(source, cell["run"], method, cell["epsilon"] or 1.0)
