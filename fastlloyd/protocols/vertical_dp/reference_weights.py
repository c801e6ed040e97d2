"""WeightEst for `reference.py`: from sketches to the weights of the grid, on whole tables.

It takes from the package only the plan with its numbers, among them F, the distribution of a user's level, whose powers
are the distributions of unions.

Source: Vertical DP, Algorithms 4 and 5, with the changes of `math/estimate.py`, `math/pair.py` and `math/fit.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.sketch.sketch import PAPER_PHANTOMS, Levels, SketchShape
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Group = tuple[int, ...]
Pair = tuple[int, int]
Floats = NDArray[np.float64]


def weight_estimate(sketches: Mapping[Group, Sequence[Levels]], plan: Plan, n_hat: float) -> Floats:
    """Return the weights of the grid of all parties, float64, shape (k', ..., k')."""
    shape = plan.shape
    estimate = _likelihood if plan.estimator == "likelihood" else _basic_est
    tables = {group: estimate(own, shape, n_hat) for group, own in sketches.items()}
    if len(tables) == 1:
        return next(iter(tables.values()))
    pairs: dict[Pair, Floats] = {(group[0], group[1]): table for group, table in tables.items()}
    if plan.fit == "entropy":
        return _entropy_fit(pairs, plan.clients, n_hat)
    return _paper_fit(pairs, _cluster_sizes(sketches, plan), plan, n_hat)


def _level_logarithms(shape: SketchShape) -> list[float]:
    """Return ln F(a) for every level a; F(a) is the chance that a user's level is at most a."""
    return [math.log(value) if value > 0.0 else -math.inf for value in _chances(shape)]


def _chances(shape: SketchShape) -> list[float]:
    """Return F(a) for every level a."""
    return [total / shape.user_levels.totals[-1] for total in shape.user_levels.totals]


def _cardinality(levels: list[int], shape: SketchShape) -> float:
    """Find the size N of a set from its M highest levels, by maximum likelihood, times (M - 1) / M.

    A highest level a has probability F(a)^N - F(a - 1)^N, and F(a)^N at the floor.
    """
    log = _level_logarithms(shape)
    above = [level for level in levels if level > shape.floor]
    if not above:
        return 0.0

    def slope(size: float) -> float:
        # Of the log-likelihood: it falls in N.
        total = math.fsum(log[level] for level in levels)
        for level in above:
            gap = log[level] - log[level - 1]
            total += gap / math.expm1(size * gap) if size * gap < 500.0 else 0.0
        return total

    return _root(slope, 1e-12, 1e15) * (1.0 - 1.0 / len(levels))


def _basic_est(sketches: Sequence[Levels], shape: SketchShape, n_hat: float) -> Floats:
    """Take the union of each cell's complement from n-hat (Algorithm 4)."""
    table = np.empty((shape.clusters,) * len(sketches))
    if shape.scheme == PAPER_PHANTOMS:
        phantoms = len(sketches) * (shape.clusters - 1) * shape.phantoms
    else:
        phantoms = (table.size - 1) * shape.phantoms
    for cell in np.ndindex(table.shape):
        union = [  # lines 3 to 5
            max(int(A[i, a]) for A, own in zip(sketches, cell, strict=True) for a in range(shape.clusters) if a != own)
            for i in range(shape.rows)
        ]
        table[cell] = n_hat - (_cardinality(union, shape) - phantoms)  # lines 6 to 10
    return _nearest_weights(table, n_hat)  # line 11


def _nearest_weights(table: Floats, n_hat: float) -> Floats:
    """Take one amount off all entries, negative ones becoming 0, so that they add up to n-hat."""
    amount = _root(lambda value: float(np.maximum(table - value, 0.0).sum()) - n_hat, table.min() - n_hat, table.max())
    return np.maximum(table - amount, 0.0)


def _likelihood(sketches: Sequence[Levels], shape: SketchShape, n_hat: float) -> Floats:
    """Maximise the likelihood of two parties' rows (`math/pair.py`): each event is one of a set of cells."""
    first, second, floor = sketches[0].tolist(), sketches[1].tolist(), shape.floor
    chance = _chances(shape)
    k = shape.clusters
    events: list[Floats] = []
    times = np.zeros((k, k))
    for own, other in zip(first, second, strict=True):
        for a in range(k):
            for b in range(k):
                level = min(own[a], other[b])
                middle = chance[level] if level == floor else 0.5 * (chance[level] + chance[level - 1])
                times[a, b] -= math.log(min(middle, 1.0))
                if own[a] == other[b] > floor:  # a tie names its cell
                    events.append(_cells(k, [(a, b)]))
        for a in range(k):
            if own[a] > floor and own[a] not in other:
                events.append(_cells(k, [(a, b) for b in range(k) if other[b] > own[a]]))
        for b in range(k):
            if other[b] > floor and other[b] not in own:
                events.append(_cells(k, [(a, b) for a in range(k) if own[a] > other[b]]))
    sets = np.array([event for event in events if event.any()]).reshape(-1, k, k)
    weights = np.full((k, k), n_hat / k**2)
    for _ in range(2000):
        rates = weights + shape.phantoms
        expected = weights * (sets / (sets * rates).sum(axis=(1, 2))[:, None, None]).sum(axis=0)
        if not expected.any():
            break
        new = _divided(expected, times, n_hat)
        done = np.abs(new - weights).max() <= 1e-6 * n_hat
        weights = new
        if done:
            break
    return weights


def _cells(k: int, members: list[tuple[int, int]]) -> Floats:
    """Mark some cells of a table."""
    marks = np.zeros((k, k))
    for cell in members:
        marks[cell] = 1.0
    return marks


def _divided(expected: Floats, times: Floats, n_hat: float) -> Floats:
    """Divide events by time plus a multiplier, such that the quotients add up to n-hat."""
    seen = expected > 0.0
    low = float((expected[seen] / n_hat - times[seen]).max())
    shift = _root(
        lambda value: float((expected[seen] / (times[seen] + value)).sum()) - n_hat,
        low,
        low + float(expected[seen].sum()) / n_hat + float(times[seen].max()) + abs(low),
    )
    new = np.zeros_like(expected)
    new[seen] = expected[seen] / (times[seen] + shift)
    return new


def _cluster_sizes(sketches: Mapping[Group, Sequence[Levels]], plan: Plan) -> list[Floats]:
    """Estimate the sizes of each party's clusters, averaged over its sketches (Algorithm 5, lines 2 to 4)."""
    shape, sizes = plan.shape, []
    phantoms = shape.clusters ** (shape.parties - 1) * shape.phantoms
    for party in range(plan.clients):
        own = [
            A for group, found in sketches.items() for member, A in zip(group, found, strict=True) if member == party
        ]
        sizes.append(
            np.array(
                [
                    sum(max(_cardinality(A[:, a].tolist(), shape) - phantoms, 0.0) for A in own) / len(own)
                    for a in range(shape.clusters)
                ]
            )
        )
    return sizes


def _paper_fit(tables: Mapping[Pair, Floats], sizes: list[Floats], plan: Plan, n_hat: float) -> Floats:
    """Fit by additive updates from independence (Algorithm 5), with eta = 1 and no weight below 0."""
    parties, k = plan.clients, plan.local_clusters
    grid = np.empty((k,) * parties)
    for cell in np.ndindex(grid.shape):  # line 5
        grid[cell] = n_hat * math.prod(size[a] / n_hat for size, a in zip(sizes, cell, strict=True))
    pairs = sorted(tables)
    for choice in PublicStream(plan.seed, domains.VERTICAL_PAIRS).integers(0, len(pairs) - 1, plan.steps):  # line 10
        pair = pairs[int(choice)]
        difference = _project(grid, pair) - tables[pair]  # lines 11 and 12
        for cell in np.ndindex(grid.shape):  # lines 13 to 16
            grid[cell] = max(grid[cell] - difference[cell[pair[0]], cell[pair[1]]] / k ** (parties - 2), 0.0)
    return _nearest_weights(grid, n_hat)


def _entropy_fit(tables: Mapping[Pair, Floats], parties: int, n_hat: float) -> Floats:
    """Fit by iterative proportions, party after party (`math/fit.py`), where every cell is kept."""
    tables = {pair: table + 1e-9 * n_hat for pair, table in tables.items()}
    sizes = []
    for party in range(parties):
        own = [table.sum(axis=1 - pair.index(party)) for pair, table in tables.items() if party in pair]
        sizes.append(sum(size / size.sum() for size in own) / len(own) * n_hat)
    agreed = {pair: _with_margins(table, sizes[pair[0]], sizes[pair[1]], n_hat) for pair, table in tables.items()}
    grid = agreed[0, 1]
    for new in range(2, parties):
        grid = grid[..., None] * (sizes[new] / n_hat)
        grid = _rake(grid, [(i, new) for i in range(new)], agreed, 5)
        grid = _rake(grid, list(combinations(range(new + 1), 2)), agreed, 200 if new == parties - 1 else 5)
    return np.asarray(grid * (n_hat / grid.sum()))


def _with_margins(table: Floats, rows: Floats, columns: Floats, n_hat: float) -> Floats:
    """Scale rows and columns in turn to the given sums."""
    table = table * (n_hat / table.sum())
    for _ in range(200):
        table = table * (rows / table.sum(axis=1))[:, None]
        off = float(np.abs(table.sum(axis=0) - columns).max())
        table = table * (columns / table.sum(axis=0))
        if off <= 1e-8 * n_hat:
            break
    return table


def _rake(grid: Floats, pairs: list[Pair], tables: Mapping[Pair, Floats], sweeps: int) -> Floats:
    """Scale the grid to each pair's table in turn; give the mean over the last sweep."""
    mean = grid
    for _ in range(sweeps):
        worst, visited = 0.0, []
        for pair in pairs:
            now, factor = _project(grid, pair), np.zeros_like(tables[pair])
            worst = max(worst, float(np.abs(now - tables[pair]).max()))
            factor[now > 0.0] = tables[pair][now > 0.0] / now[now > 0.0]
            others = tuple(axis for axis in range(grid.ndim) if axis not in pair)
            grid = grid * np.expand_dims(factor, others)
            visited.append(grid)
        mean = np.mean(visited, axis=0)
        if worst <= 1e-5 * float(tables[pairs[-1]].sum()):
            break
    return mean


def _project(grid: Floats, pair: Pair) -> Floats:
    """Sum the grid over all parties but two."""
    return np.asarray(grid.sum(axis=tuple(axis for axis in range(grid.ndim) if axis not in pair)))


def _root(falling: Callable[[float], float], low: float, high: float) -> float:
    """Halve an interval until the zero of a falling function is between two neighbouring floats."""
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return middle
        low, high = (middle, high) if falling(middle) > 0.0 else (low, middle)
