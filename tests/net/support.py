"""Parties in threads over the memory transport."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from fastlloyd.crypto.link.identity import Identity, make_identity
from fastlloyd.errors import PeerError
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.net.transport import Transport
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork, Tap

CONTEXT = bytes(range(32))
LIMIT_S = 30.0
# What may take five seconds by the contract, on a machine that others keep busy.
BUSY_S = 15.0
# A deadline that a silent party lets pass, and all others meet, on such a machine too.
SHORT_S = 2.0


@cache
def identity(rank: int) -> Identity:
    """Return the identity of a rank, the same in all tests."""
    return make_identity(f"site {rank}", rank)


def make_links(
    count: int,
    *,
    roster: bool = True,
    tap: Tap | None = None,
    change: Callable[[PartyId], dict[str, Any]] = lambda party: {},
) -> list[SecureLinks]:
    """Return the links of `count` parties on one network, not yet connected; `change` overrides arguments."""
    network = MemoryNetwork(count, tap=tap)
    certificates = {PartyId(rank): identity(rank).certificate_der for rank in range(count)}
    made = []
    for rank in range(count):
        arguments: dict[str, Any] = {
            "identity": identity(rank),
            "certificates": certificates if roster else None,
            "meter": Meter(),
        } | change(PartyId(rank))
        made.append(SecureLinks(network.endpoint(PartyId(rank)), **arguments))
    return made


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run each call in its own thread; return the results, or the exceptions they raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.exception(LIMIT_S) or future.result() for future in futures]


@contextlib.contextmanager
def receiving(transport: Transport, timeout_s: float = 0.2) -> Iterator[list]:
    """Keep a party in `receive` in a thread; gives what it received or raised."""
    found: list = []
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            try:
                item = transport.receive(timeout_s)
            except PeerError as error:
                item = error
            if item is not None:
                found.append(item)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def connect_all(links: Sequence[SecureLinks], **options: Any) -> list[Any]:
    """Connect all parties; give None or the exception of each."""
    arguments = {"deadline_s": LIMIT_S} | options
    return at_once([lambda each=each: each.connect(CONTEXT, **arguments) for each in links])


def connected(count: int, **options: Any) -> list[SecureLinks]:
    """Return links that are up."""
    links = make_links(count, **options)
    assert connect_all(links) == [None] * count
    return links
