"""What happens before round 0 and after the last one, alike for every horizontal protocol.

::

    client i                                     server
      Hello      number and names of features,
                 rounds it has finished  ------>    all clients alike?
                                         <------  PlanProposal: the plan of the run (public), rounds done
      check the plan, recompute epsilon
      ... seed agreement among the clients ...
      Ready                              ------>    all are there: round 0 begins
      ... rounds ...
      Counters   own traffic             ------>
                                         <------  Totals: everybody's traffic
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fastlloyd.errors import ConfigError, PeerError, Reason
from fastlloyd.protocols.party import Gather, Party, Receive, Send
from fastlloyd.wire import FINAL_ROUND, SERVER, SETUP_ROUND, PartyId

_MAX_JSON_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Document:
    """A message that is one JSON object; all of it public, none of it payload."""

    TYPE: ClassVar[int]
    values: Mapping[str, Any]

    def body(self) -> bytes:
        """Give canonical JSON."""
        return json.dumps(self.values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @property
    def payload_bytes(self) -> int:
        """Set-up and final exchange are link bytes."""
        return 0

    @classmethod
    def read(cls, body: bytes, format: Any) -> Self:
        """Decode; `format` names the keys that must be there, with their types."""
        if len(body) > _MAX_JSON_BYTES:
            raise ValueError(f"a document of {len(body)} bytes, expected at most {_MAX_JSON_BYTES}")
        try:
            values = json.loads(body)
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError("not a JSON document") from error
        if not isinstance(values, dict) or set(values) != set(format):
            raise ValueError(f"expected a document with {', '.join(sorted(format))}")
        for key, kind in format.items():
            if not isinstance(values[key], kind) or isinstance(values[key], bool):
                raise ValueError(f"{key} has the wrong type")
        return cls(values)


@dataclass(frozen=True, slots=True)
class Hello(Document):
    """Sender: each client. Receiver: the server. Seen by: the server; public schema only."""

    TYPE: ClassVar[int] = 8
    MOST_BYTES: ClassVar[int] = 1 << 20
    FORMAT: ClassVar[dict[str, type]] = {"names": list, "rounds_done": int}


@dataclass(frozen=True, slots=True)
class PlanProposal(Document):
    """Sender: the server. Receiver: every client. Public."""

    TYPE: ClassVar[int] = 9
    MOST_BYTES: ClassVar[int] = 1 << 22
    FORMAT: ClassVar[dict[str, type]] = {"plan": dict, "rounds_done": int}


@dataclass(frozen=True, slots=True)
class Ready(Document):
    """Sender: each client. Receiver: the server. Says that the set-up is done; carries nothing."""

    TYPE: ClassVar[int] = 12
    FORMAT: ClassVar[dict[str, type]] = {}


@dataclass(frozen=True, slots=True)
class Go(Document):
    """Sender: the server. Receiver: every client. Says that all are ready; carries nothing."""

    TYPE: ClassVar[int] = 13
    FORMAT: ClassVar[dict[str, type]] = {}


@dataclass(frozen=True, slots=True)
class Counters(Document):
    """Sender: each client. Receiver: the server. Public traffic counts."""

    TYPE: ClassVar[int] = 10
    FORMAT: ClassVar[dict[str, type]] = {"traffic": dict}


@dataclass(frozen=True, slots=True)
class Totals(Document):
    """Sender: the server. Receiver: every client. Public traffic counts of all parties."""

    TYPE: ClassVar[int] = 11
    FORMAT: ClassVar[dict[str, type]] = {"traffic": dict}


@dataclass(frozen=True, slots=True)
class Schema:
    """What the clients told about their tables: public feature names, and rounds finished on resume."""

    names: tuple[str, ...]
    rounds_done: Mapping[PartyId, int]


def gather_schema(clients: tuple[PartyId, ...]) -> Party[Schema]:
    """Collect the clients' feature names; run by the server.

    Raises
    ------
    ConfigError
        Two clients have different features; names both sides' numbers, which are public.
    """
    hellos = yield Gather(clients, Hello, SETUP_ROUND, len(clients), Hello.FORMAT)
    first = clients[0]
    names = tuple(str(name) for name in hellos[first].values["names"])
    for party in clients[1:]:
        other = tuple(str(name) for name in hellos[party].values["names"])
        if other != names:
            raise ConfigError(_different(first, names, party, other), reason=Reason.CONFIG_MISMATCH)
    return Schema(names, {party: int(hellos[party].values["rounds_done"]) for party in clients})


def _different(first: PartyId, names: tuple[str, ...], party: PartyId, other: tuple[str, ...]) -> str:
    """Say how two schemas differ."""
    if len(other) != len(names):
        return (
            f"{party} has {len(other)} features, {first} has {len(names)}; all clients need the same columns: "
            "name them with --columns"
        )
    column = next(i for i, (a, b) in enumerate(zip(names, other, strict=True)) if a != b)
    return (
        f"feature {column + 1} is {names[column]!r} at {first} and {other[column]!r} at {party}; all clients need "
        "the same columns in the same order: name them with --columns"
    )


def propose_plan(clients: tuple[PartyId, ...], plan: Mapping[str, Any], rounds_done: int) -> Party[None]:
    """Send the plan to all clients; run by the server.

    Raises
    ------
    ConfigError
        It is longer than the clients take.
    """
    proposal = PlanProposal({"plan": plan, "rounds_done": rounds_done})
    check_length(proposal, proposal.MOST_BYTES, "the plan with all names of features")
    yield Send(clients, proposal, SETUP_ROUND)


def receive_plan(names: tuple[str, ...], rounds_done: int) -> Party[PlanProposal]:
    """Introduce oneself and receive the plan; run by each client.

    Raises
    ------
    ConfigError
        The names are longer than the server takes.
    """
    hello = Hello({"names": list(names), "rounds_done": rounds_done})
    check_length(hello, hello.MOST_BYTES, "the names of the features")
    yield Send((SERVER,), hello, SETUP_ROUND)
    proposal: PlanProposal = yield Receive(SERVER, PlanProposal, SETUP_ROUND, PlanProposal.FORMAT)
    return proposal


def check_length(message: Document, most_bytes: int, what: str) -> None:
    """Refuse to send a document that its receiver would refuse."""
    size = len(message.body())
    if size > most_bytes:
        raise ConfigError(
            f"{what} take{'s' * what.startswith('the plan')} {size} bytes, expected at most {most_bytes}: shorten the "
            "names, or leave columns out with --columns"
        )


def tell_ready() -> Party[None]:
    """Tell the server that the own set-up is done; run by each client."""
    yield Send((SERVER,), Ready({}), SETUP_ROUND)


def await_ready(clients: tuple[PartyId, ...]) -> Party[None]:
    """Wait until all clients have finished their set-up; run by the server."""
    yield Gather(clients, Ready, SETUP_ROUND, len(clients), Ready.FORMAT)


def let_go(clients: tuple[PartyId, ...]) -> Party[None]:
    """Tell all clients to send what they have prepared; run by the server."""
    yield Send(clients, Go({}), SETUP_ROUND)


def await_go() -> Party[None]:
    """Wait until all clients have prepared what they send; run by each client."""
    yield Receive(SERVER, Go, SETUP_ROUND, Go.FORMAT)


def refuse_plan(error: ValueError) -> PeerError:
    """Blame the server for a plan that does not fit."""
    return PeerError(f"the server proposed a plan that was refused: {error}", rank=SERVER.rank)


def exchange_counters_client(traffic: Mapping[str, Any]) -> Party[dict[str, Any]]:
    """Send the own counters and receive everybody's; run by each client."""
    yield Send((SERVER,), Counters({"traffic": traffic}), FINAL_ROUND)
    totals = yield Receive(SERVER, Totals, FINAL_ROUND, Totals.FORMAT)
    return dict(totals.values["traffic"])


def exchange_counters_server(
    clients: tuple[PartyId, ...], traffic: Mapping[str, Any], *, late: frozenset[PartyId], at_least: int
) -> Party[dict[str, Any]]:
    """Collect the counters, send them all to everybody; run by the server."""
    counters = yield Gather(clients, Counters, FINAL_ROUND, at_least, Counters.FORMAT, late)
    everybody = {"0": dict(traffic)}
    for party, message in counters.items():
        everybody[str(party.rank)] = message.values["traffic"]
    yield Send(clients, Totals({"traffic": everybody}), FINAL_ROUND)
    return everybody
