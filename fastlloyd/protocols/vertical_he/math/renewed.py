"""The linear scheme for any number of encrypted columns: their shares are encrypted anew in every round.

A scheme divides each record of the key holder among F public corners, with shares s_v that are not negative and sum
to 1: for `projection` the corners of a grid over one number, for `landmarks` points near the centres. The centres move,
and the corners with them. So in every round the key holder encrypts the shares s_v, and b_f s_v for each of its
columns f. The computing party gives each corner, together with its own columns of the record, to one centre, and adds
up as in `linear`. That takes many bytes, but no relinearisation key and no products of ciphertexts, and the key may be
shared.

All encrypted numbers are within [-1, 1], and a record's weights on b_f s_v are those on s_v, so the linear scheme's
bounds on one record's effect hold unchanged. A row that is replaced by nothing has only zeros, in every round. No
ciphertext is sent twice: each round has fresh encryptions of all numbers, also of those that did not change.

Source: Vertical HE, §3.1 ("Special Case: k = 2"), for two clusters; docs/vertical-he-privacy.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher
from fastlloyd.protocols.vertical_he.math import landmarks, projection
from fastlloyd.protocols.vertical_he.math.computer import Work
from fastlloyd.protocols.vertical_he.math.grid import nearest
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine, Running, encrypt_values, partial_scores
from fastlloyd.protocols.vertical_he.parameters import LANDMARKS, PROJECTION
from fastlloyd.protocols.vertical_he.plan import Plan


@dataclass(frozen=True, slots=True)
class Division:
    """How a scheme divides the key holder's records, from public numbers and a record's own columns.

    Attributes
    ----------
    shares : callable
        Maps the plan, columns of the key holder, float64, shape (d_own, m), within [-1, 1], the round and its centres,
        shape (k, d), to these records' shares, float64, shape (F, m): not negative, summing to 1 for each record.
    pulls : callable
        Maps the plan, the round and its centres to the corners' part of the squared distances, float64, shape (F, k),
        see `grid.nearest`. From public numbers alone.
    """

    shares: Callable[[Plan, NDArray[np.float64], int, NDArray[np.float64]], NDArray[np.float64]]
    pulls: Callable[[Plan, int, NDArray[np.float64]], NDArray[np.float64]]


DIVISIONS = {
    PROJECTION: Division(projection.shares, projection.pulls),
    LANDMARKS: Division(landmarks.shares, landmarks.pulls),
}


def encrypt_block(
    plan: Plan,
    context: Context,
    encrypter: KeyHolder | Refresher,
    raw_columns: NDArray[np.float64],
    block: int,
    *,
    t: int,
    centers: NDArray[np.float64],
) -> list[bytes]:
    """Encrypt one block for round t, as the key holder: the shares, then these times each column.

    Parameters
    ----------
    raw_columns : float64 array, shape (d_own, n), scaled to [-1, 1]
    centers : float64 array, shape (k, d)

    Notes
    -----
    Sees: the computing party sees ciphertexts of n records' shares and cannot open them.
    """
    own = np.clip(raw_columns[:, plan.rows(block)], -1.0, 1.0)
    divided = DIVISIONS[plan.scheme].shares(plan, own, t, centers)
    return encrypt_values(plan, context, encrypter, np.concatenate([divided, *(column * divided for column in own)]))


class RenewedEngine(LinearEngine):
    """Adds up one round's encrypted shares as they arrive and keeps none; implements `computer.Engine`."""

    _centers: NDArray[np.float64] | None = None

    def begin(self, t: int, centers: NDArray[np.float64]) -> None:
        """Start round t: its blocks are added up by these centres."""
        self._pulls = DIVISIONS[self.plan.scheme].pulls(self.plan, t, centers)
        self._centers = centers
        self._running = Running(self.plan, self._products, (None, *self._own, *self._others))

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Add up one block of encrypted shares, and of these times each column."""
        if self._centers is None:
            raise InternalError("a block of a round came before the round's centres")
        count, whole = self.plan.corners, slice(None)
        own = [self.values(self._centers, block, cluster) for cluster in self._turn(block)]
        for part in self._parts:
            ciphers, *others = (
                self._products.transform(self._prepare(parts[first : first + count][part]), whole)
                for first in range(0, len(parts), count)
            )
            labels, factors = self.labels(self._centers, block, part), self.factors(part)
            for cluster, values in zip(self._turn(block), own, strict=True):
                self._running.add(cluster, ciphers, labels == cluster, factors, values, others=others)

    def add_up(self, centers: NDArray[np.float64]) -> Work:
        """Return the sums over the round's blocks and end the round."""
        if self._centers is None or (self._centers != centers).any():
            raise InternalError("a round ended with other centres than it began with")
        self._centers = None
        yield 1.0
        return self._running.finish()

    def labels(self, centers: NDArray[np.float64], block: int, part: slice) -> NDArray[np.int16]:
        """Return the cluster of each of some corners, for each record of a block; int16, shape (corners, m)."""
        own = self._columns[:, self.plan.rows(block)]
        return nearest(partial_scores(centers, own, self._own), self._pulls[part])

    def factors(self, part: slice) -> NDArray[np.float64]:
        """Return the integer weight of some corners, one for all, in counts and sums of encrypted columns."""
        return np.full((1, len(self._pulls[part])), self._scale)
