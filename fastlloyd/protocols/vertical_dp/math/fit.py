"""From the tables of all pairs of parties to the weights of the grid of all parties.

`fit_tables` looks for the grid weights of maximum entropy whose two-party sums are the tables: iterative proportional
fitting. It never holds the grid of (k')^S cells. Parties are added one by one; each cell kept so far is extended by
every local cluster of the next party, the weights are fitted to the tables known by then, and at most `max_cells`
cells go on. Where all cells fit, that is all of them and the result is the fit on the whole grid. Else cells above
a threshold c stay, and each of the others stays with probability weight / c, with weight c: no cell's expected weight
changes, so the kept cells are a sample of the whole grid, even where it has few users.

`paper_fit` is the paper's additive update on the whole grid, for comparison.

Post-processing of released sketches, at the server.

Source: Vertical DP, §5.1, Algorithm 5; Deming and Stephan (1940) and Csiszar (1975), "I-divergence geometry"; Fearnhead
and Clifford (2003), for the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, DataError
from fastlloyd.protocols.vertical_dp.math.estimate import Table, nearest_table
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Pair = tuple[int, int]

MAX_CELLS = 1 << 16
MAX_DENSE_CELLS = 1 << 22

_NOTHING = 1e-9
_SWEEPS = 200
_FIRST_SWEEPS = 5
_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class GridCells:
    """Grid cells with their weights; those left out have weight 0.

    Attributes
    ----------
    places : int64 array, shape (c, S)
        Local cluster of each party.
    weights : float64 array, shape (c,)
        Positive, with sum n-hat.
    """

    places: NDArray[np.int64]
    weights: NDArray[np.float64]

    def table(self, pair: Pair, clusters: int) -> Table:
        """Sum the weights by the local clusters of two parties; shape (k', k')."""
        where = self.places[:, pair[0]] * clusters + self.places[:, pair[1]]
        sums = np.bincount(where, self.weights, clusters * clusters).astype(np.float64)
        return sums.reshape(clusters, clusters)


def cells_of(table: Table) -> GridCells:
    """List the cells of positive weight of a whole grid, shape (k', ..., k')."""
    places = np.argwhere(table > 0.0).astype(np.int64)
    return GridCells(places, table[table > 0.0])


def fit_tables(tables: Mapping[Pair, Table], total: float, *, max_cells: int = MAX_CELLS, seed: int = 0) -> GridCells:
    """Fit grid weights of maximum entropy to the tables of all pairs.

    Parameters
    ----------
    tables : mapping from (i, j), i < j, to float64 arrays, shape (k', k')
        Non-negative; one for every pair of the S parties.
    total : float
        Paper: n-hat, positive.
    max_cells : int
        Cells kept after each stage.
    seed : int
        The public seed, for the sample of light cells.

    Returns
    -------
    GridCells

    Raises
    ------
    DataError
        A pair is missing, or a table does not fit.

    Notes
    -----
    Tables are first made to agree on each party's cluster sizes (the mean over the party's tables). Where noise keeps
    them from having a common grid, fitting circles; the result is the mean over its last round.

    Memory: max_cells * k' cells of 2 S numbers, and max_cells numbers for each pair of parties.
    """
    parties, clusters = _check_tables(tables, total)
    sizes, agreed = _agree(tables, parties, total)
    places = np.indices((clusters, clusters)).reshape(2, -1).T
    weights = agreed[0, 1].ravel()
    stream = PublicStream(seed, domains.VERTICAL_CELLS)
    for new in range(2, parties):
        places = np.column_stack([np.repeat(places, clusters, axis=0), np.tile(np.arange(clusters), len(places))])
        weights = np.outer(weights, sizes[new] / total).ravel()
        joined = [(i, new) for i in range(new)]
        weights = rake(places, weights, joined, agreed, _FIRST_SWEEPS)
        if len(weights) > max_cells:
            kept, weights = thin(weights, max_cells, stream)
            places = places[kept]
        last = new == parties - 1
        pairs = list(combinations(range(new + 1), 2))
        weights = rake(places, weights, pairs, agreed, _SWEEPS if last else _FIRST_SWEEPS)
    kept = np.flatnonzero(weights > 0.0)
    weights = weights[kept]
    return GridCells(places[kept], weights * (total / weights.sum()))


def paper_fit(
    tables: Mapping[Pair, Table], sizes: Sequence[Table], total: float, *, steps: int, seed: int
) -> GridCells:
    """Fit grid weights by the paper's additive updates, from independence, on the whole grid.

    Parameters
    ----------
    tables : as in `fit_tables`
    sizes : sequence of float64 arrays, shape (k',)
        Estimated sizes of each party's local clusters.
    total : float
    steps : int
        Paper: T.
    seed : int
        The public seed, for the order of pairs.

    Raises
    ------
    ConfigError
        The grid is too large to hold.

    Notes
    -----
    Differs from the paper: it leaves the step eta_t open, and here it is 1; and weights below 0 become 0 after every
    step. Algorithm 5 as printed has no such line, and then ends at the nearest point to independence: with four parties
    on the mixed Gaussian its weights are wrong by 1.6 n in all, in place of 0.07 n, even from exact tables.

    Source: Vertical DP, Algorithm 5.
    """
    parties, clusters = _check_tables(tables, total)
    if clusters**parties > MAX_DENSE_CELLS:
        raise ConfigError(
            f"the paper's fit needs all {clusters}^{parties} grid cells, expected at most {MAX_DENSE_CELLS}; "
            "take fit = 'entropy' or fewer local clusters"
        )
    grid = np.full((clusters,) * parties, total)  # line 5
    for party, size in enumerate(sizes):
        grid *= (size / total).reshape([-1 if axis == party else 1 for axis in range(parties)])
    pairs = sorted(tables)
    order = PublicStream(seed, domains.VERTICAL_PAIRS).integers(0, len(pairs) - 1, steps)  # lines 9 and 10
    for choice in order.tolist():
        pair = pairs[choice]
        others = tuple(axis for axis in range(parties) if axis not in pair)
        difference = grid.sum(axis=others) - tables[pair]  # lines 11 and 12
        grid -= np.expand_dims(difference, others) / clusters ** (parties - 2)  # lines 13 to 16
        np.maximum(grid, 0.0, out=grid)
    return cells_of(nearest_table(grid, total))


def thin(weights: Table, count: int, stream: PublicStream) -> tuple[NDArray[np.int64], Table]:
    """Keep about `count` cells: heavy ones unchanged, and a systematic sample of the others.

    Returns
    -------
    kept : int64 array
    new : float64 array
        Their weights; the expected weight of every cell is what it was.
    """
    order = np.argsort(weights)[::-1]
    falling = weights[order]
    left = falling.sum() - np.concatenate([[0.0], np.cumsum(falling)[: count - 1]])
    threshold = left / np.arange(count, 0, -1)
    lighter = falling[:count] < threshold
    heavy = int(lighter.argmax()) if lighter.any() else count - 1
    step = float(threshold[heavy])
    # In the order of places, so that neighbouring cells stand in for each other.
    light = np.sort(order[heavy:])
    offset = float(stream.uint32(1)[0]) * 2.0**-32
    ticks = np.floor(np.cumsum(weights[light]) / step + offset)
    chosen = light[np.diff(ticks, prepend=0.0) >= 1.0]
    kept = np.concatenate([order[:heavy], chosen])
    new = np.concatenate([falling[:heavy], np.full(len(chosen), step)])
    return kept, new


def _check_tables(tables: Mapping[Pair, Table], total: float) -> tuple[int, int]:
    """Check the tables; return the numbers of parties and of local clusters."""
    parties = 1 + max((j for _, j in tables), default=0)
    shapes = {table.shape for table in tables.values()}
    if set(tables) != set(combinations(range(parties), 2)) or parties < 2 or len(shapes) != 1:
        raise DataError(
            f"expected one table for each pair of parties, all of one shape, got {sorted(tables)} and {shapes}"
        )
    if not (total > 0.0 and all(np.isfinite(table).all() and (table >= 0.0).all() for table in tables.values())):
        raise DataError(f"expected non-negative tables and a positive total, got total {total:g}; check the sketches")
    return parties, shapes.pop()[0]


def _agree(tables: Mapping[Pair, Table], parties: int, total: float) -> tuple[list[Table], dict[Pair, Table]]:
    """Make the tables agree on each party's cluster sizes."""
    positive = {pair: table + _NOTHING * total for pair, table in tables.items()}
    sizes = []
    for party in range(parties):
        own = [table.sum(axis=1 - pair.index(party)) for pair, table in positive.items() if party in pair]
        mean = np.mean([size / size.sum() for size in own], axis=0)
        sizes.append(mean * total)
    agreed = {}
    for (i, j), table in positive.items():
        fitted = table * (total / table.sum())
        for _ in range(_SWEEPS):
            fitted = fitted * (sizes[i] / fitted.sum(axis=1))[:, None]
            columns = fitted.sum(axis=0)
            fitted = fitted * (sizes[j] / columns)
            if np.abs(columns - sizes[j]).max() <= _TOLERANCE * 1e-3 * total:
                break
        agreed[i, j] = fitted
    return sizes, agreed


def rake(
    places: NDArray[np.int64], weights: Table, pairs: Sequence[Pair], tables: Mapping[Pair, Table], sweeps: int
) -> Table:
    """Scale the weights of cells to each pair's table in turn; return the mean over the last round of all pairs.

    Parameters
    ----------
    places : int64 array, shape (c, S)
    weights : float64 array, shape (c,)
    pairs : sequence of (i, j)
    tables : mapping from (i, j) to float64 arrays, shape (k', k')
    sweeps : int
        Most rounds.
    """
    goals = [tables[pair].ravel() for pair in pairs]
    # Made once: each round goes through all of them.
    entries = [places[:, i] * len(tables[i, j]) + places[:, j] for i, j in pairs]
    mean, weights, factors = weights, weights.copy(), np.empty_like(weights)
    for _ in range(sweeps):
        worst, sum_of = 0.0, np.zeros_like(weights)
        for goal, where in zip(goals, entries, strict=True):
            now = np.bincount(where, weights, goal.size)
            worst = max(worst, float(np.abs(now - goal).max()))
            ratio = np.divide(goal, now, out=np.zeros(goal.size), where=now > 0.0)
            # All are in range: the mode only spares a second buffer.
            weights *= ratio.take(where, out=factors, mode="clip")
            sum_of += weights
        mean = sum_of / len(pairs)
        if worst <= _TOLERANCE * float(tables[pairs[-1]].sum()):
            break
    return mean
