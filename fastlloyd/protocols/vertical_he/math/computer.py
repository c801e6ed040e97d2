"""The interface of engines, which compute on encrypted blocks, and the code that all schemes share.

Source: Vertical HE, §3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context, Refresher
from fastlloyd.protocols.vertical_he.he.lattice import Sample
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.protocols.vertical_he.plan import Plan

Work = Generator[float, None, Sample]


class Engine(ABC):
    """Encrypted blocks in, sums out.

    Attributes
    ----------
    blocks : int
        Of each owner.
    """

    blocks: int

    @abstractmethod
    def keys(self, parts: Sequence[bytes]) -> None:
        """Take the key holder's public keys, the encryption key first; raise ValueError if they do not fit."""

    def begin(self, t: int, centers: NDArray[np.float64]) -> None:  # noqa: B027 - most need not
        """Take the centres of round t before its blocks, in schemes that have new blocks in each round."""

    @abstractmethod
    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Take one owner's encrypted block; raise ValueError if a ciphertext does not fit."""

    @abstractmethod
    def evaluate(self, centers: NDArray[np.float64]) -> Work:
        """Add up one round: yield the fraction done, return k (d + 1) LWE samples, cluster by cluster."""


class Computer(Engine):
    """An engine in this process whose parts can be used separately.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's columns, scaled to [-1, 1]; none in server-aided mode.
    """

    def __init__(self, plan: Plan, raw_columns: NDArray[np.float64]) -> None:
        self.plan = plan
        self.blocks = plan.blocks_of(raw_columns.shape[1])
        self._columns = np.clip(raw_columns, -1.0, 1.0)
        self._own = plan.columns(plan.computing)
        self._context = Context(plan.encryption)
        self.modulus = self._context.modulus
        self._refresher: Refresher | None = None

    def keys(self, parts: Sequence[bytes]) -> None:
        """Take the public key."""
        self._refresher = Refresher(self._context, self._context.load_public_key(parts[0]))

    def evaluate(self, centers: NDArray[np.float64]) -> Work:
        """Add up one round."""
        return self.finish((yield from self.add_up(centers)))

    @abstractmethod
    def add_up(self, centers: NDArray[np.float64]) -> Work:
        """Add up the loaded blocks: yield the fraction done, return the bare sums, which add up over engines."""

    def finish(self, sums: Sample) -> Sample:
        """Turn the sums over all blocks into fresh samples, which hide how the sums were computed.

        Raises
        ------
        InternalError
            The key holder's public key is missing.
        """
        if self._refresher is None:
            raise InternalError("the key holder's public key is missing")
        return lwe.add(sums, self._refresher.zeros(self.plan.outputs), self.modulus)
