"""The one round: bins that double in width about a public origin, and the rule that finds bounds in noisy counts.

A column lies in a public box, scaled to [-1, 1]; the origin is its middle. Bins begin at 0 and, on both sides, end at
2^-64, 2^-63, .., 1/2, 1.

Source: FastLloyd, §5.3.4, for the masked sum; docs/privacy.md, "Bounds that nobody knows", for what is counted.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DOUBLINGS = 64
BINS = 2 * (DOUBLINGS + 1)
"""B: of each column."""
EDGES = np.concatenate([-(0.5 ** np.arange(DOUBLINGS + 1)), [0.0], 0.5 ** np.arange(DOUBLINGS, -1, -1)])
"""Of the bins, scaled, shape (B + 1,)."""
ALPHA = 1e-3
"""The probability, at most, that one of the empty bins of all columns begins or ends a core."""
GROW = 2.0
"""A core grows while the next bin holds more than this times the noise."""
REACH = 3
"""Bounds of this many bins on one side of the origin, whose far end is 8 times as far as the near one, begin at it."""


def place(raw_points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each value; a value on an edge belongs to the bin that is nearer to the origin.

    Parameters
    ----------
    raw_points : float64 array, shape (n, m)
        Scaled to [-1, 1]; NaN where missing.

    Returns
    -------
    int64 array, shape (n, m)
        From 0 to `BINS` - 1; `BINS` where missing.
    """
    part, power = np.frexp(np.abs(raw_points))  # |x| = part * 2^power, part in [1/2, 1), exactly
    outward = np.clip(power - (part == 0.5) + DOUBLINGS, 0, DOUBLINGS)
    outward[raw_points == 0.0] = 0
    bins: NDArray[np.int64] = np.where(raw_points < 0.0, DOUBLINGS - outward, DOUBLINGS + 1 + outward)
    bins[np.isnan(raw_points)] = BINS
    return bins


def count(raw_points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count the values of each column by bin, shape (m, B); parameters as for `place`.

    Notes
    -----
    Privacy: a record is one row, and adds 1 to at most one bin of each of the m columns: to none where its value is
    missing. So one record more or less moves the counts by at most sqrt(m) in the L2 norm, and a record that lacks
    nothing moves them by that.
    """
    # FastLloyd, §5.3.4: a client's sums, before its mask; the noise comes on top.
    counts = [np.bincount(column, minlength=BINS + 1)[:BINS] for column in place(raw_points).T]
    return np.stack(counts).astype(np.int64)


def cores(noisy: NDArray[np.float64], noise: float) -> list[tuple[int, int] | None]:
    """Return the first and the last bin of each column that stand out of the noise; None where none does.

    Parameters
    ----------
    noisy : float64 array, shape (m, B)
    noise : float
        s, the standard deviation of the noise on each count.

    Notes
    -----
    A bin stands out above z s, z = Phi^-1(1 - alpha / (m B)): of all m B bins together, those that are empty do so
    with probability alpha at most.
    """
    most = NormalDist().inv_cdf(1.0 - ALPHA / noisy.size) * noise
    found = (np.flatnonzero(row > most) for row in noisy)
    return [(int(out[0]), int(out[-1])) if len(out) else None for out in found]


def find(noisy: NDArray[np.float64], noise: float) -> list[tuple[int, int] | None]:
    """Return the first and the last bin of each column within its bounds; None where nothing but the origin stands out.

    Parameters
    ----------
    noisy, noise
        As for `cores`.

    Notes
    -----
    Each core, grown outwards while the next bin holds more than `GROW` s. An empty bin next to it is taken with
    probability 0.023; that makes the bounds on its side twice as wide. What lies near the origin is spread over many
    small bins, and may not stand out in any of them: bounds that come near the origin reach to it, which makes them
    wider by a seventh at most. The two bins at the origin alone are no bounds: they hold one value, and a run with them
    would clip all others to it.
    """
    grown: list[tuple[int, int] | None] = []
    for row, core in zip(noisy, cores(noisy, noise), strict=True):
        bounds = None
        if core is not None:
            first, last = core
            while first > 0 and row[first - 1] > GROW * noise:
                first -= 1
            while last < BINS - 1 and row[last + 1] > GROW * noise:
                last += 1
            if last + 1 - first >= REACH:
                first, last = min(first, DOUBLINGS + 1), max(last, DOUBLINGS)
            if first < DOUBLINGS or last > DOUBLINGS + 1:
                bounds = first, last
        grown.append(bounds)
    return grown
