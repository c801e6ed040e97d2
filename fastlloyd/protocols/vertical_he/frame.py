"""How long each message may be: what a receiver checks, and a plan's largest messages against what a link carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastlloyd.errors import RangeError
from fastlloyd.protocols.vertical_he.lwe import sample_bytes
from fastlloyd.protocols.vertical_he.messages import ListFormat
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD

if TYPE_CHECKING:
    from fastlloyd.protocols.vertical_he.plan import Plan

MOST_MESSAGE_BYTES = (1 << 30) - (1 << 22)
"""A link carries frames of 1 GiB; the rest is for headers, lengths and TLS records."""


def key_format(plan: Plan) -> ListFormat:
    """Say how many keys the holder sends and how long they may be."""
    limbs = len(plan.scales.prime_bits)
    one = plan.encryption.most_bytes(limbs)
    return ListFormat(2, 2 * limbs * one) if plan.scheme == PAIRWISE else ListFormat(1, 2 * one)


def block_format(plan: Plan, rank: int) -> ListFormat:
    """Say how many ciphertexts one block of an owner has and how long they may be."""
    return ListFormat(plan.parts(rank), _ciphertext_bytes(plan, rank, max(1, len(plan.scales.prime_bits) - 1)))


def block_bytes(plan: Plan, rank: int) -> int:
    """Bound one block's encrypted columns of an owner; of the circuit, every other ciphertext has one prime only."""
    one = block_format(plan, rank)
    if plan.scheme != PAIRWISE:
        return one.count * one.most_bytes
    return one.count // 2 * (one.most_bytes + _ciphertext_bytes(plan, rank, 1))


def sums_bytes(plan: Plan) -> int:
    """Count the bytes of one round's LWE samples."""
    return plan.outputs * sample_bytes(plan.scales.ring, plan.scales.wire_bits)


def check_messages(plan: Plan) -> None:
    """Refuse a plan with a message that no link carries; all sizes are public.

    Raises
    ------
    RangeError
        Names the message, its size, and the mend.
    """
    sums = sums_bytes(plan)
    if sums > MOST_MESSAGE_BYTES:
        raise RangeError(
            f"{plan.k} clusters and {plan.d} columns make a message of {sums} bytes in each round, expected at most "
            f"{MOST_MESSAGE_BYTES}: lower --k or leave columns out"
        )
    for rank in plan.encrypting:
        size = block_bytes(plan, rank)
        if size > MOST_MESSAGE_BYTES:
            degree = "" if plan.scheme == PAIRWISE else "lower vertical-he.degree, or "
            raise RangeError(
                f"the {len(plan.columns(rank))} columns of rank {rank} make messages of up to {size} bytes with scheme "
                f"{plan.scheme}, expected at most {MOST_MESSAGE_BYTES}: {degree}leave out columns of that party"
            )


def _ciphertext_bytes(plan: Plan, rank: int, limbs: int) -> int:
    """Give the largest length of a ciphertext: the holder's come with half of them as a seed."""
    return plan.encryption.most_bytes(limbs) * (1 if rank == plan.holder and plan.mode != THRESHOLD else 2)
