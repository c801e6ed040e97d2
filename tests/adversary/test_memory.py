"""Every message of every protocol, changed on its way, in memory: the receiver names the sender or goes on."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fastlloyd.errors import FastLloydError, InternalError, PeerError
from fastlloyd.lifecycle.closing import Counters, Totals
from fastlloyd.lifecycle.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.lifecycle.masked_sums import MaskedUpdate
from fastlloyd.protocols.secfc.messages import Size
from fastlloyd.run.simulation import Tap, run_together
from fastlloyd.wire.header import Header, PartyId
from tests.adversary.mutate import ACTS, HEADER_BYTES, Moment
from tests.contracts.whole_run import config

SESSION = {message.TYPE for message in (Hello, PlanProposal, Ready, Go, Counters, Totals, Size)}
LENGTHS = ("cut", "longer")
CONTENTS = ("flip", "edge", "front", "inner", "splice", "random", "ones", "zeros")
# Runs of these take long: one change of each message.
LONG = ("vertical-dp", "vertical-he")
PLAYS = {name: config(name) for name in ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd", "feddp", "kfed")}
PLAYS["pairwise"] = replace(config("fastlloyd"), masking="pairwise")
PLAYS["secfc"] = replace(config("secfc"), settings={"secfc": {"reveal_centers": True, "start": "random", "starts": 2}})
SMALL = "vertical-mixture:n=60,d=2,k=3"
PLAYS["vertical-dp"] = replace(config("vertical-dp"), dataset=SMALL, bounds=None)
LINEAR = {"vertical-he": {"scheme": "linear"}}
PLAYS["vertical-he"] = replace(config("vertical-he"), dataset=SMALL, bounds=None, settings=LINEAR)
PARTIES = {"secfc": 4, "vertical-dp": 2, "vertical-he": 1}


def live(play: str, tap: Tap) -> None:
    """Let all parties of a run live."""
    run_together(PLAYS[play], PARTIES.get(play, 3), tap=tap)


class Change:
    """Changes the first message of one type from one party to the first that gets it."""

    def __init__(self, sender: PartyId, type_: int, act: str, seed: int = 0) -> None:
        self.sender, self.type, self.act = sender, type_, act
        self.draw = random.Random(seed)
        self.done = False
        self.changed = False

    def __call__(self, sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        if self.done or (sender, header.type) != (self.sender, self.type):
            return body
        self.done = True
        frame = header.encode() + body
        moment = Moment(frame, HEADER_BYTES, None, self.draw, [], lambda raw: None, {})
        changed = ACTS[self.act](moment)[0][HEADER_BYTES:]
        self.changed = changed != body
        return changed


@pytest.mark.parametrize("act", ["version", "type", "attempt", "round next", "round past", "round final", "round far"])
def test_a_change_of_the_header_is_one(act: str) -> None:
    frame = Header(MaskedUpdate.TYPE, 3).encode() + b"body"
    (changed,) = ACTS[act](Moment(frame, HEADER_BYTES, None, random.Random(1), [], lambda raw: None, {}))
    assert changed[:HEADER_BYTES] != frame[:HEADER_BYTES] and changed[HEADER_BYTES:] == b"body"


@pytest.fixture(scope="module", params=PLAYS)
def played(request: pytest.FixtureRequest) -> tuple[str, list[tuple[PartyId, int]]]:
    """A run, and which types the server, the first and the last client send in it."""
    play = request.param
    seen: Counter[tuple[PartyId, int]] = Counter()

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        seen[sender, header.type] += 1
        return body

    live(play, tap)
    ranks = sorted({sender for sender, _ in seen})
    # What every system has, JSON documents above all, is changed in real runs and by the decoders' fuzzer.
    some = (ranks[0], ranks[-1]) if play in LONG else (ranks[0], ranks[1], ranks[-1])
    return play, sorted(each for each in seen if each[0] in some and each[1] not in SESSION)


def test_a_message_of_the_wrong_length_is_refused_under_its_senders_name(
    played: tuple[str, list[tuple[PartyId, int]]],
) -> None:
    play, kinds = played
    for sender, type_ in kinds:
        for act in LENGTHS[: 1 if play in LONG else None]:
            change = Change(sender, type_, act)
            try:
                live(play, change)
            except PeerError as error:
                assert error.rank == sender.rank, (str(error), sender, type_, act)
            else:
                assert not change.changed, (sender, type_, act)


def test_no_content_of_a_message_is_an_unforeseen_error(played: tuple[str, list[tuple[PartyId, int]]]) -> None:
    play, kinds = played
    draw = random.Random(play)
    for sender, type_ in kinds:
        for act in draw.sample(CONTENTS, 1 if play in LONG else 3):
            change = Change(sender, type_, act, seed=draw.randrange(1000))
            try:
                with np.errstate(all="raise", under="ignore"):
                    live(play, change)
            except FastLloydError as error:
                # A wait that nobody serves ends by a deadline in a real run.
                unforeseen = isinstance(error, InternalError) and "nothing is under way" not in str(error)
                assert not unforeseen, (str(error), sender, type_, act)
