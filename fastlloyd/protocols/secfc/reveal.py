"""The final centres, if the run reveals them: opened by l + t clients, to clients.

::

    client i                          server
      Finished        ------------->
                      <-------------  Roll: who is present
      first l + t of these: CenterShares to every other client that is present
      all of them: decode the sums of the final clusters, divide by the sizes

Clusters of fewer than `least_revealed` points are left out: the centre of a single point is that point.

The server relays nothing and learns no sum. The shares of a cluster's sum give the sum of its points and the sum of
their random vectors, so beyond the centres up to t colluding clients learn nothing about a point.

Source: SecFC, §7 ("having l + t clients to collectively reveal the cluster centers").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.party.effects import Attest, Party, Receive, Send
from fastlloyd.protocols.secfc.math.coded import Coder
from fastlloyd.protocols.secfc.math.masks import squared_norm_bound
from fastlloyd.protocols.secfc.math.tournament import FilledClusters
from fastlloyd.protocols.secfc.messages import ArrayFormat, CenterShares, Roll
from fastlloyd.protocols.secfc.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId


def reveal_centers(
    me: PartyId, coder: Coder, labels: NDArray[np.int64], plan: Plan, t: int
) -> Party[tuple[NDArray[np.float64] | None, tuple[PartyId, ...]]]:
    """Open the centres of the final clusters; run by each client.

    Parameters
    ----------
    me : PartyId
    coder : Coder
        This party's shares.
    labels : int64 array, shape (m,)
        Final clusters of all points.
    plan : Plan
    t : int
        The round after the last iteration.

    Returns
    -------
    centers : float64 array, shape (k, d), or None
        Of the rotated points, scaled domain; a row of NaN for a cluster of too few points. None: this client was late.
    present : tuple of PartyId
        The clients that have them.

    Raises
    ------
    PeerError
        Too few clients are present, or their shares give no possible sum.
    """
    roll: Roll = yield Receive(SERVER, Roll, t, plan.clients)
    yield Attest(SERVER, roll, t)
    if len(roll.present) < plan.revealing:
        raise PeerError(
            f"the server calls {len(roll.present)} clients to reveal the centres, expected at least {plan.revealing}",
            rank=SERVER.rank,
        )
    if me not in roll.present:
        return None, roll.present
    opening = roll.present[: plan.revealing]  # §7: l + t clients
    filled = FilledClusters.of(labels, plan.k)
    kept = filled.sizes >= plan.least_revealed
    clusters = FilledClusters(filled.used[kept], filled.sizes[kept])
    own = coder.sums(labels, clusters, plan.k)  # Alg. 1, line 11, once more: of the last assignment
    if me in opening:
        yield Send(tuple(p for p in roll.present if p != me), CenterShares(own, plan.field), t)
    shape = ArrayFormat(plan.field, (plan.k, plan.width))
    shares = []
    for party in opening:
        if party == me:
            shares.append(own)
        else:
            message: CenterShares = yield Receive(party, CenterShares, t, shape)
            shares.append(message.elements)
    if len({elements.shape for elements in shares}) > 1:
        raise _disagreement(me, opening, "are of different numbers of clusters")
    # §7: "collectively reveal the cluster centers"
    segments = plan.code.decode_segments(np.stack(shares, axis=1), [party.rank for party in opening])
    # An impossible sum must not wrap in 64 bits.
    integers = np.clip(plan.field.decode(plan.code.join(segments, plan.d)), -(1 << 62), 1 << 62)
    sums: NDArray[np.int64] = integers.astype(np.int64)
    # The largest norm of a sum, squared; in Python integers, which are exact.
    bound = squared_norm_bound(plan.d, plan.fraction_bits)
    if any(
        sum(int(v) ** 2 for v in row) > int(size) ** 2 * bound for row, size in zip(sums, clusters.sizes, strict=True)
    ):
        raise _disagreement(me, opening, "give sums that no points of these clusters have")
    centers = np.full((plan.k, plan.d), np.nan)
    centers[clusters.used] = sums / clusters.sizes[:, None] / float(1 << plan.fraction_bits)
    return centers, roll.present


def _disagreement(me: PartyId, opening: tuple[PartyId, ...], why: str) -> PeerError:
    """Return the error for shares that contradict each other; it must name a rank, and names the first other one."""
    return PeerError(
        f"the shares of {', '.join(map(str, opening))} {why}: one of these clients sent a wrong share, or the server "
        "sent the clients different assignments; the shares alone do not show which",
        rank=next(party for party in opening if party != me).rank,
    )


def local_inertia(raw_points: GridPoints, raw_labels: NDArray[np.int64], centers: NDArray[np.float64]) -> float:
    """Return the sum of squared distances of a client's points from their centres, scaled domain; it stays local.

    Parameters
    ----------
    raw_points : GridPoints
        Rotated.
    raw_labels : int64 array, shape (own points,)
    centers : float64 array, shape (k, d)
        Of the rotated points.
    """
    if not raw_points.n:
        return 0.0
    grid = float(1 << raw_points.fraction_bits)
    return float(((raw_points.raw_coordinates.T / grid - centers[raw_labels]) ** 2).sum())
