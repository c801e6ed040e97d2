"""What a peer may send: the sizes fit honest runs closely, and more is the sender's fault."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.lifecycle.closing import Chains, Counters, Totals
from fastlloyd.lifecycle.hello import Go, Hello, PlanProposal, Ready, propose_plan, receive_plan
from fastlloyd.lifecycle.masked_sums import bounds as masked_bounds
from fastlloyd.lifecycle.messages import CLOSING, OPENING, plan_bounds, setup_bounds
from fastlloyd.lifecycle.same_secret import EqualityTag
from fastlloyd.lifecycle.sealed import SealKey
from fastlloyd.lifecycle.shared_secrets import PairPublicKey
from fastlloyd.party.declaration import MessageBounds
from fastlloyd.party.effects import Send
from fastlloyd.run.driver import Driver
from fastlloyd.run.inbox import Inbox
from fastlloyd.wire.header import SERVER, SETUP_ROUND, Header, PartyId
from tests.protocols.support import blobs, plan_for
from tests.protocols.whole import run_whole

ONE, TWO = PartyId(1), PartyId(2)
# The JSON documents have fixed bounds, far above what a small run sends.
DOCUMENTS = (*range(8, 16), 96)
# A bound so small needs not be close.
SMALL = 1 << 12


def test_a_type_that_is_not_listed_is_refused_unless_others_are_allowed() -> None:
    bounds = MessageBounds(sizes={32: 100, 80: 0})
    assert not bounds.refusal(32, 100)
    assert not bounds.refusal(80, 0)
    assert bounds.refusal(32, 101) == "101 bytes as a message of type 32, expected at most 100"
    assert bounds.refusal(80, 1) == "1 bytes as a message of type 80, expected at most 0"
    assert "type 99, which has no place" in bounds.refusal(99, 0)
    assert not MessageBounds(sizes={32: 100}, other_bytes=10).refusal(99, 10)
    assert MessageBounds(sizes={32: 100}, other_bytes=10).refusal(99, 11)


def test_two_of_the_largest_messages_may_wait_and_more_only_where_a_protocol_says_so() -> None:
    assert 2 * 100 <= MessageBounds(sizes={32: 100}).ahead_bytes <= 2 * 100 + (1 << 16)
    assert MessageBounds(sizes={32: 100}, ahead_bytes=1 << 30).ahead_bytes == 1 << 30


def test_before_the_plan_the_server_takes_a_hello_and_a_client_a_plan() -> None:
    server, client = setup_bounds(SERVER), setup_bounds(ONE, {120: 1 << 24})
    assert not server.refusal(Hello.TYPE, 1 << 20)
    assert server.refusal(Hello.TYPE, (1 << 20) + 1)
    assert server.refusal(PlanProposal.TYPE, 1 << 20)
    assert not client.refusal(PlanProposal.TYPE, 1 << 22)
    assert client.refusal(Hello.TYPE, 1 << 20)
    assert (server.largest, client.largest) == (1 << 20, 1 << 24)


def test_after_the_plan_the_bounds_are_the_plans_alone() -> None:
    bounds = plan_bounds((*OPENING, Ready, *CLOSING), SimpleNamespace(clients=3))
    assert bounds.refusal(Hello.TYPE, 1)
    assert bounds.refusal(PlanProposal.TYPE, 1)
    assert bounds.refusal(Go.TYPE, 0)
    assert not bounds.refusal(Counters.TYPE, 200)
    assert bounds.largest == bounds.sizes[Totals.TYPE] <= 1 << 16


def test_masks_decide_which_agreement_and_which_comparison_are_let_through() -> None:
    for masking, sent, refused in (
        ("common", (SealKey, EqualityTag), (PairPublicKey, Chains)),
        ("pairwise", (PairPublicKey, Chains), (SealKey, EqualityTag)),
    ):
        bounds = masked_bounds(plan_for(blobs(90, 3, 2), 3, clients=3, masking=masking))
        assert not any(bounds.refusal(kind.TYPE, 32) for kind in sent)
        assert all("no place" in bounds.refusal(kind.TYPE, 32) for kind in refused)


def test_names_that_the_other_end_would_refuse_are_not_sent() -> None:
    names = ("x" * (1 << 20),)
    with pytest.raises(ConfigError, match="the names of the features take 1048606 bytes, expected at most 1048576"):
        next(receive_plan(names, 0))
    with pytest.raises(ConfigError, match="the plan with all names of features takes 4194"):
        next(propose_plan((ONE,), {"names": ["x" * (1 << 22)]}, 0))


def watch(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[tuple[int, int]]]:
    """Note the size and the bound of every message."""
    seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
    put = Inbox.put

    def note(inbox: Inbox, peer: PartyId, header: Header, body: bytes) -> None:
        assert inbox.bounds is not None
        seen[header.type].append((len(body), inbox.bounds.sizes.get(header.type, inbox.bounds.other_bytes)))
        put(inbox, peer, header, body)

    monkeypatch.setattr(Inbox, "put", note)
    return seen


RUNS = [
    ("lloyd", 3, {"rounds": 2}),
    ("lloyd", 3, {"rounds": 2, "masking": "pairwise", "ring_bits": 64}),
    ("kfed", 3, {}),
    ("secfc", 5, {"rounds": 2, "settings": {"secfc": {"membership": True, "reveal_centers": True}}}),
    pytest.param("feddp", 3, {"rounds": 1}, marks=pytest.mark.slow),
    pytest.param("vertical-dp", 3, {"settings": {"vertical": {"align": "intersect"}}}, marks=pytest.mark.slow),
    pytest.param("vertical-plain", 3, {}, marks=pytest.mark.slow),
    pytest.param("vertical-he", 3, {"rounds": 2, "epsilon": 10.0}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("protocol,parties,config", RUNS)
def test_honest_messages_come_close_to_their_bounds(
    protocol: str, parties: int, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch(monkeypatch)
    assert run_whole(tmp_path, parties, protocol=protocol, **config) == [0] * parties
    for kind, pairs in seen.items():
        assert all(size <= most for size, most in pairs)
        size, most = max(pairs)
        if kind not in DOCUMENTS and most > SMALL:
            # Compressed ciphertexts and half-full unions are shorter; nothing is off by more.
            assert most <= 4 * size + 64, f"type {kind}: {size} of {most}"


def lying(monkeypatch: pytest.MonkeyPatch, sender: PartyId, kind: int, frames: Callable[[bytes], list[bytes]]) -> None:
    """Have one party send something else in the place of a type of message."""
    send = Driver._send

    def lie(driver: Driver, effect: Send) -> None:
        if driver._me != sender or kind != effect.message.TYPE:
            send(driver, effect)
            return
        frame = Header(kind, effect.round).encode() + effect.message.body()
        for peer in effect.to:
            for each in frames(frame):
                driver._links.send(peer, each, payload_bytes=0, round=effect.round)

    monkeypatch.setattr(Driver, "_send", lie)


@pytest.mark.parametrize(
    "kind,frames,said",
    [
        pytest.param(8, lambda f: [Header(8, SETUP_ROUND).encode() + bytes(15 << 20)], "announced", id="long Hello"),
        pytest.param(32, lambda f: [Header(32, 0).encode() + bytes(30 << 20)], "announced", id="long update"),
        pytest.param(32, lambda f: [f + b"\0"], "61 bytes as a message of type 32, expected at most 60", id="longer"),
        pytest.param(32, lambda f: [Header(99, 50).encode()], "type 99, which has no place", id="unknown type"),
    ],
)
def test_whoever_sends_more_is_named(
    kind: int,
    frames: Callable[[bytes], list[bytes]],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lying(monkeypatch, ONE, kind, frames)
    # Three clusters in four dimensions: fifteen ring elements of four bytes an update.
    codes = run_whole(tmp_path, 3, protocol="lloyd", rounds=3)
    assert codes == [3, 3, 3]
    told = [line for line in capsys.readouterr().err.splitlines() if "client 1 " in line]
    assert any(said in line for line in told), told
