"""Fixed-point numbers in the ring Z_2^b, b = 32 or 64.

A real v in the scaled domain is the integer round(v * 2^q), half to even; a negative integer is its
two's complement. Unsigned numpy arithmetic wraps, which is the ring's addition. The number q of
fraction bits is chosen from public quantities alone so that no sum can wrap.

Source: FastLloyd, §5.3.4 and Fig. 1; docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError

# Noise up to this many standard deviations or scales b must fit; more may wrap, which costs only accuracy.
GAUSSIAN_TAIL = 12.0
LAPLACE_TAIL = 45.0
MAX_FRACTION_BITS = 16
MIN_FRACTION_BITS = 8
EXACT_FLOAT_BITS = 53

RingArray = NDArray[np.uint32] | NDArray[np.uint64]
_DTYPES: dict[int, np.dtype[Any]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring Z_2^bits with its numpy type.

    Parameters
    ----------
    bits : int
        32 or 64.

    Raises
    ------
    RangeError
        The width is another one.
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (32, 64):
            raise RangeError(f"expected ring_bits of 32 or 64, got {self.bits}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Little-endian unsigned integers of this width."""
        return _DTYPES[self.bits]

    @property
    def element_bytes(self) -> int:
        """Bytes of one element on the wire."""
        return self.bits // 8

    def encode(self, integers: NDArray[np.int64]) -> RingArray:
        """Reduce signed integers modulo 2^bits.

        Raises
        ------
        RangeError
            A value lies outside [-2^(bits-1), 2^(bits-1)): a bug in the choice of fraction bits, since
            those guarantee that it fits. Never wraps silently.
        """
        if self.bits == 32 and integers.size:
            low, high = int(integers.min()), int(integers.max())
            if low < -(1 << 31) or high >= 1 << 31:
                raise RangeError(f"a value of {max(-low, high)} does not fit 32 bits; use ring_bits = 64")
        return integers.astype(self.dtype)

    def decode(self, elements: RingArray) -> NDArray[np.int64]:
        """Return the centred representatives in [-2^(bits-1), 2^(bits-1))."""
        signed = elements.astype(self.dtype, copy=False).view(f"<i{self.element_bytes}")
        return signed.astype(np.int64)

    def reduce(self, integers: NDArray[np.int64]) -> RingArray:
        """Reduce modulo 2^bits without a range check: for noise, whose tail may wrap harmlessly.

        Wrapping noise is post-processing of the noisy sum, so it costs accuracy in a run out of 10^30,
        never privacy.
        """
        return integers.astype(self.dtype)

    def from_bytes(self, data: bytes, elements: int) -> RingArray:
        """Read `elements` ring elements.

        Raises
        ------
        ValueError
            The length differs: the sender is at fault.
        """
        if len(data) != elements * self.element_bytes:
            raise ValueError(f"expected {elements * self.element_bytes} payload bytes, got {len(data)}")
        return np.frombuffer(data, dtype=self.dtype)


def choose_fraction_bits(
    *, ring_bits: int, n_total: int, d: int, largest_coordinate: float, tail: float, largest_center: float = 1.0
) -> int:
    """Choose the largest q <= 16 for which nothing can wrap and every score is exact.

    Two conditions, on public quantities only:

    * N * max(largest_coordinate, 1) * 2^q + tail * 2^q < 2^(b - 1): sums, counts and noise fit the ring;
    * 2q + 2 + log2(4 d B^2) < 53 with B the largest centre coordinate: every product and partial sum of
      the scores `|c|^2 - 2 x.c` is an integer below 2^53, so float64 computes it exactly in any order.

    Parameters
    ----------
    ring_bits, n_total, d : int
        Ring width, public bound N on all records, number of features.
    largest_coordinate : float
        Largest absolute coordinate that one record adds to a sum, scaled domain.
    tail : float
        Largest noise allowed for: 12 sigma (Gaussian) or 45 b (Laplace), scaled domain.
    largest_center : float
        Largest absolute coordinate of a centre (1 with fold or truncate).

    Raises
    ------
    RangeError
        Fewer than 8 fraction bits are left; says what to change.
    """
    need = n_total * max(largest_coordinate, 1.0) + tail
    for q in range(MAX_FRACTION_BITS, MIN_FRACTION_BITS - 1, -1):
        fits = need * 2.0**q < 2.0 ** (ring_bits - 1)
        exact = 2 * q + 2 + math.log2(4 * d * largest_center**2) < EXACT_FLOAT_BITS
        if fits and exact:
            return q
    if need * 2.0**MIN_FRACTION_BITS >= 2.0 ** (ring_bits - 1):
        fix = "set ring_bits = 64" if ring_bits == 32 else "lower n_total or raise epsilon"
        raise RangeError(
            f"sums of up to {n_total} records and their noise need {need:.4g} * 2^{MIN_FRACTION_BITS}, which does "
            f"not fit the {ring_bits}-bit ring with at least {MIN_FRACTION_BITS} fraction bits; {fix}"
        )
    raise RangeError(
        f"{d} features are too many for exact scores with {MIN_FRACTION_BITS} fraction bits: leave columns out"
    )
