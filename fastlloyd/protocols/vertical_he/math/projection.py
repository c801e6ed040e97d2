"""Two clusters, any number of encrypted columns: the linear scheme on their projection, encrypted for every round.

Which of two centres is nearer depends on the key holder's columns b through one number only, b . (c_1 - c_0). Divided
by the sum of |c_1 - c_0| over these columns it is p in [-1, 1], and p can take the place of b in `linear`. The centres
move, so in every round the key holder encrypts the shares s_v(p), and b_f s_v(p) for each of its columns f. That takes
many bytes, but no relinearisation key and no products of ciphertexts, and the key may be shared.

All encrypted numbers are within [-1, 1], and a record's weights on b_f s_v are those on s_v, so the linear scheme's
bounds on one record's effect hold unchanged. A row that is replaced by nothing has only zeros, in every round.

Source: Vertical HE, §3.1 ("Special Case: k = 2"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder, Refresher
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.protocols.vertical_he.math.computer import Work
from fastlloyd.protocols.vertical_he.math.grid import shares
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine, Running, encrypt_values
from fastlloyd.protocols.vertical_he.plan import Plan


def encrypt_block(
    plan: Plan,
    context: Context,
    encrypter: KeyHolder | Refresher,
    raw_columns: NDArray[np.float64],
    block: int,
    *,
    centers: NDArray[np.float64],
) -> list[bytes]:
    """Encrypt one block for one round, as the key holder: the shares of p, then these times each column.

    Parameters
    ----------
    raw_columns : float64 array, shape (d_own, n), scaled to [-1, 1]
    centers : float64 array, shape (2, d)

    Notes
    -----
    Sees: the computing party sees ciphertexts of n records' shares and cannot open them.
    """
    own = np.clip(raw_columns[:, plan.rows(block)], -1.0, 1.0)
    step, spread = difference(centers, plan.columns(plan.holder))
    place = shares((step @ own / spread if spread else np.zeros(own.shape[1]))[None], plan.grid)
    return encrypt_values(plan, context, encrypter, np.concatenate([place, *(column * place for column in own)]))


def difference(centers: NDArray[np.float64], columns: tuple[int, ...]) -> tuple[NDArray[np.float64], float]:
    """Return c_1 - c_0 on some columns, and the sum of its absolute values."""
    step = (centers[1] - centers[0])[list(columns)]
    return step, float(np.abs(step).sum())


class ProjectionEngine(LinearEngine):
    """Adds up one round's encrypted shares as they arrive and keeps none; implements `computer.Engine`."""

    _centers: NDArray[np.float64] | None = None

    def begin(self, centers: NDArray[np.float64]) -> None:
        """Start a round: its blocks are added up by these centres."""
        groups: list[tuple[int | None, ...]] = [(None, *self._own), *((column,) for column in self._others)]
        self._centers, self._running = centers, [Running(self.plan, self._products, group) for group in groups]

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Add up one block of encrypted shares, group by group: those of p, then these times each column."""
        if self._centers is None:
            raise InternalError("a block of a projection came before its round's centres")
        count = len(self._corners)
        for group, running in enumerate(self._running):
            prepared = self._prepare(parts[group * count : (group + 1) * count])
            for part in self._parts:
                ciphers, labels = self._products.transform(prepared, part), self.labels(self._centers, block, part)
                for cluster in self._turn(block):
                    values = self.values(self._centers, block, cluster)[: 0 if group else None]
                    running.add(cluster, ciphers, labels == cluster, self.factors(part), values)

    def add_up(self, centers: NDArray[np.float64]) -> Work:
        """Return the sums over the round's blocks and end the round."""
        if self._centers is None or (self._centers != centers).any():
            raise InternalError("a round of a projection ended with other centres than it began with")
        self._centers = None
        yield 1.0
        first, *others = [running.finish() for running in self._running]
        for sums in others:
            first = lwe.add(first, sums, self.modulus)
        return first

    def factors(self, part: slice) -> NDArray[np.float64]:
        """Return the integer weight of some corners, one for all, in counts and sums of encrypted columns."""
        return np.full((1, len(self._corners[part])), self._scale)

    def _pulls(self, centers: NDArray[np.float64], places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Centre 1 lies above centre 0 along their difference, by the sum that p was divided by."""
        pulls: NDArray[np.float64] = places * np.array([0.0, 2.0 * difference(centers, self._others)[1]])
        return pulls
