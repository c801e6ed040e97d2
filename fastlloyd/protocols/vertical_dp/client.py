"""Vertical DP, Algorithm 1, for a party that holds columns: one message to the server, one back.

There is no resume: keys are never written, so an interrupted run starts again and spends its budget again.

Source: Vertical DP, Alg. 1, lines 1, 2 and, for party 1, 3 (a).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError
from fastlloyd.lifecycle.hello import await_go, send_ready
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.privacy.noise.sampler import round_laplace, round_normal
from fastlloyd.protocols.vertical_dp.keys import GroupKeys
from fastlloyd.protocols.vertical_dp.local_plan import Draw, LocalPlan
from fastlloyd.protocols.vertical_dp.math.local import cluster_locally
from fastlloyd.protocols.vertical_dp.math.weights import noisy_count
from fastlloyd.protocols.vertical_dp.messages import FinalResult, SharedResult, Synopsis, result_format, synopsis_format
from fastlloyd.protocols.vertical_dp.plan import PLAIN, Plan
from fastlloyd.protocols.vertical_dp.sketch.sketch import make_sketch
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, PartyId


@dataclass(frozen=True, slots=True)
class ClientResult:
    """A party's result.

    Attributes
    ----------
    noisy_centers : int64 array, shape (k', d_i)
        Its released local centres, on the grid of 2^-16.
    shared : SharedResult or None
        The final result over all columns; None unless the server shares it.
    """

    noisy_centers: NDArray[np.int64]
    shared: SharedResult | None


@dataclass(frozen=True, slots=True)
class PaidSketches:
    """A party's message, after its releases were recorded in the ledger.

    Attributes
    ----------
    noisy_centers : int64 array, shape (k', d_i)
    message : Synopsis
    """

    noisy_centers: NDArray[np.int64]
    message: Synopsis


def prepare(
    me: PartyId, raw_points: NDArray[np.float64], plan: Plan, keys: GroupKeys, *, secret: SecretRandom
) -> Party[PaidSketches]:
    """Compute a party's message, record its releases, and wait until every party has done so.

    Parameters
    ----------
    me : PartyId
    raw_points : float64 array, shape (n, d_i)
        Own columns scaled to [-1, 1], rows in the order that all parties agreed on.
    plan : Plan
    keys : GroupKeys
        Erased before the wait for other parties.
    secret : SecretRandom

    Raises
    ------
    DataError
        More users than the public bound.

    Notes
    -----
    Privacy: all parties' releases are in every party's ledger before any of them leaves.
    """
    try:
        noisy_centers, message = _synopsis(me.rank - 1, raw_points, plan, keys, secret)
    finally:
        keys.erase()
    yield Record(plan.all_releases())
    yield from send_ready()
    yield from await_go()
    return PaidSketches(noisy_centers, message)


def client(prepared: PaidSketches, plan: Plan) -> Party[ClientResult]:
    """Send the prepared message, and receive the result if it is shared.

    Notes
    -----
    Sees: its own records; the final result if shared. The server sees the message, see `Plan.all_releases`.
    """
    yield Send((SERVER,), prepared.message, 0)  # line 2 (b)
    form = result_format(plan)
    reply = yield Receive(SERVER, FinalResult, 0, form)
    yield Attest(SERVER, reply, 0)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": plan.clients})
    return ClientResult(prepared.noisy_centers, reply.result(form))


def _synopsis(
    place: int, raw_points: NDArray[np.float64], plan: Plan, keys: GroupKeys, secret: SecretRandom
) -> tuple[NDArray[np.int64], Synopsis]:
    """Cluster, make sketches, and encode the message."""
    if len(raw_points) > plan.n_total:
        raise DataError(
            f"{len(raw_points)} records, expected at most the public N = {plan.n_total}; agree on a larger --n-total"
        )
    local_plan = plan.local_plan(place)
    local = cluster_locally(raw_points, local_plan, noise_for(local_plan, secret))  # line 1 (a)
    form = synopsis_format(plan, place)
    if plan.protocol == PLAIN:
        message = Synopsis.write(local.noisy_centers, form, plain_labels=local.raw_labels)
        return local.noisy_centers, message
    sketches = tuple(  # line 2 (a), Alg. 3
        # The paper's phantoms are drawn per party, so its coordinate makes no difference.
        make_sketch(local.raw_labels, group.index(place) if plan.private else 0, keys.of(group), plan.shape, secret)
        for group in plan.key_groups
        if place in group
    )
    noisy_total = noisy_count(len(raw_points), plan.total_scale, secret) if form.with_total else None  # line 3 (a)
    message = Synopsis.write(local.noisy_centers, form, noisy_total=noisy_total, sketches=sketches)
    return local.noisy_centers, message


def laplace_from(secret: SecretRandom) -> Draw:
    """Return a function that draws Laplace noise from the system's randomness."""

    def draw(scale: float, size: int) -> NDArray[np.int64]:
        return round_laplace(scale, size, secret)

    return draw


def noise_for(plan: LocalPlan, secret: SecretRandom) -> Draw:
    """Return a function that draws the noise of a local clustering from the system's randomness."""
    if plan.mechanism != "gaussian":
        return laplace_from(secret)

    def draw(scale: float, size: int) -> NDArray[np.int64]:
        return round_normal(scale, size, secret)

    return draw
