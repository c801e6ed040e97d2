"""What a SecFC server decodes in the first message of each iteration, made from pooled records, for attacks on it.

Source: docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.math.signs import sign_masks
from fastlloyd.protocols.secfc.math.tournament import FilledClusters
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.randomness.prg import KEY_BYTES
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.secfc.lloyd import run_pooled


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The first message of one iteration.

    Attributes
    ----------
    labels : int64 array, shape (m,)
        The assignment that it is for: given to the attack, though the server does not have it.
    pairs : tuple of (int, int)
        The clusters compared.
    values : object array, shape (pairs, m)
        Python integers.
    """

    labels: NDArray[np.int64] = field(repr=False)
    pairs: tuple[tuple[int, int], ...]
    values: NDArray[Any] = field(repr=False)


def make_views(grid: NDArray[np.int64], plan: Plan, *, masked: bool, ordered: bool, secret: SecretRandom) -> list[View]:
    """Run Lloyd and return a view of each iteration.

    Parameters
    ----------
    grid : int64 array, shape (m, d)
        Records as they are shared.
    plan : Plan
        With one random start.
    masked : bool
        With secret factors, noise and signs; without, exact differences.
    ordered : bool
        In the order of the run; else in a random one, as in a run.
    secret : SecretRandom
        Of masks and order.
    """
    rng, key = np.random.default_rng(secret.further()), secret.bytes(KEY_BYTES)
    views = []
    for t, (labels, _) in enumerate(pairwise(run_pooled(grid, plan))):
        used = FilledClusters.of(labels, plan.k).used.tolist()
        pairs = tuple(zip(used[0::2], used[1::2], strict=False))
        values = np.array([exact_differences(grid, labels, h, g) for h, g in pairs], dtype=object)
        values = values.reshape(len(pairs) * len(grid))
        if masked:
            factors, noise = sign_masks(len(values), key=key, round_=t, mantissa=plan.mantissa_bits).integers()
            values = values * factors + noise
        if not ordered:
            values = values[rng.permutation(len(values))]
        views.append(View(labels=labels, pairs=pairs, values=values.reshape(len(pairs), len(grid))))
    return views


def exact_differences(grid: NDArray[np.int64], labels: NDArray[np.int64], h: int, g: int) -> NDArray[Any]:
    """Return D = T^2 (sigma_g - sigma_h) of each record, in Python integers."""
    first, second = grid[labels == h], grid[labels == g]
    whole = math.lcm(len(first), len(second))
    ours = whole // len(first) * first.sum(axis=0).astype(object)
    theirs = whole // len(second) * second.sum(axis=0).astype(object)
    exact: NDArray[Any] = ((theirs - ours) * (theirs + ours - 2 * whole * grid.astype(object))).sum(axis=1)
    return exact
