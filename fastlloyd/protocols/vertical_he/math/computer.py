"""What computes on encrypted blocks: the interface, and what the schemes have in common.

Source: Vertical HE, §3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context, Refresher
from fastlloyd.protocols.vertical_he.he.lattice import Sample
from fastlloyd.protocols.vertical_he.math import lwe
from fastlloyd.protocols.vertical_he.plan import Plan

Work = Generator[float, None, Sample]


class Engine(Protocol):
    """Encrypted blocks in, sums out.

    Attributes
    ----------
    blocks : int
        Of each owner.
    """

    blocks: int

    def keys(self, parts: Sequence[bytes]) -> None:
        """Take the key holder's public keys; raises ValueError if they do not fit."""

    def begin(self, centers: NDArray[np.float64]) -> None:
        """Hear the centres of a round before its blocks come; only for projection, which has new blocks in each."""

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Take one owner's encrypted block; raises ValueError if a ciphertext does not fit."""

    def evaluate(self, centers: NDArray[np.float64]) -> Work:
        """Add up one round: yields the fraction done, gives k (d + 1) LWE samples, cluster by cluster."""


class Computer(ABC):
    """An engine in this process, whose parts can be used apart; implements `Engine`.

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
        """Take the public key, which comes first."""
        self._refresher = Refresher(self._context, self._context.load_public_key(parts[0]))

    def begin(self, centers: NDArray[np.float64]) -> None:  # noqa: B027 - most need not
        """Do nothing: the blocks of the set-up serve every round."""

    @abstractmethod
    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Take one owner's encrypted block; raises ValueError if a ciphertext does not fit."""

    def evaluate(self, centers: NDArray[np.float64]) -> Work:
        """Add up one round; see `Engine`."""
        return self.finish((yield from self.add_up(centers)))

    @abstractmethod
    def add_up(self, centers: NDArray[np.float64]) -> Work:
        """Add up the loaded blocks: yields the fraction done, gives the bare sums; sums of several engines add up."""

    def finish(self, sums: Sample) -> Sample:
        """Turn the sums over all blocks into fresh samples, cluster by cluster, which do not show how they were made.

        Raises
        ------
        InternalError
            The key holder's public key is missing.
        """
        if self._refresher is None:
            raise InternalError("the key holder's public key is missing")
        return lwe.add(sums, self._refresher.zeros(self.plan.outputs), self.modulus)
