r"""Shares of the integers D whose signs are asked for, and how they enter an answer.

A question is a row of comparisons: the earlier of two wins where D >= 0. Every D here is the sum over beta_1..beta_l of
a polynomial of degree at most 2 (l + t - 1). A client computes its value of the polynomial: products of two shares,
times integers that all clients know.

Source: docs/secfc.md, "The arithmetic, byte by byte".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.protocols.secfc.field.residue import reduce_row

# Up to this number of pairs of clusters, all coefficients are computed, whether or not they are compared.
_ALL_PAIRS = 1 << 14


class Differences(Protocol):
    """Shares of the D of some comparisons, in an order that all clients know."""

    @property
    def count(self) -> int:
        """Number of comparisons."""

    def add(self, values: Elements, block: slice, factors: Elements) -> None:
        """Add a block of differences times centred residues, below 2^47 in size, to values of as many columns."""


@dataclass(frozen=True, slots=True)
class Question:
    """Comparisons of one message.

    Attributes
    ----------
    differences : Differences
    last : bool
        Whether they end the step that asks.
    numbers : int64 array, shape (count,), or None
        Numbers of the comparisons (`memory.py`); None where no comparison is asked twice.
    least_bits : int64 array, shape (count,), or None
        log2 of about the least difference of this kind, for the dummies of known ones.
    """

    differences: Differences
    last: bool
    numbers: NDArray[np.int64] | None = None
    least_bits: NDArray[np.int64] | None = None


Step = Generator[Question, NDArray[np.bool_], NDArray[np.int64]]
"""Yields questions, receives where the earlier one wins, and returns an assignment."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Shares of one assignment's scores S_h^2 sigma_h, from which comparisons are made.

    Attributes
    ----------
    sizes : int64 array, shape (c,)
        S_h.
    elements : float32 array, shape (primes, c, m)
        Congruent to |mu_h|^2 - 2 S_h mu_h.x, below 2^24 in size: float32 holds them without loss.
    """

    sizes: NDArray[np.int64]
    elements: NDArray[np.float32] = dataclasses.field(repr=False)


class ScoreDifferences:
    """T^2 (sigma_g - sigma_h) of pairs of clusters h and g and points (`signs.py`), pair by pair, then point by point.

    Parameters
    ----------
    field : Field
    scores : Scores
    earlier, later : int64 arrays, shape (pairs, m)
        Places of the clusters compared.
    """

    def __init__(self, field: Field, scores: Scores, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> None:
        self._field, count, points = field, len(scores.sizes), np.arange(scores.elements.shape[2])
        self._scores = scores.elements.reshape(len(field.primes), -1)
        self._earlier, self._later = ((place * len(points) + points).reshape(-1) for place in (earlier, later))
        pairs = (earlier * count + later).reshape(-1)
        if count**2 <= _ALL_PAIRS:
            codes, self._pairs = np.arange(count**2), pairs
        else:
            codes, self._pairs = np.unique(pairs, return_inverse=True)
        ours, theirs = scores.sizes[codes // count], scores.sizes[codes % count]
        common = np.gcd(ours, theirs)
        # A_h = S_g / gcd, A_g = S_h / gcd.
        # T = S_h A_h; the exponent of a float64 is exact, so all clients have the same one.
        self._least_bits = 2 * (np.frexp((ours * (theirs // common)).astype(np.float64))[1].astype(np.int64) - 1)
        of_earlier, of_later = field.encode(theirs // common), field.encode(ours // common)
        self._of_earlier = -field.multiply(of_earlier, of_earlier)
        self._of_later = field.multiply(of_later, of_later)

    @property
    def count(self) -> int:
        """Pairs times points."""
        return len(self._pairs)

    @property
    def least_bits(self) -> NDArray[np.int64]:
        """The largest even number of bits up to those of T^2, for each of them."""
        bits: NDArray[np.int64] = self._least_bits[self._pairs]
        return bits

    def add(self, values: Elements, block: slice, factors: Elements) -> None:
        """Add a block of them times factors."""
        pairs, earlier, later = self._pairs[block], self._earlier[block], self._later[block]
        for i, p in enumerate(self._field.primes):
            exact = np.take(self._of_earlier[i], pairs)
            exact *= np.take(self._scores[i], earlier)
            other = np.take(self._of_later[i], pairs)
            other *= np.take(self._scores[i], later)
            # Two products of 23 and 24 bits.
            exact += other
            reduce_row(exact, p)
            exact *= factors[i]
            values[i] += exact


class ElementDifferences:
    """Differences that are already computed.

    Parameters
    ----------
    elements : array, shape (primes, count)
        Centred residues: float32 holds them without loss.
    """

    def __init__(self, elements: Elements) -> None:
        self._elements = elements.astype(np.float32)

    @property
    def count(self) -> int:
        """Number of comparisons."""
        return int(self._elements.shape[1])

    def add(self, values: Elements, block: slice, factors: Elements) -> None:
        """Add a block of them times factors."""
        values += self._elements[:, block] * factors


class JoinedDifferences:
    """The differences of several questions, one after the other."""

    def __init__(self, parts: Sequence[Differences]) -> None:
        self._parts = parts

    @property
    def count(self) -> int:
        """Number of all comparisons."""
        return sum(part.count for part in self._parts)

    def add(self, values: Elements, block: slice, factors: Elements) -> None:
        """Add a block of them times factors."""
        start = 0
        for part in self._parts:
            first, last = max(block.start, start), min(block.stop, start + part.count)
            if first < last:
                columns = slice(first - block.start, last - block.start)
                part.add(values[:, columns], slice(first - start, last - start), factors[:, columns])
            start += part.count
