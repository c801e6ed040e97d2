"""The vector that describes clusters: what each record adds, and how far one record moves it.

For each cluster::

    size | bins of column 1 | .. | bins of column m | half the sum of the scaled values, for each column of numbers

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fastlloyd.describe.columns import DescribedColumn

Placed = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Of one column: the bin and the scaled value of each record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedRecords:
    """Own records as the vector counts them; stays with the owner.

    Attributes
    ----------
    raw_bins : int64 array, shape (n, m)
        The bin of each record in each column.
    raw_scaled : float64 array, shape (n, m_num)
        The scaled value in each column of numbers, in [-1, 1]; 0 where missing.
    """

    raw_bins: NDArray[np.int64] = field(repr=False)
    raw_scaled: NDArray[np.float64] = field(repr=False)

    @classmethod
    def of_no_columns(cls, n: int) -> CodedRecords:
        """Return n records that no column describes."""
        return cls(raw_bins=np.zeros((n, 0), dtype=np.int64), raw_scaled=np.zeros((n, 0)))


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each number of the vector stands.

    Attributes
    ----------
    columns : tuple of DescribedColumn
        Settled.
    """

    columns: tuple[DescribedColumn, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Which columns hold numbers."""
        return tuple(at for at, column in enumerate(self.columns) if column.is_number)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the bins of each column begin, and the half sums after the last."""
        return tuple(accumulate((column.width for column in self.columns), initial=1))

    @property
    def width(self) -> int:
        """How many numbers there are for each cluster."""
        return self.starts[-1] + len(self.numbers)

    @property
    def sensitivity(self) -> float:
        """How far one record more or less moves the vector at most, in the L2 norm: sqrt(1 + m + m_num / 4).

        Notes
        -----
        Privacy: neighbours differ in one record, added or removed. The centres are public, so the cluster of every
        other record, and what it adds, is the same for both. The record itself enters one cluster, the nearest of the
        public centres. Among that cluster's numbers it adds 1 to the size; for each of the m columns 1 to exactly one
        bin, for a missing value has its own; and for each of the m_num columns of numbers half of a scaled value in
        [-1, 1], which is at most 1/2 long, also after it is rounded to the grid, for 1/2 lies on the grid. It adds
        nothing elsewhere. The squares add up to at most 1 + m + m_num / 4, and a record whose values all lie on bounds
        reaches it.
        """
        return math.sqrt(1.0 + len(self.columns) + len(self.numbers) / 4.0)

    def add_up(
        self, records: CodedRecords, raw_labels: NDArray[np.int64], k: int, fraction_bits: int
    ) -> NDArray[np.int64]:
        """Add up over own records.

        Parameters
        ----------
        records : CodedRecords
        raw_labels : int64 array, shape (n,)
            From 0 to k - 1.
        k : int
        fraction_bits : int
            q, at least 1: numbers are on the grid of 2^-q.

        Returns
        -------
        int64 array, shape (k, width)
            In units of 2^-q.
        """
        sums = np.zeros((k, self.width), dtype=np.int64)
        one = 1 << fraction_bits
        sums[:, 0] = np.bincount(raw_labels, minlength=k) * one
        for at, column in enumerate(self.columns):
            places = raw_labels * column.width + records.raw_bins[:, at]
            counted = np.bincount(places, minlength=k * column.width).reshape(k, column.width)
            sums[:, self.starts[at] : self.starts[at] + column.width] = counted * one
        halves = np.rint(records.raw_scaled * (one // 2)).astype(np.int64)
        for at in range(len(self.numbers)):
            np.add.at(sums[:, self.starts[-1] + at], raw_labels, halves[:, at])
        return sums

    def blocks(self, vector: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the bins of each column, shapes (k, B), of a vector of shape (k, width)."""
        return [vector[:, one:other] for one, other in zip(self.starts, self.starts[1:], strict=False)]


def code(columns: Sequence[DescribedColumn], placed: Sequence[Placed]) -> CodedRecords:
    """Put bins and scaled values of all columns together, column by column as `DescribedColumn.place` returned them."""
    numbers = [scaled for column, (_, scaled) in zip(columns, placed, strict=True) if column.is_number]
    n = len(placed[0][0])
    return CodedRecords(
        raw_bins=np.column_stack([raw_bins for raw_bins, _ in placed]),
        raw_scaled=np.column_stack(numbers) if numbers else np.zeros((n, 0)),
    )
