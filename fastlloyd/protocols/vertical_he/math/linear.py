"""The linear scheme: every count and sum is an inner product of plaintext weights and encrypted Chebyshev features.

The key holder has one column b and sends T_0(b)..T_{D+1}(b), encrypted, once. For each of its own records the computing
party knows at which values of b the nearest centre changes (`window.thresholds`); the step at such a value is a
Chebyshev series with coefficients that it knows (`window.step_weights`). So a round is one plaintext product and
one addition for each feature, step, output and block (`crypto.exact`).

T_0 = 1 is sent as well, although it is the same for everybody: a record whose features are all replaced by zeros then
adds nothing at all, and that is what the neighbours of the privacy claim are.

Source: ours, in place of steps (1) to (3) of Vertical HE, §3; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.he.ckks import Context, KeyHolder, Refresher, encrypt_integers
from fastlloyd.crypto.he.exact import Prepared, Products
from fastlloyd.crypto.he.lattice import Sample
from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.frame import seeded
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.protocols.vertical_he.math.window import (
    amplitude,
    features,
    jackson,
    reach,
    step_weights,
    thresholds,
    times_feature,
)
from fastlloyd.protocols.vertical_he.plan import Plan


def encrypt_block(
    plan: Plan, context: Context, encrypter: KeyHolder | Refresher, raw_columns: NDArray[np.float64], block: int
) -> list[bytes]:
    """Encrypt the features of one block; run by the key holder.

    Parameters
    ----------
    raw_columns : float64 array, shape (1, n), scaled to [-1, 1]

    Notes
    -----
    Sees: the computing party sees ciphertexts of n records' features and cannot open them.
    """
    values = features(raw_columns[0, plan.rows(block)], plan.degree + 2)
    coefficients = np.zeros((plan.degree + 2, context.degree), dtype=np.int64)
    coefficients[:, : values.shape[1]] = np.rint(values * 2.0**plan.scales.data_bits)
    return encrypt_integers(context, encrypter, coefficients)


class LinearEngine:
    """Adds up encrypted features; implements `engine.Engine`.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's columns, scaled to [-1, 1].
    turns : mapping from block to (number, engines), optional
        Blocks that other engines have as well: of these it adds only every n-th step, n the number of engines.
    """

    def __init__(
        self, plan: Plan, raw_columns: NDArray[np.float64], *, turns: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        self.plan = plan
        self._turns = dict(turns or {})
        self._columns = np.clip(raw_columns, -1.0, 1.0)
        self._own = plan.columns(plan.computing)
        self._others = plan.columns(plan.holder)
        self._context = Context(plan.encryption)
        self.modulus = self._context.modulus
        self._factors = jackson(plan.degree)
        count, scale = plan.degree + 2, 2.0**plan.scales.weight_bits
        # The largest weights are of a soft step or, with steps from the centres, of a cluster: the difference of two.
        largest = amplitude(plan.degree) if plan.stepping else reach(plan.degree)
        self._products = Products(self._context, count, scale * largest + 0.5 * count)
        self._blocks: dict[int, Prepared] = {}
        self._refresher: Refresher | None = None

    def keys(self, parts: Sequence[bytes]) -> None:
        """Take the public key."""
        (public_key,) = parts
        self._refresher = Refresher(self._context, self._context.load_public_key(public_key))

    def begin(self, centers: NDArray[np.float64]) -> None:
        """Nothing to do: the blocks of the set-up serve every round."""

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Take one block of encrypted features."""
        self._blocks[block] = self._prepare(parts)

    def evaluate(self, centers: NDArray[np.float64]) -> Generator[float, None, Sample]:
        """Add up one round; see `engine.Engine`."""
        return self.finish(centers, (yield from self.add_up(centers)))

    def add_up(self, centers: NDArray[np.float64]) -> Generator[float, None, Sample]:
        """Add up the soft steps of all loaded blocks: yields the fraction done, gives k (d + 1) sums, step by step."""
        sums = self._no_sums()
        for done, (block, prepared) in enumerate(sorted(self._blocks.items())):
            self._add(sums, prepared, self._weights(centers, block))
            yield (done + 1) / len(self._blocks)
        return sums

    def finish(self, centers: NDArray[np.float64], sums: Sample) -> Sample:
        """Turn the sums of soft steps into fresh samples of the clusters, in the centres' order."""
        if self._refresher is None:
            raise InternalError("the key holder's public key is missing")
        plan = self.plan
        clusters = lwe.differences(sums, plan.k, self.modulus)
        if plan.stepping:  # these were added up cluster by cluster already
            made = (np.arange(plan.k)[:, None] * (plan.d + 1) + 1 + np.array(plan.stepping)).reshape(-1)
            clusters.constants[made], clusters.vectors[made] = sums.constants[made], sums.vectors[made]
        order, _ = self._order(centers)
        rows = (np.argsort(order)[:, None] * (plan.d + 1) + np.arange(plan.d + 1)).reshape(-1)
        sorted_back = Sample(clusters.constants[rows], clusters.vectors[rows])
        return lwe.add(sorted_back, self._refresher.zeros(plan.outputs), self.modulus)

    def _order(self, centers: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the order in which the clusters follow each other along the hidden number, and their places there."""
        hidden = centers[:, self._others[0]]
        order = np.argsort(hidden, kind="stable")
        return order, hidden[order]

    def _prepare(self, parts: Sequence[bytes]) -> Prepared:
        """Read ciphertexts of the key holder; raises ValueError if one does not fit."""
        half = seeded(self.plan, self.plan.holder)
        return self._products.prepare([self._context.load_ciphertext(part, seeded=half) for part in parts])

    def _no_sums(self) -> Sample:
        """Return sums over no block."""
        outputs, n = self.plan.outputs, self._context.degree
        return Sample(np.zeros(outputs, dtype=np.int64), np.zeros((outputs, n), dtype=np.int64))

    def _add(self, sums: Sample, prepared: Prepared, terms: Iterable[tuple[int, NDArray[np.float64]]]) -> None:
        """Add products of ciphertexts with each output's weights to the running sums."""
        for output, weights in terms:
            product = self._products.multiply(prepared, weights)
            sums.constants[output] = (sums.constants[output] + product.constants[0]) % self.modulus
            sums.vectors[output] = (sums.vectors[output] + product.vectors[0]) % self.modulus

    def _weights(self, centers: NDArray[np.float64], block: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield each output's number and integer weights, shape (features, m): counts, then each column's sum."""
        own = self._columns[:, self.plan.rows(block)]
        for base, soft in self._softs(centers, block):
            yield base, self._whole(soft)
            yield base + 1 + self._others[0], self._whole(times_feature(soft))
            if not self.plan.stepping:
                for place, column in enumerate(self._own):
                    yield base + 1 + column, self._whole(soft * own[place])
        if self.plan.stepping:
            yield from self._step_weights(centers, block)

    def _step_weights(self, centers: NDArray[np.float64], block: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the outputs of own columns, cluster by cluster along the hidden number, and their integer weights.

        Notes
        -----
        Privacy: for any b, weights of one record times its steps over the radius have an L2 norm of at most 1 over all
        clusters and columns; each weight is rounded once.
        """
        own = self._columns[:, self.plan.rows(block)]
        order, _ = self._order(centers)
        number, engines = self._turns.get(block, (0, 1))
        steps = itertools.pairwise([*self._steps(centers, own), np.zeros((1, own.shape[1]))])
        for place, (soft, after) in enumerate(steps):
            if place % engines != number:
                continue
            weights = np.zeros((max(len(soft), len(after)), own.shape[1]))
            weights[: len(soft)] += soft
            weights[: len(after)] -= after
            shortened = short_steps(own, centers[order[place], list(self._own)], self.plan.radius)
            for column, step in zip(self._own, shortened, strict=True):
                yield place * (self.plan.d + 1) + 1 + column, self._whole(weights * step)

    def _softs(self, centers: NDArray[np.float64], block: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the soft steps of a block that are this engine's: each one's first output, and its weights."""
        number, engines = self._turns.get(block, (0, 1))
        for step, soft in enumerate(self._steps(centers, self._columns[:, self.plan.rows(block)])):
            if step % engines == number:
                yield step * (self.plan.d + 1), soft

    def _whole(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Round weights to integers at their scale."""
        return np.rint(weights * 2.0**self.plan.scales.weight_bits)

    def _steps(self, centers: NDArray[np.float64], own: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """Yield the weights of each soft step, shape (features, m): step 0 is 1 everywhere."""
        yield np.ones((1, own.shape[1]))
        order, places = self._order(centers)
        for cut in thresholds(partial_scores(centers[order], own, self._own), places):
            yield step_weights(np.arccos(cut), self._factors)


def short_steps(own: NDArray[np.float64], center: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return records less a centre, over the radius, shortened to a norm of 1; float64, shape (d_own, m).

    Notes
    -----
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
