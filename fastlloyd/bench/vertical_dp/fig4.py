"""Vertical DP, Figure 4: V-scores of the final centres against epsilon.

Source: Vertical DP, §6.1 "V-scores".
"""

from __future__ import annotations

from fastlloyd.bench.engine.registry import Options
from fastlloyd.bench.vertical_dp.fig3 import panels
from fastlloyd.bench.vertical_dp.figure import run_figure
from fastlloyd.bench.vertical_dp.plan import Figure
from fastlloyd.bench.vertical_dp.report import ahead, by_epsilon

FIGURE = Figure(
    name="vertical-dp-fig4",
    title="Vertical DP, Figure 4: V-scores of the final centres",
    paper=(
        "in most settings 2PEst is above the other vertical private methods; all three are lower on letter with two "
        "parties, where independence suits IND-LAP. The paper prints no numbers."
    ),
    metric="v_score",
    y_label="V-score",
    quick=panels(True),
    full=panels(False),
    views=by_epsilon,
    findings=ahead,
    note=(
        "V-score against the mixture's components, else against central k-means without privacy, which itself scores 1 "
        "there but for its start. Higher is better."
    ),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
