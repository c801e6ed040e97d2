"""Shamir's secret sharing over the integers modulo p = 2^255 - 19: any T of M shares give the secret, fewer nothing.

The secret is f(0) of a polynomial f of degree T - 1 whose other coefficients are uniform; client j's share is f(j).

Source: Shamir, "How to share a secret" (1979).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fastlloyd.randomness.secret import SecretRandom

PRIME = 2**255 - 19
ELEMENT_BYTES = 32
WIDE_BYTES = 64
"""Bytes that are reduced modulo p: what they leave is uniform up to 2^-256."""


def reduce_wide(content: bytes) -> int:
    """Reduce 64 bytes modulo p."""
    return int.from_bytes(content, "little") % PRIME


def to_bytes(element: int) -> bytes:
    """Encode an integer below p in 32 bytes, little endian."""
    return element.to_bytes(ELEMENT_BYTES, "little")


def from_bytes(content: bytes) -> int:
    """Decode 32 bytes.

    Raises
    ------
    ValueError
        The integer is p or more: an element has one encoding.
    """
    element = int.from_bytes(content, "little")
    if len(content) != ELEMENT_BYTES or element >= PRIME:
        raise ValueError(f"expected {ELEMENT_BYTES} bytes below 2^255 - 19, got {len(content)} bytes of another number")
    return element


def split(secret: int, threshold: int, clients: int, random: SecretRandom) -> list[int]:
    """Return the shares of a secret, for client 1 first.

    Parameters
    ----------
    secret : int
        From 0 to p - 1.
    threshold, clients : int
        T and M.
    random : SecretRandom
        Draws the T - 1 other coefficients, 64 bytes each.
    """
    drawn = random.bytes(WIDE_BYTES * (threshold - 1))
    high_first = [reduce_wide(drawn[at : at + WIDE_BYTES]) for at in range(0, len(drawn), WIDE_BYTES)]
    shares = []
    for j in range(1, clients + 1):
        value = 0
        # j is small: the value grows by 8 bits a step, and one reduction at the end is cheaper than one a step.
        for coefficient in high_first:
            value = (value + coefficient) * j
        shares.append((value + secret) % PRIME)
    return shares


def weights(points: Iterable[int], at: int = 0) -> dict[int, int]:
    """Return the weight of each share in the polynomial's value at a point: Lagrange's.

    Parameters
    ----------
    points : iterable of int
        Different clients, T of them.
    at : int
        Where the value is wanted; 0 for the secret.
    """
    chosen = tuple(points)
    found = {}
    for i in chosen:
        top = bottom = 1
        for j in chosen:
            if j != i:
                top, bottom = top * (at - j) % PRIME, bottom * (i - j) % PRIME
        found[i] = top * pow(bottom, -1, PRIME) % PRIME
    return found


def combine(weighted: Mapping[int, int], shares: Mapping[int, int] | Sequence[int]) -> int:
    """Return the value that the weights are for.

    Parameters
    ----------
    weighted : mapping from int to int
        From `weights`.
    shares : mapping from int to int
        Each client's share; more than the weights name do not count.
    """
    return sum(weight * shares[j] for j, weight in weighted.items()) % PRIME
