"""The pairwise circuit: which of two centres is nearer, for every pair, and from that a soft one-hot.

    d_j - d_i = |c_j|^2 - |c_i|^2 - 2 x.(c_j - c_i)

is linear in the encrypted columns, so no ciphertext is squared and nothing is replicated: a ciphertext holds N / 2
records, one per slot. Its sign, by two polynomials, says whether i beats j.

The part that the computing party knows is cut off where it decides the sign whatever the encrypted columns are; what
remains is divided by a public bound, so that the polynomials get numbers in [-1, 1], as large as possible.

Source: Vertical HE, §3.1 ("Special Case: k = 2", here for every pair) and §4.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.frame import seeded
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher
from fastlloyd.protocols.vertical_he.math import circuit
from fastlloyd.protocols.vertical_he.math.arithmetic import Arithmetic, start_scale
from fastlloyd.protocols.vertical_he.math.computer import Computer, Work
from fastlloyd.protocols.vertical_he.parameters import THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan

# A known part beyond (1 + MARGIN) times what the encrypted part can weigh decides; see `normalise`.
MARGIN = 0.1
_TINY = 1e-9


def encrypt_block(
    plan: Plan, context: Context, encrypter: KeyHolder | Refresher, raw_columns: NDArray[np.float64], block: int
) -> list[bytes]:
    """Encrypt one block of columns, each twice: at the top for the distances, at the bottom for the sums.

    Parameters
    ----------
    raw_columns : float64 array, shape (d_own, n), scaled to [-1, 1]

    Notes
    -----
    Sees: the computing party sees ciphertexts and cannot open them.
    """
    parts = []
    for column in raw_columns:
        values = in_slots(np.clip(column[plan.rows(block)], -1.0, 1.0), context)
        top = context.encode_slots(values, 2.0**plan.scales.data_bits, context.level(len(context.primes)))
        bottom = context.encode_slots(values, 2.0**plan.scales.weight_bits, context.level(1))
        parts += [encrypter.encrypt(top), encrypter.encrypt(bottom)]
    return parts


def in_slots(values: NDArray[np.float64], context: Context) -> NDArray[np.float64]:
    """Fill up with zeros to one number per slot."""
    slots = np.zeros(context.degree // 2)
    slots[: values.size] = values
    return slots


def normalise(
    known: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scale one pair's difference into [-1, 1].

    Parameters
    ----------
    known : float64 array, shape (m,)
        What of d_j - d_i is known, per record.
    weights : float64 array, shape (d_encrypted,)
        -2 (c_j - c_i) on the encrypted columns, each of which is within [-1, 1].

    Returns
    -------
    known, weights : float64 arrays
        known + weights . b is within [-1, 1] and has the sign of d_j - d_i. With w = sum of |weights| the known part
        is cut off at (1 + MARGIN) w, where it decides alone, and everything divided by (2 + MARGIN) w.
    """
    spread = max(float(np.abs(weights).sum()), _TINY)
    cut = np.clip(known, -(1.0 + MARGIN) * spread, (1.0 + MARGIN) * spread)
    return cut / ((2.0 + MARGIN) * spread), weights / ((2.0 + MARGIN) * spread)


class PairwiseEngine(Computer):
    """Evaluates the circuit; its parameters are those of `Computer`."""

    def __init__(self, plan: Plan, raw_columns: NDArray[np.float64]) -> None:
        super().__init__(plan, raw_columns)
        self._tops: dict[int, dict[int, Any]] = {}
        self._bottoms: dict[int, dict[int, Any]] = {}
        self._arithmetic: Arithmetic | None = None

    def keys(self, parts: Sequence[bytes]) -> None:
        """Take the public key and the relinearisation key."""
        super().keys(parts)
        self._relin_key = self._context.load_relin_key(parts[1], seeded=self.plan.mode != THRESHOLD)
        self._arithmetic = Arithmetic(self._context, self._relin_key)

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Take one owner's block of encrypted columns."""
        scales, half = self.plan.scales, seeded(self.plan, owner)
        tops, bottoms = self._tops.setdefault(block, {}), self._bottoms.setdefault(block, {})
        for place, column in enumerate(self.plan.columns(owner)):
            tops[column] = self._context.load_ciphertext(parts[2 * place], scale=2.0**scales.data_bits, seeded=half)
            bottoms[column] = self._context.load_ciphertext(
                parts[2 * place + 1], limbs=1, scale=2.0**scales.weight_bits, seeded=half
            )

    def add_up(self, centers: NDArray[np.float64]) -> Work:
        """Add up all loaded blocks: yields the fraction done, gives k (d + 1) sums, cluster by cluster."""
        sums: list[Any] = [None] * self.plan.outputs
        for done, block in enumerate(sorted(self._tops)):
            for fraction, one_hot in self._one_hot(centers, block):
                if one_hot is not None:
                    self._accumulate(sums, block, *one_hot)
                yield (done + fraction) / len(self._tops)
        for cipher in sums:
            if cipher is not None and cipher.size() > 2:
                self._context.evaluator.relinearize_inplace(cipher, self._relin_key)
        return self._context.extract(sums)

    def _one_hot(
        self, centers: NDArray[np.float64], block: int
    ) -> Generator[tuple[float, tuple[int, Any] | None], None, None]:
        """Yield each cluster's soft weights, with the fraction of the block's work that is done."""
        arithmetic, k = self._arithmetic_or_fail(), self.plan.k
        pairs = list(itertools.combinations(range(k), 2))
        ahead: dict[tuple[int, int], Any] = {}
        for done, (i, j) in enumerate(pairs):
            sign = arithmetic.sign(self._difference(centers, block, i, j))
            ahead[i, j], ahead[j, i] = arithmetic.comparison(sign)
            yield 0.9 * (done + 1) / len(pairs), None
        for i in range(k):
            product = arithmetic.multiply_all([ahead[i, j] for j in range(k) if j != i])
            yield 0.9 + 0.1 * (i + 1) / k, (i, product)

    def _difference(self, centers: NDArray[np.float64], block: int, i: int, j: int) -> Any:
        """Return (d_j - d_i), scaled into [-1, 1], encrypted; it uses the first level."""
        plan, evaluator = self.plan, self._context.evaluator
        step = centers[j] - centers[i]
        known = np.full(self._columns[:, plan.rows(block)].shape[1], (centers[j] ** 2 - centers[i] ** 2).sum())
        for place, column in enumerate(self._own):
            known -= 2.0 * step[column] * self._columns[place, plan.rows(block)]
        encrypted = sorted(self._tops[block])
        known, weights = normalise(known, -2.0 * step[encrypted])
        primes = self._context.primes
        scale = start_scale(
            primes[:-1][::-1], 2.0**plan.scales.end_bits, circuit.depth(plan.k) - 1 - circuit.SIGN_DEPTH
        )
        # Less than one unit of the encoding would be a plaintext of zero, which the library refuses.
        least = 2.0 * 2.0**plan.scales.data_bits / (scale * primes[-1])
        weights = np.where(np.abs(weights) < least, least, weights)
        result = None
        for column, weight in zip(encrypted, weights, strict=True):
            part = self._arithmetic_or_fail().scaled(self._tops[block][column], float(weight), scale)
            if result is None:
                result = part
            else:
                evaluator.add_inplace(result, part)
        return self._arithmetic_or_fail().plus(result, in_slots(known, self._context))

    def _arithmetic_or_fail(self) -> Arithmetic:
        if self._arithmetic is None:
            raise InternalError("the key holder's relinearisation key is missing")
        return self._arithmetic

    def _accumulate(self, sums: list[Any], block: int, cluster: int, weights: Any) -> None:
        """Add one cluster's count and sums of one block."""
        plan, context = self.plan, self._context
        rows, base = plan.rows(block), cluster * (plan.d + 1)
        weights.scale = 2.0**plan.scales.end_bits
        known = {0: np.ones(self._columns[:, rows].shape[1])}
        known |= {1 + column: self._columns[place, rows] for place, column in enumerate(self._own)}
        for output, values in known.items():
            plain = context.encode_slots(in_slots(values, context), 2.0**plan.scales.weight_bits, context.level(1))
            # Tiny values round to a plaintext of zero, which the library refuses to multiply by.
            if plain.is_zero():
                continue
            product = context.cipher()
            context.evaluator.multiply_plain(weights, plain, product)
            self._add(sums, base + output, product)
        for column, cipher in self._bottoms[block].items():
            product = context.cipher()
            context.evaluator.multiply(weights, cipher, product)
            self._add(sums, base + 1 + column, product)

    def _add(self, sums: list[Any], place: int, product: Any) -> None:
        """Add to a running sum."""
        if sums[place] is None:
            sums[place] = product
        else:
            self._context.evaluator.add_inplace(sums[place], product)
