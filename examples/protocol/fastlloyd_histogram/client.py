"""The client: count, mask, send, unmask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.masking.mask import NO_HISTORY, Masks
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.wire.header import SERVER, PartyId, clients
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
    yield Record(plan.all_releases())  # in the ledger before anything leaves
    raw_counts = np.bincount(raw_bins, minlength=plan.k)
    masked = shape.ring.encode(raw_counts) + masks.mask(0, me, NO_HISTORY)
    yield Send((SERVER,), MaskedCounts(masked.tobytes()), 0)
    reply = yield Receive(SERVER, NoisyCounts, 0, shape)
    yield Attest(SERVER, reply, 0)  # compared with the other clients before anybody writes a result
    total = masks.total(0, clients(plan.clients), NO_HISTORY)
    counts = shape.ring.decode(reply.elements(shape) - total)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": plan.clients})
    return ClientResult(counts, raw_bins)
