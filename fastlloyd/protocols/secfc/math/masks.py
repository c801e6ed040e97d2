"""Masks from the clients' common seed: of one round's answers, fresh in each round, and a rotation of all records.

The masks of a round's answers, the same at all clients, are, each under its own key, a secret order of the values,
secret factors, noise and signs (`signs.py`), and polynomials that hide the contributions of single segments
(`field/zero_sum.py`).

The keys depend on everything that the server has sent so far: if it sends two clients different replies, their answers
do not fit together. The order is that of all values of a round, points and pairs of clusters together.

A secret common rotation of all records, before they are rounded, leaves the axes to the clients alone.
The clients draw one orthogonal map R from their common seed, uniform (Haar) on O(d), and each shares round(R x 2^q) for
its records x. R keeps all distances, so k-means finds the same clusters except for rounding: the labels are those of
Lloyd's algorithm on the rotated grid. Revealed centres are turned back.

Clients need the same map, not the same bits: where two machines' floating point differs, by some 1e-13, each rounds a
few coordinates of its own records differently, and the protocol stays exact for the shared values.

Source: none in the paper; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.protocols.secfc.field.lagrange import Code
from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.field.zero_sum import zero_sum_mask
from fastlloyd.protocols.secfc.math.signs import SignMasks, sign_masks
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KeyStream, derive, keystream

_PURPOSES = (domains.SECFC_SUMS, domains.SECFC_SIGNS, domains.SECFC_ORDER)
_DIGITS = 3

_BLOCK_VALUES = 1 << 18


def squared_norm_bound(d: int, fraction_bits: int) -> int:
    """Return a bound on the squared norm of a rotated record on the grid.

    A record in [-1, 1]^d has norm sqrt(d) 2^q on the grid, rotated or not; rounding adds sqrt(d) / 2 at most. The
    bound d (2^q + 1)^2 leaves sqrt(d) / 2 for floating point.
    """
    return d * ((1 << fraction_bits) + 1) ** 2


def draw_rotation(d: int, *, seed: bytes, run_id: bytes) -> NDArray[np.float64]:
    """Draw the secret rotation of a run.

    Parameters
    ----------
    d : int
    seed : bytes of length 32
        The clients' common seed, which the server does not know.
    run_id : bytes

    Returns
    -------
    float64 array, shape (d, d)
        Orthogonal; of determinant 1 or -1. Records are rows: x @ rotation.T.

    Notes
    -----
    Sees: every client; nobody else. The Q of a Gaussian matrix, with R's diagonal made positive, is uniform on O(d).
    """
    stream = keystream(derive(seed, domains.SECFC_ROTATION, run_id), bytes(12), 16 * d * d)
    uniform = (np.frombuffer(stream, dtype="<u8") >> np.uint64(11)).astype(np.float64).reshape(2, d, d) + 0.5
    radius, angle = uniform * 2.0**-53
    q, r = np.linalg.qr(np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * math.pi * angle))
    return np.asarray(q * np.where(np.diag(r) < 0.0, -1.0, 1.0))


def rotate(raw_points: NDArray[np.float64], rotation: NDArray[np.float64], fraction_bits: int) -> GridPoints:
    """Rotate records and put them on the grid of 2^-q.

    Parameters
    ----------
    raw_points : float64 array, shape (n, d)
        Scaled; values outside [-1, 1] are clipped first.
    rotation : float64 array, shape (d, d)
    fraction_bits : int
    """
    n, d = raw_points.shape
    raw_coordinates = np.empty((d, n), dtype=np.int32)
    raw_squared_norms = np.empty(n, dtype=np.float64)
    turn = rotation.T * float(1 << fraction_bits)
    height = max(1, _BLOCK_VALUES // d)
    for start in range(0, n, height):
        rows = slice(start, start + height)
        block = np.rint(np.clip(raw_points[rows], -1.0, 1.0) @ turn)
        raw_coordinates[:, rows] = block.T
        raw_squared_norms[rows] = np.einsum("ij,ij->i", block, block)
    return GridPoints(raw_coordinates, raw_squared_norms, fraction_bits)


def turn_back(centers: NDArray[np.float64], rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return centres of rotated records, shape (k, d), in the records' own axes; NaN stays."""
    return np.clip(centers @ rotation, -1.0, 1.0)


class RoundMasks:
    """The masks of one round, for one client.

    Parameters
    ----------
    code : Code
    client : int
        1..n.
    seed : bytes of length 32
        The clients' common seed, which the server does not know.
    replies : bytes of length 32
        Digest of the run and of all that the server has sent.
    round_ : int
        Each round has its own masks.
    mantissa : int
        Bits of the mantissas of factors, w of `signs.py`.

    Notes
    -----
    Sees: every client can compute them for all clients. Nobody may use them for two answers.
    """

    def __init__(self, code: Code, client: int, *, seed: bytes, replies: bytes, round_: int, mantissa: int) -> None:
        self._code, self._client, self._round, self._mantissa = code, client, round_, mantissa
        sums, self._signs, self._shuffle = (derive(seed, purpose, replies) for purpose in _PURPOSES)
        self._sums = KeyStream(sums)

    def shuffled(self, count: int) -> NDArray[np.int64]:
        """Return 0..count-1 in a secret order: uniform, unless two numbers of 48 bits are equal."""
        stream = keystream(self._shuffle, struct.pack("<III", self._round, 0, 0), 2 * _DIGITS * count)
        order = np.arange(count)
        # numpy sorts 16 bits by counting: three such sorts take less than half the time of one of 64-bit numbers.
        for digits in np.frombuffer(stream, dtype="<u2").reshape(_DIGITS, count):
            order = order[np.argsort(digits[order], kind="stable")]
        return order

    def signs(self, count: int) -> SignMasks:
        """Return the secrets of the round's comparisons, by number."""
        return sign_masks(count, key=self._signs, round_=self._round, mantissa=self._mantissa)

    def sums(self, shape: tuple[int, ...], block: int) -> Elements:
        """Return the mask of the segments in one block of the answer."""
        return zero_sum_mask(self._code, self._client, shape, stream=self._sums, iteration=self._round, block=block)
