"""Vertical HE, §4.1: an owner that sends its columns encrypted, and computes the centres from each round's noisy sums.

In threshold mode (§4.2) it also has a share of the key, and helps to open every round's sums.

Source: Vertical HE, §4.1: "encrypt their data and send it to Alice". Differs from the paper: the owner receives the
noisy sums of every round, which are released anyway, and divides them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.vertical_he.frame import blaming, key_format, sums_bytes
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher
from fastlloyd.protocols.vertical_he.math import lwe, pairwise
from fastlloyd.protocols.vertical_he.messages import (
    EncryptedBlock,
    KeyMaterial,
    KeyPiece,
    NoisySamples,
    NoisySums,
    PartialOpenings,
    Present,
)
from fastlloyd.protocols.vertical_he.parameters import THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Released, begin, post_process, settled
from fastlloyd.protocols.vertical_he.sharing import share_key
from fastlloyd.wire.header import SETUP_ROUND, PartyId


def owner(
    me: PartyId,
    plan: Plan,
    raw_columns: NDArray[np.float64],
    noise: Callable[[int, float], NDArray[np.int64]],
    *,
    start: NDArray[np.float64] | None = None,
) -> Party[Released]:
    """Run an owner that is neither the computing party nor the key holder.

    Parameters
    ----------
    me : PartyId
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        Its own columns, scaled to [-1, 1].
    noise : callable
        Maps the round number, and the integer units of the sums to one unit of the noise, to this party's fresh noise,
        int64, shape (k (d + 1),). Only threshold mode calls it.

    Raises
    ------
    PeerError
        The public key does not fit the agreed parameters.

    Notes
    -----
    Sees: the noisy sums of each round. Its columns are safe unless the computing party and the key holder collude; in
    threshold mode, unless the computing party and t - 1 owners do.
    Privacy: each release is in the ledger before it can be made.

    **The noise of a part.** A coalition that knows all pieces of the key but one learns y = A + r from a part of an
    opening, in steps of q / 2^w. r is the noise of that piece, which its group alone knows; A is an integer computed
    from constant and vectors after the switch, and all other pieces and their noise. r is a Gaussian rounded to whole
    steps, so y is A + Gaussian, rounded: post-processing of A with Gaussian noise of the planned scale. One record
    moves A as far as it moves the sum and, since the constant was rounded, by one step more, which b counts
    (`scales.switched_record`). A is also a hint on errors and secrets (`hints`). The part of the noise's variance that
    is set aside hides it; that part counts r alone, as if nobody else added noise.

    **Who may be away.** All members of a group answer with the same number y, because its noise was drawn with the
    piece. So it does not matter who answers, nor how often: for the same vectors a second answer adds nothing. A
    computing party that deviates could send members different vectors, and remove the noise. A group has P - t + 1
    owners, so any t - 1 owners have a member in each, and together with the computing party they open. Any t - 2 owners
    lack a whole group, also with the computing party, and the paragraph above needs only the piece and the noise of
    that group. Without the computing party, whose noise is in no part, any number of owners lack that noise.
    """
    holder, computing = PartyId(plan.holder), PartyId(plan.computing)
    context = Context(plan.encryption)
    pieces: tuple[KeyPiece, ...] = ()
    wire_bits = plan.scales.wire_bits
    if plan.mode == THRESHOLD:
        grid = context.modulus / 2.0**wire_bits
        deal = partial(_deal, plan, context, lambda t: noise(t, grid))
        pieces, _, public = yield from share_key(me, plan, context, deal)  # §4.2
    else:
        # §4.1: Bob "broadcasts the public key".
        keys: KeyMaterial = yield Receive(holder, KeyMaterial, SETUP_ROUND, key_format(plan, relin=False))
        with blaming(holder, "key"):
            public = Refresher(context, context.load_public_key(keys.parts[0]))
    seen_by = "the other parties"
    # Before its columns leave, the ledger must hold every release that they enter: those of all rounds, if others can
    # open them while this owner is away.
    needed = bool(plan.openers) and plan.threshold == plan.parties
    yield Record(plan.charged(0, seen_by=seen_by) if needed else plan.all_releases(seen_by=seen_by))
    for block in range(plan.blocks_of(raw_columns.shape[1])):
        ciphers = pairwise.encrypt_block(plan, context, public, raw_columns, block)
        yield Send((computing,), EncryptedBlock(tuple(ciphers)), SETUP_ROUND)  # §4.1: "send it to Alice"
    state = begin(plan, start)
    path = [state.centers]
    for t in range(plan.rounds):
        if pieces:
            message: NoisySamples = yield Receive(computing, NoisySamples, t, sums_bytes(plan))
            vectors = lwe.decode_samples(message.data, context.degree, wire_bits).vectors
            # §4.2: this owner's "decryption shares".
            parts = [lwe.open_switched(vectors, piece.coefficients, wire_bits) + piece.noise[t] for piece in pieces]
            yield Send((computing,), PartialOpenings(lwe.encode(np.concatenate(parts), wire_bits)), t)
        reply: NoisySums = yield Receive(holder, NoisySums, t, plan)
        yield Attest(holder, reply, t)
        state = post_process(reply.integers(), state, plan, t)  # §3, step (5)
        path.append(state.centers)
        yield Publish("round", {"round": t, "rounds": plan.rounds})
        if settled(path[-2], path[-1], plan):
            break
        if needed and t + 1 < plan.rounds:
            yield Record(plan.charged(t + 1, seen_by=seen_by))
    if not pieces:
        return Released(state, t + 1, tuple(path))
    there: Present = yield Receive(computing, Present, t, len(plan.openers))
    yield Attest(computing, there, t)
    return Released(state, t + 1, tuple(path), there.present)


def _deal(plan: Plan, context: Context, noise: Callable[[int], NDArray[np.int64]]) -> KeyPiece:
    """Make a piece of the key, and its noise for every round."""
    return KeyPiece(KeyHolder(context).coefficients(), np.stack([noise(t) for t in range(plan.rounds)]))
