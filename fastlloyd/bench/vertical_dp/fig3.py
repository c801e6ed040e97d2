"""Vertical DP, Figure 3: loss of the final centres against epsilon, two and four parties.

Source: Vertical DP, §6.1.
"""

from __future__ import annotations

from fastlloyd.bench.engine.registry import Options
from fastlloyd.bench.vertical_dp.data import LETTER, LOAN, MIXTURE, TAXI, Source, even
from fastlloyd.bench.vertical_dp.figure import run_figure
from fastlloyd.bench.vertical_dp.plan import Figure, Size, compared
from fastlloyd.bench.vertical_dp.report import ahead, by_epsilon

_QUICK_EPSILONS = (0.5, 1.0, 4.0)
_EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_RUNS = 5


def panels(quick: bool) -> tuple[tuple[Source, Size], ...]:
    """Return data sets and sizes of Figures 3 and 4."""
    names = (MIXTURE, LETTER) if quick else (MIXTURE, TAXI, LOAN, LETTER)
    epsilons, runs = (_QUICK_EPSILONS, 2) if quick else (_EPSILONS, _RUNS)
    return tuple(
        (even(name, parties), Size(epsilons=epsilons, runs=runs, methods=compared(parties)))
        for parties in (2, 4)
        for name in names
    )


FIGURE = Figure(
    name="vertical-dp-fig3",
    title="Vertical DP, Figure 3: loss of the final centres",
    paper=(
        "2PEst has the lowest loss of the vertical private methods in most settings; with two parties BasicEst is the "
        "same, with four it is far worse. LDP-AGG-2PEst comes close at a large epsilon only. On letter, whose columns "
        "are rather independent, IND-LAP is slightly better at a small epsilon. Central clustering is better nearly "
        "always. The paper prints no numbers."
    ),
    metric="loss",
    y_label="loss",
    quick=panels(True),
    full=panels(False),
    views=by_epsilon,
    findings=ahead,
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
