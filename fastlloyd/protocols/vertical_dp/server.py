"""Vertical DP, Algorithm 1, lines 3 and 4: from the parties' synopses to the final centres.

The server sees DP centres, DP sketches and the noisy number of users, and only post-processes them.

How far the known noise may have moved the result is estimated by a parametric bootstrap.
At the end the server holds the parties' released local centres and the weights of the grid's cells, estimated from
released sketches. The noise on both is known: for sketches from the standard error of a cell (`likelihood_error`,
`basic_error`), for a party's local centres from its plan and the estimated sizes. So the server draws both again around
the released values, repeats the k-means of the grid from the final centres and from one new start, and matches the new
clusters with the released ones. Their distances estimate how far the noise has moved the released centres. Clusters
that change places or merge in some draws are far off in these.

Privacy: post-processing of releases and public numbers; it costs nothing. The draws come from the public seed.

Not included: the spread within a cell, because records are replaced by their local centres; the error of the fit for
more than two parties, if three columns of different parties depend on each other; and the number of local clusters.
Local clusterings that have not converged are reported separately, because that error is not noise.

Source: Efron, "Bootstrap methods" (1979); ours for the rest; docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError, PeerError
from fastlloyd.lifecycle.hello import await_ready, send_go
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Send
from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS
from fastlloyd.protocols.vertical_dp.math.estimate import Table, basic_error
from fastlloyd.protocols.vertical_dp.math.fit import GridCells, Pair, rake, thin
from fastlloyd.protocols.vertical_dp.math.grid import (
    Centers,
    assign_cells,
    cluster_cells,
    refine,
    seed_centers,
    walks_of,
)
from fastlloyd.protocols.vertical_dp.math.local import local_doubts
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error
from fastlloyd.protocols.vertical_dp.math.weights import Group, estimate_weights
from fastlloyd.protocols.vertical_dp.messages import FinalResult, SharedResult, Spread, Synopsis, synopsis_format
from fastlloyd.protocols.vertical_dp.plan import PLAIN, Plan
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.wire.header import SERVER, PartyId, clients

Floats = NDArray[np.float64]

# Draws, and steps of Lloyd in each; with many cells, clusters and parties fewer draws, to limit the work.
_MOST_DRAWS, _LEAST_DRAWS, _STEPS = 40, 10, 20
_WORK = 1 << 22
_MOST_CELLS = 1 << 12
"""In a larger grid a sample of the light cells represents all of them."""
_SWEEPS = 3
_KNOTS = 33
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class ServerResult:
    """The server's result: public post-processing of releases.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled, columns party by party.
    weights : float64 array, shape (k,)
        Estimated users per centre.
    noisy_total : float
        Paper: n-hat (vertical-plain: n).
    cells : GridCells
        The weighted grid.
    local_centers : tuple of float64 arrays, shape (k', d_i)
        As released, scaled.
    spread : Spread or None
        How far the noise may have moved it; None for vertical-plain, or before `redraw`.
    """

    centers: NDArray[np.float64]
    weights: NDArray[np.float64]
    noisy_total: float
    cells: GridCells
    local_centers: tuple[NDArray[np.float64], ...]
    spread: Spread | None = None

    @property
    def shared(self) -> SharedResult:
        """The result for parties, if the run shares it."""
        return SharedResult(centers=self.centers, weights=self.weights, spread=self.spread)


def possible_total(noisy_total: float, plan: Plan) -> float:
    """Clip the noisy number of users to 1 .. N; this post-processing keeps noise from ending a run."""
    return min(max(noisy_total, 1.0), float(plan.n_total))


def redraw(plan: Plan, result: ServerResult) -> Spread:
    """Draw the noise of a result again, and return how far its centres and sizes move.

    Parameters
    ----------
    plan : Plan
        The plan of a run with sketches.
    result : ServerResult

    Notes
    -----
    With two parties it takes less time than the estimate of the weights, and about as much with four. If all cells of a
    draw have weight 0, they keep their weights.
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
    """Return the cells to work on, and a function that draws their weights again."""
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
        # No entry becomes exactly zero, because a later table could not raise it again.
        drawn = {pair: noisy(table) + _NOTHING * total for pair, table in tables.items()}
        weights = rake(cells.places, cells.weights, pairs, drawn, _SWEEPS)
        return GridCells(cells.places, weights * (total / weights.sum()) if weights.any() else cells.weights)

    return cells, fitted


def _unsettled(plan: Plan, result: ServerResult, variances: Sequence[float]) -> Floats:
    """Return the variance that the local centres add to the final ones, their weighted means, shape (k, d)."""
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
    """Return for each of our centres a different one of theirs, taking the closest remaining pair each time."""
    apart = ((ours[:, None, :] - theirs[None, :, :]) ** 2).sum(axis=2)
    found = np.empty(len(ours), dtype=np.int64)
    for _ in range(len(ours)):
        one, other = divmod(int(apart.argmin()), len(ours))
        found[one] = other
        apart[one, :] = apart[:, other] = np.inf
    return found


def _laplace(scale: float, stream: PublicStream) -> float:
    """Draw a number from the Laplace distribution."""
    first, second = stream.uniform(2).tolist()
    return scale * math.log(first / second)


def server(plan: Plan) -> Party[ServerResult]:
    """Run the server.

    Raises
    ------
    PeerError
        A party is missing or sent something invalid, so the run cannot continue.

    Notes
    -----
    Sees: the parties' synopses, which are the releases of `plan.all_releases()`.
    """
    parties = clients(plan.clients)
    messages: dict[PartyId, Synopsis] = {}
    for place, party in enumerate(parties):
        messages[party] = yield Receive(party, Synopsis, 0, synopsis_format(plan, place))  # line 3 (b)
    if plan.protocol == PLAIN:
        forms = (synopsis_format(plan, place) for place in range(plan.clients))
        _check_users(
            {party: len(messages[party].plain_labels(form)) for party, form in zip(parties, forms, strict=True)}
        )
    result = finish([messages[party] for party in parties], plan)
    if plan.protocol != PLAIN:
        result = replace(result, spread=redraw(plan, result))
    final = FinalResult.write(result.shared) if plan.share_result else FinalResult(b"")
    yield Send(parties, final, 0)
    yield Attest(SERVER, final, 0)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": plan.clients})
    return result


def await_prepared(plan: Plan) -> Party[None]:
    """Wait until every party has its message ready and its releases recorded, then let all of them send."""
    yield from await_ready(clients(plan.clients))
    yield from send_go(clients(plan.clients))


def finish(messages: Sequence[Synopsis], plan: Plan) -> ServerResult:
    """Compute the final centres from the parties' messages."""
    forms = [synopsis_format(plan, place) for place in range(plan.clients)]
    grid = float(1 << FRACTION_BITS)
    # Line 3 (c): the grid is the product of these; its points are never made.
    local = tuple(message.centers(form) / grid for message, form in zip(messages, forms, strict=True))
    if plan.protocol == PLAIN:
        labels = [message.plain_labels(form) for message, form in zip(messages, forms, strict=True)]
        noisy_total = float(len(labels[0]))
        cells = plain_cells(labels)
    else:
        noisy_total = possible_total(messages[0].noisy_total(forms[0]), plan)  # line 3 (a)
        sketches = [message.sketches(form) for message, form in zip(messages, forms, strict=True)]
        cells = weigh(sketches, noisy_total, plan)  # line 3 (d)
    found = cluster_cells(cells, local, plan.k, seed=plan.seed)  # line 4 (a)
    return ServerResult(found.centers, found.weights, noisy_total, cells, local)


def weigh(sketches: Sequence[Sequence[Levels]], noisy_total: float, plan: Plan) -> GridCells:
    """Estimate the weights of the grid.

    Parameters
    ----------
    sketches : per party, its sketches in the order of its groups
    noisy_total : float
    plan : Plan
    """
    own = [iter(of_party) for of_party in sketches]
    made = {group: {place: next(own[place]) for place in group} for group in plan.key_groups}
    by_group: Mapping[Group, Sequence[Levels]]
    if plan.key_groups == plan.table_groups:
        by_group = {group: list(of_group.values()) for group, of_group in made.items()}
    else:  # the paper's: one sketch per party serves every pair
        all_parties = made[plan.key_groups[0]]
        by_group = {group: [all_parties[place] for place in group] for group in plan.table_groups}
    return estimate_weights(
        by_group,
        plan.shape,
        noisy_total,
        estimator=plan.estimator,
        fit=plan.fit,
        steps=plan.steps,
        seed=plan.seed,
    )


def _check_users(counts: Mapping[PartyId, int]) -> None:
    """Refuse labels for more or fewer users than most parties have, because all compared their ids.

    Raises
    ------
    PeerError
        Names the wrong party, or both of two parties that differ.
    """
    usual, _ = Counter(counts.values()).most_common(1)[0]
    if len(counts) == 2 and len(set(counts.values())) == 2:
        (first, one), (second, other) = counts.items()
        raise PeerError(
            f"{first} sent local clusters of {one} users and {second} of {other}, expected the same number, because "
            "both hold the same ids; compare the versions of both",
            rank=second.rank,
        )
    for party, count in counts.items():
        if count != usual:
            raise PeerError(
                f"{party} sent local clusters of {count} users, expected {usual} as the others did, because all hold "
                "the same ids; check its version",
                rank=party.rank,
            )


def plain_cells(labels: Sequence[NDArray[np.int64]]) -> GridCells:
    """Count the users of every grid cell.

    Raises
    ------
    DataError
        The parties have different numbers of users.
    """
    if len({len(own) for own in labels}) != 1 or not len(labels[0]):
        raise DataError(f"expected labels of the same users, got {[len(own) for own in labels]}; align the records")
    places, counts = np.unique(np.stack(labels, axis=1), axis=0, return_counts=True)
    return GridCells(places, counts.astype(np.float64))
