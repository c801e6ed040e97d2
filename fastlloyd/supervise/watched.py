"""Descriptors that the supervisor watches, each of which tells that a rank, or its host, is gone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self


class Watched(ABC):
    """Descriptors of ranks; iterating gives those to watch: one reports something once its rank is gone.

    Attributes
    ----------
    fallen : list of int
        The ranks whose descriptors broke, in order.
    """

    def __init__(self) -> None:
        self.fallen: list[int] = []
        self._ranks: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._ranks

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def broke(self, descriptor: int) -> None:
        """Take note of a break."""
        rank = self._ranks[descriptor]
        if rank not in self.fallen:
            self.fallen.append(rank)

    @abstractmethod
    def close(self) -> None:
        """Close everything; idempotent."""
