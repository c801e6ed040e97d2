"""A dossier against whole runs: what it foresees is what they claim and release, and it tells of every message."""

from __future__ import annotations

from typing import Any

import pytest

from fastlloyd.party.declaration import ACROSS, DOWN, UP
from fastlloyd.protocols.registry import PROTOCOLS, find
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import InMemory, run_together
from fastlloyd.wire.header import Header, PartyId
from tests.test_tables import messages

Sent = dict[str, set[tuple[bool, bool]]]
"""Name of a message to its ways: whether the server sent it, and whether the server received it."""
_UP, _DOWN, _ACROSS = (False, True), (True, False), (False, False)
WAYS = {
    **{UP: _UP, DOWN: _DOWN, ACROSS: _ACROSS},
    **{"party to server": _UP, "server to parties": _DOWN, "party to party": _ACROSS},
}
NAMES = {kind.TYPE: kind.__name__ for kind in messages()}


def configure(protocol: str, values: dict[str, Any]) -> RunConfig:
    rounds = None if "rounds" in find(protocol).unused else 1
    asked = RunConfig(protocol=protocol, dataset="iris", bounds="0,10", k=2, rounds=rounds, epsilon=10.0)
    return with_values(asked, values)


def clients_of(protocol: str) -> int:
    return 5 if protocol == "secfc" else 3


def run(config: RunConfig, clients: int) -> tuple[InMemory, Sent]:
    """Give how a run ended, and the messages by name in the order in which they were first sent."""
    sent: Sent = {}

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        sent.setdefault(NAMES[header.type], set()).add((sender.is_server, receiver.is_server))
        return body

    return run_together(config, clients, tap=tap), sent


@pytest.fixture(scope="module", params=PROTOCOLS)
def ended(request: pytest.FixtureRequest) -> tuple[str, InMemory, Sent]:
    """Run each protocol with its default settings, once."""
    return request.param, *run(configure(request.param, {}), clients_of(request.param))


def test_what_is_foreseen_is_what_the_run_claims_and_releases(ended: tuple[str, InMemory, Sent]) -> None:
    protocol, found, _ = ended
    foreseen = find_protocol(protocol).foresee(configure(protocol, {}), clients_of(protocol), None)
    result = next(one.result for one in found.outcomes.values() if one.result is not None)
    assert foreseen is not None and foreseen.claim == result.claim

    def comparable(releases: Any) -> set[tuple[Any, ...]]:
        return {(one.round, one.name, one.mechanism, one.noise_multiplier) for one in releases}

    assert comparable(result.releases) <= comparable(foreseen.releases)
    if protocol not in ("secfc", "kfed"):
        assert comparable(result.releases) == comparable(foreseen.releases)


RUNS: list[tuple[str, dict[str, Any]]] = [
    ("fastlloyd", {"masking": "pairwise"}),
    ("lloyd", {"masking": "pairwise"}),
    ("secfc", {"secfc": {"membership": True, "reveal_centers": True}}),
    ("secfc", {"secfc": {"start": "random", "starts": 1}}),
    ("vertical-he", {"vertical-he": {"mode": "threshold", "threshold": 2}}),
    ("vertical-dp", {"vertical": {"align": "intersect"}}),
    ("vertical-dp", {"vertical-dp": {"weights": "basic", "share_result": True}}),
]


def test_every_message_that_is_sent_is_told_and_nothing_else(ended: tuple[str, InMemory, Sent]) -> None:
    protocol, _, sent = ended
    compare(configure(protocol, {}), {}, sent)


@pytest.mark.parametrize(("protocol", "values"), RUNS, ids=str)
def test_the_same_with_other_settings(protocol: str, values: dict[str, Any]) -> None:
    config = configure(protocol, values)
    compare(config, values, run(config, clients_of(protocol))[1])


@pytest.mark.parametrize("mode", ["two-party", "threshold"])
def test_every_message_of_two_parties_is_told_and_nothing_else(mode: str) -> None:
    config = configure("vertical-he", values := {"vertical-he": {"mode": mode}})
    compare(config, values, run(config, 1)[1], parties=2)


def compare(config: RunConfig, values: dict[str, Any], sent: Sent, **more: Any) -> None:
    protocol = config.protocol
    facts = {
        "private": find_protocol(protocol).privacy_unit(config) is not None,
        "masking": "pairwise" if protocol == "feddp" else config.masking,
        "align": values.get("vertical", {}).get("align"),
        **config.own_settings,
        **more,
    }
    flow = find_protocol(protocol).data_flow(protocol, facts)
    assert flow is not None
    rows = [{kind.__name__ for kind in one.kinds} for one in flow.sent(facts) if one.kinds]
    # The seed is for one kind of weights; the row says so.
    vertical = {"SeedContribution"} if protocol.startswith("vertical") else set()
    assert set(sent) <= set().union(*rows) <= {*sent, *vertical}
    # They are listed in the order in which they are first sent.
    order = list(sent)
    first = [min(order.index(name) for name in row - vertical) for row in rows]
    assert first == sorted(first), [order[i] for i in first]
    # Nobody sends or receives a message but whom its row names, and who reads nothing in it does not receive it. In
    # vertical-he rank 0 may be an owner: there ranks say less.
    for row in flow.sent(facts) if flow.readers[0] == "server" else ():
        ways = set().union(*(sent.get(kind.__name__, set()) for kind in row.kinds))
        assert ways <= {WAYS.get(row.route, way) for way in ways}, (row, ways)
        assert row.others != "never sent to them" or ways <= {_UP}, row
        assert not row.server.startswith("nothing") or ways <= {_ACROSS}, row
