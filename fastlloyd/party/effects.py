"""What a party coroutine may ask of its runner.

A party is a plain generator. It yields the effects below and returns its result; it owns no socket,
clock or global randomness. `fastlloyd.run.driver` drives one party over real links, `fastlloyd.run.simulation`
drives all of them in one thread.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastlloyd.privacy.ledger import Release
from fastlloyd.wire.header import Message, PartyId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send one message to each party in `to`, point to point; the runner answers None."""

    to: tuple[PartyId, ...]
    message: Message
    round: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for one message of one type and round; the runner answers with the message.

    Messages of rounds that are over are dropped; anything else is the sender's fault.
    """

    sender: PartyId
    type: type[Message]
    round: int
    format: Any = None


@dataclass(frozen=True, slots=True)
class Gather:
    """Wait for one message from each sender; answers a dict from party to message.

    Senders in `late` (they missed an earlier round) are not waited for, but taken in if their message
    is there in time. When the deadline passes, the answer holds whoever came, if they are `at_least`;
    otherwise the run fails and names the first missing one.
    """

    senders: tuple[PartyId, ...]
    type: type[Message]
    round: int
    at_least: int
    format: Any = None
    late: frozenset[PartyId] = frozenset()


@dataclass(frozen=True, slots=True)
class Record:
    """Write releases to the ledger, durably, before going on; the runner answers None."""

    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True)
class Attest:
    """Add what `speaker` sends to several parties to the transcript that they compare at the end; answers None.

    The speaker and each receiver attest the same messages in the same order, a stored message of a resumed run too.
    """

    speaker: PartyId
    message: Message
    round: int


@dataclass(frozen=True, slots=True)
class Save:
    """Keep `content` durably under `name` in the state directory, if there is one; answers None."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Publish:
    """Tell the runner a public fact for progress and reports; answers None. Never private values."""

    event: str
    facts: dict[str, Any] = field(default_factory=dict)


Effect = Send | Receive | Gather | Record | Attest | Save | Publish
Party = Generator[Effect, Any, T]
