"""SecFC, Figure 1: time of an iteration against clients, features and records; and against clusters.

Each point twice: all parties in one process without links, each one's own processor time counted, which is what the
paper shows; and as n + 1 processes under mpirun, the time that the server sees.

Source: SecFC, §5.1 "Complexity evaluation", Figure 1.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.machine import describe_machine, describe_software
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.runner import run_job, run_program
from fastlloyd_papers.secfc.fig1_design import FULL, QUICK, list_cells, make_job
from fastlloyd_papers.secfc.fig1_report import Figures, write_report
from fastlloyd_papers.secfc.memory import shape_plan

NAME = "secfc-fig1"
_MEMORY_PROGRAM = ("-m", "fastlloyd_papers.secfc.memory")


def run(options: Options) -> str:
    """Measure all points, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        There is no mpirun, or a run failed.
    """
    mpirun = find_mpirun()
    size = QUICK if options.quick else FULL
    machine, software = describe_machine(), describe_software(mpirun)
    cells = list_cells(size)
    store = open_cells(options, NAME, software=software)
    values = measure_cells(
        cells, lambda cell: measure(cell, mpirun), store, progress=options.progress, watch=options.watch
    )
    figures = Figures(
        name=NAME,
        size=size,
        pairs=list(zip(cells, values, strict=True)),
        machine=machine,
        software=software,
        quick=options.quick,
    )
    text = write_report(figures, options.output)
    store.remove()
    return text


def measure(cell: Cell, mpirun: Mpirun) -> dict[str, Any]:
    """Measure one cell."""
    if cell["way"] == "memory":
        # A program of its own, so that BLAS has one thread whatever this process has done before.
        said = run_program(
            [sys.executable, *_MEMORY_PROGRAM, json.dumps(dict(cell))], {}, what="a run of SecFC in memory"
        )
        value: dict[str, Any] = json.loads(said)
        return value
    with tempfile.TemporaryDirectory(prefix="fastlloyd-bench-") as folder:
        job = make_job(cell, Path(folder))
        measured = run_job(job, mpirun)
    rounds = len(measured["seconds"]) + 1
    plan = shape_plan(cell, job.shares.caps)
    answers = plan.clients * (plan.k - 1) * plan.n_total * rounds
    return {
        "seconds": statistics.median(measured["seconds"]),
        "setup": measured["setup_seconds"],
        "rounds": rounds,
        "bytes": round(measured["payload_bytes_per_round"] * rounds),
        "formula": answers * plan.field.element_bytes,
    }
