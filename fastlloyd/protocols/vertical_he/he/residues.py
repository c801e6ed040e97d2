"""A ciphertext or key as bare numbers on the wire: a peer decides about nothing else.

A file of SEAL states its own sizes, levels and compression, and SEAL trusts most of that: a crafted file can end the
process that reads it. So no such file is sent. A message holds residues modulo the agreed primes, each in the fewest
whole bytes, and the seed of the second half where that half is only random. Its length follows from the agreed
parameters; the receiver only checks that every residue is below its prime. The library gets these numbers inside a
frame that the receiver writes itself (`seal.SealForm`).

Source: docs/protocol.md; docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SEED_BYTES = 64
"""Of the library's generator of uniform polynomials: any bytes are a seed, and nobody can choose the result."""
_LEAST_LARGE = 0.25


@dataclass(frozen=True, slots=True)
class Halves:
    """The two polynomials (c_0, c_1) of a ciphertext, a public key or one part of a relinearisation key.

    Attributes
    ----------
    first : int64 array, shape (limbs, N)
        One row of residues for each prime.
    second : int64 array of the same shape, or bytes
        Or the seed that it is expanded from.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64] | bytes


def number_bytes(bits: int) -> int:
    """Count the bytes of a residue modulo a prime of `bits` bits."""
    return -(-bits // 8)


def half_bytes(degree: int, prime_bits: Sequence[int]) -> int:
    """Count the bytes of one polynomial."""
    return degree * sum(map(number_bytes, prime_bits))


def object_bytes(degree: int, prime_bits: Sequence[int], *, seeded: bool) -> int:
    """Count the bytes of both polynomials, or of one and a seed."""
    half = half_bytes(degree, prime_bits)
    return half + SEED_BYTES if seeded else 2 * half


def pack(halves: Halves, prime_bits: Sequence[int]) -> bytes:
    """Write both polynomials, or the first one and the seed; the first of the primes are those of the level."""
    prime_bits, second = prime_bits[: len(halves.first)], halves.second
    return pack_half(halves.first, prime_bits) + (
        second if isinstance(second, bytes) else pack_half(second, prime_bits)
    )


def unpack(content: bytes, primes: Sequence[int], degree: int, *, seeded: bool) -> Halves:
    """Read what `pack` wrote.

    Raises
    ------
    ValueError
        Another length than agreed, or a residue that is not below its prime: the sender is at fault.
    """
    prime_bits = [prime.bit_length() for prime in primes]
    expected = object_bytes(degree, prime_bits, seeded=seeded)
    if len(content) != expected:
        raise ValueError(f"expected a ciphertext or key of {expected} bytes, got {len(content)}")
    half = half_bytes(degree, prime_bits)
    first, rest = unpack_half(content[:half], primes, degree), content[half:]
    return Halves(first, rest if seeded else unpack_half(rest, primes, degree))


def check_nonzero(residues: NDArray[np.int64]) -> None:
    """Refuse a second half, shape (limbs, N), that is zero modulo a prime: such a ciphertext hides nothing.

    Raises
    ------
    ValueError
        The sender is at fault. An honest one sends it once in q^N.
    """
    if not residues.any(axis=-1).all():
        raise ValueError("a ciphertext or key without its uniform half, which hides nothing")


def check_uniform(coefficients: NDArray[np.int64], primes: Sequence[int]) -> None:
    """Refuse a second half whose coefficients, shape (limbs, N), are not spread over the residues.

    Constants, single powers and small polynomials hide nothing either, and rescaling turns them into zeros, at which
    the library fails in the middle of a round.

    Raises
    ------
    ValueError
        The sender is at fault.

    Notes
    -----
    Of uniform coefficients three quarters are larger than q / 8 in absolute value. That fewer than a quarter are has
    a probability below exp(-N / 2) (Hoeffding). Other structure is not looked for.
    """
    check_nonzero(coefficients)
    modulus = np.array(primes, dtype=np.int64)[:, None]
    large = np.minimum(coefficients, modulus - coefficients) > modulus // 8
    if large.mean(axis=-1).min() < _LEAST_LARGE:
        raise ValueError("a ciphertext or key whose second half is not uniform, which hides nothing")


def pack_half(residues: NDArray[np.int64], prime_bits: Sequence[int]) -> bytes:
    """Write one polynomial, shape (limbs, N)."""
    rows = np.ascontiguousarray(residues, dtype="<u8").view(np.uint8).reshape(*residues.shape, 8)
    return b"".join(row[:, : number_bytes(bits)].tobytes() for row, bits in zip(rows, prime_bits, strict=True))


def unpack_half(content: bytes, primes: Sequence[int], degree: int) -> NDArray[np.int64]:
    """Read a polynomial of the right length, shape (limbs, N); raise ValueError for residues not below their prime."""
    rows, start = np.zeros((len(primes), degree, 8), dtype=np.uint8), 0
    for row, prime in zip(rows, primes, strict=True):
        width = number_bytes(prime.bit_length())
        row[:, :width] = np.frombuffer(content, np.uint8, degree * width, start).reshape(degree, width)
        start += degree * width
    residues = rows.view("<u8")[..., 0]
    largest = residues.max(axis=-1)
    if (largest >= np.array(primes, dtype=np.uint64)).any():
        raise ValueError("a ciphertext or key with a number that is not below its prime")
    return residues.astype(np.int64)
