"""The length of each message, which its receiver checks, and the check that a link carries a plan's largest ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from fastlloyd.errors import PeerError, RangeError
from fastlloyd.party.declaration import MOST_MESSAGE_BYTES
from fastlloyd.protocols.vertical_he.math.lwe import sample_bytes
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.wire.header import PartyId

Lengths: TypeAlias = tuple[int, ...]
"""Of a message's byte strings."""


@contextmanager
def blaming(peer: PartyId, what: str) -> Iterator[None]:
    """Turn a ValueError into a PeerError that names the sender."""
    try:
        yield
    except ValueError as error:
        raise PeerError(f"{peer} sent a {what} that was refused: {error}", rank=peer.rank) from error


def key_format(plan: Plan, *, relin: bool = True) -> Lengths:
    """Return the lengths of the public key and, if `relin` and for a circuit, of the relinearisation key."""
    public = plan.encryption.public_key_bytes
    return (public, plan.digits * public) if plan.digits and relin else (public,)


def lead_format(plan: Plan) -> Lengths:
    """Return the lengths of the message that begins a shared key: one object for each key and part of a key."""
    return (plan.encryption.public_key_bytes,) * (1 + plan.digits)


def contribution_format(plan: Plan, rank: int) -> Lengths:
    """Return the lengths of a party's first contribution to a shared key: z for each a but its own, g for each part."""
    zeros = 0 if rank == plan.holder else 1 + plan.digits
    return (plan.encryption.key_half_bytes,) * (zeros + plan.digits)


def common_format(plan: Plan) -> Lengths:
    """Return the lengths of the common public key and the sums z and g of each part of the relinearisation key."""
    return (plan.encryption.public_key_bytes, *(plan.encryption.key_half_bytes,) * (2 * plan.digits))


def closing_format(plan: Plan) -> Lengths:
    """Return the lengths of a party's second contribution to a shared key: r for each part."""
    return (plan.encryption.key_half_bytes,) * plan.digits


def key_bytes(plan: Plan) -> int:
    """Bound the bytes of a message of keys."""
    if plan.mode != THRESHOLD:
        return sum(key_format(plan))
    shares = [contribution_format(plan, rank) for rank in plan.encrypting]
    return max(map(sum, (lead_format(plan), common_format(plan), closing_format(plan), *shares)))


def parts_bytes(plan: Plan) -> int:
    """Count the bytes of one party's parts of a round's openings, one for each piece that it holds."""
    return len(plan.held(plan.openers[0])) * plan.outputs * (plan.scales.wire_bits // 8) if plan.openers else 0


def piece_bytes(plan: Plan) -> int:
    """Count the bytes of a piece of the key, one for each coefficient, and of its noise, eight for each number."""
    return plan.scales.ring + 8 * plan.rounds * plan.outputs


def block_format(plan: Plan, rank: int) -> Lengths:
    """Return the lengths of the ciphertexts in an owner's block; of the circuit, every second one has one prime."""
    if plan.scheme != PAIRWISE:
        return (_ciphertext_bytes(plan, rank, 1),) * plan.parts(rank)
    pair = (_ciphertext_bytes(plan, rank, plan.encryption.digits), _ciphertext_bytes(plan, rank, 1))
    return pair * len(plan.columns(rank))


def block_bytes(plan: Plan) -> int:
    """Bound the bytes of any owner's block."""
    return max(sum(block_format(plan, rank)) for rank in plan.encrypting)


def sums_bytes(plan: Plan) -> int:
    """Count the bytes of one round's LWE samples."""
    return plan.outputs * sample_bytes(plan.scales.ring, plan.scales.wire_bits)


def check_messages(plan: Plan) -> None:
    """Refuse a plan with a message that no link carries.

    Raises
    ------
    RangeError
        Names the message and its size, and says what to change.
    """
    sums = sums_bytes(plan)
    if sums > MOST_MESSAGE_BYTES:
        raise RangeError(
            f"{plan.k} clusters and {plan.d} columns make a message of {sums} bytes in each round, expected at most "
            f"{MOST_MESSAGE_BYTES}: lower --k or leave columns out"
        )
    for rank in plan.encrypting:
        size = sum(block_format(plan, rank))
        if size > MOST_MESSAGE_BYTES:
            degree = "" if plan.scheme == PAIRWISE else "lower vertical-he.degree, or "
            raise RangeError(
                f"the {len(plan.columns(rank))} columns of rank {rank} make messages of {size} bytes with scheme "
                f"{plan.scheme}, expected at most {MOST_MESSAGE_BYTES}: {degree}leave out columns of that party"
            )


def seeded(plan: Plan, rank: int) -> bool:
    """Return whether half of each of an owner's ciphertexts travels as a seed, which needs the whole key."""
    return rank == plan.holder and plan.mode != THRESHOLD


def _ciphertext_bytes(plan: Plan, rank: int, limbs: int) -> int:
    return plan.encryption.ciphertext_bytes(limbs, seeded=seeded(plan, rank))
