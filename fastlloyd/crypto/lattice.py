"""What the encryption rests on without the library: parameters with 128-bit security, error bounds, orders of slots.

Source: Albrecht et al., "Homomorphic encryption security standard" (2018), Table 1 (`MAX_MODULUS_BITS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, RangeError

ERROR_BOUND = 21
"""Largest absolute error of one coefficient of a symmetric encryption (SEAL: centred binomial of 2 x 21 bits)."""
ERROR_VARIANCE = 10.5
MAX_MODULUS_BITS = {2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""128-bit security for ternary secrets: bits of all primes together, by ring degree."""
MAX_PRIME_BITS = 60
# Beyond this the float64 transforms might not give the integer back; see `encode_integers`.
MAX_INTEGER = 1 << 30
_SLACK_BYTES = 512


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
        Not a set of parameters with 128-bit security.
    """

    degree: int
    prime_bits: tuple[int, ...]

    def __post_init__(self) -> None:
        limit = MAX_MODULUS_BITS.get(self.degree)
        if limit is None:
            raise ConfigError(f"expected a ring degree among {sorted(MAX_MODULUS_BITS)}, got {self.degree}")
        if not self.prime_bits or not all(20 <= bits <= MAX_PRIME_BITS for bits in self.prime_bits):
            raise ConfigError(f"expected primes of 20 to {MAX_PRIME_BITS} bits, got {self.prime_bits}")
        if sum(self.prime_bits) > limit:
            raise ConfigError(
                f"a modulus of {sum(self.prime_bits)} bits at ring degree {self.degree} has less than 128-bit "
                f"security: expected at most {limit} bits"
            )

    def most_bytes(self, limbs: int) -> int:
        """Give the largest length of a seeded ciphertext with so many primes, compressed or not."""
        return limbs * self.degree * 8 + _SLACK_BYTES


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


def check_integers(coefficients: NDArray[Any]) -> None:
    """Refuse coefficients that the transforms might not carry exactly."""
    largest = int(np.abs(coefficients).max(initial=0))
    if largest > MAX_INTEGER:
        raise RangeError(f"expected coefficients of at most 2^30, got {largest}; choose smaller scales")


@cache
def twist(degree: int) -> NDArray[np.complex128]:
    """Give w^j for the lower half of the coefficients, w = exp(i pi / N)."""
    found: NDArray[np.complex128] = np.exp(1j * np.pi / degree * np.arange(degree // 2))
    return found


@cache
def slot_order(degree: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Give for each slot its place in the transform and whether it is conjugated: slot s belongs to w^(3^s)."""
    exponents = np.empty(degree // 2, dtype=np.int64)
    exponent = 1
    for slot in range(degree // 2):
        exponents[slot] = exponent
        exponent = exponent * 3 % (2 * degree)
    conjugate = exponents % 4 == 3
    places = np.where(conjugate, (2 * degree - exponents - 1) // 4, (exponents - 1) // 4)
    return places, conjugate
