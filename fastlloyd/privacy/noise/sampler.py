r"""Integer noise that is exactly a rounded continuous variable.

`round_normal` gives round(sigma Z), Z standard normal, and `round_laplace` round(b L), L standard
Laplace: not a float that is nearly so, but the rounding of the real number itself.

Why rounding costs no privacy
-----------------------------
For an integer vector v and real noise g, round(v + g) = v + round(g), coordinate by coordinate (off ties,
which have probability 0). So adding the rounded noise to v is the same as releasing v + g, the continuous
mechanism, and rounding afterwards: post-processing, with the same (epsilon, delta). What leaves are
integers, so there are no low-order bits of a float that could reveal v.

How the rounding is exact
-------------------------
A uniform real number has infinitely many random bits. Its first 64 put it into an interval
[m, m + 1) / 2^64, and Box-Muller (or the inverse exponential) of that interval is an interval of noise
values. We compute its centre in float64 together with a bound on everything that may differ: the unseen
bits, the conversion of m, the errors of log, sqrt, cos and sin (eight units in the last place are allowed
for each; libraries keep to one to four), and the products. If centre and bound lie between two neighbouring
half-integers, the rounded value is certain, whatever the unseen bits are. If not (about once in 2^33
samples at sigma = 2^12), this sample's uniforms are drawn on, 64 bits at a time, and the interval is computed
again by interval arithmetic at growing precision until it lies between two half-integers (Ziv's strategy).
The unbounded tail is included: m = 0 always draws on.

The bits are those of `SecretRandom`, ChaCha20's. So these statements hold for observers who cannot distinguish that
stream from random bits, and the claim is computational; `accountant.SAMPLER_DELTA` is set aside for the advantage.

Source: Box and Muller (1958); Ziv, "Fast evaluation of elementary mathematical functions with correctly
rounded last bit" (1991); docs/privacy.md, "Noise".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, InternalError, RangeError
from fastlloyd.randomness.secret import SecretRandom

Draw = Callable[[], int]

WORD_BITS = 64
TO_UNIT = 2.0**-WORD_BITS
MAX_WORDS = 64
# Beyond these scales an int64 could not hold the noise but for a chance below 2^-180.
MAX_SIGMA = 2.0**59
MAX_LAPLACE_SCALE = 2.0**56

_BLOCK = 1 << 14


def unit(words: NDArray[np.uint64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return uniforms in (0, 1] and a bound on the error of their logarithms; neither holds for a zero word."""
    uniform = np.maximum(words, np.uint64(1)).astype(np.float64)
    uniform *= TO_UNIT
    # Unseen bits: ln((m + 1) / m) <= 1 / m; conversion of m: a relative 2^-52 at most.
    return uniform, (TO_UNIT * (1.0 + 2.0**-40)) / uniform + 2.0**-51


def round_certain(
    values: NDArray[np.float64], error: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Round; return also the indices where a half-integer lies within the error."""
    rounded = np.rint(values)
    values -= rounded
    np.abs(values, out=values)
    values += error
    # Written so that anything that is not certainly below one half counts as unsure.
    unsure = np.flatnonzero(~(values < 0.5 - 2.0**-40))
    rounded[unsure] = 0.0
    return rounded.astype(np.int64), unsure


def interval_arithmetic() -> Any:
    """Make a context of interval arithmetic with its own precision."""
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
        From `(arithmetic, scale, *uniforms)`, the uniforms as intervals, to intervals of the values.
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


def round_normal(sigma: float, size: int | tuple[int, ...], secret: SecretRandom) -> NDArray[np.int64]:
    """Draw integers distributed as round(sigma Z), Z standard normal.

    Parameters
    ----------
    sigma : float
        Standard deviation in units of the integers, positive, at most `MAX_SIGMA`.
    size : int or tuple of int
    secret : SecretRandom

    Returns
    -------
    int64 array, shape `size`

    Raises
    ------
    ConfigError
        Sigma is not a positive finite number.
    RangeError
        Sigma is too large for 64-bit integers.

    Privacy
    -------
    Added to an integer vector it has the guarantee of the continuous Gaussian mechanism with the same
    sigma; the proof stands at the head of this module.
    """
    check_scale(sigma, MAX_SIGMA)
    shape, count = vector_shape(size)
    noise = np.empty(count + count % 2, dtype=np.int64)
    for start in range(0, count, 2 * _BLOCK):
        pairs = min(_BLOCK, (noise.size - start) // 2)
        words = secret.uint64(2 * pairs)
        noise[start : start + 2 * pairs] = box_muller(sigma, words[:pairs], words[pairs:], secret.further)
    return noise[:count].reshape(shape)


def round_laplace(scale: float, size: int | tuple[int, ...], secret: SecretRandom) -> NDArray[np.int64]:
    """Draw integers distributed as round(b L), L standard Laplace (density `exp(-|x|) / 2`).

    Parameters
    ----------
    scale : float
        b in units of the integers, positive, at most `MAX_LAPLACE_SCALE`.
    size : int or tuple of int
    secret : SecretRandom

    Returns
    -------
    int64 array, shape `size`

    Raises
    ------
    ConfigError
        The scale is not a positive finite number.
    RangeError
        The scale is too large for 64-bit integers.

    Privacy
    -------
    Added to an integer vector it has the guarantee of the continuous Laplace mechanism with the same b.
    """
    check_scale(scale, MAX_LAPLACE_SCALE)
    shape, count = vector_shape(size)
    noise = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = min(_BLOCK, count - start)
        magnitude = exponential(scale, secret.uint64(block), secret.further)
        coins = np.frombuffer(secret.bytes((block + 7) // 8), dtype=np.uint8)
        signs = np.unpackbits(coins, count=block).astype(np.int64)
        noise[start : start + block] = magnitude * (1 - 2 * signs)
    return noise.reshape(shape)


def box_muller(
    sigma: float, first: NDArray[np.uint64], second: NDArray[np.uint64], draw: Draw, *, inflate: float = 1.0
) -> NDArray[np.int64]:
    """Turn pairs of uniforms into rounded normals.

    Parameters
    ----------
    sigma : float
    first, second : uint64 array, shape (n,)
        First 64 bits of each uniform: radius and angle.
    draw : callable
        Gives 64 further random bits.
    inflate : float
        Factor on the error bound; above 1 only to test that the certain values do not depend on it.

    Returns
    -------
    int64 array, shape (2 n,)
        n cosines, then n sines.
    """
    uniform, log_error = unit(first)
    square = -2.0 * np.log(uniform)
    square_error = 2.0 * log_error + square * 2.0**-50
    radius = np.sqrt(square)
    # |sqrt(x) - sqrt(y)| <= |x - y| / max(sqrt(y), sqrt(|x - y|)).
    radius_error = square_error / np.maximum(radius, np.sqrt(square_error))
    angle = second.astype(np.float64)
    angle *= 2.0 * math.pi * TO_UNIT
    # Angle: 2 pi (2^-52 + 2^-64 + 2^-52); cos and sin: 2^-50; products: 2^-52; together below 2^-47.
    error = (radius * 2.0**-46 + radius_error) * (sigma * inflate * (1.0 + 2.0**-40))
    error[first == 0] = np.inf
    radius *= sigma
    values = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))
    noise, unsure = round_certain(values, np.concatenate((error, error)))
    pairs = first.size
    if unsure.size:
        arithmetic = interval_arithmetic()
        for i in np.unique(unsure % pairs):
            words = (int(first[i]), int(second[i]))
            noise[i], noise[i + pairs] = refine(arithmetic, _normals, sigma, words, draw)
    return noise


def exponential(
    scale: float, first: NDArray[np.uint64], draw: Draw, *, shift: float = 0.0, inflate: float = 1.0
) -> NDArray[np.int64]:
    """Turn uniforms into rounded exponentials, round(-scale ln u - shift).

    Parameters
    ----------
    scale : float
    first : uint64 array, shape (n,)
        First 64 bits of each uniform.
    draw, inflate
        As for `box_muller`.
    shift : float
        0, or 1/2 to round down.

    Returns
    -------
    int64 array, shape (n,)
    """
    return exponentials(scale, first, lambda i: draw, shift=shift, inflate=inflate)


def exponentials(
    scales: float | NDArray[np.float64],
    first: NDArray[np.uint64],
    draw: Callable[[int], Draw],
    *,
    shift: float = 0.0,
    inflate: float = 1.0,
) -> NDArray[np.int64]:
    """Turn uniforms of several sources into rounded exponentials of several scales; the rest as for `exponential`.

    Parameters
    ----------
    scales : float, or float64 array, shape (n,)
    first : uint64 array, shape (n,)
    draw : callable
        From a place in `first` to what gives 64 further random bits of its source.
    """
    uniform, log_error = unit(first)
    values = -np.log(uniform)
    error = (log_error + values * 2.0**-50) * (scales * inflate * (1.0 + 2.0**-40))
    error[first == 0] = np.inf
    noise, unsure = round_certain(values * scales - shift, error)
    if unsure.size:
        arithmetic, all_scales = interval_arithmetic(), np.broadcast_to(scales, first.shape)
        for i in unsure.tolist():
            values_of, scale = partial(_exponentials, shift=shift), float(all_scales[i])
            (noise[i],) = refine(arithmetic, values_of, scale, (int(first[i]),), draw(i))
    return noise


def _normals(arithmetic: Any, sigma: float, u: Any, v: Any) -> tuple[Any, ...]:
    """Compute the two normals of a pair of uniforms, as intervals."""
    radius = arithmetic.mpf(sigma) * arithmetic.sqrt(-2 * arithmetic.log(u))
    angle = 2 * arithmetic.pi * v
    return radius * arithmetic.cos(angle), radius * arithmetic.sin(angle)


def _exponentials(arithmetic: Any, scale: float, u: Any, *, shift: float) -> tuple[Any, ...]:
    """Compute the exponential of a uniform less the shift, as an interval."""
    return (-arithmetic.mpf(scale) * arithmetic.log(u) - arithmetic.mpf(shift),)
