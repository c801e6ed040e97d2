"""The parts of a client's noise, and which of them are taken off once the set of a round is known.

Part 0 has variance s^2 / (M - t) and always stays: it is the share of `privacy/shares.py`, what each client would add
if nobody could be lost. The other parts have s^2 / (T - t) - s^2 / (M - t) together. With u clients in the set, each of
them takes parts off so that it keeps R(u) >= s^2 / (u - t): all together u R(u), without any t of them at least s^2.

Up to 32 clients there is one part for each client that may be lost, v_j = s^2 / ((M - j + 1 - t) (M - j - t)), and with
l lost the parts after l are taken off: R(u) = s^2 / (u - t) by a telescoping sum. Beyond 32 the parts are binary: with
B = ceil(log2 D) and w the 2^B-th part of what is to be divided, w, w, 2 w, 4 w, .., 2^(B - 1) w, of which those are
taken off that add up to the largest multiple of w that may go.

Nothing is random here: all variances are rational numbers. Of Laplace noise part j is a difference of Polya variables
of shape v_j / s^2; shapes add up exactly, and so do variances.

Source: docs/privacy.md, "Noise in shares"; binary parts: "Dordis" (EuroSys 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.masking.threshold.numbers import Numbers

MOST_SINGLE = 32
"""Up to this number of clients there is one part for each client that may be lost; beyond it, parts are binary."""
LEAST_VARIANCE = 25
"""Of each part of Gaussian noise, in squared grid units: 5 of them, as of a share (`privacy/release.py`)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one release's noise.

    Parameters
    ----------
    numbers : Numbers
    variance : Fraction
        s^2, what must remain without the parts of any t clients, in squared grid units.
    laplace : bool
        The noise is a discrete Laplace variable and the parts are Polya differences; no part is too small then.

    Raises
    ------
    ConfigError
        A part of Gaussian noise has a variance below 25: the proof needs parts of at least 5 grid units.
    """

    numbers: Numbers
    variance: Fraction
    laplace: bool = False

    def __post_init__(self) -> None:
        if self.variance <= 0:
            raise ConfigError(f"expected noise of positive variance, got {self.variance}; check epsilon and delta")
        least = min(self.variances)
        if not self.laplace and least < LEAST_VARIANCE:
            raise ConfigError(
                f"masking = 'threshold': the smallest of the {len(self.variances)} parts of a client's noise has a "
                f"standard deviation of {math.sqrt(least):.3g} grid units, expected at least "
                f"{math.isqrt(LEAST_VARIANCE)}; set ring_bits = 64, or lower epsilon where it is set"
            )

    @property
    def shapes(self) -> tuple[Fraction, ...]:
        """Each part's v_j / s^2, part 0 first: of Laplace noise the shape of its Polya variables."""
        return _shapes(self.numbers)

    @property
    def variances(self) -> tuple[Fraction, ...]:
        """v_0, v_1, .., each part's variance in squared grid units."""
        return tuple(self.variance * shape for shape in self.shapes)

    def taken_off(self, included: int) -> tuple[int, ...]:
        """Return the parts that each client in the set takes off, in ascending order: those of its excess X(u).

        Parameters
        ----------
        included : int
            u, the clients in the set, from T to M.

        Raises
        ------
        InternalError
            No such set can be opened.
        """
        M, T, t = self.numbers.clients, self.numbers.threshold, self.numbers.known
        if not T <= included <= M:
            raise InternalError(f"expected {T} to {M} clients in the set, got {included}")
        count = len(self.shapes)
        if M <= MOST_SINGLE or count == 1:
            return tuple(range(M - included + 1, count))
        units = math.floor((Fraction(1, T - t) - Fraction(1, included - t)) / self.shapes[1])
        if units == 0:
            return ()
        return (1, *(j for j in range(2, count) if units - 1 >> j - 2 & 1))

    def kept(self, included: int) -> Fraction:
        """Return R(u), the variance of what each client in the set keeps: at least s^2 / (u - t)."""
        return self.variance / (self.numbers.threshold - self.numbers.known) - self.left_in(included)

    def left_in(self, included: int) -> Fraction:
        """Return the variance of the excess, which a client in the set leaves in the sum if it does not open it."""
        return self.variance * sum(self.shapes[j] for j in self.taken_off(included))

    def total(self, included: int, silent: int = 0) -> Fraction:
        """Return the variance of all noise in a round's sum.

        Parameters
        ----------
        included : int
            u, the clients in the set.
        silent : int
            Those of them whose excess was not opened.
        """
        return included * self.kept(included) + silent * self.left_in(included)


@lru_cache(maxsize=64)
def _shapes(numbers: Numbers) -> tuple[Fraction, ...]:
    """Return v_j / s^2 of each part."""
    M, T, t, D = numbers.clients, numbers.threshold, numbers.known, numbers.lost
    first = Fraction(1, M - t)
    if M <= MOST_SINGLE or D == 0:
        return (first, *(Fraction(1, (M - j + 1 - t) * (M - j - t)) for j in range(1, D + 1)))
    doublings = (D - 1).bit_length()
    unit = (Fraction(1, T - t) - first) / 2**doublings
    return (first, unit, *(unit * 2**j for j in range(doublings)))
