"""Vertical DP, Figure 9: loss against the number of local clusters, and what the automatic rule chooses.

Source: Vertical DP, §5.2, §6.2 "Impact of different local k'".
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_dp.data import LETTER, LOAN, MIXTURE, TAXI, Source, even
from fastlloyd_papers.vertical_dp.design import (
    CORRECTED_PAIRS,
    EPSILONS,
    OURS,
    QUICK_RUNS,
    RUNS,
    Figure,
    Panel,
    Size,
    View,
)
from fastlloyd_papers.vertical_dp.figure import run_figure
from fastlloyd_papers.vertical_dp.run import Method

AUTOMATIC = replace(CORRECTED_PAIRS, local_clusters=None)
_KINDS = (OURS, AUTOMATIC)
_QUICK_CLUSTERS = {2: (2, 3, 5, 8, 16), 4: (2, 3, 5, 8)}
_CLUSTERS = {2: (2, 3, 4, 5, 6, 8, 10, 16, 24, 32), 4: (2, 3, 4, 5, 6, 8, 10, 12)}


def panels(quick: bool) -> tuple[tuple[Source, Size], ...]:
    """Return data sets and sizes."""
    names = (MIXTURE,) if quick else (MIXTURE, TAXI, LOAN, LETTER)
    epsilons, runs = ((0.5, 4.0), QUICK_RUNS) if quick else (EPSILONS, RUNS)
    found = []
    for parties, clusters in (_QUICK_CLUSTERS if quick else _CLUSTERS).items():
        methods = [fixed(kind, count) for kind in _KINDS for count in clusters]
        size = Size(epsilons=epsilons, runs=runs, methods=(*_KINDS, *methods))
        found += [(even(name, parties), size) for name in names]
    return tuple(found)


def fixed(kind: Method, clusters: int) -> Method:
    """Return a method with a set number of local clusters."""
    return replace(kind, name=f"{kind.name}, k' = {clusters}", local_clusters=clusters)


def by_clusters(figure: Figure, panels: Sequence[Panel]) -> list[View]:
    """Show each source and estimator by itself, against k'."""
    found = []
    for panel in panels:
        for kind in _KINDS:
            counts = _counts(panel)
            lines = {
                f"epsilon {epsilon:g}": [panel.values(fixed(kind, c), figure.metric, epsilon) for c in counts]
                for epsilon in panel.size.epsilons
            }
            found.append(
                View(
                    title=f"{kind.name}: {panel.source.title}",
                    x_label="local clusters k'",
                    xs=tuple(map(float, counts)),
                    lines=lines,
                )
            )
    return found


def chosen(figure: Figure, panels: Sequence[Panel]) -> list[str]:
    """Say what the automatic rule took, and how it compares with the best number tried."""
    lines = []
    for panel in panels:
        for kind in _KINDS:
            words = []
            for epsilon in panel.size.epsilons:
                taken = panel.values(kind, "local_clusters", epsilon)[0]
                loss = statistics.fmean(panel.values(kind, figure.metric, epsilon))
                tried = {
                    count: statistics.fmean(panel.values(fixed(kind, count), figure.metric, epsilon))
                    for count in _counts(panel)
                }
                best = min(tried, key=tried.__getitem__)
                words.append(f"epsilon {epsilon:g}: k' = {taken:g}, {loss:.4f} (best tried {best}, {tried[best]:.4f})")
            lines.append(f"Automatic, {kind.name}, {panel.source.title}: {'; '.join(words)}.")
    return lines


def _counts(panel: Panel) -> tuple[int, ...]:
    return tuple(sorted({m.local_clusters for m in panel.size.methods if m.local_clusters is not None}))


FIGURE = Figure(
    name="vertical-dp-fig9",
    title="Vertical DP, Figure 9: the number of local clusters",
    paper=(
        "the loss has a least value in k': larger for a larger epsilon, smaller for more parties; the rule of §5.2 "
        "comes close to it. The paper prints no numbers."
    ),
    metric="loss",
    y_label="loss",
    quick=panels(True),
    full=panels(False),
    views=by_clusters,
    findings=chosen,
    note="Here k' is as said on the axis. The rule takes the error of the estimator in use.",
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
