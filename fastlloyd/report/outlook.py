"""What to expect of a run before it happens, and the nearest settings that would be good.

All of it comes from public numbers, by planning other runs.

Source: docs/guide.md, "What to expect".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fastlloyd.errors import FastLloydError
from fastlloyd.privacy.limits import MOST_EPSILON
from fastlloyd.report.expected import Expected


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
