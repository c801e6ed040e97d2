"""What to expect of a run before it happens, and the nearest settings of which more could be expected.

All of it from public numbers, by making the plans of other runs.

Source: docs/guide.md, "What to expect".
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fastlloyd.errors import FastLloydError
from fastlloyd.privacy.limits import MOST_EPSILON
from fastlloyd.report.expected import MEND, Expected

Expect = Callable[[int, float, int], Expected]
"""Clusters, epsilon and N to what the plan of such a run expects."""

_MOST_RECORDS = 1 << 30
_STEPS = 5


def outlook_line(expect: Expect, *, k: int, epsilon: float, n_total: int, fixed_n: bool = False) -> str:
    """Return one line for a plan: what to expect, and where it is not good, what would be.

    Parameters
    ----------
    expect : callable
        Clusters, epsilon and N to `Expected`; what it refuses with a `FastLloydError` is no good setting.
    k, epsilon, n_total
        Of the plan.
    fixed_n : bool
        N is what a public data set holds: there are no more records to be had.
    """
    found = expect(k, epsilon, n_total)
    line = f"expected: {found.sentence}"
    if found.verdict in ("good", "exact", "unknown") or found.centre_noise is None:
        return line

    def good(k: int, epsilon: float, n_total: int) -> bool:
        try:
            return expect(k, epsilon, n_total).verdict == "good"
        except FastLloydError:
            return False

    more = _least(lambda value: good(k, value, n_total), epsilon, MOST_EPSILON)
    records = None if fixed_n else _least(lambda value: good(k, epsilon, math.ceil(value)), n_total, _MOST_RECORDS)
    fewer = next((count for count in _fewer(k) if good(count, epsilon, n_total)), None)
    ways = [
        *([] if fewer is None else [f"k = {fewer}"]),
        *([] if more is None else [f"epsilon {more:g}"]),
        *([] if records is None else [f"N = {math.ceil(records):,}"]),
    ]
    if not ways:
        return f"{line}; no other number of clusters, epsilon or N alone would make it good"
    return f"{line.removesuffix(f'; {MEND}')}; good would be {' or '.join(ways)}, the rest as it is"


def _fewer(k: int) -> list[int]:
    """Return smaller numbers of clusters down to two, the nearest first: at first each, then in ever larger steps."""
    near, far = {k - step for step in range(1, 17)}, {k // 2**step for step in range(1, 14)}
    return sorted((count for count in near | far if count >= 2), reverse=True)


def _least(good: Callable[[float], bool], start: float, most: float) -> float | None:
    """Return about the least value above `start` that is good, with two digits; None up to `most`."""
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
