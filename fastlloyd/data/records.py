"""A client's own records as a run takes them: scaled, in memory or in a file without a name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.data.rows import RawRows
from fastlloyd.data.table import MemoryLimit
from fastlloyd.errors import InternalError
from fastlloyd.kmeans.grid import GridPoints, quantise, quantise_stored
from fastlloyd.kmeans.passes import Passes
from fastlloyd.kmeans.stored import Scratch, StoredPasses, StoredRows
from fastlloyd.privacy.record_digest import digest_blocks, keyed_digest


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
    clipped : str
        What to say to the owner of values outside of the bounds, and to nobody else; '' for nothing.
    """

    names: tuple[str, ...]
    bounds: Bounds
    raw_rows: RawRows = field(default_factory=RawRows, repr=False)
    threads: int = 1
    clipped: str = field(default="", repr=False)

    @abstractmethod
    def digest(self, key: bytes) -> str:
        """Return a keyed digest of everything that a resumed run must find unchanged; never sent."""

    @abstractmethod
    def quantise(self, fraction_bits: int) -> GridPoints:
        """Put the points on the grid of 2^-q; once, for points in a file are used up by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRecords(ClientRecords):
    """A client's own records in memory, scaled to [-1, 1].

    Attributes
    ----------
    raw_points : float64 array, shape (n, d)
    raw_texts : mapping of str to sequence of str
        Columns of the file that its protocol asked for as text, row by row.
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
    """A client's own records in a file without a name, for they are more than memory may hold.

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
