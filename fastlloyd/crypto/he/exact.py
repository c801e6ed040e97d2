"""Exact inner products of plaintext integers and encrypted coefficients, as LWE samples.

For integers W(i) and an encryption (c_0, c_1) of a polynomial with coefficients M(i),

    sum over i of W(i) M(i)  =  sum over i of W(i) c_0(i)  +  <W(X) c_1(1 / X), s>     modulo q,

but for the encryption's error: an inner product and a product of polynomials modulo X^N + 1, added up over many
ciphertexts. The library would encode the weights as slots and transform them twice for every single product, which
takes most of the time. Here a ciphertext's numbers are read once and split into limbs of a few bits; the products of
integers and limbs are made by floating-point transforms whose error is less than 1/4, and rounded. So the result is
exact: the same numbers modulo q that the library gives.

There is neither key nor randomness here; both are the library's.

**Error of the transforms.** Let u = 2^-53, M = N / 2 points, L = log2 M levels. A complex product is off by sqrt(5) u
of its size, a sum by u. A level multiplies by a root and adds: below 5 u with roots that are off by up to 1.7 u. numpy
multiplies by a root once in two or three levels, which leaves room for roots that are off by 5 u; measured: outputs
that are products of roots alone are off by at most 5.7 u after all levels, of 5 L u = 50 u. The twist's root is off
by 1.85 u (measured), with the product 4.1 u: it counts as one more level.

* Forward, norms Euclidean: every level is a multiple of a unitary map (Parseval), so relative errors add up to
  5 (L + 1) u. Let x be the sum over F ciphertexts of the products of the transforms of W_m and of c_m. The sum of |x_j|
  is at most M sum |W_m| |c_m|, and what is computed differs from x, in this norm, by (10 (L + 1) + 3 + F) u of that.
* Back: every x_j reaches an output on one path, whose factors are off by 5 u each. So an output is off by at most
  ((1 + 5 u)^(L + 1) - 1) (1 / M) sum |x_j|, where Parseval alone would only bound all outputs together.

Together, with numbers c of at most 2^(b - 1) (the 3 above stands for sqrt(5) and covers all higher powers of u):

    (15 (L + 1) + F + 3) u  sum of |W_m| |c_m|  <=  (...) u N R 2^(b - 1),    R >= sum over m of max |W_m(i)|.

Source: Higham, "Accuracy and Stability of Numerical Algorithms" (2002), §24.1; Brent, Percival and Zimmermann, "Error
bounds on complex floating-point multiplication" (2007).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.he.ckks import Context
from fastlloyd.crypto.he.lattice import Sample, twist
from fastlloyd.errors import InternalError

_UNIT = 2.0**-53
_MOST_ERROR = 0.25


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ciphertexts in the form that products are made from.

    Attributes
    ----------
    constants : float64 array, shape (m, N, limbs)
        Limbs of c_0.
    spectra : complex128 array, shape (limbs, m, N / 2)
        Transforms of the limbs of c_1(1 / X).
    """

    constants: NDArray[np.float64]
    spectra: NDArray[np.complex128]


class Products:
    """Makes inner products with ciphertexts of one prime.

    Parameters
    ----------
    context : Context
    most : int
        How many ciphertexts are added up at once.
    reach : float
        R above: the sum, over the ciphertexts, of the largest absolute weight.

    Raises
    ------
    InternalError
        The weights are so large that no limb is small enough.
    """

    def __init__(self, context: Context, most: int, reach: float) -> None:
        self._context = context
        self._reach = reach
        n, bits = context.degree, context.modulus.bit_length()
        rounding = (15.0 * (math.log2(n / 2) + 1.0) + most + 3.0) * _UNIT
        self._vector_bits = _limb_bits(bits, _MOST_ERROR / (rounding * n * reach))
        # Sums of integers below 2^53 are exact in any order.
        self._constant_bits = _limb_bits(bits, 1.0 / (_UNIT * n * reach))

    def prepare(self, ciphers: Sequence[Any]) -> Prepared:
        """Read ciphertexts, which are used up."""
        numbers = np.stack([self._context.coefficients(cipher) for cipher in ciphers])
        n, q = self._context.degree, self._context.modulus
        limbs = _split(numbers[:, 1], q, self._vector_bits)
        return Prepared(
            np.ascontiguousarray(np.moveaxis(_split(numbers[:, 0], q, self._constant_bits), 0, -1)),
            np.conjugate(_transform(limbs, n)),
        )

    def multiply(self, prepared: Prepared, weights: NDArray[np.float64]) -> Sample:
        """Add up the products of ciphertexts with weights.

        Parameters
        ----------
        prepared : Prepared
        weights : float64 array of integers, shape (m, up to N)
            Those of the first m ciphertexts; the rest is zero.

        Returns
        -------
        Sample
            One; the numbers are modulo q.
        """
        n, (count, width) = self._context.degree, weights.shape
        spectrum = _transform(weights, n)
        limbs = prepared.spectra.shape[0]
        sums, product = np.empty((limbs, n // 2), dtype=np.complex128), np.empty_like(spectrum)
        for limb in range(limbs):
            np.multiply(spectrum, prepared.spectra[limb, :count], out=product)
            product.sum(axis=0, out=sums[limb])
        numbers = prepared.constants[:count, :width]
        constants = np.tensordot(weights, numbers, axes=((0, 1), (0, 1)))
        q = self._context.modulus
        return Sample(
            _join(constants[:, None], q, self._constant_bits), _join(_back(sums, n), q, self._vector_bits)[None, :]
        )


def _limb_bits(bits: int, most: float) -> int:
    """Divide a modulus of so many bits evenly into limbs with 2^(b - 1) at most `most`."""
    largest = 1 + math.floor(math.log2(most))
    if largest < 2:
        raise InternalError(f"weights too large for exact products at {bits} bits: choose smaller scales")
    return -(-bits // -(-bits // largest))


def _split(numbers: NDArray[np.int64], modulus: int, bits: int) -> NDArray[np.float64]:
    """Split numbers modulo q, centred, into limbs from -2^(b - 1) to 2^(b - 1), the lowest first along a new axis."""
    left = np.where(numbers > modulus // 2, numbers - modulus, numbers)
    count = -(-modulus.bit_length() // bits)
    limbs = np.empty((count, *numbers.shape))
    for limb in range(count - 1):
        low = ((left + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))
        limbs[limb] = low
        left = (left - low) >> bits
    limbs[-1] = left
    return limbs


def _join(limbs: NDArray[np.float64], modulus: int, bits: int) -> NDArray[np.int64]:
    """Put sums of limbs, shape (limbs, ...), rounded to integers, together modulo q."""
    whole = np.rint(limbs).astype(np.int64)
    joined: NDArray[np.int64] = whole[-1] % modulus
    for limb in whole[-2::-1]:
        # The quotient is at most one off, so the remainder fits 64 bits although its two parts overflow.
        quotient = np.rint(joined * (2.0**bits / modulus)).astype(np.int64)
        joined = ((joined << bits) - quotient * modulus + limb) % modulus
    return joined


def _transform(polynomials: NDArray[np.float64], n: int) -> NDArray[np.complex128]:
    """Evaluate real polynomials, shape (..., up to N), at exp(i pi (4 j + 1) / N), shape (..., N / 2)."""
    half, width = n // 2, polynomials.shape[-1]
    folded = np.zeros((*polynomials.shape[:-1], half), dtype=np.complex128)
    folded.real[..., : min(half, width)] = polynomials[..., :half]
    folded.imag[..., : max(width - half, 0)] = polynomials[..., half:]
    folded *= twist(n)
    found: NDArray[np.complex128] = np.fft.ifft(folded, norm="forward")
    return found


def _back(values: NDArray[np.complex128], n: int) -> NDArray[np.float64]:
    """Undo `_transform`, shape (..., N)."""
    folded = np.fft.fft(values, norm="forward") * np.conjugate(twist(n))
    return np.concatenate((folded.real, folded.imag), axis=-1)
