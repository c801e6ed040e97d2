"""The noise to expect of a plan, graded like a result.

Privacy: public numbers alone.

Source: docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["good", "fair", "poor", "noise", "exact", "unknown"]

PRIOR_VARIANCE = 0.15
"""Assumed variance of a feature on [-1, 1]: between that of a bell curve and a uniform distribution."""
# Limits on the cost of the noise over the cost of k clusters of such features, chosen on generated data:
# docs/report.md, "How the verdict was calibrated".
_GRADES: tuple[tuple[Verdict, float], ...] = (("good", 0.0075), ("fair", 0.03), ("poor", 0.25))
ADVICE = "take fewer clusters or features, more records or a larger epsilon"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The noise that a plan expects, from public numbers alone.

    Attributes
    ----------
    centre_noise : float or None
        Standard deviation of the noise on one coordinate of an average centre, as a share of the feature's range; None
        if the plan does not determine it.
    k, d : int
        Clusters, features.
    least : float or None
        A lower limit of it, if the plan determines only that.
    if_least : str
        When the noise is that low.
    """

    centre_noise: float | None
    k: int
    d: int
    least: float | None = None
    if_least: str = ""

    @property
    def verdict(self) -> Verdict:
        """The grade of the cost of the noise, over the cost of clusters of usual features."""
        if self.centre_noise is not None:
            return self._grade(self.centre_noise)
        return "noise" if self.least is not None and self._grade(self.least) == "noise" else "unknown"

    @property
    def sentence(self) -> str:
        """One sentence without a full stop."""
        return self.finding + (f"; {ADVICE}" if self.verdict in ("poor", "noise") else "")

    @property
    def finding(self) -> str:
        """The sentence without advice."""
        if self.centre_noise is None:
            return self._least_finding()
        grade = "this result would be noise" if self.verdict == "noise" else self.verdict
        return f"noise of {percent(self.centre_noise)} of the range on an average centre: {grade}"

    def _least_finding(self) -> str:
        """Return the finding if at most a lower limit is known."""
        unknown = "how much noise lies on a centre cannot be told before the run"
        if self.least is None:
            return unknown
        head = f"noise of at least {percent(self.least)} of the range on an average centre, {self.if_least}"
        if self.verdict == "noise":
            return f"{head}: this result would be noise"
        return f"{unknown}; {head}: {self._grade(self.least)} at best"

    def _grade(self, centre_noise: float) -> Verdict:
        return grade((2.0 * centre_noise) ** 2, k=self.k, d=self.d)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the report."""
        return {"centre_noise": self.centre_noise, "verdict": self.verdict, "sentence": self.sentence}


def grade(variance: float, *, k: int, d: int) -> Verdict:
    """Return the grade of noise on centres, compared with the variance of a usual feature within k clusters.

    Parameters
    ----------
    variance : float
        Of the noise on one coordinate of a centre, scaled domain.
    """
    cost = variance / (PRIOR_VARIANCE * float(k ** (-2.0 / d)))
    return next((verdict for verdict, most in _GRADES if cost <= most), "noise")


def expect_mean(*, sums: float, counts: float, share: float, k: int, d: int, relative: bool = False) -> Expected:
    """Return the noise to expect on centres that are sums over counts.

    Parameters
    ----------
    sums, counts : float
        Standard deviations of the noise on a sum (scaled domain) and on a count.
    share : float
        Number of records of an average cluster.
    relative : bool
        Whether a sum is one of differences from the centre before, small at the end, and not of whole records.
    """
    squared = 0.0 if relative else PRIOR_VARIANCE
    return Expected(centre_noise=math.sqrt(sums**2 + squared * counts**2) / share / 2.0, k=k, d=d)


def percent(share: float) -> str:
    """Write a share with two digits.

    Examples
    --------
    >>> percent(0.0044), percent(4.789)
    ('0.44 %', '479 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.995 else f"{100 * share:.2g} %"
