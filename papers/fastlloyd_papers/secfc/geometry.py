"""Why one secret factor for all scores of a record is not enough: its ratios give the records away.

With w_h = f (sigma_h - sigma_r) for an unknown f > 0 each record is a line through the origin of R^(c - 1), as sigma_h
- sigma_r is linear in it. In the last iteration the assignment repeats, so the members of each cluster are known. With
c >= d + 2 clusters the lines lie in d + 1 dimensions, and the records are a plane section b.y = const of them: d
numbers are unknown, and that distances of centres are symmetric gives c (c - 1) / 2 equations for them.

Source: the factorisation of Sturm and Triggs (1996), with centres of clusters for cameras.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd_papers.secfc.view import exact_differences

Floats = NDArray[np.float64]

_STEPS = 200
_STARTS = 20


def read_lines(grid: NDArray[np.int64], labels: NDArray[np.int64]) -> Floats:
    """Return what one secret factor for all scores of a record leaves: unit vectors, shape (m, c - 1).

    Of sigma_h - sigma_r for all clusters but the first one in use.
    """
    used = np.unique(labels)
    sizes = [int((labels == h).sum()) for h in used]
    rows = [
        exact_differences(grid, labels, int(used[0]), int(h)) / math.lcm(sizes[0], size) ** 2
        for h, size in zip(used[1:], sizes[1:], strict=True)
    ]
    lines = np.array(rows, dtype=np.float64)
    return np.asarray((lines / np.maximum(np.linalg.norm(lines, axis=0), 1e-300)).T)


def rebuild_geometry(lines: Floats, labels: NDArray[np.int64], d: int, *, seed: int = 0) -> Floats | None:
    """Rebuild the records from the last iteration alone, up to rotation, position and size.

    Parameters
    ----------
    lines : float64 array, shape (m, c - 1)
        From `read_lines`.
    labels : int64 array, shape (m,)
        That repeated.
    d : int
    seed : int
        Of the starts of the search.

    Returns
    -------
    float64 array, shape (m, d), or None
        None: fewer than d + 2 clusters, or the search found nothing.
    """
    count = lines.shape[1] + 1
    if count < d + 2:
        return None
    _, _, directions = np.linalg.svd(lines, full_matrices=False)
    pictures = lines @ directions[: d + 1].T
    members = np.stack([(labels == h) / (labels == h).sum() for h in np.unique(labels)])

    def distances(section: Floats) -> tuple[Floats, Floats]:
        """Squared distances of the centres, up to a scale, and the values of each record for each centre."""
        values = lines / (pictures @ section)[:, None]
        values = np.hstack([np.zeros((len(values), 1)), values])
        means = members @ values
        return means - np.diag(means)[:, None], values

    def misfit(section: Floats) -> Floats:
        table, _ = distances(section)
        upper = np.triu_indices(count, 1)
        return np.asarray((table - table.T)[upper] / np.abs(table[upper] + table.T[upper]).mean())

    section = _search(misfit, pictures, seed)
    if section is None:
        return None
    table, values = distances(section)
    squared = (table + table.T) / 2
    if squared.mean() < 0:
        return None
    centring = np.eye(count) - 1.0 / count
    weights, vectors = np.linalg.eigh(-centring @ squared @ centring / 2)
    centers = vectors[:, -d:] * np.sqrt(np.maximum(weights[-d:], 0.0))
    norms = (centers**2).sum(axis=1)
    right = values[:, 1:] - (norms[1:] - norms[0])
    return np.asarray(np.linalg.lstsq(-2.0 * (centers[1:] - centers[0]), right.T, rcond=None)[0].T)


def _search(misfit: Callable[[Floats], Floats], pictures: Floats, seed: int) -> Floats | None:
    """Look for a section that all lines cross and that makes the distances symmetric."""
    from scipy.optimize import least_squares

    rng = np.random.default_rng(seed)
    start = np.asarray(np.linalg.lstsq(pictures, np.ones(len(pictures)), rcond=None)[0], dtype=np.float64)
    best: Floats | None = None
    cost = np.inf
    for attempt in range(_STARTS):
        trial: Floats | None = start * np.exp(0.3 * attempt / _STARTS * rng.standard_normal(len(start)))
        trial = _inside(pictures, np.asarray(trial))
        if trial is None:
            continue
        found = least_squares(
            misfit, trial / np.linalg.norm(trial), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=_STEPS
        )
        if (pictures @ found.x > 0).all() and found.cost < cost:
            best, cost = found.x, found.cost
        if cost < 1e-18:
            break
    return best


def _inside(pictures: Floats, trial: Floats) -> Floats | None:
    """Move a section until all lines cross it, as a perceptron does."""
    trial = trial.copy()
    for _ in range(5000):
        wrong = pictures @ trial <= 0
        if not wrong.any():
            return trial
        trial += pictures[wrong].mean(axis=0)
    return None


def similarity_error(found: Floats, records: Floats) -> float:
    """Return the root mean square error after the best rotation, shift and scale, over the records' spread."""
    x, y = found - found.mean(axis=0), records - records.mean(axis=0)
    u, s, v = np.linalg.svd(x.T @ y)
    fit = x @ u @ v * (s.sum() / (x**2).sum())
    return float(np.sqrt(((fit - y) ** 2).sum() / (y**2).sum()))
