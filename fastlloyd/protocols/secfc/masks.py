"""What hides the answers of one round, from the clients' common seed: alike at all clients, fresh in each round.

Three things, each under a key of its own: a secret order of the points, secret factors and noise (`order.py`), and
polynomials that hide what the single segments add (`ring/zero_sum.py`).

The keys depend on the assignment that the answers are for: a server that shows clients different assignments gets
answers that do not fit together. In Lloyd's rounds the points are sent in a fresh secret order, so the server can link
neither a point's values of one round with those of another, nor the members of a cluster with the values of the next.

Source: none in the paper; docs/secfc.md, "What the server learns".
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.prg import derive, keystream
from fastlloyd.protocols.secfc.order import OrderMasks, Scale, order_masks
from fastlloyd.ring.field import Elements
from fastlloyd.ring.lagrange import Code
from fastlloyd.ring.zero_sum import zero_sum_mask

_SUMS = b"fastlloyd secfc zero-sum masks"
_ORDER = b"fastlloyd secfc order masks"
_SHUFFLE = b"fastlloyd secfc order of points"


class RoundMasks:
    """The masks of one round, for one client.

    Parameters
    ----------
    code : Code
    client : int
        1..n.
    labels : int64 array, shape (m,)
        The assignment that the answers are for.
    seed : bytes of length 32
        The clients' common seed, which the server does not know.
    run_id : bytes
    iteration : int
        The round; each has masks of its own.

    Notes
    -----
    Sees: every client can compute them for all clients. Nobody may use them for two answers.
    """

    def __init__(
        self, code: Code, client: int, labels: NDArray[np.int64], *, seed: bytes, run_id: bytes, iteration: int
    ) -> None:
        context = run_id + hashlib.sha256(labels.astype("<i8").tobytes()).digest()
        self._code, self._client, self._iteration = code, client, iteration
        self._records = len(labels)
        self._sums, self._order, self._shuffle = (
            derive(seed, purpose, context) for purpose in (_SUMS, _ORDER, _SHUFFLE)
        )

    def shuffled(self) -> NDArray[np.int64]:
        """Return the points in a secret order, uniform but for numbers of 64 bits that are equal."""
        stream = keystream(self._shuffle, struct.pack("<III", self._iteration, 0, 0), 8 * self._records)
        return np.argsort(np.frombuffer(stream, dtype="<u8"), kind="stable")

    def order(self, scale: Scale, points: int, block: int) -> OrderMasks:
        """Return factors and noise of one block of points."""
        return order_masks(scale, points, key=self._order, iteration=self._iteration, block=block)

    def sums(self, shape: tuple[int, ...], block: int) -> Elements:
        """Return what hides the segments in one block of the answer."""
        return zero_sum_mask(self._code, self._client, shape, key=self._sums, iteration=self._iteration, block=block)
