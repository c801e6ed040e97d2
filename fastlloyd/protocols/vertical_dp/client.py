"""Vertical DP, Algorithm 1, for a party that holds columns: one message to the server, one back.

There is no resume: keys are never written, so an interrupted run starts again and spends its budget again.

Source: Vertical DP, Alg. 1, lines 1, 2 and, for party 1, 3 (a).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError
from fastlloyd.lifecycle.hello import await_go
from fastlloyd.party.effects import Attest, Party, Publish, Receive, Record, Send
from fastlloyd.privacy.noise.sampler import round_laplace, round_normal
from fastlloyd.protocols.vertical_dp.keys import GroupKeys
from fastlloyd.protocols.vertical_dp.local_plan import Draw, LocalPlan
from fastlloyd.protocols.vertical_dp.math.local import cluster_locally
from fastlloyd.protocols.vertical_dp.math.weights import noisy_count
from fastlloyd.protocols.vertical_dp.messages import FinalResult, SharedResult, Synopsis, synopsis_format
from fastlloyd.protocols.vertical_dp.plan import PLAIN, Plan
from fastlloyd.protocols.vertical_dp.sketch.sketch import make_sketch
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, PartyId


def prepare(
    me: PartyId, raw_points: NDArray[np.float64], plan: Plan, keys: GroupKeys, *, secret: SecretRandom
) -> Party[Synopsis]:
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
        message = _synopsis(me.rank - 1, raw_points, plan, keys, secret)
    finally:
        keys.erase()
    yield Record(plan.all_releases())
    yield from await_go()
    return message


def client(message: Synopsis, plan: Plan) -> Party[SharedResult | None]:
    """Send the prepared message, and receive the result if it is shared.

    Notes
    -----
    Sees: its own records; the final result if shared. The server sees the message, see `Plan.all_releases`.
    """
    yield Send((SERVER,), message, 0)  # line 2 (b)
    reply: FinalResult = yield Receive(SERVER, FinalResult, 0, plan)
    yield Attest(SERVER, reply, 0)
    yield Publish("round", {"round": 0, "rounds": 1, "clients": plan.clients})
    return reply.result(plan)


def _synopsis(
    place: int, raw_points: NDArray[np.float64], plan: Plan, keys: GroupKeys, secret: SecretRandom
) -> Synopsis:
    """Cluster, make sketches, and encode the message."""
    if len(raw_points) > plan.n_total:
        raise DataError(
            f"{len(raw_points)} records, expected at most the public N = {plan.n_total}; agree on a larger --n-total"
        )
    local_plan = plan.local_plan(place)
    local = cluster_locally(raw_points, local_plan, noise_for(local_plan, secret))  # line 1 (a)
    form = synopsis_format(plan, place)
    if plan.protocol == PLAIN:
        return Synopsis.write(local.noisy_centers, form, plain_labels=local.raw_labels)
    sketches = tuple(  # line 2 (a), Alg. 3
        # The paper's phantoms are drawn per party, so its coordinate makes no difference.
        make_sketch(local.raw_labels, group.index(place) if plan.private else 0, keys.of(group), plan.shape, secret)
        for group in plan.key_groups
        if place in group
    )
    noisy_total = noisy_count(len(raw_points), plan.total_scale, secret) if form.with_total else None  # line 3 (a)
    return Synopsis.write(local.noisy_centers, form, noisy_total=noisy_total, sketches=sketches)


def noise_for(plan: LocalPlan, secret: SecretRandom) -> Draw:
    """Return a function that draws the noise of a local clustering from the system's randomness."""
    return partial(round_normal if plan.mechanism == "gaussian" else round_laplace, secret=secret)
