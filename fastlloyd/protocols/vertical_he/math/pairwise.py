"""The pairwise circuit: decide for every pair which of two centres is nearer, and compute a soft one-hot from that.

    d_j - d_i = |c_j|^2 - |c_i|^2 - 2 x.(c_j - c_i)

is linear in the encrypted columns, so no ciphertext is squared and nothing is replicated: a ciphertext holds N / 2
records, one per slot. Its sign, by two polynomials, says whether i beats j.

The part that the computing party knows is cut off where it decides the sign whatever the encrypted columns are. The
rest is divided by a public bound, so that the polynomials get numbers in [-1, 1], as large as possible.

**Scales.** A ciphertext at scale s that holds x holds kappa x at scale s / kappa: a factor costs nothing. Sums need
equal scales, so the polynomials are built such that all terms of a sum have the same history. The scale at the start is
solved for (`start_scale`); otherwise it would drift, doubling its distance from the primes at every level.

Source: Vertical HE, §3.1 ("Special Case: k = 2", here for every pair) and §4.1. The coefficients come from
scripts/he_coefficients.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.frame import seeded
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher
from fastlloyd.protocols.vertical_he.math import circuit
from fastlloyd.protocols.vertical_he.math.coefficients import CHAIN, LARGEST
from fastlloyd.protocols.vertical_he.math.computer import Computer, Work
from fastlloyd.protocols.vertical_he.parameters import THRESHOLD
from fastlloyd.protocols.vertical_he.plan import Plan

# A known part beyond (1 + MARGIN) times what the encrypted part can weigh decides; see `normalise`.
MARGIN = 0.1
_TINY = 1e-9

Factors = tuple[float, float, float, tuple[tuple[float, float], ...]]


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
    """Pad with zeros to one number per slot."""
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
        The known part of d_j - d_i, per record.
    weights : float64 array, shape (d_encrypted,)
        -2 (c_j - c_i) on the encrypted columns, each of which is within [-1, 1].

    Returns
    -------
    known, weights : float64 arrays
        known + weights . b is within [-1, 1] and has the sign of d_j - d_i. With w = sum of |weights| the known part
        is cut off at (1 + MARGIN) w, where it decides alone, and everything is divided by (2 + MARGIN) w.
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
        """Add up all loaded blocks: yield the fraction done, return k (d + 1) sums, cluster by cluster."""
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
            self._add(sums, base + output, context.computed(context.evaluator.multiply_plain, weights, plain))
        for column, cipher in self._bottoms[block].items():
            self._add(sums, base + 1 + column, context.computed(context.evaluator.multiply, weights, cipher))

    def _add(self, sums: list[Any], place: int, product: Any) -> None:
        """Add to a running sum."""
        if sums[place] is None:
            sums[place] = product
        else:
            self._context.evaluator.add_inplace(sums[place], product)


class Arithmetic:
    """Operations that use up one level each.

    Parameters
    ----------
    context : Context
    relin_key : object
        From `Context.load_relin_key`.
    """

    def __init__(self, context: Context, relin_key: Any) -> None:
        self._context = context
        self._key = relin_key

    def product(self, first: Any, second: Any) -> Any:
        """Multiply two ciphertexts of one level."""
        context, evaluator = self._context, self._context.evaluator
        result = (
            context.computed(evaluator.square, first)
            if first is second
            else context.computed(evaluator.multiply, first, second)
        )
        evaluator.relinearize_inplace(result, self._key)
        evaluator.rescale_to_next_inplace(result)
        return result

    def scaled(self, cipher: Any, factor: Any, target: float) -> Any:
        """Multiply by a real number (or one per slot); the result has the scale `target`."""
        primes = self._context.primes[: cipher.coeff_modulus_size()]
        plain = self._context.encode_slots(factor, target * primes[-1] / cipher.scale, cipher.parms_id())
        result = self._context.computed(self._context.evaluator.multiply_plain, cipher, plain)
        self._context.evaluator.rescale_to_next_inplace(result)
        result.scale = target
        return result

    def plus(self, cipher: Any, value: Any) -> Any:
        """Add a real number, or one per slot; no level is used."""
        plain = self._context.encode_slots(value, cipher.scale, cipher.parms_id())
        return self._context.computed(self._context.evaluator.add_plain, cipher, plain)

    def minus(self, cipher: Any) -> Any:
        """Negate."""
        return self._context.computed(self._context.evaluator.negate, cipher)

    def lower(self, cipher: Any, like: Any) -> Any:
        """Lower a ciphertext to another one's level, at its own scale."""
        return self._context.computed(self._context.evaluator.mod_switch_to, cipher, like.parms_id())

    def sign(self, cipher: Any) -> Any:
        """Evaluate g, which approximates the sign, at x in [-1, 1]; |g| <= `LARGEST`; it uses seven levels."""
        for factors in CHAIN:
            cipher = self._odd(cipher, factors)
        return cipher

    def _odd(self, cipher: Any, factors: Factors) -> Any:
        """Evaluate one odd polynomial in factored form: +-u (u^2 + g) prod (u^4 + a u^2 + b), u = kappa x."""
        kappa, sign, gamma, pairs = factors
        cipher.scale = cipher.scale / kappa
        square = self.product(cipher, cipher)
        fourth = self.product(square, square)
        odd = self.product(self.lower(cipher, square), self.plus(square, gamma))
        quads = []
        for alpha, beta in pairs:
            quad = self.plus(self.scaled(square, alpha, fourth.scale), beta)
            self._context.evaluator.add_inplace(quad, fourth)
            quads.append(quad)
        result = self.product(odd, quads[0])
        if len(quads) == 3:
            result = self.product(result, self.product(quads[1], quads[2]))
        return self.minus(result) if sign < 0 else result

    def comparison(self, sign: Any) -> tuple[Any, Any]:
        """Turn g into h = (1 + g / G) / 2 and 1 - h, both within [0, 1]."""
        ahead, behind = self.plus(sign, LARGEST), self.plus(self.minus(sign), LARGEST)
        for half in (ahead, behind):
            half.scale = half.scale * 2.0 * LARGEST
        return ahead, behind

    def multiply_all(self, factors: Sequence[Any]) -> Any:
        """Multiply ciphertexts of one level and scale in a tree."""
        left = list(factors)
        while len(left) > 1:
            products = [self.product(left[i], left[i + 1]) for i in range(0, len(left) - 1, 2)]
            if len(left) % 2:
                products.append(self.scaled(left[-1], 1.0, products[0].scale))
            left = products
        return left[0]


def start_scale(primes: Sequence[int], target: float, tree: int) -> float:
    """Solve for the scale at which `sign` must start so that the products of comparisons end at `target`.

    Parameters
    ----------
    primes : sequence of int
        Those that the levels after the first use up, in order.
    target : float
    tree : int
        Levels of products after the comparison.

    Notes
    -----
    In logarithms everything is linear: a polynomial of degree D multiplies the logarithm by D, a product by 2.
    """
    offset = _end(0.0, primes, tree)
    slope = _end(1.0, primes, tree) - offset
    return math.exp((math.log(target) - offset) / slope)


def _end(scale: float, primes: Sequence[int], tree: int) -> float:
    """Return a scale's logarithm at the end, given that at the start."""
    logs = [math.log(prime) for prime in primes]
    for kappa, _, _, pairs in CHAIN:
        scale -= math.log(kappa)
        square = 2 * scale - logs[0]
        fourth, odd = 2 * square - logs[1], scale + square - logs[1]
        scale = odd + fourth - logs[2]
        if len(pairs) == 3:
            scale = scale + (2 * fourth - logs[2]) - logs[3]
        logs = logs[4 if len(pairs) == 3 else 3 :]
    scale += math.log(2.0 * LARGEST)
    for level in range(tree):
        scale = 2 * scale - logs[level]
    return scale
