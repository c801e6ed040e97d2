"""Vertical HE, Figure 1: the party that has the key and opens the sums (the paper's Bob).

Source: Vertical HE, §3, step (5), and Figure 1; §4.2 for the shared key of threshold mode. Differs from the paper: it
sends the noisy sums, not the centroids, and every party divides; it also adds its own noise, so no party knows all
noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.vertical_he.frame import sums_bytes
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher
from fastlloyd.protocols.vertical_he.math import linear, lwe, pairwise, renewed
from fastlloyd.protocols.vertical_he.messages import EncryptedBlock, KeyMaterial, NoisySamples, NoisySums
from fastlloyd.protocols.vertical_he.parameters import LINEAR, RENEWED, THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Released, begin, post_process, settled
from fastlloyd.protocols.vertical_he.sharing import share_key
from fastlloyd.wire.header import SETUP_ROUND, PartyId


def key_holder(
    plan: Plan,
    raw_columns: NDArray[np.float64],
    noise: Callable[[int], NDArray[np.int64]],
    *,
    start: NDArray[np.float64] | None = None,
) -> Party[Released]:
    """Run the key holder.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        Its own columns, scaled to [-1, 1].
    noise : callable
        Maps the round number to this side's fresh noise, int64, shape (k (d + 1),).
    start : float64 array, shape (k, d), optional

    Notes
    -----
    Sees: each round's sums and counts with the computing party's noise, one LWE sample each, and nothing else.
    In threshold mode it has only a share of the key: the other share has opened the samples in part.
    Privacy: what it opens leaves with its own noise added, and the ledger holds the release before that (those of all
    rounds where a tolerance may stop the run).
    """
    me, computing = PartyId(plan.holder), PartyId(plan.computing)
    others = tuple(PartyId(rank) for rank in range(plan.parties) if rank != me.rank)
    context = Context(plan.encryption)
    raw_key, encrypter = yield from _make_keys(me, plan, context)
    mine, blocks = (plan, context, encrypter, raw_columns), plan.blocks_of(raw_columns.shape[1])
    if plan.scheme not in RENEWED:  # Figure 1, "Encrypt data points"
        encrypt_block = linear.encrypt_block if plan.scheme == LINEAR else pairwise.encrypt_block
        yield from _send_blocks(plan, blocks, partial(encrypt_block, *mine), SETUP_ROUND)
    wire_bits = plan.scales.wire_bits
    state = begin(plan, start)  # Figure 1, "Centroid initialization": public, so every party makes it
    path = [state.centers]
    for t in range(plan.rounds):
        yield Record(plan.charged(t, seen_by="the other parties"))
        if plan.scheme in RENEWED:
            encrypt = partial(renewed.encrypt_block, *mine, t=t, centers=state.centers)
            yield from _send_blocks(plan, blocks, encrypt, t)
        message: NoisySamples = yield Receive(computing, NoisySamples, t, sums_bytes(plan))
        sample = lwe.decode_samples(message.data, context.degree, wire_bits)
        noisy = lwe.open_samples(sample, raw_key, context.modulus, wire_bits) + noise(t)  # §3, step (5): decryption
        sums = NoisySums.of(noisy)
        yield Send(others, sums, t)
        yield Attest(me, sums, t)
        state = post_process(noisy, state, plan, t)  # §3, step (5): division
        path.append(state.centers)
        yield Publish("round", {"round": t, "rounds": plan.rounds})
        if settled(path[-2], path[-1], plan):
            break
    return Released(state, t + 1, tuple(path))


def _make_keys(me: PartyId, plan: Plan, context: Context) -> Party[tuple[NDArray[np.int64], KeyHolder | Refresher]]:
    """Make the key, or this party's share of it; return its coefficients, and the encrypter."""
    if plan.mode == THRESHOLD:
        _, share, common = yield from share_key(me, plan, context)  # §4.2
        return share.coefficients(), common
    secret = KeyHolder(context)  # Figure 1, "Generate CKKS keys"
    keys = (secret.public_key(), secret.relin_key()) if plan.digits else (secret.public_key(),)
    yield Send((PartyId(plan.computing),), KeyMaterial(keys), SETUP_ROUND)  # Figure 1: pk, evk
    owners = tuple(PartyId(rank) for rank in plan.encrypting if rank != me.rank)
    yield Send(owners, KeyMaterial(keys[:1]), SETUP_ROUND)  # §4.1: the public key
    return secret.coefficients(), secret


def _send_blocks(plan: Plan, blocks: int, encrypt_block: Callable[[int], list[bytes]], t: int) -> Party[None]:
    """Encrypt all blocks and send them, in the set-up or, for `RENEWED` schemes, in round t."""
    for block in range(blocks):
        yield Send((PartyId(plan.computing),), EncryptedBlock(tuple(encrypt_block(block))), t)
        yield Publish("progress", {"stage": "encrypted data", "fraction": (block + 1) / blocks})
