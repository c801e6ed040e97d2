"""The linear scheme: every count and sum is an inner product of plaintext weights and encrypted shares.

The key holder has one or two columns. It encrypts and sends once each record's shares at the corners of a grid over
these columns (`grid`). In a round the computing party finds the centre nearest to each corner, together with its own
columns of the record. A cluster's count is then the sum of the shares at its corners; its sums are those of the shares
times the corner's place, or times the computing party's own value. No product of ciphertexts is needed. The places of
the corners do not enter the transforms: one transform of weights serves a cluster's count and all its sums of encrypted
columns (`he/exact.py`).

A record whose shares are all replaced by zeros adds nothing: such are the neighbours of the privacy claim.

Source: ours, in place of steps (1) to (3) of Vertical HE, §3; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.frame import seeded
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher, encrypt_integers
from fastlloyd.protocols.vertical_he.he.exact import Prepared, Products, Transformed, Unrounded
from fastlloyd.protocols.vertical_he.he.lattice import Sample
from fastlloyd.protocols.vertical_he.math import grid
from fastlloyd.protocols.vertical_he.math.computer import Computer, Work
from fastlloyd.protocols.vertical_he.plan import Plan

_AT_ONCE = 17
"""Ciphertexts whose products are computed at once: as many as fit the cache."""
_KEPT_BYTES = 1 << 26
"""Of transformed ciphertexts that an engine keeps from round to round; the others are transformed again, which takes a
fifth of the time of their products."""
_MOST_OPEN = 2048
"""Outputs whose sums wait to be rounded: 50 kB each."""


def encrypt_block(
    plan: Plan, context: Context, encrypter: KeyHolder | Refresher, raw_columns: NDArray[np.float64], block: int
) -> list[bytes]:
    """Encrypt the shares of one block, as the key holder.

    Parameters
    ----------
    raw_columns : float64 array, shape (c, n), scaled to [-1, 1]

    Notes
    -----
    Sees: the computing party sees ciphertexts of n records' shares and cannot open them.
    """
    return encrypt_values(plan, context, encrypter, grid.shares(raw_columns[:, plan.rows(block)], plan.grid))


def encrypt_values(
    plan: Plan, context: Context, encrypter: KeyHolder | Refresher, values: NDArray[np.float64]
) -> list[bytes]:
    """Encrypt numbers within [-1, 1], shape (parts, m), one ciphertext for each row."""
    coefficients = np.zeros((len(values), context.degree), dtype=np.int64)
    coefficients[:, : values.shape[1]] = np.rint(values * 2.0**plan.scales.data_bits)
    return encrypt_integers(context, encrypter, coefficients)


class LinearEngine(Computer):
    """Adds up encrypted shares.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's columns, scaled to [-1, 1].
    turns : mapping from block to (number, engines), optional
        Blocks that other engines also have: of these it adds only every n-th cluster, n the number of engines.
    """

    def __init__(
        self, plan: Plan, raw_columns: NDArray[np.float64], *, turns: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        super().__init__(plan, raw_columns)
        self._turns = dict(turns or {})
        self._others = plan.columns(plan.holder)
        at_once = min(plan.corners, _AT_ONCE)
        self._products = Products(self._context, at_once, self._scale)
        self._parts = [slice(start, start + at_once) for start in range(0, plan.corners, at_once)]
        self._blocks: dict[int, Prepared] = {}
        self._kept: dict[tuple[int, int], Transformed] = {}
        self._room = _KEPT_BYTES

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Take one block of encrypted shares."""
        self._blocks[block] = self._prepare(parts)

    def add_up(self, centers: NDArray[np.float64]) -> Work:
        """Add up all loaded blocks: yield the fraction done, return k (d + 1) sums, cluster by cluster."""
        running = Running(self.plan, self._products, (None, *self._others, *self._own))
        for done, block in enumerate(sorted(self._blocks)):
            own = [self.values(centers, block, cluster) for cluster in self._turn(block)]
            for part in self._parts:
                ciphers, labels = self._transformed(block, part), self.labels(centers, block, part)
                for cluster, values in zip(self._turn(block), own, strict=True):
                    running.add(cluster, ciphers, labels == cluster, self.factors(part), values)
            yield (done + 1) / len(self._blocks)
        return running.finish()

    def labels(self, centers: NDArray[np.float64], block: int, part: slice) -> NDArray[np.int16]:
        """Return the cluster of each of some corners, for each record of a block; int16, shape (corners, m)."""
        own = self._columns[:, self.plan.rows(block)]
        pulls = grid.pulls(self._places(part), centers[:, list(self._others)])
        return grid.nearest(partial_scores(centers, own, self._own), pulls)

    def values(self, centers: NDArray[np.float64], block: int, cluster: int) -> NDArray[np.float64]:
        """Return the integer weights of a block's records in a cluster's sums of own columns, shape (d_own, m)."""
        own = self._columns[:, self.plan.rows(block)]
        if self.plan.stepping:
            own = short_steps(own, centers[cluster, list(self._own)], self.plan.radius)
        return np.rint(own * self._scale)

    @property
    def _scale(self) -> float:
        return float(2.0**self.plan.scales.weight_bits)

    def _places(self, part: slice) -> NDArray[np.float64]:
        """Return the places of some corners, shape (corners, axes)."""
        return grid.places(self.plan.grid, self.plan.axes)[part]

    def factors(self, part: slice) -> NDArray[np.float64]:
        """Return the integer weights of corners in counts and sums of encrypted columns, shape (1 + c, corners)."""
        places = self._places(part)
        return np.concatenate((np.ones((1, len(places))), places.T)) * self._scale

    def _turn(self, block: int) -> range:
        """Return the clusters that this engine adds up for a block."""
        number, engines = self._turns.get(block, (0, 1))
        return range(number, self.plan.k, engines)

    def _prepare(self, parts: Sequence[bytes]) -> Prepared:
        """Read ciphertexts of the key holder; raise ValueError if one does not fit."""
        half = seeded(self.plan, self.plan.holder)
        return self._products.prepare([self._context.load_ciphertext(part, seeded=half) for part in parts])

    def _transformed(self, block: int, part: slice) -> Transformed:
        """Return some of a block's ciphertexts in the form for products."""
        found = self._kept.get((block, part.start))
        if found is None:
            found = self._products.transform(self._blocks[block], part)
            if found.size <= self._room:
                self._kept[block, part.start] = found
                self._room -= found.size
        return found


class Running:
    """Sums of all clusters over many ciphertexts, rounded as seldom as possible.

    Parameters
    ----------
    plan : Plan
    products : Products
    columns : sequence of int or None
        The column that each output of a product sums; None for the count.
    """

    def __init__(self, plan: Plan, products: Products, columns: Sequence[int | None]) -> None:
        self._plan, self._products = plan, products
        self._places = np.array([0 if column is None else 1 + column for column in columns])
        self._open: dict[int, tuple[Unrounded, int]] = {}
        self._most = products.most if plan.outputs <= _MOST_OPEN else 0
        degree = plan.scales.ring
        self._sums = Sample(np.zeros(plan.outputs, np.int64), np.zeros((plan.outputs, degree), np.int64))

    def add(
        self,
        cluster: int,
        ciphers: Transformed,
        mask: NDArray[np.bool_],
        factors: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        others: Sequence[Transformed] = (),
    ) -> None:
        """Add products to a cluster's sums; see `Products.add`."""
        sums, count = self._open.get(cluster) or (self._products.zeros(len(self._places)), 0)
        self._products.add(sums, ciphers, mask, factors, values, others=others)
        self._open[cluster] = sums, count + len(mask)
        if count + 2 * len(mask) > self._most:
            self._close(cluster)

    def finish(self) -> Sample:
        """Return k (d + 1) sums, cluster by cluster."""
        for cluster in list(self._open):
            self._close(cluster)
        return self._sums

    def _close(self, cluster: int) -> None:
        sums, _ = self._open.pop(cluster)
        found, modulus = self._products.finish(sums), self._products.modulus
        places = cluster * (self._plan.d + 1) + self._places
        self._sums.constants[places] = (self._sums.constants[places] + found.constants) % modulus
        self._sums.vectors[places] = (self._sums.vectors[places] + found.vectors) % modulus


def short_steps(own: NDArray[np.float64], center: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return records less a centre, over the radius, shortened to a norm of 1; float64, shape (d_own, m).

    Elementwise operations only: a record's step depends on its own values and on nothing else.
    """
    away = own - center[:, None]
    squared = np.zeros(own.shape[1])
    for row in away:
        squared += row * row
    return away / np.maximum(np.sqrt(squared), radius)


def partial_scores(
    centers: NDArray[np.float64], own: NDArray[np.float64], columns: Sequence[int]
) -> NDArray[np.float64]:
    """Return |c|^2 - 2 a.c for the known columns a, shape (k, m), elementwise: a score depends on its record alone."""
    squared = np.zeros(len(centers))
    for column in range(centers.shape[1]):
        squared += centers[:, column] ** 2
    scores = np.repeat(squared[:, None], own.shape[1], axis=1)
    for place, column in enumerate(columns):
        scores -= 2.0 * centers[:, column, None] * own[place]
    return scores
