"""FastLloyd, Algorithm 1, from client p_i's side.

The paper's D_i is `raw_points`, mu~(t) is `centers`, R_ij and C_ij together are `update`, U^ and C^ together are
`noisy`. Each step is one call: `rounds.py` has its lines, and `lifecycle/masked_sums.py` those of Figure 1.
`fastlloyd-plus` runs the same steps; `local_update` and `post_process` then call `plus.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.quality import Judged, OfNumber
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.lifecycle.masked_sums import GlobalMsa
from fastlloyd.lifecycle.rounds import Draw, StoredRounds
from fastlloyd.masking.mask import Masks
from fastlloyd.party.effects import Party, Publish
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import (
    Centers,
    Chosen,
    asked,
    choose_k,
    first_centers,
    local_update,
    post_process,
    quality_update,
    read_quality,
)
from fastlloyd.wire.header import PartyId


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client has at the end.

    Attributes
    ----------
    centers : Centers
        Released.
    raw_labels : int64 array, shape (n,)
        Cluster of each own record; never sent.
    included : tuple
        Per round, the clients whose updates were in the sum.
    path : tuple of float64 arrays, shape (k, d)
        The centres at the start and after each round, all public or released.
    silent : tuple of tuple of PartyId
        Per round, with threshold masks: the clients in the sum that left more of their noise in it.
    noise : tuple of float
        Per round: all noise over the noise that counts.
    chosen : Chosen or None
        The remaining clusters of `centers` if the clients choose k; None if k was given.
    quality : tuple
        What the last round says of the clusters, or of each number of clusters; empty if there is no such round.
    """

    centers: Centers
    raw_labels: NDArray[np.int64]
    included: tuple[tuple[PartyId, ...], ...]
    path: tuple[NDArray[np.float64], ...]
    silent: tuple[tuple[PartyId, ...], ...]
    noise: tuple[float, ...]
    chosen: Chosen | None = None
    quality: tuple[Judged, ...] | tuple[OfNumber, ...] = ()


def client(
    me: PartyId,
    raw_points: GridPoints,
    plan: Plan,
    masks: Masks,
    *,
    share: Draw | None = None,
    stored: StoredRounds | None = None,
    start: NDArray[np.float64] | None = None,
) -> Party[ClientResult]:
    """Run one client.

    Parameters
    ----------
    me : PartyId
    raw_points : GridPoints
        Own records.
    plan : Plan
    masks : Masks
        From the clients' common seed, or from the secrets of the pairs, as the plan says; of any shape.
    share : callable, optional
        With pairwise masking: round number t to this client's fresh share of noise, int64, shape (plan.elements(t),).
    stored : StoredRounds, optional
        On resume: stored uplinks are re-sent byte for byte, never computed again.
    start : float64 array, shape (k, d), optional
        Public centres to start from instead of sphere packing.

    Raises
    ------
    PeerError
        The server's sum includes fewer clients than agreed: it could single one out.

    Notes
    -----
    Sees: the noisy sums and counts of each round, hence the centres. The server sees masked vectors; with pairwise
    masking their sum as well, in which the masks have cancelled and the noise has not.
    """
    global_msa = GlobalMsa(me, plan, masks, share=share, stored=stored or StoredRounds())
    centers = first_centers(plan, start)  # line 3: Initialization(seed)
    included: list[tuple[PartyId, ...]] = []
    path, noise, played = [centers.exact], [], plan
    for t in range(plan.moving):  # line 4
        # "Assignment Step" and "Local Update", lines 5 to 13: R and C in one vector, computed when it is sent.
        update = partial(local_update, raw_points, centers, plan, t)
        # "Global Update", lines 14 to 16: GlobalMSA once for both.
        noisy, among = yield from global_msa.add_up(t, update)
        noise.append(plan.noise_with(len(among), len(global_msa.silent[t])))
        if plan.masking == "threshold":
            played = plan.played(noise)
        # "Post Process Result", lines 17 to 20.
        centers = post_process(noisy, centers, played, t)
        included.append(among)
        path.append(centers.exact)
        yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(among)})
    chosen = choose_k(played, centers)
    quality: tuple[Judged, ...] | tuple[OfNumber, ...] = ()
    if (question := asked(played, centers, chosen)) is not None:  # not in the paper: how good the clusters are
        t = plan.moving
        noisy, among = yield from global_msa.add_up(t, partial(quality_update, raw_points, question, plan))
        noise.append(plan.noise_with(len(among), len(global_msa.silent[t])))
        quality = read_quality(noisy, question, plan.played(noise) if plan.masking == "threshold" else plan)
        included.append(among)
        yield Publish("round", {"round": t, "rounds": len(plan.rounds), "clients": len(among)})
    labels = assign(raw_points, centers.grid if chosen is None else chosen.grid)
    return ClientResult(
        centers,
        labels,
        tuple(included),
        tuple(path),
        tuple(global_msa.silent),
        tuple(noise),
        chosen,
        quality,
    )
