r"""What the opened sums reveal about the encryption's errors and the key, and whether the noise hides it.

Besides sums and noise an opened output holds X, a linear form of secret errors and of the key. A party that drew the
other terms may compute with it (a hint). With V the variance of all hints of a run on one kind of secret, of variance v
each, and s^2 that of the noise set aside, the sum of squared norms is B = V / v, and the remaining variance of v is

    1 / (1 / v + 2 B / s^2)  >=  v / 2        if        V <= s^2 / 2.

So one bound serves both errors and key. V grows with the number of openings, and so does s^2 at a given epsilon.

Source: Kim, Lee, Seo and Song, "Toward practical lattice-based proof of knowledge from Hint-MLWE" (2023);
docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastlloyd.errors import RangeError
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE
from fastlloyd.protocols.vertical_he.math.lwe import SWITCH_TAIL, errors_of
from fastlloyd.protocols.vertical_he.parameters import Scales

HINT_SHARE = 2.0**-10
"""Part of each side's noise variance that only floods X; not counted for privacy."""
MOST_HINTED = 0.5
FLOODING = 2.0**10
"""Without differential privacy: noise of each side over the bound on the encryption's errors."""
_SECRET_VARIANCE = 2.0 / 3.0
# The plan's noise is calibrated after the scales are chosen, and may differ by this much.
_SPARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """All that a run opens.

    Attributes
    ----------
    rounds, n, k, d : int
    keys : int
        How many parties share the key; 1 where one has it.
    corners : int
        Of the grid, or landmarks; 0 for the circuit.
    """

    rounds: int
    n: int
    k: int
    d: int
    keys: int
    corners: int

    def hinted(self, scales: Scales) -> float:
        """Return V in squared integer units, the larger of that on errors and that on the key.

        Linear schemes: each corner, or landmark, has one cluster for a record and a weight of at most s_w, so the
        squares of all clusters' weights of one record sum to at most F s_w^2, with F corners; an error under a common
        key is counted as a whole, as if all of it were a form of one kind of secret. Circuit: eight deviations of each
        output are at most `flood`. The switch to fewer bits rounds N numbers by at most half a step, uniformly, each
        times a coefficient of the key. Fresh encryptions of zero are counted for errors and key.
        """
        outputs = self.rounds * self.k * (self.d + 1)
        kind = errors_of(scales.ring, self.keys)
        zeros = outputs * ERROR_VARIANCE * (1.0 + 2.0 * kind.key**2 * scales.ring)
        step = 2.0 ** (scales.prime_bits[0] - scales.wire_bits)
        secret = outputs * scales.ring / 12.0 * step**2 * _SECRET_VARIANCE + zeros
        if self.corners:
            weights = self.corners * 4.0**scales.weight_bits
            errors = self.rounds * (self.d + 1) * self.n * weights * kind.variance + zeros
        else:
            errors = outputs * (scales.flood * scales.unit / SWITCH_TAIL) ** 2
        return max(errors, secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideNoise:
    """One side's noise as the budget requires it, from which the scales are chosen.

    Attributes
    ----------
    counts, sums : float
        Standard deviations on a count and on a sum, in counts, except for rounding; ignored if not private.
    private : bool
        If not, the noise is `FLOODING` times the bound on X.
    openings : Openings
    """

    counts: float
    sums: float
    private: bool
    openings: Openings

    def largest(self, error: float, flood: float) -> float:
        """Return the largest standard deviation of an opened number's noise, in counts, for b and the bound on X.

        Under a common key it holds all parties' noise but that of the opening one.
        """
        one = (1.0 + _SPARE) * (1.0 + error) * max(self.counts, self.sums) if self.private else FLOODING * flood
        return math.sqrt(max(1, self.openings.keys - 1)) * one

    def hides(self, scales: Scales) -> bool:
        """Return whether the part set aside hides X with these scales."""
        least = (1.0 - _SPARE) * min(self.counts, self.sums) if self.private else FLOODING * scales.flood
        return hinted_share(scales, self.openings, least * scales.unit, private=self.private) <= MOST_HINTED


def hinted_share(scales: Scales, openings: Openings, least: float, *, private: bool) -> float:
    """Return V / s^2 for the smaller of the two noises, `least` in integer units."""
    return openings.hinted(scales) / ((HINT_SHARE if private else 1.0) * least**2)


def too_little_noise() -> RangeError:
    """Return the error for a budget whose noise hides no scales' errors."""
    return RangeError(
        "the noise of this epsilon is too small to hide the encryption's errors with any of its parameters: lower "
        "--epsilon"
    )
