"""Vertical DP, Figure 6: loss against the number of parties.

Source: Vertical DP, §6.1 "Effect of number of parties".
"""

from __future__ import annotations

from collections.abc import Sequence

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_dp.data import LETTER, LOAN, TITLES, Source, even
from fastlloyd_papers.vertical_dp.design import (
    CENTRAL_KMEANS,
    CORRECTED_LOOSE,
    CORRECTED_PAIRS,
    EPSILONS,
    IND_LAP,
    LDP_PAIRS,
    OURS,
    OURS_FIVE,
    PAPER_PAIRS,
    PLAIN,
    QUICK_RUNS,
    RUNS,
    Figure,
    Panel,
    Size,
    View,
)
from fastlloyd_papers.vertical_dp.figure import run_figure
from fastlloyd_papers.vertical_dp.report import ahead

# At S = 16 the other methods would hold the whole grid of 5^16 cells.
_METHODS = (OURS, OURS_FIVE, CORRECTED_PAIRS, CORRECTED_LOOSE, PAPER_PAIRS, IND_LAP, LDP_PAIRS, PLAIN, CENTRAL_KMEANS)
_MANY = (OURS, PLAIN, CENTRAL_KMEANS)


def panels(quick: bool) -> tuple[tuple[Source, Size], ...]:
    """Return numbers of parties and sizes; letter stands in where loan is not given."""
    epsilons, runs = ((1.0, 4.0), QUICK_RUNS) if quick else (EPSILONS, RUNS)
    counts = (2, 4) if quick else (2, 4, 8, 16)
    return tuple(
        (even(name, parties), Size(epsilons=epsilons, runs=runs, methods=_METHODS if parties <= 8 else _MANY))
        for name in ((LETTER,) if quick else (LOAN, LETTER))
        for parties in counts
    )


def by_parties(figure: Figure, panels: Sequence[Panel]) -> list[View]:
    """Show each data set and budget by itself, against the number of parties."""
    found = []
    for name in dict.fromkeys(panel.source.name for panel in panels):
        own = [panel for panel in panels if panel.source.name == name]
        for epsilon in own[0].size.epsilons:
            lines = {
                method.name: [panel.values(method, figure.metric, epsilon) for panel in own]
                for method in _METHODS
                if method is not CENTRAL_KMEANS
            }
            found.append(
                View(
                    title=f"{TITLES[name]}, epsilon {epsilon:g}",
                    x_label="parties",
                    xs=tuple(float(panel.source.parties) for panel in own),
                    lines=lines,
                    levels={CENTRAL_KMEANS.name: own[0].values(CENTRAL_KMEANS, figure.metric, None)},
                )
            )
    return found


FIGURE = Figure(
    name="vertical-dp-fig6",
    title="Vertical DP, Figure 6: loss against the number of parties",
    paper=(
        "on loan the loss of all methods grows with S, as the error of the weights does; 2PEst has the lowest of the "
        "three. The paper prints no numbers, and the text does not say at which epsilon."
    ),
    metric="loss",
    y_label="loss",
    quick=panels(True),
    full=panels(False),
    views=by_parties,
    findings=ahead,
    note=(
        "With eight parties there are 28 pairs with sketches of their own, with sixteen 120. The baselines and the "
        "paper's fit hold the whole grid, so they stop at eight parties."
    ),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
