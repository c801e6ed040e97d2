"""What a party coroutine may ask of its runner.

A party is a plain generator, for its rounds or for its whole run. It yields the effects below and returns its result;
it owns no socket, file, clock or global randomness. `run/driver.py` drives one party over real links,
`run/simulation.py` drives all of them in one thread. A failed effect raises at the `yield`.

`Send`, `Receive` and `Gather` transfer messages, and `Allow` sets what peers may send. All others concern the party's
own machine (`run/machine.py`): `Identify`, `Expect`, `Afford` and `Record` its ledger; `Keep`, `Save`, `Recall` and
`Load` its state; `Attest` and `Heard` its transcript; `Publish` and `Elect` its progress and files.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastlloyd.party.declaration import MessageBounds
from fastlloyd.privacy.release import Release
from fastlloyd.wire.header import Message, PartyId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send one message to each party in `to`, point to point; the runner answers None.

    `step` counts the messages of this party to those in a round: what comes late is recognised by round and step.
    """

    to: tuple[PartyId, ...]
    message: Message
    round: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for one message of one type and round; the runner answers with the message.

    Messages of earlier rounds and steps are dropped; any other message is the sender's fault. `waits` is the number of
    deadlines for which the sender itself may wait for others before it answers.
    """

    sender: PartyId
    type: type[Message]
    round: int
    format: Any = None
    waits: int = 1
    step: int = 0


@dataclass(frozen=True, slots=True)
class Gather:
    """Wait for one message from each sender; answers a dict from party to message.

    The runner does not wait for senders in `late` (they missed an earlier round), but includes their messages if these
    arrive in time. When the deadline passes, the answer holds the messages that arrived, if there are `at_least` of
    them; otherwise the run fails and names the first missing sender.

    With `patience_s`, the deadline is at most so long after the message that makes them `at_least`: the others need not
    be waited for.

    With `adds`, messages are ring elements of a `RingFormat` of which the party only needs the sum: aggregators may add
    them up. Then one sender of a sum has the sum and the others have zeros.
    """

    senders: tuple[PartyId, ...]
    type: type[Message]
    round: int
    at_least: int
    format: Any = None
    late: frozenset[PartyId] = frozenset()
    adds: bool = False
    step: int = 0
    patience_s: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Write releases to the ledger, durably, before going on; the runner answers None."""

    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True)
class Attest:
    """Add a broadcast of `speaker` to the transcript that the parties compare at the end; answers None.

    The speaker and each receiver attest the same messages in the same order, including stored ones of a resumed run.
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
    """Report public values to the runner, for progress and reports; answers None. Never private values."""

    event: str
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allow:
    """Set what each peer may send from now on; yielded before the party lets a peer go on."""

    bounds: MessageBounds


@dataclass(frozen=True, slots=True)
class Identify:
    """Name the records that this party's ledger entries are about by a keyed digest, which is never sent."""

    data_digest: str


@dataclass(frozen=True, slots=True)
class Expect:
    """Prepare ledger entries of releases to come, so that a round only has to write them."""

    releases: tuple[Release, ...]


@dataclass(frozen=True, slots=True)
class Afford:
    """Check the planned releases that are not recorded yet against the lifetime budget, if there is one.

    A budget set with this run holds at `delta`; an earlier one keeps its own delta.
    """

    releases: tuple[Release, ...]
    delta: float


@dataclass(frozen=True, slots=True)
class Keep:
    """Begin a new run in the state directory with these public values; no effect in a resumed run."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask for what the interrupted run saved under `KIND-ROUND`; answers a dict from round to bytes."""

    kind: str


@dataclass(frozen=True, slots=True)
class Load:
    """Ask for what the interrupted run saved under a name; answers bytes, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class Heard:
    """Ask for the transcript of what was attested; answers a Transcript."""


@dataclass(frozen=True, slots=True)
class Elect:
    """Choose which candidate writes the shared files, while all are present; answers None."""

    candidates: tuple[PartyId, ...]


Effect = (
    Send
    | Receive
    | Gather
    | Record
    | Attest
    | Save
    | Publish
    | Allow
    | Identify
    | Expect
    | Afford
    | Keep
    | Recall
    | Load
    | Heard
    | Elect
)
Party = Generator[Effect, Any, T]
