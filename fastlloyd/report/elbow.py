"""The curve by which a number of clusters was chosen: as CSV and as a picture.

Source: FedDP-KMeans, App. H.3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.report import plot


def elbow_csv(costs: NDArray[np.float64], chosen: int) -> str:
    """Write the curve, shape (kmax,), as CSV: k, cost, whether it was chosen."""
    rows = [f"{k},{cost!r},{int(k == chosen)}\n" for k, cost in enumerate(map(float, costs), start=1)]
    return "k,cost,chosen\n" + "".join(rows)


def elbow_plot(costs: NDArray[np.float64], chosen: int) -> dict[str, bytes]:
    """Draw the curve; gives {'elbow.png': bytes}, or nothing where the plotting library is missing."""
    if not plot.available():
        return {}
    figure, axes = plot.make_figure((6.4, 4.0))
    numbers = np.arange(1, len(costs) + 1)
    axes.plot(numbers, costs, marker="o", color="#33658a")
    axes.axvline(chosen, color="#c1440e", linestyle="--", label=f"chosen: k = {chosen}")
    axes.set_xlabel("number of clusters k")
    axes.set_ylabel("noisy cost")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return {"elbow.png": plot.render_png(figure)}
