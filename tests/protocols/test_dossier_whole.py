"""A dossier against whole runs: what it foresees is what they claim and release, and it tells of every message."""

from __future__ import annotations

from typing import Any

import pytest

from fastlloyd.dossier.flow import find_flow
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.run.config import RunConfig
from fastlloyd.run.in_memory import run_together
from fastlloyd.run.promise import foresee
from fastlloyd.run.run_file import with_values
from fastlloyd.wire import numbers
from fastlloyd.wire.header import Header, PartyId

NUMBERS = {value: name for name, value in vars(numbers).items() if name.isupper()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_foreseen_is_what_the_run_claims_and_releases(protocol: str) -> None:
    asked = RunConfig(protocol=protocol, dataset="iris", bounds="0,10", k=2, rounds=1, epsilon=10.0)
    clients = 5 if protocol == "secfc" else 3
    foreseen = foresee(asked, clients, None)
    ended = run_together(asked, clients)
    result = next(one.result for one in ended.outcomes.values() if one.result is not None)
    assert foreseen is not None and foreseen.claim == result.claim

    def comparable(releases: Any) -> set[tuple[Any, ...]]:
        return {(one.round, one.name, one.mechanism, one.noise_multiplier) for one in releases}

    assert comparable(result.releases) <= comparable(foreseen.releases)
    if protocol not in ("secfc", "kfed"):
        assert comparable(result.releases) == comparable(foreseen.releases)


RUNS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PROTOCOLS),
    ("fastlloyd", {"masking": "pairwise"}),
    ("lloyd", {"masking": "pairwise"}),
    ("secfc", {"secfc": {"membership": True, "reveal_centers": True}}),
    ("secfc", {"secfc": {"start": "random", "starts": 1}}),
    ("vertical-he", {"vertical-he": {"mode": "threshold", "threshold": 2}}),
    ("vertical-dp", {"vertical": {"align": "intersect"}}),
    ("vertical-dp", {"vertical-dp": {"weights": "basic", "share_result": True}}),
]


@pytest.mark.parametrize(("protocol", "values"), RUNS, ids=str)
def test_every_message_that_is_sent_is_told_and_nothing_else(protocol: str, values: dict[str, Any]) -> None:
    compare(protocol, values, 5 if protocol == "secfc" else 3)


@pytest.mark.parametrize("mode", ["two-party", "threshold"])
def test_every_message_of_two_parties_is_told_and_nothing_else(mode: str) -> None:
    compare("vertical-he", {"vertical-he": {"mode": mode}}, 1, parties=2)


def compare(protocol: str, values: dict[str, Any], clients: int, **more: Any) -> None:
    config = with_values(
        RunConfig(protocol=protocol, dataset="iris", bounds="0,10", k=2, rounds=1, epsilon=10.0), values
    )
    sent: set[str] = set()

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        sent.add(NUMBERS[header.type])
        return body

    run_together(config, clients, tap=tap)
    facts = {
        "masking": "pairwise" if protocol == "feddp" else config.masking,
        "align": values.get("vertical", {}).get("align"),
        **config.own_settings,
        **more,
    }
    flow = find_flow(protocol, facts)
    assert flow is not None
    numbered = {NUMBERS[number] for one in flow.sent(facts) for number in one.types}
    # The seed is for one kind of weights; the row says so.
    assert numbered - sent <= ({"SEED_CONTRIBUTION"} if protocol.startswith("vertical") else set())
    assert sent <= numbered
