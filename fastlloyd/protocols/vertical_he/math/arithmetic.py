"""Products, constants and odd polynomials on encrypted slots, with their scales kept in step.

A ciphertext at scale s that holds x holds kappa x at scale s / kappa: a factor costs nothing. Sums need equal scales,
so the polynomials are built such that whatever is added has the same history, and the scale at the start is solved for
(`start_scale`): left alone it would drift, doubling its distance from the primes at every level.

Source: docs/vertical-he-privacy.md; coefficients: scripts/he_coefficients.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastlloyd.protocols.vertical_he.he.ckks import Context
from fastlloyd.protocols.vertical_he.math.coefficients import CHAIN, LARGEST

Factors = tuple[float, float, float, tuple[tuple[float, float], ...]]


class Arithmetic:
    """Operations that use up one level each.

    Parameters
    ----------
    context : Context
    relin_key : object
        As `Context.load_relin_key` gave it.
    """

    def __init__(self, context: Context, relin_key: Any) -> None:
        self._context = context
        self._key = relin_key

    def product(self, first: Any, second: Any) -> Any:
        """Multiply two ciphertexts of one level."""
        result = self._context.cipher()
        evaluator = self._context.evaluator
        if first is second:
            evaluator.square(first, result)
        else:
            evaluator.multiply(first, second, result)
        evaluator.relinearize_inplace(result, self._key)
        evaluator.rescale_to_next_inplace(result)
        return result

    def scaled(self, cipher: Any, factor: Any, target: float) -> Any:
        """Multiply by a real number (or one per slot) and give the result the scale `target`."""
        primes = self._context.primes[: cipher.coeff_modulus_size()]
        plain = self._context.encode_slots(factor, target * primes[-1] / cipher.scale, cipher.parms_id())
        result = self._context.cipher()
        self._context.evaluator.multiply_plain(cipher, plain, result)
        self._context.evaluator.rescale_to_next_inplace(result)
        result.scale = target
        return result

    def plus(self, cipher: Any, value: Any) -> Any:
        """Add a real number, or one per slot; no level is used."""
        plain = self._context.encode_slots(value, cipher.scale, cipher.parms_id())
        result = self._context.cipher()
        self._context.evaluator.add_plain(cipher, plain, result)
        return result

    def minus(self, cipher: Any) -> Any:
        """Negate."""
        result = self._context.cipher()
        self._context.evaluator.negate(cipher, result)
        return result

    def lower(self, cipher: Any, like: Any) -> Any:
        """Bring a ciphertext to another one's level, at its own scale."""
        result = self._context.cipher()
        self._context.evaluator.mod_switch_to(cipher, like.parms_id(), result)
        return result

    def sign(self, cipher: Any) -> Any:
        """Evaluate g, about the sign, at x in [-1, 1]; |g| <= `LARGEST`; uses seven levels."""
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
        Those that the levels after the first will use up, in order.
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
    """Follow a scale (its logarithm) from the start to the end."""
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
