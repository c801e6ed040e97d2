"""The linear scheme's soft rule on pooled data, without encryption or messages: what the parties are tested against.

It calls nothing of `math/`.

Source: Vertical HE, Figure 1, with the soft steps of `window` in place of its comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray


def soft_one_hot(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, hidden: int, degree: int
) -> NDArray[np.float64]:
    """Return each record's weights, float64, shape (n, k): not negative, summing to 1.

    Parameters
    ----------
    points : float64 array, shape (n, d), scaled to [-1, 1]
    centers : float64 array, shape (k, d)
    hidden : int
        The column that is encrypted.
    degree : int
    """
    order = np.argsort(centers[:, hidden], kind="stable")
    steps = np.ones((len(points), len(centers) + 1))
    steps[:, -1] = 0.0
    for row, point in enumerate(points):
        cuts = _cuts(point, centers[order], hidden)
        for j, cut in enumerate(cuts, 1):
            steps[row, j] = _soft_step(float(point[hidden]), cut, degree)
    weights = np.empty((len(points), len(centers)))
    weights[:, order] = steps[:, :-1] - steps[:, 1:]
    return weights


def soft_sums(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, hidden: int, degree: int
) -> NDArray[np.float64]:
    """Return what one round opens without noise: shape (k, d + 1), first the count, then the sums."""
    weights = soft_one_hot(points, centers, hidden=hidden, degree=degree)
    return np.column_stack((weights.sum(axis=0), weights.T @ points))


def soft_steps(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, hidden: int, degree: int, radius: float
) -> NDArray[np.float64]:
    """Return the same where all columns but the hidden one enter as steps, over the radius they are shortened to."""
    weights = soft_one_hot(points, centers, hidden=hidden, degree=degree)
    found = np.column_stack((weights.sum(axis=0), weights.T @ points))
    known = [column for column in range(points.shape[1]) if column != hidden]
    for j, center in enumerate(centers):
        away = points[:, known] - center[known]
        lengths = np.sqrt((away**2).sum(axis=1))
        found[j, [1 + column for column in known]] = weights[:, j] @ (away / np.maximum(lengths, radius)[:, None])
    return found


def _cuts(point: NDArray[np.float64], centers: NDArray[np.float64], hidden: int) -> NDArray[np.float64]:
    """Find where the nearest centre changes along the hidden column, by the lower envelope of k lines."""
    rest = np.delete(np.arange(centers.shape[1]), hidden)
    offset = (centers**2).sum(axis=1) - 2.0 * centers[:, rest] @ point[rest]
    slope = centers[:, hidden]
    cuts = np.full(len(centers) - 1, 1.0)
    now, at = _lowest(offset, slope, -1.0), -1.0
    cuts[:now] = -1.0
    while now < len(centers) - 1:
        later = np.arange(now + 1, len(centers))
        steeper = later[slope[later] > slope[now]]
        if not steeper.size:
            break
        meets = (offset[steeper] - offset[now]) / (2.0 * (slope[steeper] - slope[now]))
        at = max(at, float(meets.min()))
        if at >= 1.0:
            break
        nxt = int(steeper[meets <= at].max())
        cuts[now:nxt] = at
        now = nxt
    return cuts


def _lowest(offset: NDArray[np.float64], slope: NDArray[np.float64], value: float) -> int:
    """Return the nearest centre at one value of the hidden column."""
    return int(np.argmin(offset - 2.0 * slope * value))


def _soft_step(value: float, cut: float, degree: int) -> float:
    """Evaluate the soft version of 1[value > cut] as a Chebyshev series."""
    angle = np.arccos(cut)
    m = np.arange(1, degree + 1)
    series = np.concatenate(([angle / np.pi], 2.0 * _damping(degree) * np.sin(m * angle) / (m * np.pi)))
    return float(chebyshev.chebval(value, series))


def _damping(degree: int) -> NDArray[np.float64]:
    """Return Jackson's factors of T_1..T_D: the autocorrelation of one arch of a sine, 1 at lag 0."""
    arch = np.sin(np.pi * np.arange(1, degree + 2) / (degree + 2))
    return np.array([float(arch[m:] @ arch[: len(arch) - m]) / float(arch @ arch) for m in range(1, degree + 1)])
