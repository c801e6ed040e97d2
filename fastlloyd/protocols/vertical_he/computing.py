"""Vertical HE, Figure 1: the computing party (the paper's Alice, or its server).

Source: Vertical HE, §3, steps (1) to (4), and Figure 1; §4.1 with further owners, §4.2 with a shared key. Differs from
the paper: the computing party has a share of the key, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import PeerError, Reason, name_some
from fastlloyd.party.effects import Attest, Gather, Party, Publish, Receive, Record, Send
from fastlloyd.protocols.vertical_he.frame import blaming, block_format, key_format, parts_bytes
from fastlloyd.protocols.vertical_he.he.ckks import Context
from fastlloyd.protocols.vertical_he.he.keyshare import KeyShare
from fastlloyd.protocols.vertical_he.he.lattice import Sample
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.protocols.vertical_he.math.computer import Engine, Work
from fastlloyd.protocols.vertical_he.messages import (
    EncryptedBlock,
    KeyMaterial,
    NoisySamples,
    NoisySums,
    PartialOpenings,
    Present,
)
from fastlloyd.protocols.vertical_he.parameters import RENEWED, THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Released, begin, post_process, settled
from fastlloyd.protocols.vertical_he.sharing import collect_key
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId

ENCRYPTED = "encrypted data"


def computing_party(
    plan: Plan, engine: Engine, noise: Callable[[int], NDArray[np.int64]], *, start: NDArray[np.float64] | None = None
) -> Party[Released]:
    """Run the computing party.

    Parameters
    ----------
    plan : Plan
    engine : Engine
        Holds this party's own columns and does the heavy work.
    noise : callable
        Maps the round number to this side's fresh noise, int64, shape (k (d + 1),).
    start : float64 array, shape (k, d), optional
        Public centres to start from instead of sphere packing.

    Raises
    ------
    PeerError
        A key or ciphertext does not fit the agreed parameters; names its sender.

    Notes
    -----
    Sees: ciphertexts, and each round's sums and counts with the other side's noise. It never has the key. In threshold
    mode it has a share of the key, which opens nothing alone; with more than two parties it opens the sums with the
    others' parts, each with its owner's noise.
    """
    me, holder = PartyId(plan.computing), PartyId(plan.holder)
    further = tuple(map(PartyId, plan.openers))
    context = Context(plan.encryption)
    share = KeyShare(context, SecretRandom()) if plan.mode == THRESHOLD else None
    yield from _take_in(plan, engine, context, share)
    modulus, wire_bits = context.modulus, plan.scales.wire_bits
    sums, present = NoisySums(b""), further
    state = begin(plan, start)  # Figure 1, "Centroid initialization"
    path = [state.centers]
    for t in range(plan.rounds):
        if plan.columns(me.rank):
            yield Record(plan.charged(t, seen_by="the other parties" if further else str(holder)))
        if plan.scheme in RENEWED:
            engine.begin(t, state.centers)
            yield from _take_blocks(plan, engine, t)
        # §3, steps (1) to (3): distances, clusters, sums.
        sample = yield from _follow(engine.evaluate(state.centers), t)
        if share is not None:
            sample = lwe.open_part(sample, share.coefficients(), modulus)  # §4.2: its share of the decryption
        if further:
            switched = lwe.switch(sample, modulus, wire_bits)
            # §4.2: "decryption shares from each of them", with their owners' noise.
            phases, present = yield from _gather_parts(plan, switched, t, present)
            sums = NoisySums.of(lwe.centre(phases, modulus, wire_bits) + noise(t))
            yield Send(further, sums, t)
        else:
            constants = (sample.constants + noise(t) % modulus) % modulus  # §3, step (4): noise injection
            switched = lwe.switch(Sample(constants, sample.vectors), modulus, wire_bits)
            yield Send((holder,), NoisySamples(lwe.encode_samples(switched, wire_bits)), t)
            sums = yield Receive(holder, NoisySums, t, plan)
        yield Attest(holder, sums, t)
        state = post_process(sums.integers(), state, plan, t)  # §3, step (5): centroid update
        path.append(state.centers)
        yield Publish("round", {"round": t, "rounds": plan.rounds})
        if settled(path[-2], path[-1], plan):
            break
    if further:
        there = Present(present, len(further))
        yield Send(further, there, t)
        yield Attest(me, there, t)
    return Released(state, t + 1, tuple(path), present)


def _gather_parts(
    plan: Plan, switched: Sample, t: int, before: tuple[PartyId, ...]
) -> Party[tuple[NDArray[np.int64], tuple[PartyId, ...]]]:
    """Open sums with the parts of others, modulo 2^w; return them, and who helped.

    Raises
    ------
    PeerError
        Members of a group answered differently. The message names the whole group, because its first member may have
        sent the others different pieces.

    Notes
    -----
    Sees: the computing party sees sums with the noise of all pieces of the key.
    """
    further, wire_bits = tuple(map(PartyId, plan.openers)), plan.scales.wire_bits
    hidden = Sample(np.zeros_like(switched.constants), switched.vectors)
    yield Send(further, NoisySamples(lwe.encode_samples(hidden, wire_bits)), t)
    late = frozenset(further) - frozenset(before)
    answers: dict[PartyId, PartialOpenings] = yield Gather(
        further, PartialOpenings, t, plan.threshold - 1, parts_bytes(plan), late
    )
    parts = {
        peer.rank: lwe.decode(answer.data, wire_bits).reshape(-1, plan.outputs) for peer, answer in answers.items()
    }
    phases = switched.constants
    for number, group in enumerate(plan.groups):
        first, *others = (parts[rank][plan.held(rank).index(number)] for rank in group if rank in parts)
        if any((other != first).any() for other in others):
            raise PeerError(
                f"{name_some(tuple(map(PartyId, group)))} share a piece of the key, and those of them that answered "
                f"round {t} sent different numbers, expected the same; one of them (which is not known) does not "
                "follow the protocol: ask them",
                rank=plan.computing,
                reason=Reason.CONTRADICTION,
            )
        phases = phases + first
    return phases, tuple(sorted(answers))


def _take_in(plan: Plan, engine: Engine, context: Context, share: KeyShare | None) -> Party[None]:
    """Receive the keys, and all encrypted blocks unless each round has its own."""
    holder = PartyId(plan.holder)
    if share is not None:
        engine.keys((yield from collect_key(plan, context, share)))  # §4.2
    else:
        keys: KeyMaterial = yield Receive(holder, KeyMaterial, SETUP_ROUND, key_format(plan))  # Figure 1: pk, evk
        with blaming(holder, "key"):
            engine.keys(keys.parts)
    if plan.scheme not in RENEWED:
        yield from _take_blocks(plan, engine, SETUP_ROUND)


def _take_blocks(plan: Plan, engine: Engine, t: int) -> Party[None]:
    """Receive all encrypted blocks, in the set-up or, for `RENEWED` schemes, in round t."""
    most = engine.blocks * len(plan.encrypting)
    for done, (rank, block) in enumerate(itertools.product(plan.encrypting, range(engine.blocks)), 1):
        owner = PartyId(rank)
        message: EncryptedBlock = yield Receive(owner, EncryptedBlock, t, block_format(plan, rank))  # Figure 1: X^B
        with blaming(owner, "ciphertext"):
            engine.load(rank, block, message.parts)
        yield Publish("progress", {"stage": ENCRYPTED, "fraction": done / most})


def _follow(work: Work, t: int) -> Party[Sample]:
    """Run an engine and publish its progress."""
    while True:
        try:
            fraction = next(work)
        except StopIteration as end:
            result: Sample = end.value
            return result
        yield Publish("progress", {"stage": f"round {t}", "fraction": fraction})
