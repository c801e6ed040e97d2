"""Figure 1 of SecFC as Markdown, CSV and PNG."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlloyd.net.cores import cores
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Panel, line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.quiet import COLUMNS, entries, marked, words
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.secfc.fig1_design import BASE, LARGE, TITLES, Size, axis_shapes, name_of, target_shapes

_TARGETS = {name_of(BASE): "50 ms for each party", name_of(LARGE): "2 s in all"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that was measured.

    Attributes
    ----------
    pairs : list of (cell, value)
    """

    name: str
    size: Size
    pairs: Sequence[tuple[Cell, Any]] = field(repr=False)
    machine: str
    software: str
    quick: bool

    def values(self, shape: Mapping[str, Any], way: str) -> list[Any]:
        """Return the measurements of one point, one for each repetition."""
        wanted = {"name": name_of(shape), "way": way}
        return [value for cell, value in self.pairs if all(cell[key] == wish for key, wish in wanted.items())]

    def milliseconds(self, shape: Mapping[str, Any], part: str) -> float:
        """Return the median over all iterations: `client`, `server` or `total`."""
        seconds = [float(s) for value in self.values(shape, "memory") for s in value[part]]
        return 1e3 * statistics.median(seconds)

    def kfed(self, shape: Mapping[str, Any]) -> float:
        """Return milliseconds of a whole run of k-FED, median over the repetitions."""
        return 1e3 * statistics.median([float(value["kfed"]) for value in self.values(shape, "memory")])

    def wall(self, shape: Mapping[str, Any]) -> float | None:
        """Return milliseconds of an iteration under mpirun, median of the runs' medians; None where not run."""
        seconds = [value["seconds"] for value in self.values(shape, "processes")]
        return 1e3 * statistics.median(seconds) if seconds else None

    def same_bytes(self, shape: Mapping[str, Any]) -> bool:
        """Return whether all counted bytes are those of the formula."""
        every = [*self.values(shape, "memory"), *self.values(shape, "processes")]
        return all(value["bytes"] == value["formula"] for value in every)


def write_report(figures: Figures, output: Path) -> str:
    """Write Markdown, CSV and PNG, and give the Markdown."""
    shapes = {axis: axis_shapes(figures.size, axis) for axis in figures.size.axes}
    parts = [
        f"# SecFC, Figure 1: time of an iteration{' (quick)' if figures.quick else ''}",
        conditions(figures),
        "## Targets",
        markdown_table(*target_table(figures)),
        bytes_words(figures),
    ]
    for axis, own in shapes.items():
        parts += [f"## Against {TITLES[axis]}", markdown_table(*axis_table(figures, axis, own))]
    picture = chart(figures, shapes) if available() else None
    return write_files(
        output,
        figures.name,
        parts,
        points_csv(figures, shapes),
        picture=picture,
        about="Time of an iteration against n, d, m and k",
    )


def conditions(figures: Figures) -> str:
    """Say how the figures came about."""
    base = ", ".join(f"{key} = {value:,}" for key, value in BASE.items())
    return (
        f"{figures.machine}; {figures.software}. {words([value for _, value in figures.pairs])}\n\n"
        f"From {base}, t = ceil(n / 3) and the largest l that this leaves, one quantity at a time; "
        f"{figures.size.runs} run(s) of up to {figures.size.rounds} iterations, the first left out. Client and server: "
        "processor time of one iteration, masks included, one thread, all parties in one process without links; the "
        "slowest client's. All parties: the sum. Under mpirun: what passes between two iterations at the server, n + 1 "
        f"processes on {cores()} core(s), MPI over TCP on localhost, TLS 1.3. k-FED: a whole run, slowest client and "
        "server. Records are mixtures with sigma = 20 (k-FED: 1, as in the paper): the "
        "time of an iteration does not depend on the values, and at sigma = 1 SecFC would end after two.\n\n"
        "Published: the figure prints no numbers; the text says less than 16 s for an iteration in the worst case, on "
        "12 cores of a Xeon Gold 5118, with the client's time independent of n, the server's of d, and all about "
        "linear in m."
    )


def target_table(figures: Figures) -> tuple[list[str], list[list[str]]]:
    """Return the settings that have a target."""
    header = ["setting", "slowest client, ms", "server, ms", "all parties, ms", "under mpirun, ms", "target"]
    rows = []
    for shape in target_shapes(figures.size):
        title = ", ".join(f"{key} = {shape[key]:,}" for key in ("n", "m", "d", "k", "t", "l"))
        rows.append([title, *_times(figures, shape), _TARGETS[name_of(shape)]])
    return header, rows


def bytes_words(figures: Figures) -> str:
    """Compare the bytes counted with the formula, and give those of the settings above."""
    lines = []
    for shape in target_shapes(figures.size):
        value = figures.values(shape, "memory")[0]
        lines.append(
            f"- {name_of(shape)}: client 1 sent {value['bytes']:,} bytes in {value['rounds']} iterations, by the "
            f"formula {value['formula']:,} ({value['element_bytes']} bytes an element)."
        )
    shapes = [shape for axis in figures.size.axes for shape in axis_shapes(figures.size, axis)]
    shapes += target_shapes(figures.size)
    apart = sorted({name_of(shape) for shape in shapes if not figures.same_bytes(shape)})
    counted = (
        "Payload counted = m_j (d / l) (n - 1) + (k - 1) m s field elements (d / l rounded up, s iterations; a "
        "client's own"
    )
    ending = (
        f"not at {', '.join(apart)} (a cluster ran empty)."
        if apart
        else "at every point; under mpirun that of the iterations."
    )
    return "\n".join([f"{counted} share stays where it is) {ending}", "", *lines])


def axis_table(figures: Figures, axis: str, shapes: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the points on one axis."""
    header = [axis, "l", "t", "slowest client, ms", "server, ms", "all parties, ms", "under mpirun, ms", "k-FED, ms"]
    header.append("client 1 sends, bytes")
    rows = []
    for shape in shapes:
        sent = figures.values(shape, "memory")[0]["bytes"]
        times = _times(figures, shape)
        rows.append(
            [f"{shape[axis]:,}", str(shape["l"]), str(shape["t"]), *times, f"{figures.kfed(shape):.1f}", f"{sent:,}"]
        )
    return header, rows


def points_csv(figures: Figures, shapes: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Write every point."""
    keys = ("n", "m", "d", "k", "l", "t")
    header = ["axis", *keys, "client_ms", "server_ms", "all_ms", "mpirun_ms", "kfed_ms", "client_bytes", "formula"]
    header += COLUMNS
    lines: list[list[object]] = []
    for axis, own in [*shapes.items(), ("target", target_shapes(figures.size))]:
        for shape in own:
            value = figures.values(shape, "memory")[0]
            times = [figures.milliseconds(shape, part) for part in ("client", "server", "total")]
            sent = [value["bytes"], value["formula"]]
            described = [shape[key] for key in keys]
            seen = entries([*figures.values(shape, "memory"), *figures.values(shape, "processes")])
            lines.append([axis, *described, *times, figures.wall(shape), figures.kfed(shape), *sent, *seen])
    return csv_table(header, lines)


def chart(figures: Figures, shapes: Mapping[str, Sequence[Mapping[str, Any]]]) -> bytes:
    """Draw one panel for each axis."""
    panels = []
    for axis, own in shapes.items():
        places = [shape[axis] for shape in own]
        lines = {
            "SecFC client": (places, [figures.milliseconds(shape, "client") for shape in own]),
            "SecFC server": (places, [figures.milliseconds(shape, "server") for shape in own]),
            "k-FED, whole run": (places, [figures.kfed(shape) for shape in own]),
        }
        run = [(shape[axis], wall) for shape in own if (wall := figures.wall(shape)) is not None]
        lines["SecFC under mpirun"] = ([place for place, _ in run], [wall for _, wall in run])
        panels.append(Panel(x_label=TITLES[axis], y_label="ms per iteration", lines=lines))
    return line_panels(panels, columns=2)


def _times(figures: Figures, shape: Mapping[str, Any]) -> list[str]:
    memory, processes = figures.values(shape, "memory"), figures.values(shape, "processes")
    parts = [marked(f"{figures.milliseconds(shape, part):.1f}", memory) for part in ("client", "server", "total")]
    wall = figures.wall(shape)
    return [*parts, "" if wall is None else marked(f"{wall:.1f}", processes)]
