"""Real numbers known as far as their random bits go: intervals, and more bits where a decision needs them.

A uniform real number has infinitely many random bits; its first 64 put it into an interval. What is computed
from it in float64 comes with a bound on all errors; where that does not decide, the uniform is lengthened by
64 bits at a time and computed again by interval arithmetic (Ziv's strategy). Whatever is decided is thus
decided for the real number itself.

Source: Ziv (1991); docs/privacy.md, "Noise".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, InternalError, RangeError

Draw = Callable[[], int]

WORD_BITS = 64
TO_UNIT = 2.0**-WORD_BITS
MAX_WORDS = 64


def unit(words: NDArray[np.uint64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return uniforms in (0, 1] and a bound on the error of their logarithms; neither holds for a zero word."""
    uniform = np.maximum(words, np.uint64(1)).astype(np.float64)
    uniform *= TO_UNIT
    # Unseen bits: ln((m + 1) / m) <= 1 / m; conversion of m: a relative 2^-52 at most.
    return uniform, (TO_UNIT * (1.0 + 2.0**-40)) / uniform + 2.0**-51


def round_certain(
    values: NDArray[np.float64], error: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Round; give also the indices where a half-integer lies within the error."""
    rounded = np.rint(values)
    values -= rounded
    np.abs(values, out=values)
    values += error
    # Written so that anything that is not certainly below one half counts as unsure.
    unsure = np.flatnonzero(~(values < 0.5 - 2.0**-40))
    rounded[unsure] = 0.0
    return rounded.astype(np.int64), unsure


def interval_arithmetic() -> Any:
    """Make a context of interval arithmetic with a precision of its own."""
    from mpmath.ctx_iv import MPIntervalContext

    return MPIntervalContext()


def refine(
    arithmetic: Any,
    values: Callable[..., tuple[Any, ...]],
    scale: float,
    words: tuple[int, ...],
    draw: Draw,
    *,
    positive: int = 1,
) -> tuple[int, ...]:
    """Lengthen the uniforms by 64 bits at a time until every value's interval rounds to one integer.

    Parameters
    ----------
    arithmetic : interval context
    values : callable
        From (arithmetic, scale, *uniforms), the uniforms as intervals, to intervals of the values.
    scale : float
    words : tuple of int
        First 64 bits of each uniform.
    draw : callable
        Gives 64 further random bits.
    positive : int
        How many of the first uniforms `values` takes the logarithm of: these must leave 0.

    Raises
    ------
    InternalError
        Thousands of random bits did not decide: they are not random.
    """
    bits = WORD_BITS
    for _ in range(MAX_WORDS):
        words = tuple(word << WORD_BITS | draw() for word in words)
        bits += WORD_BITS
        if 0 in words[:positive]:
            continue
        arithmetic.prec = bits + WORD_BITS + max(0, math.frexp(scale)[1])
        width = arithmetic.mpf(2) ** -bits
        uniforms = [arithmetic.mpf([word, word + 1]) * width for word in words]
        rounded = [_round_interval(value) for value in values(arithmetic, scale, *uniforms)]
        certain = tuple(value for value in rounded if value is not None)
        if len(certain) == len(rounded):
            return certain
    raise InternalError("the operating system's random bits repeat themselves: no noise can be drawn")


def _round_interval(value: Any) -> int | None:
    """Round an interval to the integer that all its points round to, if there is one."""
    from mpmath.libmp import mpf_floor, to_int

    low, high = (int(to_int(mpf_floor(end))) for end in (value + 0.5)._mpi_)
    return low if low == high else None


def check_scale(scale: float, limit: float) -> None:
    """Check the scale of the noise."""
    if not (math.isfinite(scale) and scale > 0.0):
        raise ConfigError(f"expected a positive finite noise scale, got {scale}; check epsilon and delta")
    if scale > limit:
        raise RangeError(f"expected noise of at most {limit:g} grid units, got {scale:g}; take fewer fraction bits")


def vector_shape(size: int | tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the shape and its number of elements."""
    shape = (size,) if isinstance(size, int) else tuple(size)
    return shape, math.prod(shape)
