"""The client: count, mask, send, unmask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.lifecycle.rounds import Ahead, ClientRounds, MessageFormat
from fastlloyd.masking.mask import NO_HISTORY, Masks
from fastlloyd.party.effects import Party, Publish
from fastlloyd.wire.header import PartyId, clients
from fastlloyd_histogram.messages import MaskedCounts, NoisyCounts, counts_format
from fastlloyd_histogram.plan import Plan


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What a client has at the end.

    Attributes
    ----------
    counts : int64 array, shape (k,)
        Noisy; released.
    raw_labels : int64 array, shape (n,)
        The bin of each of its own records; stays here.
    """

    counts: NDArray[np.int64]
    raw_labels: NDArray[np.int64]


def client(me: PartyId, raw_bins: NDArray[np.int64], plan: Plan, masks: Masks) -> Party[ClientResult]:
    """Run one client; `raw_bins` holds the bin of each of its records, shape (n,).

    Notes
    -----
    Sees: the noisy counts of all records. The server sees masked counts, uniform on the ring.
    """
    shape = counts_format(plan)
    rounds = ClientRounds(me, Ahead(1, plan.releases), masks=masks)
    # In the ledger before anything leaves, masked, sent, and the reply compared with the other clients at the end.
    counts_of = partial(np.bincount, raw_bins, minlength=plan.k)
    reply = yield from rounds.masked(
        0, MessageFormat(MaskedCounts, shape), counts_of, MessageFormat(NoisyCounts, shape)
    )
    total = masks.total(0, clients(plan.clients), NO_HISTORY)
    counts = shape.ring.decode(reply.elements(shape) - total)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": plan.clients})
    return ClientResult(counts, raw_bins)
