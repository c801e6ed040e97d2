"""What a party makes ready before its round: noise, or its share of it, and the ledger's entries.

Nothing of this but the sum with the noise is in the algorithm. It lets a party draw noise while the others compute, and
write the next round's releases to the ledger while it would wait anyway. Noise drawn ahead belongs to its round's
number and is used once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.party.effects import Party, Record
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.plan import Plan

Draw = Callable[[int], NDArray[np.int64]]
"""From a round's number t to fresh noise in grid units, int64, shape (plan.elements(t),)."""


class Ahead:
    """Noise and ledger entries of one party.

    Parameters
    ----------
    plan : Plan
    draw : callable or None
        The server's noise, or a client's share of it; None where this party adds none.
    """

    def __init__(self, plan: Plan, draw: Draw | None) -> None:
        self._plan = plan
        self._ring = Ring(plan.ring_bits)
        self._draw = draw
        self._noise: dict[int, RingArray] = {}
        self._releases: dict[int, tuple[Release, ...]] = {}
        self._recorded: set[int] = set()

    def stock(self, t: int) -> None:
        """Make noise and entries of the rounds from t on, as far as memory is set aside for them."""
        for later in self._plan.rounds_ahead(t):
            if self._draw is not None:
                self._noise[later] = self._ring.reduce(self._draw(later))
            self._releases[later] = self._plan.releases(later)

    def record(self, t: int) -> Party[None]:
        """Write round t's releases to the ledger, once."""
        if t not in self._recorded:
            self._recorded.add(t)
            yield Record(self._releases.pop(t, ()) or self._plan.releases(t))

    def prepare(self, t: int) -> Party[None]:
        """Draw the noise of round t and write its releases to the ledger, if there is such a round."""
        if t < len(self._plan.rounds):
            if self._draw is not None and t not in self._noise:
                self._noise[t] = self._ring.reduce(self._draw(t))
            yield from self.record(t)

    def add_noise(self, vector: RingArray, t: int) -> RingArray:
        """Add round t's noise to ring elements, shape (plan.elements(t),), if this party adds any; it is not kept."""
        if self._draw is None:
            return vector
        ready = self._noise.pop(t, None)
        return vector + (self._ring.reduce(self._draw(t)) if ready is None else ready)  # Figure 1: v + r + gamma
