"""The one round of a description: what a client adds, and the files that are made of what comes back.

Source: FastLloyd, §5.3.4, for the masked sum; docs/privacy.md, "Descriptions of clusters", for the vector.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.coding import CodedRecords, Layout
from fastlloyd.describe.difference import Difference, Key
from fastlloyd.describe.estimates import Described
from fastlloyd.describe.quality import QualityVector

PART = "descriptions"
"""Name of the release that describes clusters by columns."""
QUALITY = "quality"
"""Name of the release on how good the clusters are."""
PROFILE = (
    *("cluster", "column", "measure", "value", "estimate", "low", "high", "wide_low", "wide_high", "shown"),
    *("rest", "difference_low", "difference_high", "differs"),
)
"""The columns of profile.csv."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRecords:
    """A client's own records as the round counts them.

    Attributes
    ----------
    raw_labels : int64 array, shape (n,)
        The cluster of each record: the nearest of the released centres.
    raw_points : float64 array, shape (n, d)
        Scaled to [-1, 1].
    centers : float64 array, shape (k, d)
        Released, scaled.
    middle : float64 array, shape (d,)
        Of the released centres, by their released sizes.
    coded : CodedRecords
        By bins of the columns; no columns where there are none.
    """

    raw_labels: NDArray[np.int64] = field(repr=False)
    raw_points: NDArray[np.float64] = field(repr=False)
    centers: NDArray[np.float64] = field(repr=False)
    middle: NDArray[np.float64] = field(repr=False)
    coded: CodedRecords = field(repr=False)


def add_up(layout: Layout, records: LabelledRecords, k: int, fraction_bits: int) -> NDArray[np.int64]:
    """Return what this client's records add, shape (k, width), in units of 2^-q; `Layout` proves its sensitivity."""
    # FastLloyd, §5.3.4: a client's sums, before its mask; the noise comes on top.
    return layout.add_up(records.coded, records.raw_labels, k, fraction_bits)


def add_up_quality(vector: QualityVector, records: LabelledRecords, fraction_bits: int) -> NDArray[np.int64]:
    """Return what this client's records add to the quality, shape (5,); `QualityVector` proves its sensitivity."""
    # FastLloyd, §5.3.4, as above.
    return vector.add_up(records.raw_points, records.centers, records.middle, fraction_bits)


def profile_csv(
    lines: Iterable[Described], differences: Mapping[Key, Difference], made_by: Collection[str], cell: Mapping[str, str]
) -> str:
    """Return profile.csv: a line for each number; empty cells where too few people are in the cluster for this budget.

    Parameters
    ----------
    lines : iterable of Described
    differences : mapping from key to Difference
        From `compare`.
    made_by : collection of str
        Columns that made the clusters.
    cell : mapping from text to text
        How names and values are written, so that a spreadsheet runs none of them.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(PROFILE)
    for line in lines:
        key = (line.cluster, line.column, line.measure, line.value)
        difference = None if line.shown == "below" else differences.get(key)
        differs = "made by" if line.column in made_by else ""
        apart: tuple[float | None, ...] = (None,) * 3
        if difference is not None:
            differs = "not shown" if not difference.differs else "more" if difference.low > 0.0 else "less"
            apart = (difference.rest, difference.low, difference.high)
        first = (line.estimate, line.low, line.high, line.wide_low, line.wide_high)
        table.writerow(
            (
                *(line.cluster, cell[line.column], line.measure, cell[line.value]),
                *map(_number, first),
                line.shown,
                *map(_number, apart),
                differs,
            )
        )
    return text.getvalue()


def _number(number: float | None) -> str:
    return "" if number is None else f"{number + 0.0:.6g}"  # without the sign of a negative zero
