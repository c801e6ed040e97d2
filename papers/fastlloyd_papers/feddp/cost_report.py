"""Puts the measured cells of a cost figure of FedDP-KMeans into Markdown, CSV and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastlloyd.report.plot import available
from fastlloyd_papers.engine.cells import Cell
from fastlloyd_papers.engine.chart import Panel as ChartPanel
from fastlloyd_papers.engine.chart import line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.tables import Summary, csv_table, markdown_table, summarise
from fastlloyd_papers.feddp.data import Source
from fastlloyd_papers.feddp.design import OURS, PUBLISHED, Figure, Size
from fastlloyd_papers.feddp.run import DELTA, KFED, OPTIMAL, PACKED, STARTS

_NEAR = 0.01


@dataclass(frozen=True, slots=True)
class Panel:
    """One data set with what was measured on it.

    Attributes
    ----------
    cells : list of (cell, value)
    """

    source: Source
    size: Size
    cells: list[tuple[Cell, Any]] = field(repr=False)

    def costs(self, method: str, **wanted: Any) -> list[float]:
        """Return the costs of all repetitions of one method."""
        wanted["method"] = method
        return [
            value["cost"] for cell, value in self.cells if all(cell.get(key) == wish for key, wish in wanted.items())
        ]

    def rounds(self, method: str) -> tuple[int, ...]:
        """Return the numbers of Lloyd steps that were tried after a method's start."""
        return tuple(
            sorted({cell["rounds"] for cell, _ in self.cells if cell["method"] == method and "rounds" in cell})
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """The private methods measured."""
        return tuple(method for method in (*STARTS, PUBLISHED) if self.rounds(method))

    def best(self, method: str, epsilon: float) -> tuple[Summary, int]:
        """Return the costs with the number of Lloyd steps that is best on average, and that number."""
        found = [(summarise(self.costs(method, epsilon=epsilon, rounds=t)), t) for t in self.rounds(method)]
        return min(found, key=lambda pair: pair[0].mean)

    @property
    def optimum(self) -> float:
        """Mean cost of clustering the pooled records."""
        return statistics.fmean(self.costs(OPTIMAL))


def write_report(
    figure: Figure, panels: Sequence[Panel], output: Path, *, notes: Sequence[str], machine: str, quick: bool
) -> str:
    """Write the Markdown, CSV and PNG files, and give the Markdown.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    parts = [
        f"# {figure.title}{' (quick)' if quick else ''}",
        conditions(panels, machine),
        f"Published: {figure.paper}",
    ]
    for panel in panels:
        parts += [f"## {panel.source.title}", cost_table(panel), findings(panel)]
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    picture = chart(panels) if available() and panels else None
    return write_files(output, figure.name, parts, table_csv(panels), picture=picture, about="Cost against epsilon")


def conditions(panels: Sequence[Panel], machine: str) -> str:
    """Say how the figures came about."""
    runs = " or ".join(sorted({str(panel.size.runs) for panel in panels})) or "0"
    words = (
        f"{machine}. Mean squared distance of a record to the nearest centre, in original units, mean of {runs} run(s) "
        f"(each with new noise, and a mixture with new records), delta {DELTA:g}; epsilon is the total of all steps, "
        "composed by the PLD accountant. The centralised reference, which equals the parties bit by bit, with the "
        "noise of all clients' shares. Proportions of the budget: the defaults (App. H.1), fixed before any run; the "
        "number T of Lloyd steps is the best on average of those tried, for the baselines too, which favours them. "
        "The outer product has noise for its sensitivity, Delta^2 at record level"
    )
    if any(PACKED in panel.methods for panel in panels):
        words += (
            f"; '{PACKED}' is FastLloyd's start in a cube as wide as the server's data, kept off its sides: the "
            "paper's SpherePacking (App. G.3) fills a cube as wide as the largest norm and keeps off its corners alone"
        )
    if any(PUBLISHED in panel.methods for panel in panels):
        return f"{words}; the curve '{PUBLISHED}' has that of the paper's published code, for Delta."
    return f"{words}."


def cost_table(panel: Panel) -> str:
    """Write the cost for each epsilon and method, T beside it."""
    header = ["epsilon", *(f"{method} (T)" for method in panel.methods)]
    rows = []
    for epsilon in panel.size.epsilons:
        cells = [panel.best(method, epsilon) for method in panel.methods]
        rows.append([f"{epsilon:g}", *(f"{found.mean:.2f} ({t})" for found, t in cells)])
    for method in (OPTIMAL, KFED):
        first = summarise(panel.costs(method))
        rows.append([f"{method} (not private)", first.text(), *[""] * (len(panel.methods) - 1)])
    return markdown_table(header, rows)


def findings(panel: Panel) -> str:
    """Say in words where our method stands."""
    lines = [_near_words(panel)]
    worse = []
    for epsilon in panel.size.epsilons:
        ours = panel.best(OURS, epsilon)[0].mean
        ahead = [m for m in panel.methods if m not in (OURS, PUBLISHED) and panel.best(m, epsilon)[0].mean < ours]
        worse += [f"{epsilon:g} ({', '.join(ahead)})"] if ahead else []
    if worse:
        lines.append(f"- A private baseline is cheaper at epsilon {'; '.join(worse)}.")
    else:
        lines.append("- No private baseline is cheaper at any epsilon measured.")
    if PUBLISHED in panel.methods:
        gaps = [
            f"{panel.best(OURS, e)[0].mean / panel.best(PUBLISHED, e)[0].mean - 1:+.1%} at {e:g}"
            for e in panel.size.epsilons
        ]
        lines.append(f"- Cost with the right calibration against the published one: {', '.join(gaps)}.")
    return "\n".join(lines)


def _near_words(panel: Panel) -> str:
    """Say at which budgets our method is within 1 % of the optimum."""
    optimum = panel.optimum
    near = [e for e in panel.size.epsilons if panel.best(OURS, e)[0].mean <= (1 + _NEAR) * optimum]
    if not near:
        return f"- {OURS} is nowhere within 1 % of the optimum ({optimum:.2f})."
    if near == [e for e in panel.size.epsilons if e >= near[0]]:
        return f"- {OURS} is within 1 % of the optimum ({optimum:.2f}) from epsilon {near[0]:g} on."
    return f"- {OURS} is within 1 % of the optimum ({optimum:.2f}) at epsilon {', '.join(f'{e:g}' for e in near)}."


def table_csv(panels: Sequence[Panel]) -> str:
    """Write every kind of cell with its spread."""
    header = ["data", "level", "method", "epsilon", "T", "runs", "cost", "half_width", "least", "largest", "optimum"]
    lines: list[list[object]] = []
    for panel in panels:
        base = [panel.source.title, panel.source.level]
        for method in (OPTIMAL, KFED):
            lines.append([*base, method, None, None, *_spread(panel.costs(method)), panel.optimum])
        lines += [
            [*base, method, epsilon, t, *_spread(panel.costs(method, epsilon=epsilon, rounds=t)), panel.optimum]
            for method in panel.methods
            for epsilon in panel.size.epsilons
            for t in panel.rounds(method)
        ]
    return csv_table(header, lines)


def _spread(costs: Sequence[float]) -> list[object]:
    found = summarise(costs)
    return [found.count, found.mean, found.half_width, found.least, found.largest]


def chart(panels: Sequence[Panel]) -> bytes:
    """Draw cost against epsilon, one set of axes for each data set."""
    drawn = []
    for panel in panels:
        epsilons = panel.size.epsilons
        lines = {m: (epsilons, [panel.best(m, e)[0].mean for e in epsilons]) for m in panel.methods}
        levels = {f"{m} (not private)": statistics.fmean(panel.costs(m)) for m in (OPTIMAL, KFED)}
        drawn.append(
            ChartPanel(
                x_label="total epsilon",
                y_label="cost per record",
                lines=lines,
                levels=levels,
                title=panel.source.title.replace(", server", ",\nserver"),
                log_y=False,
            )
        )
    return line_panels(drawn, columns=next(columns for columns in (3, 2, 1) if len(drawn) % columns == 0))
