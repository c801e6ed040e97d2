r"""The start that wins: the one with the least inertia, from comparisons of totals.

The inertia of an assignment is the sum of |x|^2 over all points, which all starts share, less the sum over its clusters
of |mu_h|^2 / S_h. So with w_h = floor(W / S_h), W = 2^w public, the start with the largest

    Psi = sum_h w_h |mu_h|^2

wins, the first among equals. The clients compare two starts a and b, a before b, by D = Psi_a - Psi_b, in a tournament
of the starts. No total leaves anybody, and no point's part of one.

*How exact.* W / S_h - w_h < 1, and |mu_h| <= S_h rho, rho the largest norm of a point: W times the inertia is off by
less than sum_h S_h^2 rho^2 <= N^2 rho^2. As W > 2^24 N, inertia over N is off by less than 2^-24 rho^2. Which of two
starts wins that are closer than that, the rounding decides.

*Size.* Psi <= W sum_h S_h rho^2 <= W N rho^2, and no Psi is negative, so abs(D) <= W N rho^2.

Source: none in the paper, which has one start; docs/secfc.md, "Several starts".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.math.clusters import FilledClusters
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.differences import ElementDifferences, Question, Step
from fastlloyd.protocols.secfc.math.tournament import Tournament
from fastlloyd.protocols.secfc.plan import Plan


def least_inertia(plan: Plan, coder: Coder, assignments: list[NDArray[np.int64]]) -> Step:
    """Return the number of the assignment of least inertia, shape (1,)."""
    field, starts = coder.field, np.arange(len(assignments))
    totals = np.stack([_total(plan, coder, labels) for labels in assignments], axis=1)
    # The starts are the clusters of a tournament of one point.
    tournament, last = Tournament(FilledClusters(starts, np.ones_like(starts)), 1), False
    while not last:
        last, (earlier, later) = tournament.last, tournament.pairs()
        differences = field.subtract(totals[:, earlier[:, 0]], totals[:, later[:, 0]])
        first_wins = yield Question(ElementDifferences(differences), last)
        tournament.settle(first_wins[:, None])
    return tournament.labels


def _total(plan: Plan, coder: Coder, labels: NDArray[np.int64]) -> Elements:
    """Return the share of Psi, shape (primes,)."""
    field, clusters = coder.field, FilledClusters.of(labels, plan.k)
    norms = field.squared_norms(coder.sums(labels, clusters, plan.k))
    weighted = field.multiply(norms, field.encode((1 << plan.weight_bits) // clusters.sizes))
    return field.reduce(weighted.sum(axis=1))
