r"""What the server decodes: which of two centres is nearer to a point, as a sign that it cannot read.

Let sigma_h = |c_h|^2 - 2 c_h.x = |x - c_h|^2 - |x|^2 for a centre c_h with S_h points, T = lcm(S_h, S_g), and g a later
cluster than h. As mu_h = S_h c_h is an integer vector,

    D = T^2 (sigma_g - sigma_h),    A_h = T / S_h,    A_g = T / S_g,
      = A_g^2 (|mu_g|^2 - 2 S_g mu_g.x) - A_h^2 (|mu_h|^2 - 2 S_h mu_h.x)

is an integer. The clients turn it into v = s (f D + e) with secrets that are fresh for each value: a factor f, noise e
uniform in 1..f - 1, and a sign s. The server decodes v and tells its sign; the clients, who know s, know who won.

*Claim.* s v > 0 if and only if h wins: it is nearer, or as near and earlier. *Proof.* If D >= 0 then f D + e >= 1; if
D <= -1 then f D + e <= -f + f - 1 < 0. So labels are exact, ties included, whatever the secrets are.

**Factor.** f = 8 2^j (1 + m), j uniform in 0..16, m uniform in [0, 1), rounded down: spread evenly over 17 octaves, 8
<= f < 2^20. The noise is uniform on the residues modulo f but 0, so that v has no exact integer for a factor.

**Size.** Two clusters have at most N points together, so T <= N^2 / 4; sigma_g - sigma_h is a difference of two squared
distances of at most 4 rho^2, rho the largest norm of a point. So abs(D) <= N^4 rho^2 / 4, and abs(v) < 2^20 (abs(D) +
1): against scores of at most 3 N^2 rho^2 the field grows by log2(N^2 / 12) + 20 bits, less than log2(2 N^2) + 20.

Other comparisons (`start.py`, `totals.py`) have a D of their own, and the same secrets.

**What is left** to the server is abs(v) of each comparison, in an order that it does not know: how large D is, but for
17 octaves. The sign of v is a fair coin.

Source: none in the paper, whose server learns distances; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.randomness.prg import keystream

FACTOR_BITS = 20
"""Factors are below 2^20."""

_LEAST_FACTOR_BITS = 3
_OCTAVES = FACTOR_BITS - _LEAST_FACTOR_BITS
_MANTISSA_BITS = 24
_WORDS = 3
# Drawn at a time: they fit the cache.
_BLOCK = 1 << 14


def largest_difference(*, n_total: int, squared_norm: int) -> int:
    """Return a bound on D of two centres, in size: the "Size" of this module.

    Parameters
    ----------
    n_total : int
        Public bound N on all records.
    squared_norm : int
        Largest squared norm of a record on the grid, rho^2.
    """
    return n_total**4 * squared_norm // 4


def largest_value(difference: int) -> int:
    """Return a bound on what the server decodes of differences up to a size, in size."""
    return (difference + 1) << FACTOR_BITS


@dataclass(frozen=True, slots=True)
class SignMasks:
    """The secrets of some comparisons.

    Attributes
    ----------
    factors : int64 array, shape (values,)
        s f.
    noise : int64 array, shape (values,)
        s e.
    flipped : bool array, shape (values,)
        Where s = -1.
    """

    factors: NDArray[np.int64] = field(repr=False)
    noise: NDArray[np.int64] = field(repr=False)
    flipped: NDArray[np.bool_] = field(repr=False)


def sign_masks(count: int, *, key: bytes, round_: int) -> SignMasks:
    """Draw the secrets of one round's comparisons.

    Parameters
    ----------
    count : int
    key : bytes of length 32
        Common to the clients, unknown to the server, for this purpose alone.
    round_ : int
        Never twice with one key.

    Notes
    -----
    Sees: every client can compute them. Uniform numbers are so up to 2^-32 each.
    """
    stream = keystream(key, struct.pack("<III", round_, 0, 0), 4 * _WORDS * count)
    words = np.frombuffer(stream, dtype="<u4").reshape(_WORDS, count)
    factors, noise = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = slice(start, start + _BLOCK)
        first, second, third = words[:, block].astype(np.int64)
        signs = 1 - 2 * (second & 1)
        # 1 + m in 24 bits, cut to those of the octave.
        mantissas = second >> (32 - _MANTISSA_BITS) | 1 << _MANTISSA_BITS
        sizes = mantissas >> (_MANTISSA_BITS - _LEAST_FACTOR_BITS - (first * _OCTAVES >> 32))
        np.multiply(sizes, signs, out=factors[block])
        np.multiply(1 + (third * (sizes - 1) >> 32), signs, out=noise[block])
    return SignMasks(factors, noise, factors < 0)
