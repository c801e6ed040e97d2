"""The encryption's mathematics outside the library: parameters with 128-bit security, error bounds, orders of slots.

Source: Albrecht et al., "Homomorphic encryption security standard" (2018), Table 1 (`MAX_MODULUS_BITS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.protocols.vertical_he.he.residues import half_bytes, object_bytes

ERROR_BOUND = 21
"""Largest absolute error of one coefficient of a symmetric encryption (SEAL: centred binomial of 2 x 21 bits)."""
ERROR_VARIANCE = 10.5
MAX_MODULUS_BITS = {2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""128-bit security for ternary secrets: bits of all primes together, by ring degree."""
HINT_BITS = 1
"""Bits of these that a run's hints on errors and key may cost.

Half of the variances remains (a third by another version of the theorem), see `math/hints.py`. Errors and key that are
smaller by a factor f are those of the standard with a modulus that is larger by f: sqrt(2), half a bit (sqrt(3), 0.8).
"""
MAX_PRIME_BITS = 60
# Beyond this the float64 transforms might not give the integer back; see `encode_integers`.
MAX_INTEGER = 1 << 30


@dataclass(frozen=True, slots=True)
class Parameters:
    """Ring degree and primes of one context.

    Attributes
    ----------
    degree : int
        N: coefficients per polynomial; half as many complex slots.
    prime_bits : tuple of int
        From the last level up; with more than one, the last entry is for relinearisation only.

    Raises
    ------
    ConfigError
        Not a set of parameters with 128-bit security beside a run's hints.
    """

    degree: int
    prime_bits: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.degree not in MAX_MODULUS_BITS:
            raise ConfigError(f"expected a ring degree among {sorted(MAX_MODULUS_BITS)}, got {self.degree}")
        limit = most_bits(self.degree)
        if not self.prime_bits or not all(20 <= bits <= MAX_PRIME_BITS for bits in self.prime_bits):
            raise ConfigError(f"expected primes of 20 to {MAX_PRIME_BITS} bits, got {self.prime_bits}")
        if sum(self.prime_bits) > limit:
            raise ConfigError(
                f"a modulus of {sum(self.prime_bits)} bits at ring degree {self.degree} has less than 128-bit "
                f"security: expected at most {limit} bits"
            )

    def ciphertext_bytes(self, limbs: int, *, seeded: bool) -> int:
        """Count the bytes of a ciphertext with `limbs` primes on the wire."""
        return object_bytes(self.degree, self.prime_bits[:limbs], seeded=seeded)

    @property
    def public_key_bytes(self) -> int:
        """Count the bytes of a public key on the wire."""
        return self.key_bytes(seeded=True)

    def key_bytes(self, *, seeded: bool) -> int:
        """Count the bytes of a public key, or of one part of a relinearisation key, on the wire."""
        return object_bytes(self.degree, self.prime_bits, seeded=seeded)

    @property
    def key_half_bytes(self) -> int:
        """Count the bytes of one polynomial of a key."""
        return half_bytes(self.degree, self.prime_bits)

    @property
    def digits(self) -> int:
        """Count the parts of a relinearisation key: one for each prime that carries data."""
        return len(self.prime_bits) - 1


def most_bits(degree: int) -> int:
    """Return the most bits that all primes of a ring degree may have together."""
    return MAX_MODULUS_BITS[degree] - HINT_BITS


@dataclass(frozen=True, slots=True)
class Sample:
    """LWE samples modulo the last prime: constant + <vector, s> is the hidden integer plus a small error.

    Attributes
    ----------
    constants : int64 array, shape (m,)
    vectors : int64 array, shape (m, N)
        Arranged so that the inner product is with the coefficients of the secret key.
    """

    constants: NDArray[np.int64]
    vectors: NDArray[np.int64]


def scale_residues(residues: NDArray[np.int64], factor: Any, modulus: Any) -> NDArray[np.int64]:
    """Multiply residues modulo primes of at most 60 bits by factors of at most 2^30; all broadcast together.

    The floating-point quotient is at most 2^30, so it errs by less than 2^-20 before it is rounded: the remainder is
    within 0.51 q and fits 64 bits, although both products wrap around.
    """
    found: NDArray[np.int64] = _scale_centred(residues, factor, modulus) % modulus
    return found


def _scale_centred(residues: NDArray[np.int64], factor: Any, modulus: Any) -> NDArray[np.int64]:
    """Return the remainder within 0.51 q on either side of 0, of residues from -q to q."""
    quotient = np.rint(residues * (factor / modulus)).astype(np.int64)
    found: NDArray[np.int64] = residues * factor - quotient * modulus
    return found


def multiply_residues(
    first: NDArray[np.int64], second: NDArray[np.int64], modulus: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Multiply residues modulo primes of at most 60 bits, one by one; all broadcast together."""
    high = _scale_centred(_scale_centred(first, second >> 30, modulus), 1 << 30, modulus)
    found: NDArray[np.int64] = (high + _scale_centred(first, second & ((1 << 30) - 1), modulus)) % modulus
    return found


def check_integers(coefficients: NDArray[Any]) -> None:
    """Refuse coefficients that the transforms might not carry exactly."""
    largest = int(np.abs(coefficients).max(initial=0))
    if largest > MAX_INTEGER:
        raise RangeError(f"expected coefficients of at most 2^30, got {largest}; choose smaller scales")


@cache
def twist(degree: int) -> NDArray[np.complex128]:
    """Return w^j for the lower half of the coefficients, w = exp(i pi / N)."""
    found: NDArray[np.complex128] = np.exp(1j * np.pi / degree * np.arange(degree // 2))
    return found


@cache
def slot_order(degree: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return for each slot its place in the transform and whether it is conjugated: slot s belongs to w^(3^s)."""
    exponents = np.empty(degree // 2, dtype=np.int64)
    exponent = 1
    for slot in range(degree // 2):
        exponents[slot] = exponent
        exponent = exponent * 3 % (2 * degree)
    conjugate = exponents % 4 == 3
    places = np.where(conjugate, (2 * degree - exponents - 1) // 4, (exponents - 1) // 4)
    return places, conjugate
