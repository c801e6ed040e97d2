"""k-FED from the server's side: collect the clients' centres, merge them, send the result to all.

Source: Dennis, Li, Smith (2021), Algorithm 2, on the central node; FedDP-KMeans, §5 "Baselines".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.rounds import Ahead, MessageFormat, ServerRounds, StoredRounds
from fastlloyd.party.effects import Party
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters, encode_centers
from fastlloyd.protocols.kfed.plan import Plan
from fastlloyd.wire.header import PartyId, clients


@dataclass(frozen=True, slots=True)
class ServerResult:
    """What the server has at the end.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled domain; not private.
    included : tuple of one tuple of PartyId
    late : frozenset of PartyId
    """

    centers: NDArray[np.float64] = field(repr=False)
    included: tuple[tuple[PartyId, ...], ...]
    late: frozenset[PartyId]


def server(plan: Plan, *, stored: StoredRounds | None = None) -> Party[ServerResult]:
    """Run the server.

    Parameters
    ----------
    plan : Plan
    stored : StoredRounds, optional
        On resume: the stored reply, and who accepted it.

    Notes
    -----
    Sees: each client's centres in clear, each a mean of some of its records. Privacy: none.
    """

    def answer(uplinks: Mapping[PartyId, LocalCenters], included: tuple[PartyId, ...]) -> MergedCenters:
        # Alg. 2, on the central node: Theta^(z) of each device z; k of all these are chosen, then one round of Lloyd's.
        centers = merge_centers([uplinks[party].centers(plan.d) for party in included], plan.k, plan.d)
        return MergedCenters(encode_centers(centers), included, plan.clients)

    ahead = Ahead(1, plan.releases, record_ahead=False)
    rounds = ServerRounds(plan.clients, 1, ahead, at_least=plan.min_clients, stored=stored)
    reply = yield from rounds.plain(0, MessageFormat(LocalCenters, plan), MessageFormat(MergedCenters, plan), answer)
    late = frozenset(clients(plan.clients)) - frozenset(reply.included)
    return ServerResult(reply.centers(plan.d), (reply.included,), late)


def merge_centers(local: Sequence[NDArray[np.float64]], k: int, d: int) -> NDArray[np.float64]:
    """Choose k starting centres farthest first, group all local centres around them once, take the means.

    Parameters
    ----------
    local : sequence of float64 array, shape (up to k', d)
        The clients' centres in the order of their ranks.
    k, d : int

    Returns
    -------
    float64 array, shape (k, d)
        If there are fewer than k local centres, they are repeated in turn; without any, the middle of the domain.

    Notes
    -----
    Sees: the server, all of it. Privacy: none.
    """
    centers = np.concatenate([np.zeros((0, d)), *local])
    if len(centers) < k:
        return np.resize(centers, (k, d)) if len(centers) else np.zeros((k, d))
    first = next(len(own) for own in local if len(own))
    chosen = _farthest_first(centers, min(first, k), k)
    labels = _squared_distances(centers, centers[chosen]).argmin(axis=1)  # Alg. 2: one round of Lloyd's
    merged = np.zeros((k, d))
    np.add.at(merged, labels, centers)
    sizes = np.bincount(labels, minlength=k)
    # Of two equal starting centres the second stays without members: it keeps its place.
    return np.where((sizes > 0)[:, None], merged / np.maximum(sizes, 1)[:, None], centers[chosen])


def _farthest_first(centers: NDArray[np.float64], first: int, k: int) -> list[int]:
    """Take the first client's centres, then k - first times the one farthest from all taken (lowest index on ties)."""
    chosen = list(range(first))  # Alg. 2: M begins as the centres of one device, here the first that has any
    distance = _squared_distances(centers, centers[:first]).min(axis=1)
    while len(chosen) < k:  # Alg. 2: the centre farthest from M joins it, until |M| = k
        distance[chosen] = -1.0
        farthest = int(distance.argmax())
        chosen.append(farthest)
        distance = np.minimum(distance, _squared_distances(centers, centers[farthest][None])[:, 0])
    return chosen


def _squared_distances(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return |x - c|^2, shape (n, k), center by center: differences, so that equal points have distance 0."""
    return np.stack([((points - center) ** 2).sum(axis=1) for center in centers], axis=1)
