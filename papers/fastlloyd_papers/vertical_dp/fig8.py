"""Vertical DP, Figure 8: which part costs how much, local clusters or grid weights.

Source: Vertical DP, §6.2 "Distinguishing the impact of private LocCluster".
"""

from __future__ import annotations

from dataclasses import replace

from fastlloyd.protocols.vertical_dp.local_plan import BOX_TREE
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_dp.data import LETTER, LOAN, MIXTURE, TAXI, Source, even
from fastlloyd_papers.vertical_dp.design import (
    CORRECTED_PAIRS,
    EPSILONS,
    OURS_FIVE,
    PLAIN,
    QUICK_EPSILONS,
    QUICK_RUNS,
    RUNS,
    Figure,
    Size,
)
from fastlloyd_papers.vertical_dp.figure import run_figure
from fastlloyd_papers.vertical_dp.report import by_epsilon
from fastlloyd_papers.vertical_dp.run import EXACT

_TREE = {"local": BOX_TREE}
_END = replace(OURS_FIVE, name="all private")
# The paper's three curves, on corrected sketches: both parts private, the weights alone, the local clusters alone.
PAPER_BOTH = replace(
    CORRECTED_PAIRS, name="box tree + 2PEst, corrected: all private", settings={**CORRECTED_PAIRS.settings, **_TREE}
)
PAPER_WEIGHTS = replace(CORRECTED_PAIRS, name="k-means + 2PEst, corrected", plain_local=True, claim=False)
PAPER_LOCAL = replace(_END, name="box tree + exact weights", weights=EXACT, settings=_TREE, claim=False)
_METHODS = (
    _END,
    replace(OURS_FIVE, name="k-means + our weights", plain_local=True, claim=False),
    replace(_END, name="our local clusters + exact weights", weights=EXACT, claim=False),
    PAPER_BOTH,
    PAPER_LOCAL,
    PAPER_WEIGHTS,
    PLAIN,
)


def panels(quick: bool) -> tuple[tuple[Source, Size], ...]:
    """Return data sets and sizes."""
    names = (MIXTURE, LETTER) if quick else (MIXTURE, TAXI, LOAN, LETTER)
    epsilons, runs = (QUICK_EPSILONS, QUICK_RUNS) if quick else (EPSILONS, RUNS)
    return tuple(
        (even(name, parties), Size(epsilons=epsilons, runs=runs, methods=_METHODS))
        for parties in (2, 4)
        for name in names
    )


FIGURE = Figure(
    name="vertical-dp-fig8",
    title="Vertical DP, Figure 8: privacy of one part only",
    paper=(
        "with two parties private local clusters with exact weights cost nearly as much as both private: the local "
        "clusters are what costs; with four parties either part alone costs about the same. The paper prints no "
        "numbers."
    ),
    metric="loss",
    y_label="loss",
    quick=panels(True),
    full=panels(False),
    views=by_epsilon,
    findings=lambda figure, panels: [],
    note="k' = 5 throughout; the paper's 'DPLSF' is a 'box tree' here. Where one part is private only, it has the "
    "share of epsilon that it has when both are.",
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
