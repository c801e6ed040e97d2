"""Vertical DP on pooled columns, without messages, line by line: what the parties are tested against.

The sketches are made record by record and phantom by phantom, from the definition of the hash.

Source: Vertical DP, Algorithms 1, 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.privacy.sketch.hash import cell_blocks, user_words
from fastlloyd.privacy.sketch.sketch import Levels
from fastlloyd.protocols.vertical_dp.client import laplace_from
from fastlloyd.protocols.vertical_dp.math.grid import GridResult, cluster_cells
from fastlloyd.protocols.vertical_dp.math.local import GRID, LocalClusters, cluster_locally
from fastlloyd.protocols.vertical_dp.math.weights import Group, noisy_count
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.server import possible_total, weigh
from fastlloyd.randomness.secret import SecretRandom


def reference(
    raw_columns: Sequence[NDArray[np.float64]],
    plan: Plan,
    keys: Mapping[Group, bytes],
    secrets: Sequence[SecretRandom],
) -> GridResult:
    """Run the algorithm centrally, with phantoms of the grid.

    Parameters
    ----------
    raw_columns : per party, float64 array, shape (n, d_i), scaled
    plan : Plan
    keys : mapping from Group to its key
    secrets : per party, where its noise comes from
    """
    local: list[LocalClusters] = []
    sketches: list[list[Levels]] = []
    noisy_total = 0.0
    for place, columns in enumerate(raw_columns):
        found = cluster_locally(columns, plan.local_plan(place), laplace_from(secrets[place]))  # line 1 (a)
        local.append(found)
        sketches.append(  # line 2 (a)
            [
                _sketch(found.raw_labels, group, group.index(place), plan, key)
                for group, key in keys.items()
                if place in group
            ]
        )
        if place == 0:
            noisy_total = noisy_count(len(columns), plan.total_scale, secrets[0])  # line 3 (a)
    cells = weigh(sketches, possible_total(noisy_total, plan), plan)  # line 3 (d)
    return cluster_cells(cells, [found.noisy_centers / GRID for found in local], plan.k, seed=plan.seed)  # line 4


def _sketch(labels: NDArray[np.int64], group: Group, position: int, plan: Plan, key: bytes) -> Levels:
    """Enter users and phantoms one after the other (Algorithm 3, with phantoms of the grid)."""
    shape = plan.shape
    levels = np.full((shape.rows, shape.clusters), shape.floor, dtype=np.int64)
    for record, label in enumerate(labels):
        own = shape.user_levels.levels(user_words(record, shape.rows, key))
        levels[:, label] = np.maximum(levels[:, label], own)
    words = np.concatenate(list(cell_blocks(key, shape.rows, shape.cells)))
    for number, cell in enumerate(np.ndindex(*[shape.clusters] * len(group))):
        a = cell[position]
        levels[:, a] = np.maximum(levels[:, a], shape.phantom_levels.levels(words[:, number]))
    return levels
