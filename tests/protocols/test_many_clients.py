"""A thousand clients in one thread: sums without some of them, and work that grows with their number alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY
from fastlloyd.protocols.fastlloyd.reference import reference
from fastlloyd.run.inbox import Inbox
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import blobs, common_masks, no_noise, plan_for, run

START = np.array([[-0.5, 0.0], [0.5, 0.5]])


def test_a_thousand_clients_of_whom_fifty_miss_a_round() -> None:
    points = blobs(3000, 2, 2)
    plan = plan_for(points, 2, protocol="lloyd", clients=1000, min_clients=950, rounds=2)
    lost = set(np.random.default_rng(0).choice(np.arange(1, 1001), 50, replace=False).tolist())

    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        return None if header.type == MaskedUpdate.TYPE and header.round == 0 and sender.rank in lost else body

    results = run(points, plan, noise=no_noise(plan), start=START, tap=tap).results
    everybody = clients(1000)
    there = tuple(party for party in everybody if party.rank not in lost)
    assert results[SERVER].included == results[PartyId(1)].included == (there, everybody)
    kept = np.concatenate([part for i, part in enumerate(np.array_split(points, 1000), 1) if i not in lost])
    one_round, other_round = (replace(plan, rounds=plan.rounds[t : t + 1]) for t in range(2))
    first = reference(kept, one_round, no_noise(plan), start=START)
    second = reference(points, other_round, no_noise(plan), start=first.exact)
    assert all((results[me].centers.grid == second.grid).all() for me in (PartyId(1), PartyId(1000)))


@pytest.mark.parametrize("lie", ["the server names another set", "a client masks under another's index"])
def test_a_sum_that_does_not_fit_its_masks_is_noise_on_the_whole_ring(lie: str) -> None:
    points = blobs(300, 2, 2)
    plan = plan_for(points, 2, protocol="lloyd", clients=5, min_clients=2, rounds=1)

    masks, ring = common_masks(5), Ring(plan.ring_bits)
    shaped = masks[PartyId(2)].shaped(ring, plan.elements(0))

    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes:
        if header.type == NoisyMaskedSum.TYPE and lie.startswith("the server"):
            return bytes([0b10111]) + body[1:]
        if sender == PartyId(2) and lie.startswith("a client"):
            own, other = (shaped.mask(0, PartyId(rank), NO_HISTORY) for rank in (2, 4))
            return (np.frombuffer(body, dtype=ring.dtype) - own + other).tobytes()
        return body

    honest, lied = (
        run(points, plan, masks=masks, noise=no_noise(plan), start=START, tap=each).first.centers.released
        for each in (None, tap)
    )
    assert np.abs(honest).max() < 2**25
    assert np.median(np.abs(lied)) > 2**28


def test_a_round_looks_at_each_message_as_often_whatever_the_number_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []
    holds = Inbox.holds
    monkeypatch.setattr(Inbox, "holds", lambda self, *given: (looks.append(1), holds(self, *given))[1])
    for_each = []
    for count in (10, 100):
        points = blobs(500, 2, 2)
        looks.clear()
        run(points, plan_for(points, 2, protocol="lloyd", clients=count, rounds=3), start=START)
        for_each.append(len(looks) / count)
    assert for_each[1] <= for_each[0]
