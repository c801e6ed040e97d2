"""Run all parties of one plan in one process, for simulations and measurements.

Source: Vertical HE, Figure 1: Alice computes, Bob holds the key; §4.1, further owners.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.party.effects import Party
from fastlloyd.protocols.vertical_he.computing import computing_party
from fastlloyd.protocols.vertical_he.holder import key_holder
from fastlloyd.protocols.vertical_he.math.computer import Engine
from fastlloyd.protocols.vertical_he.owner import owner
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.rounds import Released, draw_noise
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId

Draw = Callable[..., NDArray[np.int64]]
"""One party's noise: round number and grid to int64, shape (k (d + 1),)."""


def columns_of(plan: Plan, points: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Return a party's columns of the points (n, d), float64, shape (d_own, n)."""
    return np.ascontiguousarray(points[:, list(plan.columns(rank))].T)


def fresh_noise(plan: Plan) -> Draw:
    """Return a function that draws one party's noise as in a real run."""
    secret = SecretRandom()
    return lambda t, grid=1.0: draw_noise(plan, secret, grid)


def make_parties(
    plan: Plan,
    points: NDArray[np.float64],
    engine: Engine,
    *,
    start: NDArray[np.float64] | None = None,
    noise: Callable[[Plan], Draw] = fresh_noise,
) -> dict[PartyId, Party[Released]]:
    """Make all parties.

    Parameters
    ----------
    plan : Plan
    points : float64 array, shape (n, d), scaled to [-1, 1]
    engine : Engine
        Holds the computing party's columns.
    start : float64 array, shape (k, d), optional
        Public centres to start from instead of sphere packing.
    noise : callable
        Called once for each party; only simulations may leave the noise out.
    """
    # Figure 1: Alice computes.
    found = {PartyId(plan.computing): computing_party(plan, engine, noise(plan), start=start)}
    for rank in sorted({plan.holder, *plan.owners} - {plan.computing}):
        me, own = PartyId(rank), columns_of(plan, points, rank)
        if rank == plan.holder:  # Bob
            found[me] = key_holder(plan, own, noise(plan), start=start)
        else:  # §4.1
            found[me] = owner(me, plan, own, noise(plan), start=start)
    return found
