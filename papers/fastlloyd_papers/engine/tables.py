"""Summaries of repeated measurements, and tables of them as Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_CONFIDENCE = 0.95
# Student's interval of two values is thirteen standard errors wide: it says nothing.
_LEAST_COUNT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean with the half-width of its 95 % interval (None below three values), median, extremes, count."""

    mean: float
    half_width: float | None
    median: float
    least: float
    largest: float
    count: int

    def text(self, digits: int = 2) -> str:
        """Write mean and half-width: `3.03 ± 0.02`."""
        if self.half_width is None:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ± {self.half_width:.{digits}f}"


def summarise(values: Sequence[float]) -> Summary:
    """Summarise independent repetitions; the interval is Student's.

    Raises
    ------
    ValueError
        There is none: the caller is at fault.
    """
    if not values:
        raise ValueError("expected at least one value, got none")
    half_width = None
    if len(values) >= _LEAST_COUNT:
        half_width = _quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Summary(
        mean=statistics.fmean(values),
        half_width=half_width,
        median=statistics.median(values),
        least=min(values),
        largest=max(values),
        count=len(values),
    )


def welch_half_width(first: tuple[float, int], second: tuple[float, int]) -> float:
    """Return the half-width of the 95 % interval of a difference of two means (Welch, 1947).

    Parameters
    ----------
    first, second : (float, int)
        Standard deviation and number of runs, each at least 2 runs; infinite with fewer.
    """
    if min(first[1], second[1]) < 2:
        return math.inf
    parts = [deviation**2 / count for deviation, count in (first, second)]
    if not sum(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(p**2 / (count - 1) for p, (_, count) in zip(parts, (first, second), strict=True))
    return _quantile(freedom) * math.sqrt(sum(parts))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; the first column is text, the others are figures and stand to the right."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join(["---", *["---:"] * (len(header) - 1)]) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def csv_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Write a table as CSV; None becomes an empty field."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows([["" if value is None else value for value in row] for row in rows])
    return text.getvalue()


def _quantile(freedom: float) -> float:
    """Return the two-sided 95 % quantile of Student's t."""
    from scipy.stats import t

    return float(t.ppf((1.0 + _CONFIDENCE) / 2.0, freedom))
