"""What noise to expect of a run before it happens, graded like a result, and the nearest settings that would be good.

All of it comes from public numbers alone, by planning other runs.

Source: docs/guide.md, "Expected error"; docs/report.md, "Quality".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastlloyd.errors import FastLloydError
from fastlloyd.privacy.limits import MOST_EPSILON

Verdict = Literal["good", "fair", "poor", "noise", "exact", "unknown"]

PRIOR_VARIANCE = 0.15
"""Assumed variance of a feature on [-1, 1]: between that of a bell curve and a uniform distribution."""
# Limits on the cost of the noise over the cost of k clusters of such features, chosen on generated data:
# docs/report.md, "How the verdict was calibrated".
_GRADES: tuple[tuple[Verdict, float], ...] = (("good", 0.0075), ("fair", 0.03), ("poor", 0.25))
_OTHER_THAN_PLANNED = (
    "The plan counts with clusters of equal size and as many records as may be; the verdict is about the clusters that "
    "were found: a smaller one has more noise"
)
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
        """The sentence without advice; it may know at most a lower limit."""
        if self.centre_noise is not None:
            grade = "this result would be noise" if self.verdict == "noise" else self.verdict
            return f"noise of {percent(self.centre_noise)} of the range on an average centre: {grade}"
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


def most_for_good(*, k: int, d: int) -> float:
    """Return the largest noise on a centre, as a share of the range, that is graded good."""
    return math.sqrt(_GRADES[0][1] * PRIOR_VARIANCE * float(k ** (-2.0 / d))) / 2.0


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


def planned_words(quality: Mapping[str, Any]) -> str | None:
    """Return what the plan said, and why the verdict is another; None if no plan did, or a warning says it already.

    Parameters
    ----------
    quality : mapping
        The entry of a report.
    """
    expected = quality["expected"]
    if expected is None or any(expected["sentence"] in warning for warning in quality["warnings"]):
        return None
    words = str(expected["sentence"])
    if expected["centre_noise"] is None or expected["verdict"] == quality["verdict"]:
        return words
    return f"{words}. {_OTHER_THAN_PLANNED}"


def percent(share: float) -> str:
    """Write a share with two digits.

    Examples
    --------
    >>> percent(0.0044), percent(4.789)
    ('0.44 %', '479 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.995 else f"{100 * share:.2g} %"


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of a plan, printed as `name: text`; other commands look it up by its name.

    Attributes
    ----------
    name : str
        Such as `expected`; empty for a line that continues the one before.
    text : str
    """

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}" if self.name else self.text


Expect = Callable[[int, float, int], Expected]
"""From clusters, epsilon and N to the noise that the plan of such a run expects."""
Good = Callable[[float], bool]
Search = Callable[[Good], float | None]

_MOST_RECORDS = 1 << 30
_STEPS = 5
_MARGIN = 1.04


def outlook_line(
    expect: Expect, *, k: int, epsilon: float, n_total: int, fixed_n: bool = False, roughly: Expect | None = None
) -> PlanLine:
    """Return the line `expected` of a plan: what to expect and, if that is not good, settings that would be.

    Parameters
    ----------
    expect : callable
        From clusters, epsilon and N to `Expected`; a setting that it refuses with a `FastLloydError` is not good.
    k, epsilon, n_total
        Of the plan.
    fixed_n : bool
        N is the size of a public data set, so no more records are available.
    roughly : callable, optional
        A fast approximation of a slow `expect`: it only chooses where to ask first.
    """
    found = expect(k, epsilon, n_total)
    if found.verdict in ("good", "exact", "unknown") or found.centre_noise is None:
        return PlanLine("expected", found.sentence)

    def settle(search: Search, change: Callable[[float], tuple[int, float, int]]) -> float | None:
        good = _goodness(expect, change)
        return search(good if roughly is None else _asked_near(search, _goodness(roughly, change), good))

    counts = _fewer(k)
    more = settle(lambda good: _least(good, epsilon, MOST_EPSILON), lambda value: (k, value, n_total))
    records = None
    if not fixed_n:
        records = settle(
            lambda good: _least(good, n_total, _MOST_RECORDS), lambda value: (k, epsilon, math.ceil(value))
        )
    fewer = settle(
        lambda good: next(filter(good, range(len(counts))), None), lambda place: (counts[int(place)], epsilon, n_total)
    )
    ways = [
        *([] if fewer is None else [f"k = {counts[int(fewer)]}"]),
        *([] if more is None else [f"epsilon {more:g}"]),
        *([] if records is None else [f"N = {math.ceil(records):,}"]),
    ]
    if not ways:
        return PlanLine(
            "expected", f"{found.sentence}; no other number of clusters, epsilon or N alone would make it good"
        )
    return PlanLine("expected", f"{found.finding}; good would be {' or '.join(ways)}, the rest unchanged")


def _goodness(expect: Expect, change: Callable[[float], tuple[int, float, int]]) -> Good:
    """Return whether a value, put where `change` puts it, makes a run good."""

    def good(value: float) -> bool:
        try:
            return expect(*change(value)).verdict == "good"
        except FastLloydError:
            return False

    return good


def _asked_near(search: Search, likely: Good, good: Good) -> Good:
    """Return `good`, asked first where it probably changes: all values above a good one are good, none below a bad."""
    least_good, most_bad = math.inf, -math.inf

    def asked(value: float) -> bool:
        nonlocal least_good, most_bad
        if most_bad < value < least_good:
            if good(value):
                least_good = value
            else:
                most_bad = value
        return value >= least_good

    for guess, last in ((True, _MARGIN), (False, 1.0 / _MARGIN)):
        for margin in (1.0, last):
            same = [value for value, found in _guess(search, likely, margin).items() if found is guess]
            # A wrong guess is nearly right, so the next one is on the safe side.
            if not same or asked(min(same) if guess else max(same)) is guess:
                break
    return asked


def _guess(search: Search, likely: Good, margin: float) -> dict[float, bool]:
    """Return the values that a search would ask about, with their likely answers if `margin` times more were needed."""
    guesses: dict[float, bool] = {}
    search(lambda value: guesses.setdefault(value, likely(value / margin)))
    return guesses


def _fewer(k: int) -> list[int]:
    """Return smaller numbers of clusters down to two, the nearest first, with growing steps."""
    near, far = {k - step for step in range(1, 17)}, {k // 2**step for step in range(1, 14)}
    return sorted((count for count in near | far if count >= 2), reverse=True)


def _least(good: Callable[[float], bool], start: float, most: float) -> float | None:
    """Return roughly the least good value above `start`, with two digits; None if there is none up to `most`."""
    low, high = start, start
    while not good(high):
        if high >= most:
            return None
        low, high = high, min(2.0 * high, most)
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if good(middle) else (middle, high)
    digits = 10.0 ** (math.floor(math.log10(high)) - 1)
    rounded = min(math.ceil(high / digits) * digits, most)
    return float(f"{rounded:.3g}")
