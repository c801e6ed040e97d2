"""The linear scheme's soft rule on pooled data, without encryption or messages: what the parties are tested against.

It calls nothing of `math/`.

Source: Vertical HE, Figure 1, with records spread over the corners of a grid's box in place of its comparison.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def soft_one_hot(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, hidden: Sequence[int], grid: int
) -> NDArray[np.float64]:
    """Return each record's weights, float64, shape (n, k): not negative, summing to 1.

    Parameters
    ----------
    points : float64 array, shape (n, d), scaled to [-1, 1]
    centers : float64 array, shape (k, d)
    hidden : sequence of int
        The columns that are encrypted.
    grid : int
        Cells along each of them.
    """
    weights = np.zeros((len(points), len(centers)))
    for row, point in enumerate(points):
        for share, corner in _spread(point, hidden, grid):
            weights[row, _nearest(corner, centers)] += share
    return weights


def soft_sums(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, hidden: Sequence[int], grid: int
) -> NDArray[np.float64]:
    """Return what one round opens without noise: shape (k, d + 1), first the count, then the sums."""
    sums = np.zeros((len(centers), 1 + centers.shape[1]))
    for point in points:
        for share, corner in _spread(point, hidden, grid):
            sums[_nearest(corner, centers)] += share * np.concatenate(([1.0], corner))
    return sums


def soft_steps(
    points: NDArray[np.float64], centers: NDArray[np.float64], *, hidden: Sequence[int], grid: int, radius: float
) -> NDArray[np.float64]:
    """Return the same where all columns but the hidden ones enter as steps, over the radius they are shortened to."""
    found = soft_sums(points, centers, hidden=hidden, grid=grid)
    weights = soft_one_hot(points, centers, hidden=hidden, grid=grid)
    known = [column for column in range(points.shape[1]) if column not in hidden]
    for j, center in enumerate(centers):
        away = points[:, known] - center[known]
        lengths = np.sqrt((away**2).sum(axis=1))
        found[j, [1 + column for column in known]] = weights[:, j] @ (away / np.maximum(lengths, radius)[:, None])
    return found


def _spread(
    point: NDArray[np.float64], hidden: Sequence[int], grid: int
) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Yield the corners of the box that a record lies in, each with the record's share there."""
    width = 2.0 / grid
    lows = [min(int((point[column] + 1.0) / width), grid - 1) for column in hidden]
    for sides in itertools.product((0, 1), repeat=len(hidden)):
        share, corner = 1.0, point.copy()
        for column, low, side in zip(hidden, lows, sides, strict=True):
            inside = (point[column] + 1.0) / width - low
            share *= inside if side else 1.0 - inside
            corner[column] = (low + side) * width - 1.0
        yield share, corner


def _nearest(corner: NDArray[np.float64], centers: NDArray[np.float64]) -> int:
    return int(((corner - centers) ** 2).sum(axis=1).argmin())
