"""The grids of one run: chosen from public quantities so that nothing wraps and every label is exact.

Records lie on the grid of 2^-q (`choose_fraction_bits`). Two more are needed:

* The outer product works on records cut to 2^-p, p <= q, so that N * C * 2^(2p) and its noise fit Z_2^64, C the most
  that one neighbour adds to an entry, and that the noise stays within what the sampler draws.
* Projected points lie on the grid of 2^-g. The projection's entries are whole multiples of 2^-16, its rows have norm
  at most 17/16. A record has norm at most Delta, so by Cauchy and Schwarz every partial sum of a projected coordinate
  is at most 17/16 * 2^16 * Delta 2^q, far below 2^53: exact in float64. Scaling it by a power of two and rounding is
  then a function of the record and the projection alone. With r rows a projected vector has norm at most
  L = 17/16 sqrt(r) Delta 2^g + sqrt(r), rounding included; the scores |c|^2 - 2 y.c and all partial sums of them are
  integers of at most 3 L^2, and g is chosen so that this stays below 2^53.

Source: docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

import math

from fastlloyd.errors import RangeError
from fastlloyd.masking.fixed import EXACT_FLOAT_BITS, MAX_FRACTION_BITS

MATRIX_BITS = 16
ROW_NORM = 17.0 / 16.0
MIN_OUTER_BITS = 6
MIN_PROJECTED_BITS = 6
# The sampler draws up to standard deviations of 2^44; all shares together are at most twice what one draws.
_MAX_NOISE = 2.0**43


def choose_outer_bits(*, n_total: int, largest: float, noise: float, tail: float, most: int) -> int:
    """Choose the largest p <= `most` for which sums of outer products fit the 64-bit ring.

    Parameters
    ----------
    n_total : int
        Public N.
    largest : float
        Largest value that one neighbour adds to an entry, scaled domain.
    noise : float
        Standard deviation of all noise together, scaled domain.
    tail : float
        Largest noise allowed for.
    most : int
        q: the records are on that grid already.

    Raises
    ------
    RangeError
        Fewer than 6 bits are left; the error says how to fix it.
    """
    for bits in range(most, MIN_OUTER_BITS - 1, -1):
        unit = 4.0**bits
        if (n_total * max(largest, 1.0) + tail) * unit < 2.0**63 and noise * unit < _MAX_NOISE:
            return bits
    raise RangeError(
        f"outer products of up to {n_total} records and their noise need more than 64 bits; lower --n-total, the norm "
        "bound or outer_clip, or raise --epsilon"
    )


def projected_limit(norm_bound: float, rank: int, bits: int) -> int:
    """Return L: the largest norm of a projected point or centre, in units of 2^-bits."""
    return math.ceil(ROW_NORM * math.sqrt(rank) * norm_bound * 2.0**bits + math.sqrt(rank))


def choose_projected_bits(norm_bound: float, rank: int) -> int:
    """Choose the largest g <= 16 for which scores in the projected space are exact.

    Raises
    ------
    RangeError
        Fewer than 6 bits are left.
    """
    for bits in range(MAX_FRACTION_BITS, MIN_PROJECTED_BITS - 1, -1):
        if 3 * projected_limit(norm_bound, rank, bits) ** 2 < 1 << EXACT_FLOAT_BITS:
            return bits
    raise RangeError(
        f"norm bound {norm_bound:g} and {rank} dimensions are too many for exact scores in the projected space; lower "
        "norm_bound or --k"
    )
