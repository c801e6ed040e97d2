"""What one client computes in one iteration, on its shares alone (Alg. 1, lines 11 to 15).

With mu_h the sum of the shares of cluster h and |S_h| its size:

- scores: |mu_h|^2 - 2 |S_h| mu_h.x_i, which over |S_h|^2 is |c_h|^2 - 2 c_h.x_i for the centre c_h;
- distances: |mu_h - |S_h| x_i|^2, the same plus |S_h|^2 |x_i|^2.

Both are values of polynomials of degree 2 (l + t - 1) at the client's point, whose sum over beta_1..beta_l is the score
or distance of the points themselves. Clusters without points have no value.

Source: SecFC, §4.1 "Coded center update". Differs from the paper: scores by default, for they need one product less
and never show how far a point lies from a centre; and the masks of `ring/zero_sum.py` are added before they leave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.messages import ValuesFormat
from fastlloyd.ring.field import Elements, Field

_SUM_POINTS = 1 << 13


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters of one assignment that have points.

    Attributes
    ----------
    used : int64 array, shape (c,)
        Their numbers, ascending.
    sizes : int64 array, shape (c,)
        Their numbers of points; public.
    """

    used: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, labels: NDArray[np.int64], k: int) -> Clusters:
        """Count; labels outside 0..k-1 are points in no cluster."""
        counts = np.bincount(labels, minlength=k + 1)[:k].astype(np.int64)
        used = np.flatnonzero(counts)
        return cls(used, counts[used])


@dataclass(slots=True)
class Coder:
    """A client's shares and what it computes from them, a block of points at a time.

    Attributes
    ----------
    field : Field
    elements : float32 array, shape (primes, m, width)
        Shares of all points; residues fit without loss.
    distances : bool
        Values are distances rather than scores.
    """

    field: Field
    elements: NDArray[np.float32] = dataclasses.field(repr=False)
    distances: bool

    def sums(self, labels: NDArray[np.int64], clusters: Clusters, k: int) -> Elements:
        """Give the shares of the clusters' sums, shape (primes, c, width)."""
        total = self.field.zeros((k, self.elements.shape[2]))
        for start in range(0, len(labels), _SUM_POINTS):
            rows = slice(start, start + _SUM_POINTS)
            total += self.field.group_sums(self._block(rows), labels[rows], k)
        return self.field.reduce(total)[:, clusters.used]

    def answer(self, labels: NDArray[np.int64], k: int, mask: Callable[[int, tuple[int, ...]], Elements]) -> bytes:
        """Give the masked coded value of each cluster in use and each point.

        Parameters
        ----------
        labels : int64 array, shape (m,)
        k : int
        mask : callable
            Number of a block and its shape to the mask, which is never used again.

        Returns
        -------
        bytes
            Field elements, block by block (`ValuesFormat`).
        """
        ring, clusters = self.field, Clusters.of(labels, k)
        sums = self.sums(labels, clusters, k)
        norms = ring.squared_norms(sums)[..., None]
        linear = ring.multiply(sums, ring.encode(-2 * clusters.sizes)[..., None])
        squares = ring.encode(clusters.sizes**2)[..., None]
        parts = []
        for number, rows in enumerate(ValuesFormat(ring, len(clusters.used), len(labels)).blocks):
            points = self._block(rows)
            # Sums of at most four residues: small enough to reduce once, at the end.
            values = ring.matmul(linear, points.transpose(0, 2, 1))
            values += norms
            if self.distances:
                values += ring.multiply(squares, ring.squared_norms(points)[:, None, :])
            values += mask(number, values.shape[1:])
            parts.append(ring.to_bytes(ring.reduce(values)))
        return b"".join(parts)

    def _block(self, rows: slice) -> Elements:
        """Give the shares of some points in float64, as all arithmetic is."""
        return self.elements[:, rows].astype(np.float64)
