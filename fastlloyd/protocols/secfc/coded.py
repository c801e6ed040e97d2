"""What one client computes in one round, on its shares alone (Alg. 1, lines 11 to 15).

In Lloyd's rounds these are the values of `signs.py`, in the rounds of the separated start squared distances from the
one chosen point. Both are values of polynomials of degree 2 (l + t - 1) at the client's point, whose sum over
beta_1..beta_l is that of the points themselves: sizes, factors and signs are known to all clients and the same for all
of them, and the noise is added as a constant polynomial (`ring/zero_sum.py`).

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
from fastlloyd.protocols.secfc.messages import blocks
from fastlloyd.ring.field import Elements, Field
from fastlloyd.ring.lagrange import Code
from fastlloyd.ring.zero_sum import constant_with_sum

_SUM_POINTS = 1 << 13
# Up to so many pairs of clusters have their coefficients computed, whether or not they are compared.
_ALL_PAIRS = 1 << 14


@dataclass(frozen=True, slots=True)
class Centers:
    """Shares of one assignment's centres, as far as comparisons need them.

    Attributes
    ----------
    sizes : int64 array, shape (c,)
    norms : float64 array, shape (primes, c)
        Shares of the sums' squared norms.
    products : float32 array, shape (primes, c, m)
        Shares of inner products of sums and points; residues fit without loss.
    """

    sizes: NDArray[np.int64]
    norms: Elements = dataclasses.field(repr=False)
    products: NDArray[np.float32] = dataclasses.field(repr=False)


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

    def centers(self, labels: NDArray[np.int64], clusters: Clusters, k: int) -> Centers:
        """Return what the comparisons of one iteration need."""
        ring, sums = self.field, self.sums(labels, clusters, k)
        products = np.empty((len(ring.primes), len(clusters.used), len(labels)), dtype=np.float32)
        for rows in blocks(len(labels)):
            products[:, :, rows] = ring.matmul(sums, self._points(rows).transpose(0, 2, 1))
        return Centers(clusters.sizes, ring.squared_norms(sums), products)

    def compare(
        self,
        centers: Centers,
        earlier: NDArray[np.int64],
        later: NDArray[np.int64],
        order: NDArray[np.int64],
        masks: RoundMasks,
    ) -> bytes:
        """Return the masked values of some comparisons.

        Parameters
        ----------
        centers : Centers
        earlier, later : int64 array, shape (pairs, m)
            Places of the clusters compared.
        order : int64 array, shape (pairs * m,)
            In which the values are sent.
        masks : RoundMasks
            Never used again.

        Returns
        -------
        bytes
            Field elements, block by block.
        """
        ring = self.field
        exact = np.empty((len(ring.primes), *earlier.shape), dtype=np.float32)
        for row, (first, second) in enumerate(zip(earlier, later, strict=True)):
            exact[:, row] = self._differences(centers, first, second)
        exact = exact.reshape(len(ring.primes), -1)
        secrets = masks.signs(len(order))
        parts = []
        for number, block in enumerate(blocks(len(order))):
            values = np.take(exact, order[block], axis=1) * ring.encode(secrets.factors[block])
            values += constant_with_sum(self.code, secrets.noise[block])
            values += masks.sums(values.shape[1:], number)
            parts.append(ring.to_bytes(ring.reduce(values)))
        return b"".join(parts)

    def _differences(self, centers: Centers, first: NDArray[np.int64], second: NDArray[np.int64]) -> Elements:
        """Return the shares of D for one pair of clusters for each point, shape (primes, m)."""
        ring = self.field
        if (first == first[0]).all() and (second == second[0]).all():
            # The first message of an iteration: the same two clusters for all points.
            constant, of_first, of_second = self._coefficients(centers, first[:1], second[:1])
            ours, theirs = centers.products[:, first[0]], centers.products[:, second[0]]
        else:
            constant, of_first, of_second = self._coefficients(centers, first, second)
            points, products = np.arange(len(first)), centers.products.reshape(len(ring.primes), -1)
            ours, theirs = (np.take(products, place * len(first) + points, axis=1) for place in (first, second))
        # Two products of residues and one residue: below 2^48, so reduced once.
        return ring.reduce(of_first * ours + of_second * theirs + constant)

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

    def _coefficients(
        self, centers: Centers, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[Elements, Elements, Elements]:
        """Return what D is made of: the constant, the factors of mu_h.x and mu_g.x, shape (primes, values) each."""
        ring, count = self.field, len(centers.sizes)
        pairs = first * count + second
        if count**2 <= _ALL_PAIRS:
            codes, places = np.arange(count**2), pairs
        else:
            codes, places = np.unique(pairs, return_inverse=True)
        h, g = codes // count, codes % count
        common = np.gcd(centers.sizes[h], centers.sizes[g])
        own, other = centers.sizes[g] // common, centers.sizes[h] // common
        ours, theirs = ring.encode(own), ring.encode(other)
        twice = ring.encode(2 * own * centers.sizes[h])
        constant = ring.subtract(
            ring.multiply(ring.multiply(theirs, theirs), centers.norms[:, g]),
            ring.multiply(ring.multiply(ours, ours), centers.norms[:, h]),
        )
        of_first, of_second = ring.multiply(twice, ours), ring.multiply(-twice, theirs)
        return (
            np.take(constant, places, axis=1),
            np.take(of_first, places, axis=1),
            np.take(of_second, places, axis=1),
        )

    def _points(self, rows: slice) -> Elements:
        """Return the shares of some points in float64, as all arithmetic is."""
        return self.elements[:, rows].astype(np.float64)
