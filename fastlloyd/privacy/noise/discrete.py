r"""Noise on the integers that may be added in shares: discrete Gaussians and differences of Polya variables.

`discrete_gaussian` draws from P(x) proportional to exp(-x^2 / (2 v)), v a rational variance, by rejection from
a discrete Laplace variable. `polya_difference` draws the difference of two Polya (negative binomial) variables
of a shape r, a fraction: those whose shapes add up to 1 sum to exactly the discrete Laplace distribution.

Both are exact, not nearly so: all that is decided (which integer, accepted or not) is decided for real numbers with
infinitely many random bits, by float64 with a bound on every error and by interval arithmetic at growing
precision where that bound does not decide (`privacy/noise/sampler.py`). Units in the last place allowed for: as in
`privacy/noise/sampler.py`.

Why `polya_difference` has its distribution. The Polya variable with P(x) = C(x + r - 1, x) p^x (1 - p)^r is a sum of
N logarithmic variables, N Poisson of mean -r ln(1 - p) (compare generating functions: exp(L (ln(1 - p z) / ln(1 - p)
- 1)) with L = -r ln(1 - p) is ((1 - p) / (1 - p z))^r). A difference of two is the same with mean 2 L and a fair sign
for each. A logarithmic variable, P(k) = -p^k / (k ln(1 - p)), is a geometric one with random parameter: with
q = 1 - (1 - p)^u, u uniform, integrating q^(k - 1) (1 - q) over u gives P(k); and the first k for which v >= q^k,
v uniform, is 1 + floor(ln v / ln q).

Source: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy" (2020), Algorithm 3 (with another
way to decide); Kemp, "Efficient generation of logarithmically distributed pseudo-random variables" (1981);
Goryczka and Xiong (2017), for Polya shares.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from itertools import count as count_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.privacy.noise.sampler import (
    MAX_WORDS,
    WORD_BITS,
    Draw,
    check_scale,
    exponentials,
    interval_arithmetic,
    refine,
    round_certain,
    unit,
    vector_shape,
)
from fastlloyd.randomness.secret import SecretRandom

MAX_SCALE = 2.0**44
"""Beyond it float64 would not hold the integers on the way; 45 times it is below 2^50."""

_BLOCK = 1 << 14
_SMALL_WORD = 1 << 20


def discrete_gaussian(variance: Fraction, size: int | tuple[int, ...], secret: SecretRandom) -> NDArray[np.int64]:
    """Draw integers with P(x) proportional to exp(-x^2 / (2 variance)).

    Parameters
    ----------
    variance : Fraction
        Positive, exact.
    size : int or tuple of int
    secret : SecretRandom

    Returns
    -------
    int64 array, shape `size`

    Raises
    ------
    ConfigError, RangeError
        The variance is not positive or too large.

    Privacy
    -------
    One of the shares whose sum `privacy/shares.py` accounts for.
    """
    shape, count = vector_shape(size)
    return discrete_gaussians([[gaussian_law(variance)]], [count], [secret]).reshape(shape)


def discrete_gaussians(
    laws: Sequence[Sequence[GaussianLaw]], counts: Sequence[int], secrets: Sequence[SecretRandom]
) -> NDArray[np.int64]:
    """Draw several vectors of such integers in one pass, each from its own source and in pieces of several laws.

    Parameters
    ----------
    laws : sequence of sequences of GaussianLaw
        Of each vector those of its pieces.
    counts : sequence of int
        How many integers each piece has; the same for all vectors.
    secrets : sequence of SecretRandom
        One for each vector. From each come the same bits as if its pieces were drawn alone, one after the other.

    Returns
    -------
    int64 array, shape (number of vectors, sum of counts)

    Privacy
    -------
    As for `discrete_gaussian`: vectors are independent if their sources are.
    """
    ends = [*accumulate(counts)]
    noise = np.empty((len(laws), ends[-1]), dtype=np.int64)
    vectors = [
        _Vector(
            secret, zip(pieces, (row[end - count : end] for count, end in zip(counts, ends, strict=True)), strict=True)
        )
        for pieces, row, secret in zip(laws, noise, secrets, strict=True)
    ]
    while vectors:
        words = [piece for vector in vectors for piece in vector.ask()]
        tried = tuple((law, trials) for vector in vectors for law, trials in vector.tried)
        owners = [vector.secret for vector in vectors for _ in vector.tried]
        proposed, accepted = _Proposals(tried, owners).decide(np.concatenate(words, axis=1))
        start = 0
        for vector in vectors:
            end = start + sum(trials for _, trials in vector.tried)
            vector.take(proposed[start:end], accepted[start:end])
            start = end
        vectors = [vector for vector in vectors if vector.left]
    return noise


def polya_difference(
    scale: float, shape: Fraction, size: int | tuple[int, ...], secret: SecretRandom
) -> NDArray[np.int64]:
    """Draw differences of two Polya variables of one shape and p = exp(-1 / scale).

    Parameters
    ----------
    scale : float
        b of the discrete Laplace distribution, P(x) proportional to exp(-abs(x) / b), that variables of shapes adding
        up to 1 sum to.
    shape : Fraction
        Positive, at most 1.
    size : int or tuple of int
    secret : SecretRandom

    Returns
    -------
    int64 array, shape `size`

    Raises
    ------
    ConfigError, RangeError
        The scale is not positive or too large.

    Privacy
    -------
    Those whose shapes add up to 1 are a discrete Laplace mechanism, whatever further ones are added.
    """
    check_scale(scale, MAX_SCALE)
    dimensions, count = vector_shape(size)
    numbers = _poisson(scale, shape, count, secret)
    noise = np.zeros(count, dtype=np.int64)
    owner = np.repeat(np.arange(count), numbers)
    for start in range(0, owner.size, _BLOCK):
        at = owner[start : start + _BLOCK]
        values = _logarithmic(scale, secret.uint64(at.size), secret.uint64(at.size), secret.further)
        coins = np.unpackbits(np.frombuffer(secret.bytes((at.size + 7) // 8), dtype=np.uint8), count=at.size)
        np.add.at(noise, at, values * (1 - 2 * coins.astype(np.int64)))
    return noise.reshape(dimensions)


@dataclass(frozen=True, slots=True, eq=False)
class GaussianLaw:
    """A discrete Gaussian of variance v, and the scale t of the proposals for it; from `gaussian_law`."""

    variance: Fraction
    scale: int
    centre: float  # v / t
    twice: float  # 2 v


@lru_cache(maxsize=256)
def gaussian_law(variance: Fraction) -> GaussianLaw:
    """Prepare to draw from a discrete Gaussian.

    Raises
    ------
    ConfigError, RangeError
        The variance is not positive or too large.
    """
    check_scale(math.sqrt(variance) if variance > 0 else 0.0, MAX_SCALE)
    scale = math.isqrt(math.floor(variance)) + 1
    return GaussianLaw(variance, scale, float(variance / scale), float(2 * variance))


class _Vector:
    """A vector that is still to be filled from one source.

    Attributes
    ----------
    secret : SecretRandom
    left : deque of pairs of GaussianLaw and array
        What is still to be drawn, and where it goes.
    tried : list of pairs of GaussianLaw and int
        The pieces for which words were read last, and how many proposals these are.
    """

    __slots__ = ("_read", "left", "secret", "tried")

    def __init__(self, secret: SecretRandom, pieces: Iterable[tuple[GaussianLaw, NDArray[np.int64]]]) -> None:
        self.secret = secret
        self.left = deque(pieces)
        self.tried: list[tuple[GaussianLaw, int]] = []
        self._read = np.zeros(0, dtype=np.uint64)

    def ask(self) -> Iterator[NDArray[np.uint64]]:
        """Read words for the next pieces, as far as they probably fill them; yield each one's, shape (3, n)."""
        self.tried = []
        for law, room in self.left:
            enough = _enough(room.size)
            self.tried.append((law, min(enough, _BLOCK)))
            if enough > _BLOCK:
                break
        more = 3 * sum(trials for _, trials in self.tried) - self._read.size
        if more > 0:
            self._read = np.concatenate((self._read, self.secret.uint64(more)))
        start = 0
        for _, trials in self.tried:
            yield self._read[start : start + 3 * trials].reshape(3, trials)
            start += 3 * trials

    def take(self, proposed: NDArray[np.int64], accepted: NDArray[np.bool_]) -> None:
        """Fill pieces from proposals, up to the first that they do not fill: the words after it are read again."""
        start = 0
        for law, trials in self.tried:
            _, room = self.left.popleft()
            fit = proposed[start : start + trials][accepted[start : start + trials]][: room.size]
            room[: fit.size] = fit
            start += trials
            if fit.size < room.size:
                self.left.appendleft((law, room[fit.size :]))
                break
        self._read = self._read[3 * start :]


def _enough(count: int) -> int:
    """Return how many proposals fill these places, but for a chance below 1e-8: over three in four are accepted."""
    return 2 * count + 16


@lru_cache(maxsize=16)
def _each(tried: tuple[tuple[GaussianLaw, int], ...]) -> NDArray[np.float64]:
    """Return scale, v / t and 2 v of each proposal, shape (3, number of proposals)."""
    values = np.array([(law.scale, law.centre, law.twice) for law, _ in tried], dtype=np.float64)
    return np.repeat(values.T, [trials for _, trials in tried], axis=1)


class _Proposals:
    """Proposals for several discrete Gaussians, a number of each, in one array.

    Parameters
    ----------
    tried : sequence of pairs of GaussianLaw and int
    secrets : sequence of SecretRandom
        The source of each.
    """

    def __init__(self, tried: tuple[tuple[GaussianLaw, int], ...], secrets: Sequence[SecretRandom]) -> None:
        self._tried, self._secrets = tried, secrets
        self._scale, self._centre, self._twice = _each(tried)

    def decide(self, words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Turn words, shape (3, all trials), into proposals and whether each is accepted."""
        # floor(t E), E a standard exponential: geometric, P(x >= k) = exp(-k / t).
        scales = np.concatenate((self._scale, self._scale))
        first, second = exponentials(scales, words[:2].reshape(-1), self._further, shift=0.5).reshape(2, -1)
        return first - second, self.accept(first - second, words[2])

    def accept(self, proposed: NDArray[np.int64], words: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Decide each with chance exp(-(abs(y) - v / t)^2 / (2 v)): whether a standard exponential exceeds that."""
        uniform, log_error = unit(words)
        level = -np.log(uniform)
        level_error = log_error + level * 2.0**-50
        level_error[words == 0] = np.inf
        needed, needed_error = self._needed(proposed)
        margin = level - needed
        error = (level_error + needed_error) * (1.0 + 2.0**-20) + (level + needed) * 2.0**-52
        accepted: NDArray[np.bool_] = margin > 0.0
        for i in np.flatnonzero(~(np.abs(margin) > error)).tolist():
            law, _ = self._tried[self._owner(i)]
            exact = (abs(int(proposed[i])) - law.variance / law.scale) ** 2 / (2 * law.variance)
            accepted[i] = _exceeds(int(words[i]), exact, self._further(i))
        return accepted

    def _needed(self, proposed: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (abs(y) - v / t)^2 / (2 v) of each, and a bound on its error."""
        away = np.abs(proposed) - self._centre
        away_error = (self._centre + np.abs(away)) * 2.0**-51
        needed = away * away / self._twice
        return needed, needed * 2.0**-49 + (2.0 * np.abs(away) + away_error) * away_error / self._twice

    def _owner(self, place: int) -> int:
        """Return whose the proposal at this place is."""
        return bisect_right([*accumulate(trials for _, trials in self._tried)], place)

    def _further(self, place: int) -> Draw:
        """Return what gives further bits for the word at this place, of two rows of words or one."""
        return self._secrets[self._owner(place % self._scale.size)].further


def _exceeds(word: int, level: Fraction, draw: Draw) -> bool:
    """Decide whether -ln u exceeds a rational level, u a uniform that begins with these 64 bits."""
    arithmetic, bits = interval_arithmetic(), WORD_BITS
    for _ in range(MAX_WORDS):
        word, bits = word << WORD_BITS | draw(), bits + WORD_BITS
        if word == 0:
            continue
        arithmetic.prec = bits + WORD_BITS
        value = -arithmetic.log(arithmetic.mpf([word, word + 1]) * arithmetic.mpf(2) ** -bits)
        value -= arithmetic.mpf(level.numerator) / arithmetic.mpf(level.denominator)
        if value.a > 0:
            return True
        if value.b < 0:
            return False
    raise InternalError("the operating system's random bits repeat themselves: no noise can be drawn")


def _poisson(scale: float, shape: Fraction, count: int, secret: SecretRandom) -> NDArray[np.int64]:
    """Draw Poisson variables of mean -2 shape ln(1 - exp(-1 / scale)), by the inverse of their distribution F.

    The table holds floor(2^64 F(k)): a uniform whose first 64 bits differ from all entries is decided by them.
    """
    table = np.array(_thresholds(scale, shape), dtype=np.uint64)
    words = secret.uint64(count)
    numbers = np.searchsorted(table, words, side="right").astype(np.int64)
    for i in np.flatnonzero(np.searchsorted(table, words, side="left") != numbers):
        numbers[i] = _decide_poisson(scale, shape, int(words[i]), secret.further)
    return numbers


@lru_cache(maxsize=256)
def _thresholds(scale: float, shape: Fraction) -> tuple[int, ...]:
    """Return floor(2^64 F(k)) for k from 0 until only 2^64 - 1 is left."""
    last, precision = (1 << WORD_BITS) - 1, 4 * WORD_BITS
    while True:
        found: list[int] = []
        for low, high in _distribution(scale, shape, precision):
            # F(k) < 1 always; only its interval may reach 1.
            ends = [min(math.floor(end * (1 << WORD_BITS)), last) for end in (low, high)]
            if ends[0] != ends[1]:
                break
            found.append(ends[0])
            if ends[0] == last:
                return tuple(found)
        precision *= 2


def _distribution(scale: float, shape: Fraction, precision: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Yield bounds on F(0), F(1), ..."""
    arithmetic = interval_arithmetic()
    arithmetic.prec = precision
    mean = _log_complement(arithmetic, scale) * (-2 * shape.numerator) / shape.denominator
    term = total = arithmetic.exp(-mean)
    for k in count_from(1):
        yield _fraction(total.a), _fraction(total.b)
        term = term * mean / k
        total += term


def _decide_poisson(scale: float, shape: Fraction, word: int, draw: Draw) -> int:
    """Return the variable of a uniform that begins with these 64 bits, drawing more bits as needed."""
    bits = WORD_BITS
    for _ in range(MAX_WORDS):
        word, bits = word << WORD_BITS | draw(), bits + WORD_BITS
        for k, (low, high) in enumerate(_distribution(scale, shape, bits + 4 * WORD_BITS)):
            if word + 1 <= low * (1 << bits):
                return k
            if word < high * (1 << bits):
                break
    raise InternalError("the operating system's random bits repeat themselves: no noise can be drawn")


def _fraction(end: Any) -> Fraction:
    """Return one end of an interval as a fraction."""
    from mpmath.libmp import to_rational

    numerator, denominator = to_rational(end._mpi_[0])
    return Fraction(int(numerator), int(denominator))


def _log_complement(arithmetic: Any, scale: float) -> Any:
    """Compute ln(1 - p), p = exp(-1 / scale), as an interval."""
    return arithmetic.log(1 - arithmetic.exp(-1 / arithmetic.mpf(scale)))


def _logarithmic(
    scale: float, first: NDArray[np.uint64], second: NDArray[np.uint64], draw: Draw, *, inflate: float = 1.0
) -> NDArray[np.int64]:
    """Turn pairs of uniforms (v, u) into logarithmic variables, int64 array, shape (n,); from 1 on."""
    depth = -_float_log_complement(scale)
    v, log_error = unit(first)
    u, _ = unit(second)
    fall = -np.log(v)
    fall_error = log_error + fall * 2.0**-50
    w = u * depth
    # Unseen bits of u, its conversion, the product, and the rounding of depth.
    w_error = 1.0 / np.maximum(second.astype(np.float64), 1.0) + 2.0**-50
    near = w < math.log(2.0)
    rate = np.empty_like(w)
    rate[near] = -np.log(-np.expm1(-w[near]))
    rate[~near] = -np.log1p(-np.exp(-w[~near]))
    # Below ln 2: ln(1 - e^-w) errs by the relative error of 1 - e^-w, at most that of w. Above: by at most 1.45
    # times the relative error of e^-w, which is w times that of w. Both with 2^-10 for terms of second order.
    rate_error = np.where(near, (w_error + 2.0**-50) / rate, 1.45 * (w * w_error + 2.0**-50)) * (1.0 + 2.0**-10)
    values = fall / rate
    error = (fall_error / rate + values * (rate_error + 2.0**-49)) * ((1.0 + 2.0**-8) * inflate)
    error[(first == 0) | (second < _SMALL_WORD)] = np.inf
    whole, unsure = round_certain(values - 0.5, error)
    arithmetic = interval_arithmetic() if unsure.size else None
    for i in unsure:
        words = (int(first[i]), int(second[i]))
        (whole[i],) = refine(arithmetic, _floor_ratio, scale, words, draw, positive=2)
    return whole + 1


@lru_cache(maxsize=256)
def _float_log_complement(scale: float) -> float:
    """Return ln(1 - p) to the last digit."""
    arithmetic = interval_arithmetic()
    arithmetic.prec = 4 * WORD_BITS
    return float(arithmetic.mpf(_log_complement(arithmetic, scale)).mid)


def _floor_ratio(arithmetic: Any, scale: float, v: Any, u: Any) -> tuple[Any, ...]:
    """Compute ln v / ln q - 1/2, q = 1 - (1 - p)^u, as an interval."""
    power = arithmetic.exp(u * _log_complement(arithmetic, scale))
    return (arithmetic.log(v) / arithmetic.log(1 - power) - arithmetic.mpf(0.5),)
