"""A client's own records as a run uses them: scaled, in memory or in an unnamed file.

The rows of the file that they come from go with them: the owner needs them to join labels with people.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.data.findings import Findings
from fastlloyd.data.table import MemoryLimit
from fastlloyd.errors import InternalError
from fastlloyd.kmeans.grid import GridPoints, quantise, quantise_stored
from fastlloyd.kmeans.passes import Passes
from fastlloyd.kmeans.stored import Scratch, StoredPasses, StoredRows, release
from fastlloyd.privacy.record_digest import digest_blocks, keyed_digest

_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """The rows behind a party's records; stays with the owner.

    Attributes
    ----------
    raw_records : int64 array, shape (rows,), or None
        The record that a row is part of, from 0; -1 for a row that was dropped. None: row i is record i, or `raw_kept`
        says more.
    raw_kept : bool array, shape (rows,), or None
        Which rows are records, in their order: the same in an eighth of the memory where no rows are merged.
    raw_numbers : int64 array, shape (rows,), or None
        Each row's number in its file, from 1 and without the header. None: 1, 2, ..
    raw_ids : iterable of str, as many as rows, or None
        The owner's names for them; iterated more than once.
    """

    raw_records: NDArray[np.int64] | None = field(default=None, repr=False)
    raw_kept: NDArray[np.bool_] | None = field(default=None, repr=False)
    raw_numbers: NDArray[np.int64] | None = field(default=None, repr=False)
    raw_ids: Iterable[str] | None = field(default=None, repr=False)

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
        rows = next((len(own) for own in (self.raw_records, self.raw_kept) if own is not None), len(raw_labels))
        labels = self._labels(raw_labels, rows)
        numbers = range(1, rows + 1) if self.raw_numbers is None else self.raw_numbers.tolist()
        columns = [numbers, labels] if self.raw_ids is None else [numbers, self.raw_ids, labels]
        return zip(*columns, strict=True)

    def _labels(self, raw_labels: NDArray[np.int64], rows: int) -> Iterator[int | str]:
        """Yield each row's label, block by block: one list would take several times the labels' memory."""
        done = 0
        for start in range(0, rows, _BLOCK_ROWS):
            block = slice(start, min(start + _BLOCK_ROWS, rows))
            if self.raw_records is not None:
                records = self.raw_records[block]
                there = records >= 0
                found = raw_labels[records[there]]
            elif self.raw_kept is not None:
                there = self.raw_kept[block]
                found = raw_labels[done : done + int(there.sum())]
                done += len(found)
            else:
                yield from raw_labels[block].tolist()
                release(raw_labels)
                continue
            labels = iter(found.tolist())
            yield from (next(labels) if own else "" for own in there.tolist())
            release(raw_labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecords(ABC):
    """A client's own records, wherever they are.

    Attributes
    ----------
    names : tuple of str
    bounds : Bounds
        Matched to the features.
    raw_rows : RawRows
        The rows of the file that they come from, for the owner's labels.
    threads : int
        For passes over them.
    findings : Findings
        What to say of the records, to their owner only.
    shared : bytes
        What all clients must have the same and the server must not see, such as the digest of an earlier result.
    """

    names: tuple[str, ...]
    bounds: Bounds
    raw_rows: RawRows = field(default_factory=RawRows, repr=False)
    threads: int = 1
    findings: Findings = field(default_factory=Findings, repr=False)
    shared: bytes = field(default=b"", repr=False)

    @abstractmethod
    def digest(self, key: bytes) -> str:
        """Return a keyed digest of everything that a resumed run must find unchanged; never sent."""

    @abstractmethod
    def quantise(self, fraction_bits: int) -> GridPoints:
        """Round the points to the grid of 2^-q; can be called once, because it uses up points in a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRecords(ClientRecords):
    """A client's own records in memory, scaled to [-1, 1].

    Attributes
    ----------
    raw_points : float64 array, shape (n, d)
    raw_texts : mapping of str to sequence of str
        Columns of the file that the protocol reads as text, row by row.
    """

    raw_points: NDArray[np.float64] = field(repr=False)
    raw_texts: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    def digest(self, key: bytes) -> str:
        """Return a keyed digest of everything that a resumed run must find unchanged; never sent."""
        return keyed_digest(key, self.raw_points)

    def quantise(self, fraction_bits: int) -> GridPoints:
        """Put the points on the grid of 2^-q."""
        return quantise(self.raw_points, fraction_bits, Passes(self.threads))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecords(ClientRecords):
    """A client's own records in an unnamed file, because they exceed the memory limit.

    Attributes
    ----------
    stored : StoredRows
        In original units.
    limit : MemoryLimit
    """

    stored: StoredRows = field(repr=False)
    limit: MemoryLimit

    def digest(self, key: bytes) -> str:
        """Return the digest that the same records would have in memory."""
        blocks = (scale(block, self.bounds, out=block) for block in self.stored.blocks())
        return digest_blocks(key, np.dtype(np.float64), (len(self.stored), self.stored.width), blocks)

    def quantise(self, fraction_bits: int) -> GridPoints:
        """Put the points on the grid of 2^-q, into another file; the first one shrinks as that grows."""
        if not len(self.stored):
            raise InternalError("records in a file were quantised twice")
        blocks = ((start, scale(block, self.bounds, out=block)) for start, block in self.stored.drain())
        folder = self.limit.folder
        passes = StoredPasses(self.threads, folder, self.limit.memory)
        return quantise_stored(
            blocks, (len(self.stored), self.stored.width), fraction_bits, passes=passes, scratch=Scratch(folder)
        )
