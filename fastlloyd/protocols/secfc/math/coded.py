"""What one client computes in one round, on its shares alone (Alg. 1, lines 11 to 13).

In Lloyd's rounds these are the values of `signs.py`, in the rounds of the separated start squared distances from the
one chosen point. Both are values of polynomials of degree 2 (l + t - 1) at the client's point, whose sum over
beta_1..beta_l is that of the points themselves: sizes, factors and signs are known to all clients and the same for all
of them, and the noise is added as a constant polynomial (`field/zero_sum.py`).

Source: SecFC, §4.1 "Coded center update". Differs from the paper: no distances leave but those of the separated
start; and the masks of `masks.py` are in all that leaves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.field.lagrange import Code
from fastlloyd.field.prime import Elements, Field
from fastlloyd.field.residue import reduce_row, reduce_rows
from fastlloyd.field.zero_sum import constant_with_sum
from fastlloyd.protocols.secfc.math.clusters import Clusters
from fastlloyd.protocols.secfc.math.masks import RoundMasks
from fastlloyd.protocols.secfc.math.signs import SignMasks
from fastlloyd.protocols.secfc.messages import blocks

# Coordinates that are held as float64 at a time: they fit the cache.
_COORDINATES = 1 << 17
# Up to so many pairs of clusters have their coefficients computed, whether or not they are compared.
_ALL_PAIRS = 1 << 14


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


@dataclass(slots=True)
class Coder:
    """A client's shares and what it computes from them, a block of points at a time.

    Attributes
    ----------
    code : Code
    elements : float32 array, shape (primes, m, width)
        Shares of all points; residues fit without loss.
    """

    code: Code
    elements: NDArray[np.float32] = dataclasses.field(repr=False)

    @property
    def field(self) -> Field:
        """The field of the shares."""
        return self.code.field

    def sums(self, labels: NDArray[np.int64], clusters: Clusters, k: int) -> Elements:
        """Return the shares of the clusters' sums, shape (primes, c, width) (line 11)."""
        total = self.field.zeros((k, self.elements.shape[2]))
        for rows in self._pieces():
            total += self.field.group_sums(self._points(rows), labels[rows], k)
        return self.field.reduce(total)[:, clusters.used]

    def scores(self, labels: NDArray[np.int64], clusters: Clusters, k: int) -> Scores:
        """Return what the comparisons of one iteration need: line 13 without |x|^2, which all centres share."""
        ring, sums = self.field, self.sums(labels, clusters, k)
        norms = ring.squared_norms(sums)[..., None]
        linear = ring.multiply(sums, ring.encode(-2 * clusters.sizes)[..., None])
        elements = np.empty((len(ring.primes), len(clusters.used), len(labels)), dtype=np.float32)
        for rows in self._pieces():
            products = ring.matmul(linear, self._points(rows).transpose(0, 2, 1))
            # Sums of two residues: below 2^24.
            np.add(products, norms, out=elements[:, :, rows], casting="same_kind")
        return Scores(clusters.sizes, elements)

    def compare(
        self,
        scores: Scores,
        pairs: tuple[NDArray[np.int64], NDArray[np.int64]],
        order: NDArray[np.int64],
        secrets: SignMasks,
        masks: RoundMasks,
    ) -> bytes:
        """Return the masked values of some comparisons.

        Parameters
        ----------
        scores : Scores
        pairs : two int64 arrays, shape (pairs, m)
            Places of the clusters compared, earlier and later.
        order : int64 array, shape (pairs * m,)
            In which the values are sent.
        secrets : SignMasks
            `masks.signs` of so many values.
        masks : RoundMasks
            Never used again.

        Returns
        -------
        bytes
            Field elements.
        """
        ring = self.field
        rows, differences = np.empty(len(order), dtype=ring.row_type), _Differences(ring, scores, *pairs)
        for number, block in enumerate(blocks(len(order))):
            values = masks.sums((block.stop - block.start,), number)
            values += constant_with_sum(self.code, secrets.noise[block])
            # Masks, noise, and residues times factors: below 2^51 + 2^44 + 2^43.
            differences.add(values, block, secrets.factors[block].astype(np.float64))
            ring.write_rows(reduce_rows(values, ring.primes), out=rows[block])
        # Whole rows: moving the residues of each prime into that order would read memory at random for each of them.
        return np.take(rows, order).tobytes()

    def distances(self, point: int, masks: RoundMasks) -> bytes:
        """Return the masked squared distances of all points from one of them; in the order of the run."""
        ring = self.field
        chosen = self._points(slice(point, point + 1))
        parts = []
        for number, rows in enumerate(blocks(self.elements.shape[1])):
            values = ring.squared_norms(ring.subtract(self._points(rows), chosen))
            values += masks.sums(values.shape[1:], number)
            parts.append(ring.to_bytes(ring.reduce(values)))
        return b"".join(parts)

    def _pieces(self) -> list[slice]:
        """Return which points are computed on at a time."""
        primes, records, width = self.elements.shape
        height = max(1, _COORDINATES // (primes * width))
        return [slice(start, start + height) for start in range(0, records, height)]

    def _points(self, rows: slice) -> Elements:
        """Return the shares of some points in float64, as all arithmetic is."""
        return self.elements[:, rows].astype(np.float64)


class _Differences:
    """The shares of D of some comparisons, numbered pair by pair and in each pair point by point."""

    def __init__(self, ring: Field, scores: Scores, earlier: NDArray[np.int64], later: NDArray[np.int64]) -> None:
        self._ring, count, points = ring, len(scores.sizes), np.arange(scores.elements.shape[2])
        self._scores = scores.elements.reshape(len(ring.primes), -1)
        self._earlier, self._later = ((place * len(points) + points).reshape(-1) for place in (earlier, later))
        pairs = (earlier * count + later).reshape(-1)
        if count**2 <= _ALL_PAIRS:
            codes, self._pairs = np.arange(count**2), pairs
        else:
            codes, self._pairs = np.unique(pairs, return_inverse=True)
        ours, theirs = scores.sizes[codes // count], scores.sizes[codes % count]
        common = np.gcd(ours, theirs)
        # A_h = S_g / gcd, A_g = S_h / gcd.
        of_earlier, of_later = ring.encode(theirs // common), ring.encode(ours // common)
        self._of_earlier = -ring.multiply(of_earlier, of_earlier)
        self._of_later = ring.multiply(of_later, of_later)

    def add(self, values: Elements, block: slice, factors: NDArray[np.float64]) -> None:
        """Add a block of differences times factors, which are below 2^20 in size, to values of as many columns."""
        pairs, earlier, later = self._pairs[block], self._earlier[block], self._later[block]
        for i, p in enumerate(self._ring.primes):
            exact = np.take(self._of_earlier[i], pairs)
            exact *= np.take(self._scores[i], earlier)
            other = np.take(self._of_later[i], pairs)
            other *= np.take(self._scores[i], later)
            # Two products of 23 and 24 bits.
            exact += other
            reduce_row(exact, p)
            exact *= factors
            values[i] += exact
