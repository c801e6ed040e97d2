"""Parties in one process whose frames are calls, and calls that go wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fastlloyd.net.calls import Call, CallTransport
from fastlloyd.wire.header import PartyId
from tests.net.support import LIMIT_S

Fault = Callable[[PartyId, PartyId, Callable[[], bool]], object]
"""Gets sender, receiver and what delivers the call; gives what the sender hears."""


def direct(sender: PartyId, peer: PartyId, take: Callable[[], bool]) -> object:
    """Deliver every call."""
    return take()


def unreliable(share: float) -> Fault:
    """Lose so large a share of the calls, of the answers, and deliver as many twice; fewer answers are nonsense."""
    draw, lock = random.Random(7), threading.Lock()

    def fault(sender: PartyId, peer: PartyId, take: Callable[[], bool]) -> object:
        with lock:
            fate = draw.random() / share
        if fate < 1:
            raise TimeoutError("not delivered")
        taken = take()
        if fate < 2:
            raise TimeoutError("the answer was lost")
        if fate < 3:
            take()
        return "nonsense" if fate < 2.5 else taken

    return fault


@contextmanager
def joined(count: int, fault: Fault = direct, **options: Any) -> Iterator[list[CallTransport]]:
    """Yield the transports of `count` parties; each call goes through `fault`."""
    parties = [PartyId(rank) for rank in range(count)]
    made: dict[PartyId, CallTransport] = {}
    there = threading.Event()

    def caller(me: PartyId) -> Call:
        def call(peer: PartyId, content: bytes) -> object:
            there.wait()
            return fault(me, peer, lambda: made[peer].take(me, content))

        return call

    with ExitStack() as stack:
        for me in parties:
            others = tuple(party for party in parties if party != me)
            given = {"gone_s": LIMIT_S, "first_s": LIMIT_S} | options
            made[me] = stack.enter_context(CallTransport(me, others, caller(me), **given))
        there.set()
        yield list(made.values())
