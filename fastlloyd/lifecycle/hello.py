"""What happens before round 0 in every horizontal protocol.

::

    client i                                     server
      Hello      number and names of features,
                 rounds it has finished  ------>    all clients the same?
                                         <------  PlanProposal: the plan of the run (public), rounds done
      check the plan, recompute epsilon
      ... seed agreement among the clients ...
      Ready                              ------>    all are ready, and what a resume needs is stored
                                         <------  Go
      round 0 begins

In runs on records of several sites that can be resumed (`run.horizontal`), nothing that rests on records leaves a
client, or enters its ledger, before Go: so whatever a crash interrupts from the first such message on, every party has
stored what a resume needs. docs/protocol.md, "Set-up messages", says what the other protocols do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Self

from fastlloyd.errors import ConfigError, PeerError, Reason, format_count
from fastlloyd.party.declaration import DOWN, UP, Seen
from fastlloyd.party.effects import Attest, Gather, Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.wire.decode import Within, decode, load_json, show
from fastlloyd.wire.header import FINAL_ROUND, SERVER, SETUP_ROUND, PartyId

_MAX_JSON_BYTES = 1 << 24
MAX_COLUMNS = 1_000_000
_SHOWN = 1000
"""The largest number of features of a table."""
Names = Annotated[tuple[str, ...], Within(1, MAX_COLUMNS)]
"""Names of features."""
Rounds = Annotated[int, Within(0, FINAL_ROUND - 1)]
"""A number of rounds."""


@dataclass(frozen=True, slots=True)
class Document(NoPayload):
    """A message that is one JSON object of its fields; all of it public, none of it payload."""

    MOST_BYTES: ClassVar[int] = 1 << 12

    def body(self) -> bytes:
        """Return canonical JSON."""
        # `asdict` here would copy the whole plan, value by value, once for each client.
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False, default=asdict).encode()

    @classmethod
    def read(cls, body: bytes, format: None) -> Self:
        """Decode the fields that the class declares."""
        return decode(cls, load_json(body, most_bytes=_MAX_JSON_BYTES), "")


@dataclass(frozen=True, slots=True)
class Hello(Document):
    """The public schema of a client's table."""

    TYPE = 8
    MOST_BYTES = 1 << 20
    LEADS_TO_PLAN = True
    SEEN = Seen(
        UP, "introduces a client", server="feature names, rounds done", others="- (the names come back in the plan)"
    )
    names: Names
    rounds_done: Rounds


@dataclass(frozen=True, slots=True)
class PlanProposal(Document):
    """The plan of the run; public.

    Attributes
    ----------
    plan : mapping
        Plain values: the class of the plan decodes them.
    rounds_done : int
        Rounds that the server has closed; 0 unless it resumes a run.
    """

    TYPE = 9
    MOST_BYTES = 1 << 22
    LEADS_TO_PLAN = True
    SEEN = Seen(DOWN, "the plan of the run", server="public plan", others="public plan")
    plan: Mapping[str, Any]
    rounds_done: Rounds


@dataclass(frozen=True, slots=True)
class Ready(Document):
    """Says that the set-up is done; carries nothing."""

    TYPE = 12
    SEEN = Seen(UP, "the set-up is done", server="that it is ready", others="-")


@dataclass(frozen=True, slots=True)
class Go(Document):
    """Says that all are ready; carries nothing."""

    TYPE = 13
    SEEN = Seen(DOWN, "all are ready, and can go on after a crash", server="that all are ready", others="the same")


@dataclass(frozen=True, slots=True)
class Announced:
    """What the clients announced: public feature names, and on resume the rounds that each has finished."""

    names: tuple[str, ...]
    rounds_done: Mapping[PartyId, int]


def gather_announced(clients: tuple[PartyId, ...]) -> Party[Announced]:
    """Collect the clients' feature names; run by the server.

    Raises
    ------
    PeerError
        A client's features differ from those of most clients, or, of two clients, from the first one's.
    """
    hellos: dict[PartyId, Hello] = yield Gather(clients, Hello, SETUP_ROUND, len(clients))
    names, _ = Counter(hellos[party].names for party in clients).most_common(1)[0]
    usual = next(party for party in clients if hellos[party].names == names)
    for party in clients:
        if hellos[party].names != names:
            text = _different(usual, names, party, hellos[party].names)
            raise PeerError(text, rank=party.rank, reason=Reason.CONFIG_MISMATCH)
    return Announced(names, {party: hellos[party].rounds_done for party in clients})


def _different(usual: PartyId, names: tuple[str, ...], party: PartyId, other: tuple[str, ...]) -> str:
    """Describe how two schemas differ."""
    if len(other) != len(names):
        return (
            f"{party} has {format_count(len(other), 'feature')}, {usual} has {len(names)}; all clients need the "
            "same columns: name them with --columns"
        )
    column = next(i for i, (a, b) in enumerate(zip(names, other, strict=True)) if a != b)
    return (
        f"feature {column + 1} is {show(other[column])} at {party} and {show(names[column])} at {usual}; all clients "
        "need the same columns in the same order: name them with --columns"
    )


def propose_plan(clients: tuple[PartyId, ...], plan: Mapping[str, Any], rounds_done: int) -> Party[None]:
    """Send the plan to all clients; run by the server.

    Raises
    ------
    ConfigError
        The plan is longer than the clients accept.
    """
    proposal = PlanProposal(plan, rounds_done)
    check_length(proposal, "the plan with all names of features takes")
    yield Attest(SERVER, proposal, SETUP_ROUND)
    yield Send(clients, proposal, SETUP_ROUND)


def receive_plan(names: tuple[str, ...], rounds_done: int) -> Party[PlanProposal]:
    """Send this client's names and receive the plan; run by each client.

    Raises
    ------
    ConfigError
        The names are longer than the server accepts.
    """
    hello = Hello(names, rounds_done)
    check_length(hello, "the names of the features take")
    yield Send((SERVER,), hello, SETUP_ROUND)
    return (yield from await_plan())


def await_plan() -> Party[PlanProposal]:
    """Receive the server's plan; run by each client."""
    proposal: PlanProposal = yield Receive(SERVER, PlanProposal, SETUP_ROUND)
    yield Attest(SERVER, proposal, SETUP_ROUND)
    return proposal


def check_length(message: Document, what_takes: str) -> None:
    """Refuse to send a document that its receiver would refuse."""
    size, most_bytes = len(message.body()), message.MOST_BYTES
    if size > most_bytes:
        raise ConfigError(
            f"{what_takes} {size} bytes, expected at most {most_bytes}: shorten the "
            "names, or leave columns out with --columns"
        )


def send_ready() -> Party[None]:
    """Report to the server that this party's set-up is done; run by each client."""
    yield Send((SERVER,), Ready(), SETUP_ROUND)


def await_go() -> Party[None]:
    """Report to the server that this party's set-up is done, and wait until all are ready; run by each client."""
    yield from send_ready()
    # The server may first wait for others' last messages of the set-up.
    yield Receive(SERVER, Go, SETUP_ROUND, waits=2)


def send_go(clients: tuple[PartyId, ...]) -> Party[None]:
    """Let all clients begin; run by the server."""
    yield Send(clients, Go(), SETUP_ROUND)


def await_ready(clients: tuple[PartyId, ...]) -> Party[None]:
    """Wait until all clients have finished their set-up; run by the server."""
    yield Gather(clients, Ready, SETUP_ROUND, len(clients))


def refuse_plan(error: ValueError) -> PeerError:
    """Return the error that blames the server for a plan that does not fit."""
    why = str(error)  # may quote what the server sent, at any length
    shown = why if len(why) <= _SHOWN else f"{why[:_SHOWN]}.."
    return PeerError(f"the server proposed a plan that was refused: {shown}", rank=SERVER.rank)
