"""Exact inner products of plaintext integers and encrypted coefficients, as LWE samples.

For integers W(i) and an encryption (c_0, c_1) of a polynomial with coefficients M(i),

    sum over i of W(i) M(i)  =  sum over i of W(i) c_0(i)  +  <W(X) c_1(1 / X), s>     modulo q,

except for the encryption's error: an inner product and a product of polynomials modulo X^N + 1, added up over many
ciphertexts. The library would encode the weights as slots and transform them twice for every single product, which
takes most of the time. Here a ciphertext's numbers are read once, and split into limbs of a few bits. Floating-point
transforms compute the products of integers and limbs with an error below 1/4, which are then rounded. So the result is
exact: the same numbers modulo q as the library's. Weights that differ by a whole factor for each ciphertext share their
transforms and products: the factors are applied when the products are added up.

There is neither key nor randomness here; both are the library's.

**Error of the transforms.** Let u = 2^-53, M = N / 2 points, L = log2 M levels. A complex product is off by sqrt(5) u
of its size, a sum by u. A level multiplies by a root and adds: below 5 u with roots that are off by up to 1.7 u. numpy
multiplies by a root once in two or three levels, which leaves room for roots that are off by 5 u; measured: outputs
that are products of roots alone are off by at most 5.7 u after all levels, of 5 L u = 50 u. The twist's root is off
by 1.85 u (measured), with the product 4.1 u: it counts as one more level.

* Forward, with Euclidean norms: every level is a multiple of a unitary map (Parseval), so relative errors add up to
  5 (L + 1) u. Let x be the sum over F ciphertexts of the products of the transforms of W_m and of c_m. The sum of |x_j|
  is at most M sum |W_m| |c_m|, and the computed sum differs from x, in this norm, by (10 (L + 1) + 4 + F) u of that.
* Back: every x_j reaches an output on one path, whose factors are off by 5 u each. So an output is off by at most
  ((1 + 5 u)^(L + 1) - 1) (1 / M) sum |x_j|, where Parseval alone would only bound all outputs together.

Together, with numbers c of at most 2^(b - 1) (the 4 above stands for sqrt(5) of the product and 1 of its whole factor,
and covers all higher powers of u):

    (15 (L + 1) + F + 4) u  sum of |W_m| |c_m|  <=  (...) u N R 2^(b - 1),    R >= sum over m of max |W_m(i)|.

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

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context
from fastlloyd.protocols.vertical_he.he.lattice import Sample, scale_residues, twist

_UNIT = 2.0**-53
_MOST_ERROR = 0.25
# One sum may take up to this many times the ciphertexts that it must; beyond that, rounding costs almost nothing.
_MOST_MORE = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ciphertexts as numbers: c_0 and c_1 modulo q, int64 arrays, shape (m, N)."""

    constants: NDArray[np.int64]
    vectors: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Transformed:
    """Ciphertexts in the form for products.

    Attributes
    ----------
    constants : float64 array, shape (limbs, m, N)
        Limbs of c_0.
    spectra : complex128 array, shape (limbs, m, N / 2)
        Transforms of the limbs of c_1(1 / X).
    """

    constants: NDArray[np.float64]
    spectra: NDArray[np.complex128]

    @property
    def size(self) -> int:
        """Bytes of both."""
        return self.constants.nbytes + self.spectra.nbytes


@dataclass(frozen=True, slots=True)
class Unrounded:
    """Sums of products before rounding, as transforms.

    Attributes
    ----------
    constants : float64 array, shape (limbs, outputs)
    spectra : float64 array, shape (limbs, outputs, N)
        Real and imaginary parts in turn.
    """

    constants: NDArray[np.float64]
    spectra: NDArray[np.float64]


class Products:
    """Makes inner products with ciphertexts of one prime.

    Parameters
    ----------
    context : Context
    least : int
        Ciphertexts that must fit into one sum; up to `most` do, with limbs of the same size.
    largest : float
        The largest absolute weight.

    Raises
    ------
    InternalError
        The weights are so large that no limb is small enough.
    """

    def __init__(self, context: Context, least: int, largest: float) -> None:
        self._context, self._largest = context, largest
        self.most = least
        self._vector_bits, self._constant_bits = self._limb_bits(least)
        while self.most < _MOST_MORE * least and self._counts(2 * self.most) == self._counts(least):
            self.most *= 2
        self._vector_bits, self._constant_bits = self._limb_bits(self.most)

    @property
    def modulus(self) -> int:
        """Modulus of the sums."""
        return self._context.modulus

    def _limb_bits(self, most: int) -> tuple[int, int]:
        """Return the bits of limbs of c_1 and c_0 for `most` ciphertexts in a sum."""
        n, bits, reach = self._context.degree, self._context.modulus.bit_length(), most * self._largest
        rounding = (15.0 * (math.log2(n / 2) + 1.0) + most + 4.0) * _UNIT
        # Sums of integers below 2^53 are exact in any order.
        return _limb_bits(bits, _MOST_ERROR / (rounding * n * reach)), _limb_bits(bits, 1.0 / (_UNIT * n * reach))

    def _counts(self, most: int) -> list[int]:
        try:
            return [-(-self._context.modulus.bit_length() // bits) for bits in self._limb_bits(most)]
        except InternalError:
            return []

    def prepare(self, ciphers: Sequence[Any]) -> Prepared:
        """Read ciphertexts; this uses them up."""
        numbers = np.stack([self._context.coefficients(cipher) for cipher in ciphers])
        return Prepared(np.ascontiguousarray(numbers[:, 0]), np.ascontiguousarray(numbers[:, 1]))

    def transform(self, prepared: Prepared, part: slice) -> Transformed:
        """Split and transform some of the ciphertexts."""
        q = self._context.modulus
        limbs = _split(prepared.vectors[part], q, self._vector_bits)
        return Transformed(
            _split(prepared.constants[part], q, self._constant_bits),
            np.conjugate(_transform(limbs, self._context.degree)),
        )

    def zeros(self, outputs: int) -> Unrounded:
        """Return sums of zero."""
        n, q = self._context.degree, self._context.modulus.bit_length()
        vectors, constants = -(-q // self._vector_bits), -(-q // self._constant_bits)
        return Unrounded(np.zeros((constants, outputs)), np.zeros((vectors, outputs, n)))

    def add(
        self,
        sums: Unrounded,
        ciphers: Transformed,
        mask: NDArray[np.bool_],
        factors: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        others: Sequence[Transformed] = (),
    ) -> None:
        """Add products of ciphertexts with weights that are zero outside a mask; at most `most` to one sum.

        Parameters
        ----------
        sums : Unrounded
            Of a + b + a c outputs: first those by factors, then those by values, then those of others by factors.
        ciphers : Transformed
            m of them.
        mask : bool array, shape (m, up to N)
            Missing columns count as zero.
        factors : float64 array of integers, shape (a, m)
            One for each ciphertext: weight factors[., m] where the mask is.
        values : float64 array of integers, shape (b, up to N)
            One for each record: weight values[., i] where the mask is.
        others : sequence of Transformed
            c times m further ciphertexts, which have the same mask and factors.
        """
        n, (count, width), by_factors = self._context.degree, mask.shape, len(factors)
        product = np.empty((count, n // 2), dtype=np.complex128)
        ones = np.ones((1, count))
        for place in range(-1 if by_factors else 0, len(values)):
            # One product serves all factors.
            weights = np.multiply(mask, values[place]) if place >= 0 else mask.astype(np.float64)
            several, first = (ones, by_factors + place) if place >= 0 else (factors, 0)
            spectrum = _transform(weights, n)
            for more, used in enumerate((ciphers,) if place >= 0 else (ciphers, *others)):
                start = first if not more else more * by_factors + len(values)
                rows = slice(start, start + len(several))
                for limb, spectra in enumerate(used.spectra):
                    np.multiply(spectrum, spectra, out=product)
                    sums.spectra[limb, rows] += several @ product.view(np.float64)
                for limb, part in enumerate(used.constants[:, :, :width]):
                    sums.constants[limb, rows] += several @ np.einsum("mi,mi->m", weights, part)

    def finish(self, sums: Unrounded) -> Sample:
        """Round sums, and put their limbs together modulo q."""
        n, q = self._context.degree, self._context.modulus
        return Sample(
            _join(sums.constants, q, self._constant_bits),
            _join(_back(sums.spectra.view(np.complex128), n), q, self._vector_bits),
        )


def _limb_bits(bits: int, most: float) -> int:
    """Divide a modulus of `bits` bits evenly into limbs with 2^(b - 1) at most `most`."""
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
        joined = (scale_residues(joined, 1 << bits, modulus) + limb) % modulus
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
