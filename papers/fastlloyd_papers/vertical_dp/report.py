"""Puts the measured cells of a figure of vertical DP into Markdown, CSV and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.chart import Panel as ChartPanel
from fastlloyd_papers.engine.chart import line_panels
from fastlloyd_papers.engine.files import write_files
from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise
from fastlloyd_papers.vertical_dp.design import (
    CORRECTED_BASIC,
    CORRECTED_PAIRS,
    IND_LAP,
    LDP_AGG,
    LDP_PAIRS,
    OURS,
    OURS_FIVE,
    Figure,
    Panel,
    View,
    whose,
)
from fastlloyd_papers.vertical_dp.ideal import MOST_CELLS
from fastlloyd_papers.vertical_dp.run import Method

_DIGITS = 4
_METRICS = {
    "loss": "Loss: mean squared distance of a record, scaled to [-1, 1], to the nearest centre",
    "v_score": "V-score, 1 where the clusters are those of the labels",
    "error": "Error: sum over the grid of |weight - true weight|, over n",
}


def write_report(
    figure: Figure, panels: Sequence[Panel], output: Path, *, notes: Sequence[str], machine: str, quick: bool
) -> str:
    """Write the Markdown, CSV and PNG files, and give the Markdown.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    tags = {name: short for name, (short, _) in owners(panels).items()}
    parts = [
        f"# {figure.title}{' (quick)' if quick else ''}",
        conditions(panels, machine),
        "Whose parts these are:",
        "\n".join(f"- {name} ({short}): {long}." for name, (short, long) in owners(panels).items()),
    ]
    for one in (figure, *figure.others):
        views = one.views(one, panels)
        if figure.others:
            parts.append(f"## Figure {one.name.rpartition('-fig')[2]}: {one.y_label}")
        parts += [f"{_METRICS[one.metric]}. {one.note}".rstrip(), f"Published: {one.paper}"]
        for view in views:
            parts += [f"##{'#' if figure.others else ''} {view.title}", view_table(view, tags)]
        if said := one.findings(one, panels):
            parts.append("\n".join(f"- {line}" for line in said))
        if available() and views:
            write_atomic(output / f"{one.name}.png", chart(one, views))
            parts.append(f"![{one.y_label}]({one.name}.png)")
    if notes:
        parts.append("\n".join(f"- {line}" for line in notes))
    return write_files(output, figure.name, parts, table_csv(panels))


def conditions(panels: Sequence[Panel], machine: str) -> str:
    """Say how the figures came about."""
    runs = " or ".join(sorted({str(panel.size.runs) for panel in panels})) or "0"
    return (
        f"{machine}. Mean of {runs} run(s), each with new noise and new sketches, the mixture with new records. "
        f"k = 5, M = 4096, delta = 1/n; epsilon is the total of all parties. On grids of up to {MOST_CELLS:,} cells "
        "sketches are drawn cell by cell as an ideal hash function gives them, on larger ones users are hashed: the "
        "distribution is the same. 'vertical-dp' is the "
        "product with its defaults: phantoms of the grid, tight composition, likelihood of whole rows, fit of greatest "
        "entropy, our local clustering, automatic k'. 'corrected': the paper's estimators on private sketches "
        "(phantoms of the grid, tight composition), k' = 5. 'as published': the paper's phantoms, composition and "
        "estimators, k' = 5; its Theorem 4 does not hold, so no epsilon is claimed for it. Where the paper clusters by "
        "an LSH forest (DPLSF), a 'box tree' of ours stands. Baselines: k' = 5, the local clustering 'lloyd', the "
        "paper's division of epsilon; of '2PEst, corrected, paper's composition' both are the same, so that only the "
        "weights differ. Additive fit: see docs/vertical-dp.md."
    )


def by_epsilon(figure: Figure, panels: Sequence[Panel]) -> list[View]:
    """Show each source by itself, against epsilon."""
    found = []
    for panel in panels:
        own = panel.size
        lines = {
            method.name: [panel.values(method, figure.metric, epsilon) for epsilon in own.epsilons]
            for method in own.methods
            if method.by_epsilon
        }
        levels = {m.name: panel.values(m, figure.metric, None) for m in own.methods if not m.by_epsilon}
        found.append(
            View(
                title=panel.source.title,
                x_label="total epsilon",
                xs=own.epsilons,
                lines={label: line for label, line in lines.items() if any(line)},
                levels={label: level for label, level in levels.items() if level},
            )
        )
    return found


def owners(panels: Sequence[Panel]) -> dict[str, tuple[str, str]]:
    """Return for each method by name whose it is, see `whose`; several numbers of local clusters count as one."""
    methods = {method.name.partition(", k' = ")[0]: method for panel in panels for method in panel.size.methods}
    return {name: whose(method) for name, method in methods.items()}


def view_table(view: View, tags: Mapping[str, str]) -> str:
    """Write one table: x down, methods across, with whose each is; what does not depend on x below."""
    named = {label: tags.get(label.partition(", k' = ")[0], "") for label in view.lines}
    header = [view.x_label, *(f"{label} ({tag})" if tag else label for label, tag in named.items())]
    rows = [[f"{x:g}", *(_text(line[place]) for line in view.lines.values())] for place, x in enumerate(view.xs)]
    text = markdown_table(header, rows)
    if view.levels:
        text += "\n\nNot private: " + "; ".join(f"{label} {_text(level)}" for label, level in view.levels.items()) + "."
    return text


def ahead(figure: Figure, panels: Sequence[Panel]) -> list[str]:
    """Say where the product and the paper's estimator stand against the baselines."""
    lines = []
    for panel in panels:
        lines += _comparison(figure, panel, OURS, (IND_LAP, LDP_AGG, LDP_PAIRS))
        lines += _comparison(figure, panel, OURS_FIVE, (IND_LAP, LDP_AGG, LDP_PAIRS))
        if panel.source.parties > 2:
            lines += _comparison(figure, panel, CORRECTED_PAIRS, (CORRECTED_BASIC,))
    return lines


def _comparison(figure: Figure, panel: Panel, method: Method, others: Sequence[Method]) -> list[str]:
    """Say at which budgets one method is not behind any of the others."""
    own = _means(figure, panel, method)
    measured = [other for other in others if _means(figure, panel, other)]
    if not own or not measured:
        return []
    sign = -1.0 if figure.metric == "v_score" else 1.0
    behind = []
    for other in measured:
        theirs = _means(figure, panel, other)
        worse = [
            f"{epsilon:g}" for epsilon, a, b in zip(panel.size.epsilons, own, theirs, strict=True) if sign * (a - b) > 0
        ]
        if worse:
            behind.append(f"{other.name} at epsilon {', '.join(worse)}")
    names = ", ".join(other.name for other in measured)
    if behind:
        return [f"{panel.source.title}: {method.name} is behind {'; '.join(behind)}."]
    return [f"{panel.source.title}: {method.name} is ahead of {names} at every epsilon measured."]


def _means(figure: Figure, panel: Panel, method: Method) -> list[float]:
    """Return the mean at each epsilon; nothing where it was not measured."""
    values = [panel.values(method, figure.metric, epsilon) for epsilon in panel.size.epsilons]
    return [statistics.fmean(own) for own in values] if all(values) else []


def table_csv(panels: Sequence[Panel]) -> str:
    """Write every run."""
    header = ["data", "parties", "columns", "method", "claim", "epsilon", "run", "loss", "v_score", "weight_error"]
    lines: list[list[object]] = []
    for panel in panels:
        claims = {method.name: method.claim for method in panel.size.methods}
        sizes = "+".join(map(str, panel.source.sizes))
        for cell, value in panel.cells:
            lines.append(
                [
                    panel.source.name, panel.source.parties, sizes, cell["method"],
                    "yes" if claims[cell["method"]] else "no", cell["epsilon"], cell["run"], value["loss"],
                    value["v_score"], value["error"], value["local_clusters"], value["phantoms"],
                ]
            )  # fmt: skip
    return csv_table([*header, "local_clusters", "phantoms"], lines)


def chart(figure: Figure, views: Sequence[View]) -> bytes:
    """Draw each view; a label has one colour in all of them."""
    labels = list(dict.fromkeys(label for view in views for label in view.lines))
    drawn = [
        ChartPanel(
            x_label=view.x_label,
            y_label=figure.y_label,
            lines={label: _points(view, label) for label in labels},
            levels={label: mean for label, level in view.levels.items() if (mean := statistics.fmean(level))},
            title=view.title,
            log_x=view.log_x,
            log_y=figure.metric != "v_score" and any(any(line) for line in view.lines.values()),
        )
        for view in views
    ]
    return line_panels(drawn, columns=next(columns for columns in (3, 2, 1) if len(drawn) % columns == 0))


def _points(view: View, label: str) -> tuple[list[float], list[float]]:
    """Return the means of one line; none where this view lacks it."""
    line = view.lines.get(label, [[] for _ in view.xs])
    kept = [(x, statistics.fmean(values)) for x, values in zip(view.xs, line, strict=True) if values]
    return [x for x, _ in kept], [y for _, y in kept]


def _text(values: Sequence[float]) -> str:
    return summarise(values).text(_DIGITS) if values else ""
