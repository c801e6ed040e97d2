r"""Signs of integers from their Chinese remainders: one matrix product and one pass of carries.

Let Q be the product of at most 60 primes and y_i = x_i (Q / p_i)^-1 modulo p_i, centred, for an integer v with residues
x_i and abs(v) <= (Q - 1) / 2. Then v / Q is the sum of y_i / p_i but for an integer: v > 0 where the fraction of the
sum lies in (0, 1/2), v < 0 where it lies in (1/2, 1), and v = 0 where all x_i are 0.

*Why it is exact.* 1 / p_i is cut to K bits, K at least the bits of Q and 32 more, so the cut sum is off by less than 60
2^23 2^-K <= 1 / (4 Q). The true fraction is a multiple of 1 / Q and at least 1 / (2 Q) away from 1/2, so the cut one
lies on the same side of 0 and of 1/2. It is added up in limbs of 24 bits: sums of at most 60 2^23 2^24 < 2^53, exact in
float64 in any order, then carries from the last limb to the first.

Source: Vu, "Efficient implementations of the Chinese remainder theorem for sign detection and residue decoding" (1985).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.residue import Elements, narrow_matmul, reduce_rows

_LIMB_BITS = 24
_SPARE_BITS = 32


def is_positive(elements: Elements, primes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Tell where integers in [-(Q - 1) / 2, (Q - 1) / 2] are above 0, from residues of shape (primes, *S)."""
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
