"""k-FED from a client's side: cluster its own records, send the centres, label by what comes back.

Source: Dennis, Li, Smith (2021), Algorithm 2, on each device; SecFC, §3.2, for a summary. The local clustering is
Awasthi and Sheffet's (`kmeans/spectral.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints, round_centers
from fastlloyd.kmeans.spectral import cluster_locally
from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, MessageFormat, StoredRounds
from fastlloyd.party.effects import Party, Publish
from fastlloyd.protocols.kfed.messages import LocalCenters, MergedCenters, encode_centers
from fastlloyd.protocols.kfed.plan import Plan
from fastlloyd.randomness import domains
from fastlloyd.wire.header import SERVER, PartyId


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client has at the end.

    Attributes
    ----------
    centers : float64 array, shape (k, d)
        Scaled domain; not private.
    raw_labels : int64 array, shape (n,)
        Cluster of each own record; never sent.
    included : tuple of one tuple of PartyId
        The clients whose centres were merged.
    """

    centers: NDArray[np.float64] = field(repr=False)
    raw_labels: NDArray[np.int64] = field(repr=False)
    included: tuple[tuple[PartyId, ...], ...]


def client(
    me: PartyId, raw_points: GridPoints, plan: Plan, *, stored: StoredRounds | None = None
) -> Party[ClientResult]:
    """Run one client.

    Parameters
    ----------
    me : PartyId
    raw_points : GridPoints
        Own records.
    plan : Plan
    stored : StoredRounds, optional
        On resume: what was sent or accepted before.

    Raises
    ------
    PeerError
        The server merged the centres of fewer clients than agreed.

    Notes
    -----
    Sees: the merged centres. The server sees this client's centres in clear.
    Privacy: none.
    """
    rounds = ClientRounds(me, Ahead(1, plan.releases, record_ahead=False), stored)

    def uplink() -> LocalCenters:
        return LocalCenters(encode_centers(local_centers(me, raw_points, plan)))  # Alg. 2, on each device: Theta^(z)

    # "send the cluster centers" (SecFC, §3.2)
    merged = yield from rounds.plain(0, MessageFormat(LocalCenters, plan), uplink, MessageFormat(MergedCenters, plan))
    if len(merged.included) < plan.min_clients:
        raise PeerError(
            f"the server merged the centres of {len(merged.included)} clients, expected at least {plan.min_clients} "
            "(--min-clients)",
            rank=SERVER.rank,
        )
    yield Publish("round", {"round": 0, "rounds": 1, "clients": len(merged.included)})
    centers = merged.centers(plan.d)
    labels = assign(raw_points, round_centers(centers, plan.fraction_bits))
    return ClientResult(centers, labels, (merged.included,))


def local_centers(me: PartyId, raw_points: GridPoints, plan: Plan) -> NDArray[np.float64]:
    """Cluster a client's own records by Awasthi and Sheffet's algorithm; float64, shape (up to k', d)."""
    return cluster_locally(
        raw_points, plan.local_k, seed=plan.seed, purpose=f"{domains.KFED_LOCAL}{me.rank}", restarts=plan.restarts
    )
