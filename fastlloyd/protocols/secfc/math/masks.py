"""The masks of one round's answers, from the clients' common seed: the same at all clients, fresh in each round.

They are, each under its own key, a secret order of the values, secret factors, noise and signs (`signs.py`), and
polynomials that hide the contributions of single segments (`field/zero_sum.py`).

The keys depend on everything that the server has sent so far: if it sends two clients different replies, their answers
do not fit together. The order is that of all values of a round, points and pairs of clusters together.

Source: none in the paper; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.secfc.field.lagrange import Code
from fastlloyd.protocols.secfc.field.prime import Elements
from fastlloyd.protocols.secfc.field.zero_sum import zero_sum_mask
from fastlloyd.protocols.secfc.math.signs import SignMasks, sign_masks
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import KeyStream, derive, keystream

_PURPOSES = (domains.SECFC_SUMS, domains.SECFC_SIGNS, domains.SECFC_ORDER)
_DIGITS = 3


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
