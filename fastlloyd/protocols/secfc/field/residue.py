r"""Centred residues modulo primes below 2^24 in float64 arrays, one row for each prime, and the signs of integers.

**Reduction.** For abs(x) <= 2^52 the float64 quotient x / p, if not exact, errs by less than abs(x) / p 2^-53 <=
1 / (2 p), and x / p itself is at least 1 / (2 p) away from every half-integer, p being odd. So rint(x / p) is the true
nearest integer, its product with p is an integer below 2^53, and the difference is the centred residue.

**Signs** take one matrix product and one pass of carries. Let Q be the product of at most 60 primes and
y_i = x_i (Q / p_i)^-1 modulo p_i, centred, for an integer v with residues x_i and abs(v) <= (Q - 1) / 2. Then v / Q is
the sum of y_i / p_i except for an integer: v > 0 where the fraction of the sum lies in (0, 1/2), v < 0 where it lies in
(1/2, 1), and v = 0 where all x_i are 0.

*Why it is exact.* 1 / p_i is cut to K bits, K at least the bits of Q and 32 more, so the cut sum is off by less than 60
2^23 2^-K <= 1 / (4 Q). The true fraction is a multiple of 1 / Q and at least 1 / (2 Q) away from 1/2, so the cut one
lies on the same side of 0 and of 1/2. It is added up in limbs of 24 bits: sums of at most 60 2^23 2^24 < 2^53, exact in
float64 in any order, then carries from the last limb to the first.

Source: Garner, "The residue number system" (1959), for `mixed_radix`; Vu, "Efficient implementations of the Chinese
remainder theorem for sign detection and residue decoding" (1985); docs/protocol.md, "Arithmetic".
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
"""The largest size of integers that may be reduced."""

_LIMB_BITS = 24
_SPARE_BITS = 32
_BLOCK = 1 << 15
# Products that OpenBLAS computes on one thread: waking others takes longer where cores are busy.
_ONE_THREAD = 1 << 18


@lru_cache(maxsize=256)  # each party checks the same field
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
    """Reduce the rows of a C-contiguous array in place, a block that fits the cache at a time; return it."""
    rows = _rows(values)
    if rows.size <= _BLOCK and len(rows) == len(primes):
        divisors = np.array(primes, dtype=np.float64)[:, np.newaxis]
        quotients = np.rint(rows / divisors)
        quotients *= divisors
        rows -= quotients
        return values
    for p, row in zip(primes, rows, strict=True):
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
    """Return a view of a C-contiguous array with one row for each prime."""
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


def is_positive(elements: Elements, primes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return where integers in [-(Q - 1) / 2, (Q - 1) / 2] are above 0, from residues of shape (primes, *S)."""
    flat = elements.reshape(len(primes), math.prod(elements.shape[1:]))
    inverses, limbs = _constants(primes)
    shares = reduce_rows(np.multiply(flat, inverses, dtype=np.float64, order="C"), primes)
    sums = narrow_matmul(limbs, shares)
    carry = np.zeros(flat.shape[1])
    for row in sums[:0:-1]:
        carry += row
        carry *= 2.0**-_LIMB_BITS
        np.floor(carry, out=carry)
    carry += sums[0]
    # The first bits of the fraction.
    carry *= 2.0**-_LIMB_BITS
    carry -= np.floor(carry)
    positive = (carry < 0.5) & (flat != 0.0).any(axis=0)
    return np.asarray(positive.reshape(elements.shape[1:]))


@lru_cache(maxsize=16)
def _constants(primes: tuple[int, ...]) -> tuple[Elements, Elements]:
    """Return (Q / p)^-1 modulo each prime p, shape (primes, 1), and the limbs of 1 / p, shape (limbs, primes)."""
    whole = math.prod(primes)
    count = -(-(whole.bit_length() + _SPARE_BITS) // _LIMB_BITS)
    inverses = [pow(whole // p, -1, p) for p in primes]
    cut = [(1 << count * _LIMB_BITS) // p for p in primes]
    limbs = [[value >> (count - 1 - i) * _LIMB_BITS & (1 << _LIMB_BITS) - 1 for value in cut] for i in range(count)]
    centred = [[inverse - p if inverse > p // 2 else inverse] for inverse, p in zip(inverses, primes, strict=True)]
    return np.array(centred, dtype=np.float64), np.array(limbs, dtype=np.float64)
