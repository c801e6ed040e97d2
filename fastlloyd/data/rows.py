"""Which record each row of a party's file went into: what its owner needs to join labels with people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """The rows behind a party's records; stays with the owner.

    Attributes
    ----------
    raw_records : int64 array, shape (rows,), or None
        The record that a row is part of, from 0; -1 for a row that was dropped. None: row i is record i.
    raw_numbers : int64 array, shape (rows,), or None
        Each row's number in its file, from 1 and without the header. None: 1, 2, ..
    raw_ids : tuple of str, length rows, or None
        What the owner calls them.
    """

    raw_records: NDArray[np.int64] | None = field(default=None, repr=False)
    raw_numbers: NDArray[np.int64] | None = field(default=None, repr=False)
    raw_ids: tuple[str, ...] | None = field(default=None, repr=False)

    def label(self, raw_labels: NDArray[np.int64]) -> Iterator[tuple[int | str, ...]]:
        """Return number, id (where there are ids) and label of each row, in the order of the rows.

        Parameters
        ----------
        raw_labels : int64 array, shape (n,)
            Of the records.

        Returns
        -------
        iterator over tuples
            The label of a row that was dropped is empty text.
        """
        labels: list[int | str] = [*raw_labels.tolist(), ""]  # -1 finds the last one
        if self.raw_records is not None:
            labels = [labels[record] for record in self.raw_records.tolist()]
        else:
            labels.pop()
        numbers = range(1, len(labels) + 1) if self.raw_numbers is None else self.raw_numbers.tolist()
        columns = [numbers, labels] if self.raw_ids is None else [numbers, self.raw_ids, labels]
        return zip(*columns, strict=True)
