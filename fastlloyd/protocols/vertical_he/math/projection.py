"""Two clusters, any number of encrypted columns: the linear scheme on their projection, encrypted for every round.

Which of two centres is nearer depends on the key holder's columns b through one number only, b . (c_1 - c_0). Divided
by the sum of |c_1 - c_0| over these columns it is p in [-1, 1], and what `linear` does with b can be done with p. The
centres move, so the key holder encrypts T_m(p), and b_f T_m(p) for each of its columns f, for every round anew: many
bytes, but neither a relinearisation key nor products of ciphertexts, and the key may be shared.

All encrypted numbers are within [-1, 1], and a record's weights on b_f T_m are those on T_m: the linear scheme's bounds
on what one record moves hold as they are. A row that is replaced by nothing has zeros for all of them in every round.

Source: Vertical HE, §3.1 ("Special Case: k = 2"); docs/vertical-he-privacy.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.he.ckks import Context, KeyHolder, Refresher, encrypt_integers
from fastlloyd.crypto.he.lattice import Sample
from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine
from fastlloyd.protocols.vertical_he.math.window import features
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
    """Encrypt one block for one round: T_0(p)..T_D(p), then these times each column; run by the key holder.

    Parameters
    ----------
    raw_columns : float64 array, shape (d_own, n), scaled to [-1, 1]
    centers : float64 array, shape (2, d)

    Notes
    -----
    Sees: the computing party sees ciphertexts of n records' features and cannot open them.
    """
    own = np.clip(raw_columns[:, plan.rows(block)], -1.0, 1.0)
    step, spread = difference(centers, plan.columns(plan.holder))
    values = features(step @ own / spread if spread else np.zeros(own.shape[1]), plan.degree + 1)
    every = np.concatenate([values, *(column * values for column in own)])
    coefficients = np.zeros((len(every), context.degree), dtype=np.int64)
    coefficients[:, : every.shape[1]] = np.rint(every * 2.0**plan.scales.data_bits)
    return encrypt_integers(context, encrypter, coefficients)


def difference(centers: NDArray[np.float64], columns: tuple[int, ...]) -> tuple[NDArray[np.float64], float]:
    """Return c_1 - c_0 on some columns, and the sum of its absolute values."""
    step = (centers[1] - centers[0])[list(columns)]
    return step, float(np.abs(step).sum())


class ProjectionEngine(LinearEngine):
    """Adds up one round's encrypted features as they come and keeps none; implements `engine.Engine`."""

    _centers: NDArray[np.float64] | None = None

    def begin(self, centers: NDArray[np.float64]) -> None:
        """Start a round: its blocks are added up by these centres."""
        self._centers, self._sums = centers, self._no_sums()

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Add up one block of encrypted features, group by group: T_m(p), then these times each column."""
        if self._centers is None:
            raise InternalError("a block of a projection came before its round's centres")
        count = self.plan.degree + 1
        for group in range(1 + len(self._others)):
            prepared = self._prepare(parts[group * count : (group + 1) * count])
            self._add(self._sums, prepared, self._group_weights(self._centers, block, group))

    def add_up(self, centers: NDArray[np.float64]) -> Generator[float, None, Sample]:
        """Yield the sums over the round's blocks, which end with it."""
        if self._centers is None or (self._centers != centers).any():
            raise InternalError("a round of a projection ended with other centres than it began with")
        self._centers = None
        yield 1.0
        return self._sums

    def _order(self, centers: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Centre 1 lies above centre 0 along their difference, by the sum that p was divided by."""
        return np.arange(2), np.array([0.0, difference(centers, self._others)[1]])

    def _group_weights(
        self, centers: NDArray[np.float64], block: int, group: int
    ) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the outputs to which one group of ciphertexts adds, and integer weights, shape (features, m)."""
        own = self._columns[:, self.plan.rows(block)]
        for base, soft in self._softs(centers, block):
            if group:
                yield base + 1 + self._others[group - 1], self._whole(soft)
                continue
            yield base, self._whole(soft)
            for place, column in enumerate(self._own):
                yield base + 1 + column, self._whole(soft * own[place])
