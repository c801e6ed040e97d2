"""The one round of a description: what a client adds, and what comes back.

Source: FastLloyd, §5.3.4, for the masked sum; docs/privacy.md, "Descriptions of clusters", for the vector.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.coding import CodedRecords, Layout
from fastlloyd.describe.estimates import Described

PART = "descriptions"
"""Name of the release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRecords:
    """A client's own records as the round counts them.

    Attributes
    ----------
    raw_labels : int64 array, shape (n,)
        The cluster of each record: the nearest of the released centres.
    coded : CodedRecords
    """

    raw_labels: NDArray[np.int64] = field(repr=False)
    coded: CodedRecords = field(repr=False)


def add_up(layout: Layout, records: LabelledRecords, k: int, fraction_bits: int) -> NDArray[np.int64]:
    """Return what this client's records add, shape (k, width), in units of 2^-q; `Layout` proves its sensitivity."""
    # FastLloyd, §5.3.4: a client's sums, before its mask; the noise comes on top.
    return layout.add_up(records.coded, records.raw_labels, k, fraction_bits)


def profile_csv(lines: Iterable[Described], cell: dict[str, str]) -> str:
    """Return profile.csv: a line for each number; empty cells where too few people are in the cluster for this budget.

    Parameters
    ----------
    lines : iterable of Described
    cell : mapping from text to text
        How names and values are written, so that a spreadsheet runs none of them.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("cluster", "column", "measure", "value", "estimate", "low", "high", "shown"))
    for line in lines:
        numbers = ("" if number is None else f"{number:.6g}" for number in (line.estimate, line.low, line.high))
        table.writerow((line.cluster, cell[line.column], line.measure, cell[line.value], *numbers, line.shown))
    return text.getvalue()
