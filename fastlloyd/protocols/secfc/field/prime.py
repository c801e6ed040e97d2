r"""Arithmetic modulo a product of primes below 2^24, exact and at the speed of float64 matrix products.

An integer v with abs(v) <= (Q - 1) / 2, Q the product of the primes, is held as one residue for each prime (Chinese
remainders), so an array of field elements of shape S is a float64 array of shape (number of primes, *S). Residues are
**centred**: an element modulo p lies in [-(p - 1) / 2, (p - 1) / 2] and has this one form only.

Why float64 is exact. Products of centred residues are integers of at most 2^46, so sums of up to 64 of them stay
within 2^52 and come out exactly, in whatever order and with whatever fused operations the matrix product takes them;
longer sums are cut into blocks, and `field/residue.py` proves the reduction. One float64 product for each prime then
does the work; residues of 36 bits in two limbs would take four products where three primes take three.

Because residues stay below 2^23 in size, arrays that are kept for long may be stored as float32 without any loss;
every operation here computes in float64 all the same.

Source: SecFC, App. A; docs/protocol.md, "Arithmetic".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import RangeError
from fastlloyd.protocols.secfc.field.pack import Expansion, Rows, draw, expected_bytes, pack, row_type, unpack
from fastlloyd.protocols.secfc.field.residue import (
    LARGEST_EXACT,
    PRIME_BITS,
    Elements,
    is_positive,
    is_prime,
    mixed_radix,
    primes_below,
    reduce_rows,
)
from fastlloyd.randomness.prg import KeyStream
from fastlloyd.randomness.secret import SecretRandom

__all__ = ["MAX_PRIMES", "MAX_RECORDS", "Elements", "Field", "choose_field"]

MAX_PRIMES = 19
MAX_RECORDS = 1 << 29
"""Sums of this number of centred residues are within 2^52."""

_SMALL_PRIME_BITS = 16
_GROUP_BLOCK = 1 << 17


@dataclass(frozen=True, slots=True)
class Field:
    """The integers modulo a product of distinct odd primes below 2^24: a field for each of them.

    Parameters
    ----------
    primes : tuple of int

    Raises
    ------
    RangeError
        A number is not an odd prime below 2^24, or is named twice.

    Notes
    -----
    In operations of two arrays the shapes broadcast as in numpy; give both the same number of axes, since the
    first one is that of the primes.
    """

    primes: tuple[int, ...]

    def __post_init__(self) -> None:
        good = all(2 < p < 1 << PRIME_BITS and is_prime(p) for p in self.primes)
        if not self.primes or not good or len(set(self.primes)) != len(self.primes):
            raise RangeError(f"a field needs distinct odd primes below 2^{PRIME_BITS}, got {self.primes}")

    @property
    def modulus(self) -> int:
        """The product of the primes."""
        return math.prod(self.primes)

    @property
    def largest(self) -> int:
        """The largest integer that can be held; its negative is the smallest."""
        return (self.modulus - 1) // 2

    @property
    def widths(self) -> tuple[int, ...]:
        """Bytes of one residue on the wire, for each prime."""
        return tuple((p.bit_length() + 7) // 8 for p in self.primes)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element on the wire."""
        return sum(self.widths)

    @property
    def inner_limit(self) -> int:
        """How many products of two residues may be added up before a reduction."""
        return LARGEST_EXACT // ((max(self.primes) - 1) // 2) ** 2

    def zeros(self, shape: tuple[int, ...]) -> Elements:
        """Return the element 0 in an array of this shape."""
        return np.zeros((len(self.primes), *shape))

    def encode(self, integers: NDArray[np.int64]) -> Elements:
        """Convert signed integers to field elements.

        Parameters
        ----------
        integers : int64 array, shape S

        Returns
        -------
        float64 array, shape (primes, *S)

        Raises
        ------
        RangeError
            An integer lies outside [-largest, largest]: a bug in the choice of the field. Never wraps.
        """
        integers = np.asarray(integers, dtype=np.int64)
        size = max(-int(integers.min()), int(integers.max())) if integers.size else 0
        if size > self.largest:
            raise RangeError(f"an integer of {size} does not fit a field of {self.modulus}; choose a larger field")
        elements = self.zeros(integers.shape)
        if size <= LARGEST_EXACT:
            elements[...] = integers
        else:
            for i, p in enumerate(self.primes):
                elements[i] = np.remainder(integers, p)
        return elements if 2 * size < min(self.primes) else self._reduce(elements)

    def powers_of_two(self, exponents: NDArray[np.int64]) -> Elements:
        """Return the elements 2^a for exponents of shape S, 0 or more; shape (primes, *S)."""
        most = int(exponents.max(initial=0))
        table = np.array([[pow(2, a, p) for a in range(most + 1)] for p in self.primes], dtype=np.float64)
        return self._reduce(np.ascontiguousarray(table[:, exponents]))

    def decode(self, elements: Elements) -> NDArray[Any]:
        """Return the integers in [-largest, largest] as Python integers, in an object array."""
        digits = mixed_radix(elements, self.primes).astype(np.int64).astype(object)
        value = digits[-1]
        for p, digit in zip(self.primes[-2::-1], digits[-2::-1], strict=True):
            value = value * p + digit
        return np.asarray(value, dtype=object)

    def positive(self, elements: Elements) -> NDArray[np.bool_]:
        """Return where the integers in [-largest, largest] are above 0, for elements of shape (primes, *S).

        `field/residue.py` proves that it is exact.
        """
        return is_positive(elements, self.primes)

    def reduce(self, values: Elements) -> Elements:
        """Reduce integers of at most 2^52 in size, one row for each prime, into a new array."""
        return self._reduce(np.array(values, dtype=np.float64, order="C"))

    def add(self, left: Elements, right: Elements) -> Elements:
        """Add."""
        return self._reduce(np.add(left, right, dtype=np.float64, order="C"))

    def subtract(self, left: Elements, right: Elements) -> Elements:
        """Subtract."""
        return self._reduce(np.subtract(left, right, dtype=np.float64, order="C"))

    def multiply(self, left: Elements, right: Elements) -> Elements:
        """Multiply element by element."""
        return self._reduce(np.multiply(left, right, dtype=np.float64, order="C"))

    def matmul(self, left: Elements, right: Elements, *, centred: bool = True) -> Elements:
        """Multiply matrices.

        Parameters
        ----------
        left : array, shape (primes, ..., a, b)
        right : array, shape (primes, ..., b, c)
        centred : bool
            Whether the right one's residues are centred; if not, they lie in 0..p - 1.

        Returns
        -------
        float64 array, shape (primes, ..., a, c)
        """
        inner, limit = left.shape[-1], self.inner_limit if centred else self.inner_limit // 2
        if inner <= limit:
            return self._reduce(np.matmul(left, right, dtype=np.float64, order="C"))
        total = self.matmul(left[..., :limit], right[..., :limit, :], centred=centred)
        for start in range(limit, inner, limit):
            part = slice(start, start + limit)
            total += self.matmul(left[..., part], right[..., part, :], centred=centred)
        return self._reduce(total)

    def squared_norms(self, vectors: Elements) -> Elements:
        """Add the squares of the last axis: shape (primes, ..., s) gives (primes, ...)."""
        width, limit = vectors.shape[-1], self.inner_limit
        total = self.zeros(vectors.shape[1:-1])
        for start in range(0, width, limit):
            part = vectors[..., start : start + limit]
            total += self._reduce(np.einsum("...s,...s->...", part, part, dtype=np.float64, order="C"))
        return self._reduce(total)

    def group_sums(self, elements: Elements, labels: NDArray[np.int64], k: int) -> Elements:
        """Add up the rows of each label.

        Parameters
        ----------
        elements : array, shape (primes, n, s)
            n at most 2^29.
        labels : int64 array, shape (n,)
            Rows with a label outside 0..k-1 are left out.
        k : int

        Returns
        -------
        float64 array, shape (primes, k, s)
        """
        primes, n, width = elements.shape
        total = self.zeros((k, width))
        names = np.arange(k)[:, None]
        height = max(1, _GROUP_BLOCK // max(k, width * primes, 1))
        for start in range(0, n, height):
            rows = slice(start, start + height)
            members = (labels[None, rows] == names).astype(np.float64)
            total += np.matmul(members, elements[:, rows], dtype=np.float64)
        return self._reduce(total)

    def uniform(self, shape: tuple[int, ...], secret: SecretRandom) -> Elements:
        """Draw elements, exactly uniform and independent, from the operating system's randomness.

        Returns
        -------
        float64 array, shape (primes, *shape)
        """
        return self._reduce(draw(self.primes, shape, read=secret.bytes))

    def uniform_from(self, stream: KeyStream, nonce: bytes, shape: tuple[int, ...]) -> Elements:
        """Expand a key and a nonce into pseudo-random elements.

        Parameters
        ----------
        stream : KeyStream
            Of a key from `prg.derive`, with its own purpose.
        nonce : bytes of length 12
            Never used twice with one key.
        shape : tuple of int

        Returns
        -------
        float64 array, shape (primes, *shape)
            Residues in 0..p - 1: not centred, since the sum is reduced later.
        """
        expansion = Expansion(stream, nonce, expected=expected_bytes(self.primes, math.prod(shape)))
        return draw(self.primes, shape, read=expansion.read)

    @property
    def row_type(self) -> np.dtype[np.void]:
        """The type of one element on the wire: a residue for each prime, in 1 to 3 bytes each."""
        return row_type(self.widths)

    def to_bytes(self, elements: Elements) -> bytes:
        """Write elements one after the other, each as its residues modulo the first prime, the next one and so on."""
        rows = np.empty(math.prod(elements.shape[1:]), dtype=self.row_type)
        self.write_rows(elements, out=rows)
        return rows.tobytes()

    def write_rows(self, elements: Elements, *, out: Rows) -> None:
        """Write elements as `to_bytes` does, into as many rows of the `row_type`."""
        for column, (p, row) in enumerate(zip(self.primes, elements, strict=True)):
            residues = row.reshape(-1).astype(np.int32)
            residues += (residues >> 31) & p
            pack(out, column, residues.view(np.uint32))

    def from_bytes(self, data: bytes | memoryview, shape: tuple[int, ...]) -> Elements:
        """Read elements of this shape into an array of shape (primes, *shape).

        Raises
        ------
        ValueError
            The length differs, or a residue is not below its prime: the sender is at fault.
        """
        elements = np.empty((len(self.primes), math.prod(shape)))
        self.read_residues(data, out=elements)
        return self._reduce(elements).reshape(len(self.primes), *shape)

    def read_residues(self, data: bytes | memoryview, *, out: Elements) -> None:
        """Read elements into an array of shape (primes, count), residues in 0..p - 1: not centred.

        Raises
        ------
        ValueError
            As `from_bytes`.
        """
        count = out.shape[1]
        if len(data) != count * self.element_bytes:
            raise ValueError(f"expected {count * self.element_bytes} payload bytes, got {len(data)}")
        rows = np.frombuffer(data, dtype=self.row_type)
        for column, (p, row) in enumerate(zip(self.primes, out, strict=True)):
            residues = unpack(rows, column)
            if count and int(residues.max()) >= p:
                raise ValueError(f"expected residues below {p}, got {int(residues.max())}")
            row[:] = residues

    def _reduce(self, values: Elements) -> Elements:
        """Reduce a C-contiguous array in place."""
        return reduce_rows(values, self.primes)


def choose_field(largest: int) -> Field:
    """Choose a field in which integers up to a bound, positive or negative, cannot wrap.

    Parameters
    ----------
    largest : int
        From public bounds alone; centred decoding needs a modulus above twice that.

    Returns
    -------
    Field
        As few primes as suffice, and then as few bytes.

    Raises
    ------
    RangeError
        More than 19 primes of 24 bits would be needed.
    """
    need = 2 * largest
    large, small = (primes_below(1 << bits, MAX_PRIMES) for bits in (PRIME_BITS, _SMALL_PRIME_BITS))
    for count in range(1, MAX_PRIMES + 1):
        for fewer in range(count, -1, -1):
            primes = large[: count - fewer] + small[:fewer]
            if math.prod(primes) > need:
                return Field(primes)
    raise RangeError(
        f"the largest integers need a field of {need.bit_length()} bits, more than {MAX_PRIMES * PRIME_BITS}; take "
        "fewer fraction bits or lower n_total"
    )
