"""What the benchmarks of vertical-he have in common: data sets, repetitions, and how results are written.

Source: Vertical HE, §5.2 and §5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.bench.cells import Cell, CellStore, measure_cells
from fastlloyd.bench.machine import busy, cores, describe_machine, load
from fastlloyd.bench.registry import Options
from fastlloyd.bench.tables import csv_table, markdown_table
from fastlloyd.bench.vertical_he_run import synthetic
from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.named import load_named
from fastlloyd.errors import ConfigError
from fastlloyd.report.chart import Panel, line_panels
from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd.version import __version__

HOW = (
    "Parties, ciphertexts and worker processes are the real ones, messages pass through memory; what a network adds is "
    "computed from the bytes."
)


def load_points(name: str, options: Options) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Give a public set's points, scaled to [-1, 1], and its classes; made here for 'synth-N-K-D'.

    Raises
    ------
    ConfigError
        The set is not there.
    """
    if name.startswith("synth-"):
        n, k, d = (int(part) for part in name.split("-")[1:])
        return synthetic(n, k, d)
    data = load_named(name, options.data_dir)
    return scale(data.values, data.bounds or auto_public(data.values, data.names)), data.labels


def split_widths(d: int, parties: int) -> tuple[int, ...]:
    """Deal d columns out evenly, the first owners getting one more."""
    return tuple(len(part) for part in np.array_split(np.arange(d), parties))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One benchmark's cells, tables and charts.

    Attributes
    ----------
    before : float
        Load of the machine before the first run.
    """

    name: str
    title: str
    options: Options
    before: float = field(default_factory=load)

    def measure(self, cells: Sequence[Cell], measure: Callable[[Cell], Any]) -> list[Any]:
        """Measure what is missing and keep it; the partial results go when all are there."""
        context = {"bench": self.name, "machine": describe_machine(), "version": __version__}
        store = CellStore(self.options.output / f"{self.name}.partial.json", context)
        values = measure_cells(cells, measure, store, progress=self.options.progress)
        store.remove()
        return values

    def write(self, header: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str]) -> str:
        """Write CSV and Markdown, and give the Markdown."""
        table = markdown_table(header, [[_text(value) for value in row] for row in rows])
        warning = ["The machine was busy with other things: times are too long."] if busy(self.before) else []
        about = f"{describe_machine()}, fastlloyd {__version__}, {cores()} worker processes, load {self.before:.1f}."
        text = "\n\n".join([f"# {self.title}", table, about, HOW, *warning, *notes]) + "\n"
        write_atomic(self.options.output / f"{self.name}.csv", csv_table(header, rows))
        write_atomic(self.options.output / f"{self.name}.md", text)
        return text

    def chart(self, panels: Sequence[Panel]) -> None:
        """Write a PNG, where matplotlib is installed."""
        if available():
            write_atomic(self.options.output / f"{self.name}.png", line_panels(panels, columns=len(panels)))


def try_points(name: str, options: Options) -> tuple[NDArray[np.float64], NDArray[np.int64] | None] | str:
    """Load a set, or say why it is left out."""
    try:
        return load_points(name, options)
    except ConfigError as error:
        return f"{name} is left out: {error}"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
