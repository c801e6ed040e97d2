r"""Centred residues modulo primes below 2^24 in float64 arrays, one row for each prime.

Why the reduction is exact. For abs(x) <= 2^52 the float64 quotient x / p, if not exact, errs by less than
abs(x) / p 2^-53 <= 1 / (2 p), and x / p itself is at least 1 / (2 p) away from every half-integer, p being odd. So
rint(x / p) is the true nearest integer, its product with p is an integer below 2^53, and the difference is the centred
residue.

Source: Garner, "The residue number system" (1959), for `mixed_radix`; docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[np.float64]
"""Field elements: centred residues, first axis the primes."""

PRIME_BITS = 24
LARGEST_EXACT = 1 << 52
"""What may be reduced: integers of at most this size."""

_BLOCK = 1 << 15
# Products that OpenBLAS computes without asking other threads, whose waking takes longer where cores are busy.
_ONE_THREAD = 1 << 18


def is_prime(number: int) -> bool:
    """Return whether a number is prime, by trial division: meant for numbers below 2^24."""
    if number < 4 or number % 2 == 0:
        return number in (2, 3)
    return all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))


@lru_cache(maxsize=8)
def primes_below(bound: int, count: int) -> tuple[int, ...]:
    """Return the largest primes below an even bound, largest first."""
    found: list[int] = []
    number = bound - 1
    while len(found) < count:
        if is_prime(number):
            found.append(number)
        number -= 2
    return tuple(found)


def reduce_rows(values: Elements, primes: tuple[int, ...]) -> Elements:
    """Reduce the rows of a C-contiguous array in place, a block that fits the cache at a time; gives it back."""
    for p, row in zip(primes, _rows(values), strict=True):
        reduce_row(row, p)
    return values


def mixed_radix(elements: Elements, primes: tuple[int, ...]) -> Elements:
    """Return the centred digits c of value = c_1 + p_1 (c_2 + p_2 (c_3 + ...)), same shape as the elements.

    Odd radices with centred digits hold each integer up to half the product of the primes in one way only, so the
    value is centred by itself.
    """
    digits = np.array(elements, dtype=np.float64, order="C")
    rows = _rows(digits)
    for i, p in enumerate(primes):
        for j, earlier in enumerate(primes[:i]):
            inverse = pow(earlier, -1, p)
            rows[i] -= rows[j]
            rows[i] *= float(inverse - p if inverse > p // 2 else inverse)
            reduce_row(rows[i], p)
    return digits


def narrow_matmul(left: Elements, right: Elements) -> Elements:
    """Multiply a small matrix and one of many columns, in pieces that stay in the cache and on one thread."""
    rows, inner = left.shape
    product = np.empty((rows, right.shape[1]))
    width = max(1, _ONE_THREAD // (rows * inner))
    for start in range(0, right.shape[1], width):
        part = slice(start, start + width)
        product[:, part] = left @ right[:, part]
    return product


def _rows(values: Elements) -> Elements:
    """Look at a C-contiguous array as one row for each prime."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def reduce_row(values: Elements, p: int) -> None:
    """Reduce one row modulo one prime in place."""
    quotients = np.empty(min(_BLOCK, values.size))
    for start in range(0, values.size, _BLOCK):
        part = values[start : start + _BLOCK]
        quotient = quotients[: part.size]
        np.divide(part, p, out=quotient)
        np.rint(quotient, out=quotient)
        quotient *= p
        part -= quotient
