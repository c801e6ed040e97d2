"""One client's computation in one round, on its shares alone (Alg. 1, lines 11 to 13).

All results are values of polynomials of degree 2 (l + t - 1) at the client's point, whose sum over beta_1..beta_l is
that of the points themselves: all clients know the same sizes, factors and signs, and the noise is added as a constant
polynomial (`field/zero_sum.py`).

Source: SecFC, §4.1 "Coded center update". Differs from the paper: instead of distances, masked differences of them
leave a client (`signs.py`, `masks.py`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.lagrange import Code
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.protocols.secfc.field.residue import reduce_rows
from fastlloyd.protocols.secfc.field.zero_sum import constant_with_sum
from fastlloyd.protocols.secfc.math.differences import Differences, Scores
from fastlloyd.protocols.secfc.math.masks import RoundMasks
from fastlloyd.protocols.secfc.math.signs import SignMasks
from fastlloyd.protocols.secfc.math.tournament import FilledClusters
from fastlloyd.protocols.secfc.messages import blocks

# Coordinates that are held as float64 at a time: they fit the cache.
_COORDINATES = 1 << 17


@dataclass(slots=True)
class Coder:
    """A client's shares and its computations on them, a block of points at a time.

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

    @property
    def records(self) -> int:
        """M."""
        return int(self.elements.shape[1])

    def sums(self, labels: NDArray[np.int64], clusters: FilledClusters, k: int) -> Elements:
        """Return the shares of the clusters' sums, shape (primes, c, width) (line 11)."""
        total = self.field.zeros((k, self.elements.shape[2]))
        for rows in self._pieces():
            total += self.field.group_sums(self._points(rows), labels[rows], k)
        return self.field.reduce(total)[:, clusters.used]

    def scores(self, labels: NDArray[np.int64], clusters: FilledClusters, k: int) -> Scores:
        """Return the scores for one iteration's comparisons: line 13 without |x|^2, which all centres share."""
        ring, sums = self.field, self.sums(labels, clusters, k)
        norms = ring.squared_norms(sums)[..., None]
        linear = ring.multiply(sums, ring.encode(-2 * clusters.sizes)[..., None])
        elements = np.empty((len(ring.primes), len(clusters.used), len(labels)), dtype=np.float32)
        for rows in self._pieces():
            products = ring.matmul(linear, self._points(rows).transpose(0, 2, 1))
            # Sums of two residues: below 2^24.
            np.add(products, norms, out=elements[:, :, rows], casting="same_kind")
        return Scores(clusters.sizes, elements)

    def distances(self, point: int) -> NDArray[np.float32]:
        """Return the shares of the squared distances of all points from one of them, shape (primes, m)."""
        ring = self.field
        chosen = self._points(slice(point, point + 1))
        found = np.empty((len(ring.primes), self.records), dtype=np.float32)
        for rows in self._pieces():
            found[:, rows] = ring.squared_norms(ring.subtract(self._points(rows), chosen))
        return found

    def mask(
        self,
        differences: Differences,
        order: NDArray[np.int64],
        secrets: SignMasks,
        masks: RoundMasks,
        dummies: NDArray[np.int64],
    ) -> bytes:
        """Return the masked values of some comparisons (`signs.py`).

        Parameters
        ----------
        differences : Differences
        order : int64 array, shape (count,)
            In which the values are sent.
        secrets : SignMasks
            `masks.signs` for `count` values.
        masks : RoundMasks
            Never used again.
        dummies : int64 array, shape (count,)
            Where 0 or more, two to that power replaces the difference.

        Returns
        -------
        bytes
            Field elements.
        """
        ring = self.field
        rows = np.empty(len(order), dtype=ring.row_type)
        for number, block in enumerate(blocks(len(order))):
            values = masks.sums((block.stop - block.start,), number)
            factors, noise = secrets.elements(ring, block)
            hidden = np.flatnonzero(dummies[block] >= 0)
            if len(hidden):
                noise[:, hidden] += ring.multiply(factors[:, hidden], ring.powers_of_two(dummies[block][hidden]))
                noise = ring.reduce(noise)
                factors[:, hidden] = 0.0
            values += constant_with_sum(self.code, noise)
            # Masks, noise, and residues times factors: below 2^51 + 2^48 + 2^47.
            differences.add(values, block, factors)
            ring.write_rows(reduce_rows(values, ring.primes), out=rows[block])
        # Whole rows: moving the residues of each prime into that order would read memory at random for each of them.
        return np.take(rows, order).tobytes()

    def _pieces(self) -> list[slice]:
        """Return the slices of points for one computation each."""
        primes, records, width = self.elements.shape
        height = max(1, _COORDINATES // (primes * width))
        return [slice(start, start + height) for start in range(0, records, height)]

    def _points(self, rows: slice) -> Elements:
        """Return the shares of some points in float64, as all arithmetic is."""
        return self.elements[:, rows].astype(np.float64)
