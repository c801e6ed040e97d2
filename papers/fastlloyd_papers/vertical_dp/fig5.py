"""Vertical DP, Figure 5: loss where two parties hold different numbers of columns.

Source: Vertical DP, §6.1 "Effect of uneven number of attributes".
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.vertical_dp.data import LOAN, MIXTURE, Source
from fastlloyd_papers.vertical_dp.design import EPSILONS, QUICK_EPSILONS, RUNS, Figure, Size, compared
from fastlloyd_papers.vertical_dp.figure import run_figure
from fastlloyd_papers.vertical_dp.report import ahead, by_epsilon

_SPLITS = {MIXTURE: ((3, 5), (2, 6)), LOAN: ((6, 10), (4, 12))}


def panels(quick: bool) -> tuple[tuple[Source, Size], ...]:
    """Return data sets and sizes."""
    names = (MIXTURE,) if quick else (MIXTURE, LOAN)
    epsilons, runs = (QUICK_EPSILONS, 3) if quick else (EPSILONS, RUNS)
    size = Size(epsilons=epsilons, runs=runs, methods=compared(2))
    return tuple((Source(name=name, sizes=sizes), size) for name in names for sizes in _SPLITS[name])


FIGURE = Figure(
    name="vertical-dp-fig5",
    title="Vertical DP, Figure 5: uneven numbers of columns",
    paper=(
        "on the mixture (3:5 and 2:6) and on loan (6:10 and 4:12) the loss of 2PEst changes little with the split and "
        "stays below IND-LAP and LDP-AGG. The paper prints no numbers."
    ),
    metric="loss",
    y_label="loss",
    quick=panels(True),
    full=panels(False),
    views=by_epsilon,
    findings=ahead,
    note="Figure 3 has the even splits.",
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
