"""What may be seen of a run from outside while it goes on: public values, as one party has them.

The party's own thread writes; threads that show it to people and to monitoring only read. Every value is replaced
whole, so a reader sees an old one or a new one and never half of one.

Source: docs/operations.md, "Monitoring"; docs/security.md, "What monitoring shows".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastlloyd.report.display import with_names
from fastlloyd.wire.header import PartyId

STAGES: Final = ("starting", "setup", "rounds", "done", "failed")
"""What a run does, in this order: waits for the parties to start, agrees, computes; and how it ended."""


@dataclass(slots=True, kw_only=True)
class View:
    """The public values of one party's run.

    Attributes
    ----------
    me : PartyId
        Whose view it is.
    protocol : str
        Empty until it is known.
    run : str
        The run's id, hexadecimal; empty until the parties have agreed on it.
    stage : str
        One of `STAGES`.
    started, ended : float
        Seconds since the epoch; `ended` is 0 while the run goes on.
    clients : int
        How many take part.
    absent : callable
        Gives the ranks of clients that have not joined yet.
    names : mapping from rank to str
        From the roster; empty without one.
    waiting : callable
        Says in words what this party waits for.
    epsilon : float
        Asked for; 0 until it is known.
    setup_seconds, round_seconds, rounds_seconds : float
        Of everything before round 0, of the last round, of all rounds.
    rounds, rounds_done, included : int
        Planned and closed rounds, and the clients in the last one.
    payload_bytes, sent_bytes, received_bytes : int
        Of this party in set-up and closed rounds: payload both ways, and all bytes on its links.
    exit_code : int or None
        None while the run goes on.
    """

    me: PartyId
    protocol: str = ""
    run: str = ""
    stage: str = STAGES[0]
    started: float = field(default_factory=time.time)
    ended: float = 0.0
    clients: int = 0
    absent: Callable[[], Collection[int]] = frozenset
    names: Mapping[int, str] = field(default_factory=dict)
    waiting: Callable[[], str] = str
    epsilon: float = 0.0
    setup_seconds: float = 0.0
    round_seconds: float = 0.0
    rounds_seconds: float = 0.0
    rounds: int = 0
    rounds_done: int = 0
    included: int = 0
    payload_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    exit_code: int | None = None

    def take(self, event: str, values: Mapping[str, Any]) -> None:
        """Take in an event as `report.progress` names it, with the `sent_bytes` and `received_bytes` of own links."""
        if event == "setup":
            self.stage, self.setup_seconds = "rounds", values["seconds"]
        elif event == "round":
            self.stage = "rounds"
            self.rounds, self.rounds_done = values.get("rounds", self.rounds), values["round"] + 1
            self.included, self.round_seconds = values["clients"], values["seconds"]
            self.rounds_seconds += values["seconds"]
            self.payload_bytes += values["bytes"]
        else:
            return
        self.sent_bytes += values.get("sent_bytes", 0)
        self.received_bytes += values.get("received_bytes", 0)

    def end(self, code: int) -> None:
        """Note how the run ended."""
        self.ended, self.exit_code, self.stage = time.time(), code, "failed" if code else "done"

    @property
    def joined(self) -> tuple[int, ...]:
        """The ranks of the clients that have joined."""
        absent = set(self.absent())
        return tuple(rank for rank in range(1, self.clients + 1) if rank not in absent)

    def awaited(self) -> str:
        """Say what this party waits for, with the parties' names; empty once the run has ended."""
        if self.exit_code is not None:
            return ""
        try:
            return with_names(self.waiting(), self.names)
        except RuntimeError:  # what it looks at changed while it looked
            return "working"
