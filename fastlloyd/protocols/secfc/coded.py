"""What one client computes in one round, on its shares alone (Alg. 1, lines 11 to 15).

In Lloyd's rounds these are the values v_h of `order.py`, in the rounds of the separated start squared distances from
the one chosen point. Both are values of polynomials of degree 2 (l + t - 1) at the client's point, whose sum over
beta_1..beta_l is that of the points themselves: the reference and the scale are public, the factor is known to all
clients and the same for all of them, and the noise is added as a constant polynomial (`ring/zero_sum.py`).

Source: SecFC, §4.1 "Coded center update". Differs from the paper: no distances leave but those of the separated
start; and the masks of `masks.py` are in all that leaves.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.clusters import Clusters
from fastlloyd.protocols.secfc.masks import RoundMasks
from fastlloyd.protocols.secfc.messages import ValuesFormat
from fastlloyd.protocols.secfc.order import Scale
from fastlloyd.ring.field import Elements, Field
from fastlloyd.ring.lagrange import Code
from fastlloyd.ring.zero_sum import constant_with_sum

_SUM_POINTS = 1 << 13


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
        """Return the shares of the clusters' sums, shape (primes, c, width)."""
        total = self.field.zeros((k, self.elements.shape[2]))
        for start in range(0, len(labels), _SUM_POINTS):
            rows = slice(start, start + _SUM_POINTS)
            total += self.field.group_sums(self._points(rows), labels[rows], k)
        return self.field.reduce(total)[:, clusters.used]

    def ordered(self, labels: NDArray[np.int64], k: int, order: NDArray[np.int64], masks: RoundMasks) -> bytes:
        """Return the masked values of each cluster in use but the reference and each point.

        Parameters
        ----------
        labels : int64 array, shape (m,)
        k : int
        order : int64 array, shape (m,)
            In which the points are sent.
        masks : RoundMasks
            Never used again.

        Returns
        -------
        bytes
            Field elements, block by block (`ValuesFormat`).
        """
        ring, clusters = self.field, Clusters.of(labels, k)
        scale = Scale.of(clusters)
        sums = self.sums(labels, clusters, k)
        own = ring.multiply(sums[:, scale.places], ring.encode(scale.own)[..., None])
        other = ring.multiply(sums[:, [scale.reference]], ring.encode(scale.other)[..., None])
        constant = ring.subtract(ring.squared_norms(own), ring.squared_norms(other))[..., None]
        linear = ring.multiply(ring.subtract(own, other), ring.encode(-2 * scale.whole)[..., None])
        parts = []
        for number, rows in enumerate(ValuesFormat(ring, len(scale.places), len(labels)).blocks):
            points = self._points(order[rows])
            order_masks = masks.order(scale, points.shape[1], number)
            # Residues are below 2^23: products with a sum of two of them, and what is added, stay below 2^52.
            values = ring.matmul(linear, points.transpose(0, 2, 1))
            values += constant
            values *= ring.encode(order_masks.factors)[:, None, :]
            values += constant_with_sum(self.code, order_masks.noise)
            values += masks.sums(values.shape[1:], number)
            parts.append(ring.to_bytes(ring.reduce(values)))
        return b"".join(parts)

    def distances(self, point: int, masks: RoundMasks) -> bytes:
        """Return the masked squared distances of all points from one of them; in the order of the run."""
        ring = self.field
        chosen = self._points(slice(point, point + 1))
        parts = []
        for number, rows in enumerate(ValuesFormat(ring, 1, self.elements.shape[1]).blocks):
            away = ring.subtract(self._points(rows), chosen)
            values = ring.squared_norms(away)[:, None, :] + masks.sums((1, away.shape[1]), number)
            parts.append(ring.to_bytes(ring.reduce(values)))
        return b"".join(parts)

    def _points(self, rows: slice | NDArray[np.int64]) -> Elements:
        """Return the shares of some points in float64, as all arithmetic is."""
        return self.elements[:, rows].astype(np.float64)
