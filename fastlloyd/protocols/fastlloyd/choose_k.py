"""fastlloyd-plus, `--k auto:KMAX`: merge the last KMAX clusters to the number that the data support.

Each client computes it from releases: post-processing, which spends no privacy. The noise of all rounds is that of KMAX
clusters.

Source: docs/fastlloyd-plus.md, "Choosing k".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import round_centers
from fastlloyd.kmeans.merging import Merging, gather, merge
from fastlloyd.kmeans.update import truncate
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.plus_state import noise_deviations
from fastlloyd.protocols.fastlloyd.rounds import Centers

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The clusters that remain after merging.

    Attributes
    ----------
    merging : Merging
        The KMAX clusters in each of them; costs in the units of the domain.
    exact : float64 array, shape (k, d)
        Their centres, scaled domain.
    grid : int64 array, shape (k, d)
        The same on the grid of 2^-q.
    noisy_counts : float64 array, shape (k,)
    """

    merging: Merging
    exact: Floats
    grid: NDArray[np.int64]
    noisy_counts: Floats


def choose_k(plan: Plan, centers: Centers) -> Chosen | None:
    """Choose the number of clusters from the last centres; None if it was given.

    Notes
    -----
    Sees: the clients. Post-processing of releases.
    """
    if not plan.choose_k:
        return None
    count_noise = noise_deviations(plan, len(plan.rounds) - 1)[1]
    merging = merge(centers.exact, centers.noisy_counts, count_noise=count_noise)
    counts = gather(centers.noisy_counts, merging.groups)
    exact = truncate(gather(shares(centers, merging)[:, None] * centers.exact, merging.groups))
    return Chosen(merging, exact, round_centers(exact, plan.fraction_bits), counts)


def shares(centers: Centers, merging: Merging) -> Floats:
    """Return each cluster's share of its group's records, shape (k,); 0 for a cluster in no group."""
    held = np.maximum(centers.noisy_counts, 1.0)
    found = np.zeros(len(held))
    for group, total in zip(merging.groups, gather(held, merging.groups).tolist(), strict=True):
        found[list(group)] = held[list(group)] / total
    return found
