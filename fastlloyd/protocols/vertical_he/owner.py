"""Vertical HE, §4.1, from the side of a party that only outsources its columns, encrypted, and gets the centres.

Source: Vertical HE, §4.1: "encrypt their data and send it to Alice". Differs from the paper: it gets the noisy sums of
every round, as they are released anyway, and makes the centres itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.he.ckks import Context, Refresher
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.vertical_he.computing import blaming
from fastlloyd.protocols.vertical_he.frame import key_format, sums_format
from fastlloyd.protocols.vertical_he.math import pairwise
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, KeyMaterial, NoisySums
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Result, begin, post_process, settled
from fastlloyd.wire.header import SETUP_ROUND, PartyId


def owner(
    me: PartyId, plan: Plan, raw_columns: NDArray[np.float64], *, start: NDArray[np.float64] | None = None
) -> Party[Result]:
    """Run an owner who neither computes nor has the key.

    Parameters
    ----------
    me : PartyId
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        Its own columns, scaled to [-1, 1].

    Raises
    ------
    PeerError
        The public key does not fit the agreed parameters.

    Notes
    -----
    Sees: the noisy sums of each round. Its columns are safe as long as the computing party and the key holder do
    not put what they have together.
    """
    holder, computing = PartyId(plan.holder), PartyId(plan.computing)
    context = Context(plan.encryption)
    keys: KeyMaterial = yield Receive(holder, KeyMaterial, SETUP_ROUND, key_format(plan, relin=False))
    with blaming(holder, "key"):
        public = Refresher(context, context.load_public_key(keys.parts[0]))
    seen_by = "the other parties"
    # Before its columns leave: the ledger must have what they will be part of.
    yield Record(plan.charged(0, seen_by=seen_by))
    for block in range(plan.blocks):
        parts = pairwise.encrypt_block(plan, context, public, raw_columns, block)
        yield Send((computing,), EncryptedBlock(tuple(parts)), SETUP_ROUND)
    state = begin(plan, start)
    path = [state.centers]
    for t in range(plan.rounds):
        reply: NoisySums = yield Receive(holder, NoisySums, t, sums_format(plan))
        yield Attest(holder, reply, t)
        state = post_process(reply.integers(), state, plan, t)  # step (5) of Figure 1
        path.append(state.centers)
        yield Publish("round", {"round": t, "rounds": plan.rounds})
        if settled(path[-2], path[-1], plan):
            break
        if t + 1 < plan.rounds:
            yield Record(plan.charged(t + 1, seen_by=seen_by))
    return Result(state, t + 1, tuple(path))
