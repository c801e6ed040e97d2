"""How far the final centres and sizes would move if the known noise were drawn again: a parametric bootstrap.

What the server holds at the end are the parties' released local centres and the weights of the grid's cells, estimated
from released sketches. The noise on both is known: that of the sketches by the standard error of a cell
(`likelihood_error`, `basic_error`), that of a party's local centres by its plan and the estimated sizes. So both are
drawn again around what was released, the k-means of the grid is repeated, from the final centres and from one start of
its own, and its clusters are matched with the released ones. How far these lie from the released ones is how far the
noise may have moved those. Two clusters that change places or merge in some draws lie far off in them.

Privacy: post-processing of releases and public numbers; it costs nothing. The draws come from the public seed.

What it does not hold: what a cell hides, for records stand where their local centres are, whatever the other parties
say of them; the error of the fit to more than two parties, where three columns of different parties depend on each
other; and the number of local clusters. That local clustering may not have settled is told apart, as it is no noise.

Source: Efron, "Bootstrap methods" (1979); ours for the rest; docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.math.estimate import Table, basic_error
from fastlloyd.protocols.vertical_dp.math.fit import GridCells, Pair, rake, thin
from fastlloyd.protocols.vertical_dp.math.grid import Centers, assign_cells, refine, seed_centers, walks_of
from fastlloyd.protocols.vertical_dp.math.local import local_doubts
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error
from fastlloyd.protocols.vertical_dp.messages import Spread
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.result import ServerResult, possible_total
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream

Floats = NDArray[np.float64]

# Draws, and steps of Lloyd in each; fewer draws where cells, clusters and parties are many: so much work in all.
_MOST_DRAWS, _LEAST_DRAWS, _STEPS = 40, 10, 20
_WORK = 1 << 22
_MOST_CELLS = 1 << 12
"""Of a larger grid a sample of the light cells stands for all of them."""
_SWEEPS = 3
_KNOTS = 33
_NOTHING = 1e-9


def redraw(plan: Plan, result: ServerResult) -> Spread:
    """Draw the noise of a result again, and say how far its centres and sizes move.

    Parameters
    ----------
    plan : Plan
        Of a run with sketches.
    result : ServerResult

    Notes
    -----
    It takes less time than the estimate of the weights with two parties, and about as much with four. Where all cells
    weigh nothing in a draw, they keep their weights.
    """
    stream = PublicStream(plan.seed, domains.VERTICAL_REDRAW)
    doubts = [
        local_doubts(plan.local_plan(place), own, sizes)
        for place, (own, sizes) in enumerate(zip(result.local_centers, _local_sizes(plan, result.cells), strict=True))
    ]
    cells, again = _drawing(plan, result, stream)
    final, walks = _by_party(plan, result.centers), walks_of(cells.places)
    centers, weights = np.zeros_like(result.centers), np.zeros_like(result.weights)
    draws = min(max(_WORK // (len(cells.weights) * plan.k * plan.clients), _LEAST_DRAWS), _MOST_DRAWS)
    for _ in range(draws):
        local = [
            np.clip(own + np.sqrt(doubt.noise)[:, None] * stream.normal(own.shape), -1.0, 1.0)
            for own, doubt in zip(result.local_centers, doubts, strict=True)
        ]
        drawn = again()
        fresh = seed_centers(drawn, walks, local, plan.k, stream=stream)
        found = min(
            (refine(drawn, walks, local, first, _STEPS) for first in (final, fresh)), key=lambda each: each.cost
        )
        order = _match(result.centers, found.centers)
        total = possible_total(result.noisy_total + _laplace(plan.total_scale, stream), plan)
        centers += (found.centers[order] - result.centers) ** 2
        weights += (found.weights[order] * (total / result.noisy_total) - result.weights) ** 2
    settled = _unsettled(plan, result, [doubt.unsettled for doubt in doubts])
    return Spread(centers=np.sqrt(centers / draws), unsettled=np.sqrt(settled), weights=np.sqrt(weights / draws))


def _drawing(plan: Plan, result: ServerResult, stream: PublicStream) -> tuple[GridCells, Callable[[], GridCells]]:
    """Return the cells to work on, and what draws their weights again."""
    clusters, groups = plan.local_clusters, plan.table_groups
    cells, total = result.cells, result.noisy_total
    if len(groups) == 1 and clusters**plan.clients <= _MOST_CELLS:
        places = np.indices((clusters,) * plan.clients).reshape(plan.clients, -1).T
        weights = np.zeros((clusters,) * plan.clients)
        weights[tuple(cells.places.T)] = cells.weights
        cells = GridCells(places, weights.ravel())
    elif len(cells.weights) > _MOST_CELLS:
        kept, weights = thin(cells.weights, _MOST_CELLS, stream)
        cells = GridCells(cells.places[kept], weights * (total / weights.sum()))
    knots = total * np.linspace(0.0, 1.0, _KNOTS) ** 2
    error = likelihood_error if plan.estimator == "likelihood" else basic_error
    errors = np.array([error(total, float(knot), plan.shape) for knot in knots])

    def noisy(table: Table) -> Table:
        drawn = np.maximum(table + np.interp(table, knots, errors) * stream.normal(table.shape), 0.0)
        return drawn * (total / drawn.sum()) if drawn.any() else table

    if len(groups) == 1:
        return cells, lambda: GridCells(cells.places, noisy(cells.weights))
    pairs: list[Pair] = list(combinations(range(plan.clients), 2))
    tables = {pair: result.cells.table(pair, clusters) for pair in pairs}

    def fitted() -> GridCells:
        # Nothing falls to zero for good: a later table may ask for it again.
        drawn = {pair: noisy(table) + _NOTHING * total for pair, table in tables.items()}
        weights = rake(cells.places, cells.weights, pairs, drawn, _SWEEPS)
        return GridCells(cells.places, weights * (total / weights.sum()) if weights.any() else cells.weights)

    return cells, fitted


def _unsettled(plan: Plan, result: ServerResult, variances: Sequence[float]) -> Floats:
    """Return the variance of the final centres that local centres' own adds, shape (k, d): each is a weighed mean."""
    clusters, final = plan.local_clusters, _by_party(plan, result.centers)
    labels, _ = assign_cells(result.cells, walks_of(result.cells.places), result.local_centers, final)
    found = []
    for place, own in enumerate(final):
        where = labels * clusters + result.cells.places[:, place]
        parts = np.bincount(where, result.cells.weights, plan.k * clusters).reshape(plan.k, clusters)
        shares = parts / np.maximum(parts.sum(axis=1), 1e-9)[:, None]
        found.append(np.repeat((shares**2).sum(axis=1)[:, None] * variances[place], own.shape[1], axis=1))
    return np.hstack(found)


def _local_sizes(plan: Plan, cells: GridCells) -> list[Floats]:
    """Return the estimated users of each party's local clusters, shape (k',)."""
    return [
        np.bincount(cells.places[:, place], cells.weights, plan.local_clusters).astype(np.float64)
        for place in range(plan.clients)
    ]


def _by_party(plan: Plan, centers: Centers) -> list[Centers]:
    """Split centres, shape (k, d), into the parties' columns."""
    return np.split(centers, np.cumsum([len(own) for own in plan.names])[:-1], axis=1)


def _match(ours: Centers, theirs: Centers) -> NDArray[np.int64]:
    """Return for each of our centres its own one of theirs: the closest pair first, then the closest of the others."""
    apart = ((ours[:, None, :] - theirs[None, :, :]) ** 2).sum(axis=2)
    found = np.empty(len(ours), dtype=np.int64)
    for _ in range(len(ours)):
        one, other = divmod(int(apart.argmin()), len(ours))
        found[one] = other
        apart[one, :] = apart[:, other] = np.inf
    return found


def _laplace(scale: float, stream: PublicStream) -> float:
    """Draw a number of the Laplace distribution."""
    first, second = stream.uniform(2).tolist()
    return scale * math.log(first / second)
