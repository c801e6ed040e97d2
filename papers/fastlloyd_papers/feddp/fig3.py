"""FedDP-KMeans, Figures 3 to 6: the server's data lack some of the clusters.

Source: FedDP-KMeans, App. H.2.
"""

from __future__ import annotations

from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.feddp.cost import run_figure
from fastlloyd_papers.feddp.data import mixture_source
from fastlloyd_papers.feddp.design import Figure, Size

_MISSING = (0, 1, 2, 5)
_QUICK = Size(epsilons=(0.25, 0.5, 1.0, 2.0), runs=1, baseline_rounds=(2,), published=False)
_FULL = Size(epsilons=(0.2, 0.5, 1.0, 2.0, 4.0), runs=10, published=False)
_SOURCES = tuple(mixture_source("record", clients=100, points=1000, missing=missing) for missing in _MISSING)

FIGURE = Figure(
    name="feddp-fig3",
    title="FedDP-KMeans, Figures 3 to 6: clusters that the server data lack",
    paper=(
        "the cost of FedDP-KMeans grows modestly with the number of clusters missing (0, 1, 2, 5 of 10), that of the "
        "baselines that start from server data as well, and FedDP-KMeans stays the best private method. The paper "
        "prints no numbers."
    ),
    quick=tuple((source, _QUICK) for source in _SOURCES),
    full=tuple((source, _FULL) for source in _SOURCES),
)


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown."""
    return run_figure(FIGURE, options)
