"""Vertical DP, Algorithm 1, lines 3 and 4: from the parties' synopses to the final centres.

The server sees DP centres, DP sketches and the noisy number of users, and only post-processes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError, PeerError
from fastlloyd.lifecycle.hello import Go, await_ready
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Send
from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS
from fastlloyd.protocols.vertical_dp.math.fit import GridCells
from fastlloyd.protocols.vertical_dp.math.grid import cluster_cells
from fastlloyd.protocols.vertical_dp.math.weights import Group, estimate_weights
from fastlloyd.protocols.vertical_dp.messages import FinalResult, Synopsis, synopsis_format
from fastlloyd.protocols.vertical_dp.plan import PLAIN, Plan
from fastlloyd.protocols.vertical_dp.redraw import ServerResult, possible_total, redraw
from fastlloyd.protocols.vertical_dp.sketch.sketch import Levels
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId, clients


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
    yield Send(clients(plan.clients), Go(), SETUP_ROUND)


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
