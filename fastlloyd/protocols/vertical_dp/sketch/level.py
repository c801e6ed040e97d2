r"""The exact distributions behind a sketch: levels of one user, levels of phantoms, and what a row of them spends.

A user's word U is uniform on 0..2^w - 1 (w = 32). Its level is a geometric variable, to the precision of the word:

    P(level <= a) = T_a / 2^w,   T_a = 2^w - round(2^w (1 + gamma)^-a),   a = 1..top,   T_top = 2^w.

The level rises with U, so the largest level of a set is the level of its largest word. The phantoms of a grid cell are
n_p fictitious users; only their largest level matters, drawn at once from one 64-bit word:

    P(largest phantom level <= a) = V_a / 2^64,   V_a = 2^64 (T_a / 2^w)^n_p, rounded down.

T and V are integers, computed in integer arithmetic: the same on every machine, and exact in the proof.

What a row spends, exactly
--------------------------
Write u > v for neighbouring values of T / 2^w, and Q_N(a) = (T_a / 2^w)^N V_a / 2^64 for the distribution of a cell of
N users. Adding a user multiplies the probability of level a by

    (u Q_N(u) - v Q_N(v)) / (Q_N(u) - Q_N(v)) = u + (u - v) / (Q_N(u) / Q_N(v) - 1).

It is largest for N = 0, as Q_N(u) / Q_N(v) grows with N, and never below u. Levels below the floor m are reported as
m, whose probability changes by the factor T_m / 2^w. So the worst loss over all N and all levels is

    max(ln max over a > m of [the ratio at N = 0],  -ln (T_m / 2^w)),

a maximum of rational numbers: `row_epsilon` evaluates it, rounding included. Without rounding the ratio is at most
1 + 1 / n_p (Bernoulli's inequality), so the floor is the least m with T_m / 2^w >= n_p / (n_p + 1), and the two sides
match: epsilon' = ln(1 + 1 / n_p), that is n_p = 1 / (e^epsilon' - 1).

Which levels can be the worst
-----------------------------
Write n = n_p, q(x) = 2^64 x^n, and V(x) for V_a at x = T_a / 2^w. V is q rounded down: after k squarings, each to 192
bits, x^(2^k) is at most 2^k - 1 units of 2^-192 too small; so the product of those that make up n is at most n units
too small, V before its last rounding at most n 2^-128, and

    q(x) - 2 < V(x) <= q(x).

At N = 0 the ratio of level a is u + (u - v) V(v) / (V(u) - V(v)). As x^n is convex, q(u) - q(v) >= n q(v) (u - v) / v,
so

    V(u) - V(v) >= q(u) - q(v) - 2 >= (n - c) q(v) (u - v) / v,     c = 2 v / (q(v) (u - v)).

Above the floor v >= n / (n + 1), so v^(n - 1) >= 1 / e; and u - v >= 2^-w. So c <= 2 e 2^(w - 64) < 2^(w - 61), which
is below 1 for w <= 32. So V(u) > V(v), and the ratio of level a is at most

    u + v / (n - c) < u (1 + 1 / (n - 2^(w - 61))).

This bound rises with a. So who goes down from the top may stop at the first level whose bound is not above the worst
ratio seen so far: no lower level is worse. That leaves some ten of tens of thousands.

Source: Smith, Song, Thakurta (2020), Algorithm 1; Vertical DP, Algorithm 2; docs/vertical-dp-privacy.md.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError

WORD_BITS = 32
PHANTOM_BITS = 64
MAX_PHANTOMS = 1 << 24
GAMMAS = (2.0**-12, 2.0)

_EXTRA_BITS = 96
_POWER_BITS = 192
_SLACK_BITS = 61


@dataclass(frozen=True, slots=True)
class LevelTable:
    """The distribution of one user's level.

    Attributes
    ----------
    word_bits : int
        w.
    totals : tuple of int
        T_0 = 0, T_1, ..., T_top = 2^w.
    """

    word_bits: int
    totals: tuple[int, ...] = field(repr=False)
    _totals: NDArray[np.uint64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_totals", np.array(self.totals, dtype=np.uint64))

    @property
    def top(self) -> int:
        """The highest level."""
        return len(self.totals) - 1

    def levels(self, words: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
        """Return the levels 1..top of words 0..2^w - 1; the shape stays."""
        return np.searchsorted(self._totals[1:-1], words.astype(np.uint64), side="right") + 1

    def cumulative(self) -> NDArray[np.float64]:
        """Return P(level <= a) for a = 0..top."""
        return self._totals / float(1 << self.word_bits)

    def floor(self, phantoms: int) -> int:
        """Return alpha_min: the least level m with P(level <= m) >= n_p / (n_p + 1)."""
        least = -(-(phantoms << self.word_bits) // (phantoms + 1))
        return int(np.searchsorted(self._totals, np.uint64(least)))


@dataclass(frozen=True, slots=True)
class PhantomTable:
    """The distribution of the largest level of n_p phantoms.

    Attributes
    ----------
    totals : tuple of int
        V_0 = 0, V_1, ..., V_top = 2^64.
    """

    totals: tuple[int, ...] = field(repr=False)
    _steps: NDArray[np.uint64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_steps", np.array(self.totals[1:-1], dtype=np.uint64))

    def levels(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the levels 1..top of words 0..2^64 - 1; the shape stays."""
        return np.searchsorted(self._steps, words, side="right") + 1


@lru_cache(maxsize=8)
def level_table(gamma: float, word_bits: int = WORD_BITS) -> LevelTable:
    """Compute a user's distribution, in integers.

    Parameters
    ----------
    gamma : float
        Levels are geometric with parameter gamma / (1 + gamma).
    word_bits : int
        At most 32; fewer only make sense for tests that enumerate all words.

    Raises
    ------
    ConfigError
        Gamma is out of range.
    """
    low, high = GAMMAS
    if not low <= gamma <= high:
        raise ConfigError(f"vertical-dp.gamma: expected a number from 2^-12 to {high:g}, got {gamma}")
    if not 1 <= word_bits <= WORD_BITS:
        raise ConfigError(f"expected words of 1 to {WORD_BITS} bits, got {word_bits}")
    ratio = 1 / (1 + Fraction(gamma))
    one = 1 << word_bits
    half = 1 << (_EXTRA_BITS - 1)
    survival = one << _EXTRA_BITS
    totals = [0]
    while totals[-1] < one:
        survival = survival * ratio.numerator // ratio.denominator
        totals.append(one - ((survival + half) >> _EXTRA_BITS))
    return LevelTable(word_bits, tuple(totals))


# A figure of the paper takes turns with twelve numbers of phantoms.
@lru_cache(maxsize=16)
def phantom_table(gamma: float, phantoms: int, word_bits: int = WORD_BITS) -> PhantomTable:
    """Compute the phantoms' distribution, in integers.

    Raises
    ------
    ConfigError
        The number of phantoms is out of range.
    """
    check_phantoms(phantoms)
    totals = level_table(gamma, word_bits).totals
    # Powers rise with the totals: zeros stand first, and levels that no user has repeat the one before.
    zeros = bisect.bisect_left(totals, 1, key=lambda total: _power(total, word_bits, phantoms))
    powers = [0] * zeros
    before = -1
    for total in totals[zeros:]:
        powers.append(powers[-1] if total == before else _power(total, word_bits, phantoms))
        before = total
    return PhantomTable(tuple(powers))


def check_phantoms(phantoms: int) -> None:
    """Refuse a number of phantoms that no table is made for.

    Raises
    ------
    ConfigError
        It is out of range.
    """
    if not 1 <= phantoms <= MAX_PHANTOMS:
        raise ConfigError(
            f"expected 1 to {MAX_PHANTOMS} phantoms per grid cell, got {phantoms}; choose a larger epsilon for the "
            "sketches or fewer rows (vertical-dp.rows)"
        )


@lru_cache(maxsize=8)
def row_epsilon(gamma: float, phantoms: int, word_bits: int = WORD_BITS) -> float:
    """Return the pure epsilon of one joint row, exactly, rounded up to a float.

    Returns
    -------
    float
        At most a part in 10^6 above ln(1 + 1 / n_p) for words of 32 bits.

    Notes
    -----
    Privacy: neighbours differ in one user, counted or not; see the head of this module, also for why the levels below
    those looked at cannot be the worst.
    """
    users, one = level_table(gamma, word_bits), 1 << word_bits
    check_phantoms(phantoms)
    floor = users.floor(phantoms)
    # n - 2^(w - 61), and one more: their quotient is the factor of u in the bound of the head of this module.
    unit = 1 << (_SLACK_BITS - word_bits)
    less = phantoms * unit - 1
    more = less + unit
    most, over = one, users.totals[floor]
    u, here = one, 1 << PHANTOM_BITS
    for a in range(users.top, floor, -1):
        if u * more * over <= most * one * less:
            break
        v = users.totals[a - 1]
        if u == v:
            continue
        below = _power(v, word_bits, phantoms)
        # A ratio of whole numbers; fractions would be brought to lowest terms at each level.
        rise, gap = u * here - v * below, one * (here - below)
        if rise * over > most * gap:
            most, over = rise, gap
        u, here = v, below
    # log1p of a float rounded up; both are within an ulp, and 1 + 2^-50 covers four.
    return math.log1p(float(Fraction(most - over, over))) * (1.0 + 2.0**-50)


def phantoms_for(epsilon: float) -> int:
    """Return n_p = ceil(1 / (e^epsilon' - 1)), the phantoms per grid cell for rows of pure epsilon'.

    Raises
    ------
    ConfigError
        Epsilon' is out of range.
    """
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise ConfigError(f"expected a positive epsilon per row, got {epsilon}; choose a larger --epsilon")
    return max(1, math.ceil(1.0 / math.expm1(min(epsilon, 700.0))))


def _power(total: int, word_bits: int, exponent: int) -> int:
    """Return 2^64 (total / 2^w)^exponent by squaring, rounded down at 192 bits: monotone in total."""
    if total >> word_bits:
        return 1 << PHANTOM_BITS
    base = total << (_POWER_BITS - word_bits)
    result = 1 << _POWER_BITS
    while exponent:
        if exponent & 1:
            result = result * base >> _POWER_BITS
        base = base * base >> _POWER_BITS
        exponent >>= 1
    return result >> (_POWER_BITS - PHANTOM_BITS)
