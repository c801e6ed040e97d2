"""Every message of every protocol, changed on its way, in memory: the receiver names the sender or goes on."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from fastlloyd.errors import FastLloydError, InternalError, PeerError
from fastlloyd.life.farewell import Counters, Totals
from fastlloyd.life.hello import Go, Hello, PlanProposal, Ready
from fastlloyd.protocols.secfc.setup_messages import Size
from fastlloyd.run.simulation import Tap
from fastlloyd.wire.header import Header, PartyId
from tests.adversary.mutate import ACTS, HEADER_BYTES, Moment
from tests.protocols import support as fastlloyd
from tests.protocols.feddp import support as feddp
from tests.protocols.kfed import test_kfed as kfed
from tests.protocols.secfc import support as secfc
from tests.protocols.vertical_dp import support as vertical_dp
from tests.protocols.vertical_he import support as vertical_he

SESSION = {message.TYPE for message in (Hello, PlanProposal, Ready, Go, Counters, Totals, Size)}
POINTS = fastlloyd.blobs(60, 3, 2)
LENGTHS = ("cut", "longer")
CONTENTS = ("flip", "edge", "front", "inner", "splice", "random", "ones", "zeros")
# Runs of these take long: one change of each message.
LONG = ("vertical-dp", "vertical-he")


def _fastlloyd(**changes: object) -> Callable[[Tap], object]:
    plan = fastlloyd.plan_for(POINTS, 3, clients=3, rounds=2, **changes)
    return lambda tap: fastlloyd.run(POINTS, plan, tap=tap)


def _feddp(tap: Tap) -> None:
    data = feddp.mixture(60, 3, 2)
    feddp.run(data, feddp.plan_for(data, 3), tap=tap)


def _kfed(tap: Tap) -> None:
    plan = kfed.plan_for(60, 3, 2)
    kfed.run(kfed.split(POINTS, plan), plan, tap=tap)


def _secfc(**changes: object) -> Callable[[Tap], object]:
    return lambda tap: secfc.run(POINTS, 3, clients=4, rounds=2, tap=tap, **changes)


def _vertical_dp(tap: Tap) -> None:
    columns = vertical_dp.split(POINTS, 2)
    vertical_dp.run(columns, vertical_dp.plan_for(columns, 3), tap=tap)


def _vertical_he(tap: Tap) -> None:
    points, start = vertical_he.blobs(40, 2, 2)
    vertical_he.simulate(vertical_he.linear_plan(40, 2), points, start, tap)


PROTOCOLS: dict[str, Callable[[Tap], object]] = {
    "fastlloyd": _fastlloyd(),
    "fastlloyd-plus": _fastlloyd(protocol="fastlloyd-plus"),
    "glloyd": _fastlloyd(protocol="glloyd"),
    "sulloyd": _fastlloyd(protocol="sulloyd"),
    "lloyd": _fastlloyd(protocol="lloyd"),
    "pairwise": _fastlloyd(masking="pairwise"),
    "feddp": _feddp,
    "kfed": _kfed,
    "secfc": _secfc(settings={"reveal_centers": True}),
    "vertical-dp": _vertical_dp,
    "vertical-he": _vertical_he,
}


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


def kinds(play: str) -> list[tuple[PartyId, int]]:
    """Which types the server, the first and the last client send."""
    seen: Counter[tuple[PartyId, int]] = Counter()

    def tap(sender: PartyId, receiver: PartyId, header: Header, body: bytes) -> bytes:
        seen[sender, header.type] += 1
        return body

    PROTOCOLS[play](tap)
    ranks = sorted({sender for sender, _ in seen})
    # What every system has, JSON documents above all, is changed in real runs and by the decoders' fuzzer.
    some = (ranks[0], ranks[-1]) if play in LONG else (ranks[0], ranks[1], ranks[-1])
    return sorted(each for each in seen if each[0] in some and each[1] not in SESSION)


@pytest.mark.parametrize("play", PROTOCOLS)
def test_a_message_of_the_wrong_length_is_refused_under_its_senders_name(play: str) -> None:
    for sender, type_ in kinds(play):
        for act in LENGTHS[: 1 if play in LONG else None]:
            change = Change(sender, type_, act)
            try:
                PROTOCOLS[play](change)
            except PeerError as error:
                assert error.rank == sender.rank, (str(error), sender, type_, act)
            else:
                assert not change.changed, (sender, type_, act)


@pytest.mark.parametrize("play", PROTOCOLS)
def test_no_content_of_a_message_is_an_unforeseen_error(play: str) -> None:
    draw = random.Random(play)
    for sender, type_ in kinds(play):
        for act in draw.sample(CONTENTS, 1 if play in LONG else 3):
            change = Change(sender, type_, act, seed=draw.randrange(1000))
            try:
                with np.errstate(all="raise", under="ignore"):
                    PROTOCOLS[play](change)
            except FastLloydError as error:
                # A wait that nobody serves ends by a deadline in a real run.
                unforeseen = isinstance(error, InternalError) and "nothing is under way" not in str(error)
                assert not unforeseen, (str(error), sender, type_, act)
