"""The joint law of noise: is any released number's noise a function of another's?

Noise of the right size everywhere that is dependent protects nothing: where two numbers carry the same noise, their
difference carries none. Neither a test of each number's law nor an audit of single numbers sees that.

Here the noise of many lives of the real parties makes a table: a row for each life (or for each place, where many
places have one law), a column for each number that is released. Each entry was turned into a standard normal by the law
that the ledger states. Where all are independent,

- for two columns x and y, also y of the life after, also of the sizes |x| and |y| (turned into normals again), r^2 =
  (x.y)^2 / (x.x y.y) follows Beta(1/2, (n - 1) / 2), n rows: the direction of a normal vector is uniform on the sphere,
  whatever the other vector is;
- the determinant of all columns' correlations is a product of independent variables Beta((n - i) / 2, i / 2), i = 1 to
  p - 1 (Bartlett). It is small where some columns nearly add up to another, though no two of them look alike. Its lower
  tail is bounded by Markov's inequality for powers: P(D <= x) <= x^s E D^-s for every s > 0, with exact moments.

So each comparison has an exact false-alarm rate, and a whole table one of at most `ALARM`, by the union bound.
Noise that is a multiple, a copy, a permutation or a sum of other noise has r^2 near 1 or a determinant near 0.

The correlation of sizes sees what has another sign and the same size; that of one life with the next a stream that
begins again, or moves on by less than it has given.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import betaln

ALARM = 1e-6

Floats = NDArray[np.float64]
Scores = Mapping[str, Floats]
"""Name of each released number to its noise in all lives, turned into standard normals; shape (lives,)."""


def dependent(scores: Scores) -> set[str]:
    """Say which numbers' noise depends on another's.

    Parameters
    ----------
    scores : mapping from str to float64 array, shape (lives,)
        At least two numbers; more lives than numbers.

    Returns
    -------
    set of str
        One sentence for each pair; one for all together if only that shows anything.
    """
    names, table = list(scores), np.stack(list(scores.values()), axis=1)
    lives, numbers = table.shape
    assert lives > numbers + 2 >= 4, (lives, numbers)
    kinds = [
        ("", *_triangle(table, table)),
        (" in size", *_triangle(_sizes(table), _sizes(table))),
        (" of the life before", *_square(table[1:], table[:-1])),
    ]
    comparisons = sum(len(found) for _, found, _, _ in kinds)
    wrong = set[str]()
    for kind, found, first, second in kinds:
        rows = lives - 1 if "before" in kind else lives
        for place in np.flatnonzero(found > correlation_limit(rows, ALARM / 2 / comparisons)):
            wrong.add(f"{names[first[place]]} follows {names[second[place]]}{kind}")
    if not wrong and log_determinant(table) < determinant_limit(lives, numbers, ALARM / 2):
        wrong.add("some numbers add up to another")
    return wrong


def correlation_limit(rows: int, alarm: float) -> float:
    """Return what |r| of two independent columns exceeds with probability `alarm`."""
    return float(np.sqrt(stats.beta(0.5, (rows - 1) / 2.0).isf(alarm)))


def determinant_limit(rows: int, columns: int, alarm: float) -> float:
    """Return what the logarithm of the determinant falls below with probability at most `alarm`."""
    less = np.arange(1, columns) / 2.0
    rest = rows / 2.0 - less
    powers = np.linspace(0.0, rest.min(), 400)[1:-1, None]
    moments = (betaln(rest - powers, less) - betaln(rest, less)).sum(axis=1)
    return float(((np.log(alarm) - moments) / powers[:, 0]).max())


def log_determinant(table: Floats) -> float:
    """Return the logarithm of the determinant of all correlations; the means are known to be 0."""
    unit = table / np.linalg.norm(table, axis=0)
    return 2.0 * float(np.log(np.maximum(np.linalg.svd(unit, compute_uv=False), 1e-300)).sum())


def uniform_scores(positions: Floats) -> Floats:
    """Turn numbers that are uniform on 0 to 1 into standard normals."""
    return np.asarray(stats.norm.ppf(np.clip(positions, 1e-15, 1.0 - 1e-15)), dtype=np.float64)


def columns(name: str, rows: NDArray[np.float64]) -> dict[str, Floats]:
    """Name the numbers of one vector that is released in every life; `rows` has shape (lives, numbers)."""
    return {f"{name}[{i}]": column for i, column in enumerate(rows.T)}


def _sizes(table: Floats) -> Floats:
    """Turn sizes of standard normals into standard normals."""
    return uniform_scores(2.0 * stats.norm.cdf(np.abs(table)) - 1.0)


def _square(first: Floats, second: Floats) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Return |r| of all columns of one table with all of the other, and which they are."""
    found = np.abs((first / np.linalg.norm(first, axis=0)).T @ (second / np.linalg.norm(second, axis=0)))
    one, other = np.indices(found.shape)
    return found.ravel(), one.ravel(), other.ravel()


def _triangle(first: Floats, second: Floats) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """As `_square`, each pair of two columns once."""
    found, _, _ = _square(first, second)
    later, earlier = map(np.asarray, zip(*[(j, i) for i, j in itertools.combinations(range(first.shape[1]), 2)]))
    return found.reshape(first.shape[1], -1)[later, earlier], later, earlier
