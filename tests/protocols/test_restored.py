"""A party that was set back to an earlier state: no mask covers two vectors, and every release stands in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastlloyd.party.plain_plan as plan_module
from fastlloyd.kmeans.grid import quantise
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import Masks
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Receive, Save
from fastlloyd.protocols.fastlloyd.client import client
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.protocols.support import blobs, common_masks, pairwise_masks, plan_for, run

ME, OTHER = PartyId(1), PartyId(2)


def common(plan: Plan) -> Masks:
    return common_masks(plan.clients, b"s" * 32)[ME]


def pairwise(plan: Plan) -> Masks:
    return pairwise_masks({ME: PairSecrets(ME, {OTHER: b"p" * 32})})[ME]


def uplinks(plan: Plan, masks: Masks, replies: list[bytes], stored: StoredRounds | None = None) -> dict[int, Any]:
    """What client 1 stores and sends as these replies come, in ring elements by round."""
    share = (lambda t: np.zeros(plan.elements(t), dtype=np.int64)) if plan.masking == "pairwise" else None
    party = client(ME, quantise(blobs(60, 3, 2), plan.fraction_bits), plan, masks, share=share, stored=stored)
    found, answer = {}, None
    while True:
        effect = party.send(answer)
        answer = None
        if isinstance(effect, Save) and effect.name.startswith("uplink"):
            t = int(effect.name.partition("-")[2])
            found[t] = np.frombuffer(effect.content, dtype=Ring(plan.ring_bits).dtype)
        elif isinstance(effect, Receive):
            if effect.round == len(replies):
                return found
            body = replies[effect.round]
            answer = NoisyMaskedSum(body, clients(2), 2)


@pytest.mark.parametrize("make", [common, pairwise])
def test_other_replies_after_a_restored_state_come_under_other_masks(make: Callable[[Plan], Masks]) -> None:
    plan = plan_for(blobs(60, 3, 2), 3, rounds=4, masking="pairwise" if make is pairwise else "common")
    masks = make(plan)
    coins = np.random.default_rng(3)
    replies = [coins.bytes(plan.elements(0) * 4) for _ in range(3)]
    sent = uplinks(plan, masks, replies)
    # The client is set back to before reply 1, and the server changes what it had sent by one unit in one place.
    altered = [replies[0], bytes([replies[1][0] ^ 1]) + replies[1][1:], replies[2]]
    again = uplinks(plan, masks, altered, StoredRounds(replies={0: NoisyMaskedSum(replies[0], clients(2), 2).body()}))
    assert (sent[1] == again[1]).all(), "the same replies before it: the same vector under the same mask"
    for t in (2, 3):
        # Uniform differences: under one mask most of the 9 elements would differ by little or not at all.
        moved = (again[t] - sent[t]).view(np.int32)
        assert np.median(np.abs(moved.astype(np.int64))) > 2**26


@pytest.mark.parametrize("masking", ["common", "pairwise"])
@pytest.mark.parametrize("ready", [1, 20, 1 << 20], ids=["one round ahead", "two rounds ahead", "all rounds ahead"])
def test_every_round_stands_in_every_ledger_however_few_are_ready_ahead(
    monkeypatch: pytest.MonkeyPatch, masking: str, ready: int
) -> None:
    points = blobs(60, 3, 2)
    plan = plan_for(points, 3, rounds=5, masking=masking)
    monkeypatch.setattr(plan_module, "_READY_ELEMENTS", ready)
    simulation = run(points, plan).simulation
    for party in (SERVER, ME, OTHER):
        recorded = [(release.round, release.name) for release in simulation.releases[party]]
        assert recorded == [(release.round, release.name) for release in plan.all_releases()]


@pytest.mark.parametrize("ready", [1, 20, 1 << 20], ids=["one round ahead", "two rounds ahead", "all rounds ahead"])
def test_every_round_has_its_own_noise_however_few_are_ready_ahead(monkeypatch: pytest.MonkeyPatch, ready: int) -> None:
    points, drawn = blobs(60, 3, 2), []
    plan = plan_for(points, 3, rounds=5)
    monkeypatch.setattr(plan_module, "_READY_ELEMENTS", ready)

    def noise(t: int) -> np.ndarray:
        drawn.append(t)
        return np.zeros(plan.elements(t), dtype=np.int64)

    run(points, plan, noise=noise)
    assert drawn == [0, 1, 2, 3, 4]
