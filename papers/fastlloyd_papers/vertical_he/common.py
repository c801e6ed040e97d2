"""What the benchmarks of vertical-he have in common: how a case is timed, and how results are written.

Source: Vertical HE, §5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun
from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd.version import __version__
from fastlloyd_papers.engine.cells import Cell, measure_cells, open_cells
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.quiet import words
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.runner import Hosts
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.vertical_he.mpi import run_over_mpi
from fastlloyd_papers.vertical_he.network import Traffic
from fastlloyd_papers.vertical_he.run import Case, run_case

OVER_MPI = "Two processes under mpirun over TCP with TLS on this machine, each with a file of its own columns."
IN_MEMORY = (
    "Parties, ciphertexts and worker processes are the real ones, messages pass through memory; alignment and the "
    "agreement on the plan are left out."
)
# Key, count, columns, plan and the like, as counted under mpirun.
_SETUP_MESSAGES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One benchmark's cells, tables and charts."""

    name: str
    title: str
    options: Options
    _values: list[Any] = field(default_factory=list, init=False, repr=False)

    @property
    def workers(self) -> int:
        """Processes of the computing party."""
        return self.options.jobs or cores()

    def measure(self, cells: Sequence[Cell], measure: Callable[[Cell], Any]) -> list[Any]:
        """Measure what is missing and keep it; the partial results go when all are there."""
        store = open_cells(self.options, self.name, workers=self.workers)
        values = measure_cells(cells, measure, store, progress=self.options.progress, watch=self.options.watch)
        store.remove()
        self._values.extend(values)
        return values

    def write(self, parts: Sequence[str], notes: Sequence[str], csvs: Mapping[str, str]) -> str:
        """Write Markdown and CSV files, and give the Markdown.

        Parameters
        ----------
        parts : sequence of str
            Tables, with the words that belong to them.
        notes : sequence of str
        csvs : mapping from a suffix of the name to CSV
        """
        plural = "" if self.workers == 1 else "es"
        about = f"{describe_machine()}, fastlloyd {__version__}, {self.workers} worker process{plural}."
        if self.options.watch is not None:
            about += f" {words(self._values)}"
        text = "\n\n".join([f"# {self.title}", about, *parts, "\n".join(f"- {note}" for note in notes)]) + "\n"
        for suffix, table in csvs.items():
            write_atomic(self._path(f"{suffix}.csv"), table)
        write_atomic(self._path(".md"), text)
        return text

    def chart(self, panels: Sequence[Panel]) -> None:
        """Write a PNG, where matplotlib is installed."""
        if available():
            self.picture(line_panels(panels, columns=len(panels)))

    def picture(self, png: bytes) -> None:
        """Write a PNG."""
        write_atomic(self._path(".png"), png)

    def _path(self, end: str) -> Path:
        return self.options.output / f"{self.name}{end}"


class Timer:
    """Times cases under mpirun, or in memory where there is none.

    Parameters
    ----------
    workers : int
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.mpirun: Mpirun | None = None
        try:
            self.mpirun = find_mpirun()
            self.how = OVER_MPI
        except ConfigError as error:
            self.how = f"{IN_MEMORY} ({error}.)"

    def measure(self, case: Case, points: NDArray[np.float64], hosts: Hosts | None = None) -> dict[str, Any]:
        """Run one case; as `run_over_mpi` gives it, None for what only mpirun tells."""
        if self.mpirun is not None:
            value = run_over_mpi(case, points, self.workers, self.mpirun, hosts)
        else:
            value = {"wall_seconds": None, "cpu_seconds": None, "peak_mib": None, "setup_messages": _SETUP_MESSAGES}
            value |= run_case(case, points, self.workers)
        del value["centers"]
        return value


def traffic_of(value: Mapping[str, Any], rounds: int) -> Traffic:
    """Return what a measured run would send in so many rounds."""
    return Traffic(
        setup_bytes=value["setup_bytes"],
        round_bytes=value["round_bytes"],
        rounds=rounds,
        setup_messages=value["setup_messages"],
    )


def compute_seconds(value: Mapping[str, Any], rounds: int) -> float:
    """Return the seconds of set-up and rounds on this machine."""
    return float(value["setup_seconds"] + rounds * value["round_seconds"])


def tables(header: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[str, str]:
    """Write the same rows as Markdown, to three digits, and as CSV."""
    return markdown_table(header, [[shown(value) for value in row] for row in rows]), csv_table(header, rows)


def shown(value: object) -> str:
    """Write a value for a table."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
