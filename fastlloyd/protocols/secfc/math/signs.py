r"""The values that the server decodes: which of two centres is nearer to a point, as a sign that it cannot read.

Let sigma_h = |c_h|^2 - 2 c_h.x = |x - c_h|^2 - |x|^2 for a centre c_h with S_h points, T = lcm(S_h, S_g), and g a later
cluster than h. As mu_h = S_h c_h is an integer vector,

    D = T^2 (sigma_g - sigma_h),    A_h = T / S_h,    A_g = T / S_g,
      = A_g^2 (|mu_g|^2 - 2 S_g mu_g.x) - A_h^2 (|mu_h|^2 - 2 S_h mu_h.x)

is an integer, and h wins (it is nearer, or as near and earlier) where D >= 0, that is where the odd number 2 D + 1 is
above 0. With secrets that are fresh for each value, an even factor F, noise e uniform on 0..F - 1 and a fair coin, the
clients turn D into

    v = F (2 D + 1) - F / 2 + e = 2 F D + F / 2 + e,    or on tails    -1 - v.

The server decodes it and replies with its sign; the clients know the coin, so they know who won.

*Exact.* If D >= 0 then v >= F / 2 > 0; if D <= -1 then v <= -F - F / 2 + F - 1 < 0; and -1 - v >= 0 where v < 0. So
labels are exact, ties included, whatever the secrets are.

**What a value reveals.** Let m = abs(2 D + 1), and n the larger one of the decoded value v and -1 - v.

1. *The sign is a fair coin, independent of n, and n = F (m - 1/2) + e' with e' uniform on 0..F - 1.* For D >= 0 take
   e' = e, else e' = F - 1 - e.
2. *F is log-uniform.* F = 2^j M, j uniform on 1..64; M has w bits, and P(M) is proportional to 1 / M but for a factor
   of less than 1 + 2^-60 ("Drawing").
3. *Claim.* Let log2 f be uniform on [w, w + 64) and u on [-1/2, 1/2), both real. In total variation the law of n is
   within (m + 1/2) 2^(1 - w) + 2^-60 of that of floor(f (m + u)).
   *Proof.* Write f = 2^j x with 2^(w - 1) <= x < 2^w. Then floor(x) is M with probability log2(1 + 1 / M), which is
   within 2^-61 of ours in total variation. Given F = 2^j M <= f < F (1 + 1 / M), f (m + u) is uniform on the cell
   [f (m - 1/2), f (m + 1/2)), and n on the integers of [F (m - 1/2), F (m + 1/2)). The ends of the latter are integers,
   so n is the floor of a real number that is uniform there. The two cells differ by at most (f - F) (m + 1/2) / f <=
   (m + 1/2) / M. That our e misses the last part of its range adds 2^-63.
4. So, but for that distance, **the server learns Z = log2 f + log2(m + u) and nothing else: log2 m under noise that is
   uniform over 64 octaves.** The distances of all values of a run add up to less than 2^-20 (`distance`), for
   `mantissa_bits` chooses w so.

What follows for Z and G = log2(m + u), for m up to M*, under the law of floor(f (m + u)):

- *Two values share nothing.* Given all D, all values are independent, whatever the D are, equal ones or multiples: each
  has its own f, a real number, so a quotient of two values is also a real number.
- *One value.* For m >= m' the laws of Z differ by at most log2((m + 1/2) / (m' - 1/2)) / 64 in total variation, for
  moving a uniform variable of width 64 by g moves its law by g / 64. For w + log2(M* + 1/2) <= Z < w + 63 the density
  is 1 / 64 whatever m is: such a value says nothing at all.
- *In bits.* Z lies in a range of 64 + log2(2 M* + 1), and given G it has an entropy of log2 64. So a value and its D
  have at most log2(1 + log2(2 M* + 1) / 64) bits in common (`bits_in_common`), n values at most n times as many.

**Size.** Two clusters have at most N points together, so T <= N^2 / 4; sigma_g - sigma_h is a difference of two squared
distances of at most 4 rho^2, rho the largest norm of a point. So abs(D) <= N^4 rho^2 / 4, and abs(v) <= F (m + 1/2) <
2^(w + 65) (abs(D) + 1). Other comparisons (`attempt.py`) have their own D, and the same secrets.

**Drawing.** A candidate is four words of 64 bits, X with its highest bit set, Y, R_1 and R_2. It is taken if Y < X, R_1
X < 2^127 and R_2 X < 2^127; the first ones taken count. Then M = 2^(w - 64) X + a, a uniform on w - 64 bits, and e =
2^j (2^(w - 64) Y + b) + c, b and c uniform on w - 64 and j bits. A candidate is taken with probability X / 2^64 times
(ceil(2^127 / X) / 2^64)^2, which is 2^62 / X but for a factor of at most 1 + 2^-62; and X is M / 2^(w - 64) but for a
factor of 1 + 2^-63. Given X, Y is uniform below X, so e is uniform on all of 0..F - 1 but a part of at most 2^-63.

Source: none in the paper, whose server learns distances; docs/secfc.md, "What the server learns". Taking candidates:
von Neumann, "Various techniques used in connection with random digits" (1951).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.pack import Expansion
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.protocols.secfc.field.residue import narrow_matmul
from fastlloyd.randomness.prg import KeyStream, keystream

OCTAVES = 64
"""Factors are spread evenly over this number of octaves."""

MOST_VALUES = 1 << 39
"""Up to this number of values `distance` is below 2^-20; for more, no number of bits suffices."""

_LEAST_MANTISSA_BITS = 64
# All values of a run together are at most 2^-20 away from their claimed law.
_DISTANCE_BITS = 20
_CANDIDATE_BYTES = 32
# Drawn at a time: they fit the cache.
_BLOCK = 1 << 14
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_SPARE_BITS = 25
_LIMB_BITS = 16


def largest_difference(*, n_total: int, squared_norm: int) -> int:
    """Return a bound on D of two centres, in size: the "Size" of this module.

    Parameters
    ----------
    n_total : int
        Public bound N on all records.
    squared_norm : int
        Largest squared norm of a record on the grid, rho^2.
    """
    return n_total**4 * squared_norm // 4


def mantissa_bits(difference: int, values: int) -> int:
    """Return w such that `distance` is below 2^-20, for up to `MOST_VALUES` values of differences up to a size."""
    bits = (2 * difference + 1).bit_length() + values.bit_length() + _DISTANCE_BITS + 2
    return max(_LEAST_MANTISSA_BITS, bits)


def distance(difference: int, values: int, mantissa: int) -> float:
    """Return the bound on the total variation between all values of a run and their ideal law; see the module."""
    return values * ((2 * difference + 1.5) * 2.0 ** (1 - mantissa) + 2.0**-60)


def bits_in_common(difference: int) -> float:
    """Return the bound on what a value reveals of its D, in bits; see the module."""
    return math.log2(1.0 + math.log2(4 * difference + 3) / OCTAVES)


def largest_value(difference: int, mantissa: int) -> int:
    """Return a bound on the size of decoded values, for differences up to a size."""
    return (difference + 1) << (mantissa + OCTAVES + 1)


@dataclass(frozen=True, slots=True)
class SignMasks:
    """The secrets of some comparisons; numbers of many bits in words of 32 bits, the lowest first.

    Attributes
    ----------
    mantissa : int
        w.
    mantissas, positions : uint32 array, shape (values, words)
        M and floor(e / 2^j): the lowest w - 64 bits in words, then the highest 64 in two words.
    octaves : int64 array, shape (values,)
        j, 1..64.
    low : uint32 array, shape (values, 2)
        The last j bits of e.
    flipped : bool array, shape (values,)
        Where the coin shows tails.
    spare : int64 array, shape (values,)
        25 bits more.
    """

    mantissa: int
    mantissas: NDArray[np.uint32] = field(repr=False)
    positions: NDArray[np.uint32] = field(repr=False)
    octaves: NDArray[np.int64] = field(repr=False)
    low: NDArray[np.uint32] = field(repr=False)
    flipped: NDArray[np.bool_] = field(repr=False)
    spare: NDArray[np.int64] = field(repr=False)

    def elements(self, ring: Field, block: slice) -> tuple[Elements, Elements]:
        """Return 2 F and the noise added to 2 F D, both with the coin's sign, shape (primes, values of the block).

        Both are below 2^23 + 2 in size.
        """
        weights, weights_low, powers = _weights(ring.primes, self.mantissa)
        mantissas = ring.reduce(narrow_matmul(weights, _limbs(self.mantissas[block])))
        middles = mantissas + 2.0 * narrow_matmul(weights, _limbs(self.positions[block]))
        octaves, flipped = self.octaves[block], self.flipped[block]
        signs = np.where(flipped, -1.0, 1.0)
        factors = ring.multiply(mantissas, powers[:, octaves + 1])
        noise = ring.multiply(ring.reduce(middles), powers[:, octaves - 1])
        noise = ring.reduce(noise + narrow_matmul(weights_low, _limbs(self.low[block])))
        return factors * signs, noise * signs - flipped

    def integers(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the same as `elements`, as Python integers in object arrays of shape (values,)."""
        rest, count = self.mantissa - _LEAST_MANTISSA_BITS, len(self.octaves)
        factors, noise = np.empty(count, dtype=object), np.empty(count, dtype=object)
        mantissas, positions = (
            [(high << rest) + low for high, low in zip(_numbers(words[:, -2:]), _numbers(words[:, :-2]), strict=True)]
            for words in (self.mantissas, self.positions)
        )
        secrets = zip(
            self.octaves.tolist(), self.flipped.tolist(), mantissas, positions, _numbers(self.low), strict=True
        )
        for i, (octave, flipped, mantissa, position, low) in enumerate(secrets):
            added = (mantissa << (octave - 1)) + (position << octave) + low
            factors[i] = (mantissa << (octave + 1)) * (-1 if flipped else 1)
            noise[i] = -1 - added if flipped else added
        return factors, noise


def sign_masks(count: int, *, key: bytes, round_: int, mantissa: int) -> SignMasks:
    """Draw the secrets of one round's comparisons.

    Parameters
    ----------
    count : int
    key : bytes of length 32
        Common to the clients, unknown to the server, for this purpose alone.
    round_ : int
        Never twice with one key.
    mantissa : int
        w, from `mantissa_bits`.

    Notes
    -----
    Sees: every client can compute them.
    """
    rest = mantissa - _LEAST_MANTISSA_BITS
    words = -(-rest // 32)
    stream = keystream(key, struct.pack("<III", round_, 1, 0), 4 * (3 + 2 * words) * count)
    rows = np.frombuffer(stream, dtype="<u4").reshape(count, 3 + 2 * words)
    flags = rows[:, 0].astype(np.int64)
    octaves = 1 + flags % OCTAVES
    low = np.ascontiguousarray(rows[:, 1:3]).view("<u8").reshape(count)
    low = low & (~np.uint64(0) >> (OCTAVES - octaves).astype(np.uint64))
    taken = _take_candidates(count, KeyStream(key), struct.pack("<III", round_, 0, 0))
    numbers = []
    for high, below in zip(taken, (rows[:, 3 : 3 + words], rows[:, 3 + words :]), strict=True):
        number = np.concatenate([below, high.view("<u4").reshape(count, 2)], axis=1)
        if rest % 32:
            number[:, words - 1] &= np.uint32((1 << rest % 32) - 1)
        numbers.append(number)
    return SignMasks(
        mantissa=mantissa,
        mantissas=numbers[0],
        positions=numbers[1],
        octaves=octaves,
        low=low.view("<u4").reshape(count, 2),
        flipped=(flags & OCTAVES) != 0,
        spare=flags >> (32 - _SPARE_BITS),
    )


def dummy_bits(secrets: SignMasks, least: NDArray[np.int64], span: int) -> NDArray[np.int64]:
    """Return powers of two for dummy values: one of `span`, from `least` on."""
    chosen: NDArray[np.int64] = least + (secrets.spare * span >> _SPARE_BITS)
    return chosen


def _take_candidates(count: int, stream: KeyStream, nonce: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return X and Y of the first candidates that are taken, shape (count,) each."""
    expansion = Expansion(stream, nonce, expected=_CANDIDATE_BYTES * (3 * count + 64))
    taken, found = [np.empty((0, 2), dtype="<u8")], 0
    while found < count:
        candidates = min(_BLOCK, 3 * (count - found) + 64)
        data = expansion.read(_CANDIDATE_BYTES * candidates)
        numbers = np.frombuffer(data, dtype="<u8").reshape(candidates, 4)
        x = numbers[:, 0] | np.uint64(1 << 63)
        good = (numbers[:, 1] < x) & _is_below(numbers[:, 2], x) & _is_below(numbers[:, 3], x)
        taken.append(np.stack([x[good], numbers[good, 1]], axis=1))
        found += len(taken[-1])
    rows = np.concatenate(taken)[:count]
    return np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1])


def _is_below(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return where the product of two numbers of 64 bits is below 2^127."""
    a, b, c, d = left & _LOW, left >> _HALF, right & _LOW, right >> _HALF
    middle = b * c + (a * c >> _HALF)
    other = a * d + (middle & _LOW)
    high = b * d + (middle >> _HALF) + (other >> _HALF)
    return np.asarray(high < np.uint64(1 << 63))


def _limbs(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return numbers in limbs of 16 bits, shape (limbs, values)."""
    return np.ascontiguousarray(words).view("<u2").T.astype(np.float64, order="C")


def _numbers(words: NDArray[np.uint32]) -> list[int]:
    """Return the number of each row."""
    data, length = np.ascontiguousarray(words, dtype="<u4").tobytes(), 4 * words.shape[1]
    return [int.from_bytes(data[i * length : (i + 1) * length], "little") for i in range(len(words))]


@lru_cache(maxsize=16)
def _weights(primes: tuple[int, ...], mantissa: int) -> tuple[Elements, Elements, Elements]:
    """Return the residues of the weights of 16-bit limbs, of M and of the last bits, and powers of two.

    Sums of limbs times residues stay below 2^45: exact in float64 in any order.
    """
    rest = mantissa - _LEAST_MANTISSA_BITS
    below = [_LIMB_BITS * i for i in range(2 * -(-rest // 32))]
    above = [_LIMB_BITS * i for i in range(4)]
    return (
        _powers(primes, [*below, *(rest + bits for bits in above)]),
        _powers(primes, above),
        _powers(primes, list(range(OCTAVES + 2))),
    )


def _powers(primes: tuple[int, ...], exponents: list[int]) -> Elements:
    """Return centred residues of powers of two, shape (primes, exponents)."""
    table = [[pow(2, bits, p) for bits in exponents] for p in primes]
    return np.array([[r - p if r > p // 2 else r for r in row] for p, row in zip(primes, table, strict=True)], float)
