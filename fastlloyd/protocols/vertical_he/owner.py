"""Vertical HE, §4.1, from the side of a party that only outsources its columns, encrypted, and gets the centres.

In threshold mode (§4.2) it also has a share of the key, and helps to open every round's sums.

Source: Vertical HE, §4.1: "encrypt their data and send it to Alice". Differs from the paper: it gets the noisy sums of
every round, as they are released anyway, and makes the centres itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.he.ckks import Context, Refresher
from fastlloyd.crypto.he.keyshare import KeyShare
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.vertical_he.frame import blaming, key_format, sums_bytes, sums_format
from fastlloyd.protocols.vertical_he.math import lwe, pairwise
from fastlloyd.protocols.vertical_he.messages import (
    EncryptedBlock,
    KeyMaterial,
    NoisySamples,
    NoisySums,
    PartialOpenings,
)
from fastlloyd.protocols.vertical_he.parameters import THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Result, begin, post_process, settled
from fastlloyd.protocols.vertical_he.sharing import share_key
from fastlloyd.wire.header import SETUP_ROUND, PartyId


def owner(
    me: PartyId,
    plan: Plan,
    raw_columns: NDArray[np.float64],
    noise: Callable[[int, float], NDArray[np.int64]],
    *,
    start: NDArray[np.float64] | None = None,
) -> Party[Result]:
    """Run an owner who neither computes nor opens the sums; in threshold mode it has a share of the key.

    Parameters
    ----------
    me : PartyId
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        Its own columns, scaled to [-1, 1].
    noise : callable
        Round number, and integer units of the sums to one unit of the noise, to this party's fresh noise, int64, shape
        (k (d + 1),). Only threshold mode asks for it.

    Raises
    ------
    PeerError
        The public key does not fit the agreed parameters.

    Notes
    -----
    Sees: the noisy sums of each round. Its columns are safe as long as the computing party and the key holder do
    not put what they have together; in threshold mode also if all others do.

    **The noise of a part.** Whoever knows all other shares gets from a part of an opening y = A + r, in steps of
    q / 2^w: r is the noise, and A an integer made of constant and vectors after the switch, and all other parties'
    shares and noise. r is a Gaussian rounded to whole steps, so y is A + Gaussian, rounded: a post-processing of A with
    Gaussian noise of the planned scale. One record moves A by what it moves the sum and, since the constant was
    rounded, by one step more, which b counts (`scales.switched_record`). The part of the noise's variance that is set
    aside hides the hint on errors and shares that A is (`hints`): it is that of this party's noise alone, as if nobody
    else added any.
    """
    holder, computing = PartyId(plan.holder), PartyId(plan.computing)
    context = Context(plan.encryption)
    share: KeyShare | None = None
    if plan.mode == THRESHOLD:
        share, public = yield from share_key(me, plan, context)
    else:
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
    wire_bits = plan.scales.wire_bits
    for t in range(plan.rounds):
        if share is not None:
            message: NoisySamples = yield Receive(computing, NoisySamples, t, sums_bytes(plan))
            vectors = lwe.decode(message.data, plan.outputs, context.degree, wire_bits).vectors
            part = lwe.open_switched(vectors, share.coefficients(), wire_bits)
            part += noise(t, context.modulus / 2.0**wire_bits)
            yield Send((computing,), PartialOpenings(lwe.encode_parts(part, wire_bits)), t)
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
