"""Sketches of known tables, drawn from their distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels, SketchShape


def draw_sketches(table: NDArray[np.int64], shape: SketchShape, rng: np.random.Generator) -> list[Levels]:
    """Draw the sketches of a group whose grid has these many users, as `make_sketch` would give them.

    A cell of N users and phantoms has the highest level F^-1(U^(1 / N)), U uniform; parties take maxima over cells.
    """
    cells = table.ravel() + shape.phantoms
    uniform = rng.random((shape.rows, cells.size)) ** (1.0 / cells)
    highest = np.searchsorted(shape.user_levels.cumulative()[1:-1], uniform, side="right") + 1
    grid = np.maximum(highest, shape.floor).reshape(shape.rows, *table.shape)
    axes = range(1, table.ndim + 1)
    return [grid.max(axis=tuple(axis for axis in axes if axis != party + 1)) for party in range(table.ndim)]


def correlated_labels(n: int, parties: int, clusters: int, seed: int) -> list[NDArray[np.int64]]:
    """Draw local clusters that depend on a common hidden class."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 4, n)
    labels = []
    for _ in range(parties):
        chances = rng.dirichlet(np.full(clusters, 0.4), size=4).cumsum(axis=1)
        labels.append((chances[hidden] < rng.random(n)[:, None]).sum(axis=1).clip(max=clusters - 1))
    return labels


def count_cells(labels: list[NDArray[np.int64]], clusters: int) -> NDArray[np.int64]:
    """Count users in every grid cell."""
    table = np.zeros((clusters,) * len(labels), dtype=np.int64)
    np.add.at(table, tuple(labels), 1)
    return table
