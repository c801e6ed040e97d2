"""Vertical DP, Figure 7: error of the grid weights against epsilon.

Source: Vertical DP, §6.2 "Intersection cardinality accuracy comparison".
"""

from __future__ import annotations

from fastlloyd.bench.engine.registry import Options
from fastlloyd.bench.vertical_dp.data import LETTER, LOAN, MIXTURE, TAXI, Source, even
from fastlloyd.bench.vertical_dp.figure import run_figure
from fastlloyd.bench.vertical_dp.plan import (
    IND_LAP,
    LDP_AGG,
    LDP_PAIRS,
    MENDED_BASIC,
    MENDED_FIT,
    MENDED_LOOSE,
    MENDED_PAIRS,
    OURS_FIVE,
    PAIRS_KNOWN,
    PAPER_BASIC,
    PAPER_PAIRS,
    Figure,
    Size,
)
from fastlloyd.bench.vertical_dp.report import ahead, by_epsilon

_TWO = (OURS_FIVE, MENDED_PAIRS, MENDED_LOOSE, PAPER_PAIRS, IND_LAP, LDP_AGG)
_MORE = (
    OURS_FIVE, MENDED_FIT, MENDED_PAIRS, MENDED_LOOSE, MENDED_BASIC, PAPER_PAIRS, PAPER_BASIC, IND_LAP, LDP_AGG,
    LDP_PAIRS, PAIRS_KNOWN,
)  # fmt: skip


def panels(quick: bool) -> tuple[tuple[Source, Size], ...]:
    """Return data sets and sizes."""
    names = (MIXTURE, LETTER) if quick else (MIXTURE, TAXI, LOAN, LETTER)
    epsilons, runs = ((0.5, 1.0, 4.0), 2) if quick else ((0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0), 5)
    return tuple(
        (even(name, parties), Size(epsilons=epsilons, runs=runs, methods=_TWO if parties == 2 else _MORE))
        for parties in (2, 4)
        for name in names
    )


FIGURE = Figure(
    name="vertical-dp-fig7",
    title="Vertical DP, Figure 7: error of the grid weights",
    paper=(
        "with k = k' = 5, 2PEst has the smallest error in most settings; BasicEst is the same with two parties and far "
        "worse with four; LDP-AGG-2PEst lies above; IND-LAP hardly falls with epsilon, for what it lacks is the "
        "dependence. The paper prints no numbers."
    ),
    metric="error",
    y_label="error of the weights",
    quick=panels(True),
    full=panels(False),
    views=by_epsilon,
    findings=ahead,
    note=(
        "The true weights are those of the run's own local clusters. Each step from the paper's estimator to ours is "
        "there: mended phantoms under the paper's composition, tight composition, fit of greatest entropy, likelihood "
        "of whole rows. 'exact pairs': the fit of greatest entropy to the exact tables of all pairs, that is what "
        "pairs do not tell. An error above 2 cannot occur for weights with the right sum."
    ),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
