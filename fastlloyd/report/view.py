"""The public values of a run in progress that monitoring may see, as one party has them.

The party's own thread writes; threads for people and monitoring only read. Every value is replaced as a whole, so a
reader sees an old or a new one and never half of one.

Source: docs/operations.md, "Monitoring"; docs/security.md, "What monitoring shows".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastlloyd.report.display import with_names
from fastlloyd.wire.header import PartyId

STAGES: Final = ("starting", "setup", "rounds", "done", "failed")
"""The stages of a run in order: it waits for the parties, agrees, computes, and ends in one of two ways."""


@dataclass(slots=True, kw_only=True)
class View:
    """The public values of one party's run.

    Attributes
    ----------
    me : PartyId
        The party.
    protocol : str
        Empty until it is known.
    run : str
        The run's id, hexadecimal; empty until the parties have agreed on it.
    stage : str
        One of `STAGES`.
    started, ended : float
        Seconds since the epoch; `ended` is 0 while the run goes on.
    clients : int
        Number of clients.
    absent : callable
        Returns the ranks of clients that have not joined yet.
    names : mapping from rank to str
        From the roster; empty without one.
    waiting : callable
        Returns what this party waits for, in words.
    epsilon : float
        As asked for; 0 until it is known.
    setup_seconds, round_seconds, rounds_seconds : float
        Of everything before round 0, of the last round, of all rounds.
    rounds, rounds_done, included : int
        Planned and closed rounds, and the clients in the last one.
    payload_bytes, sent_bytes, received_bytes : int
        Of this party in set-up and closed rounds: payload both ways, and all bytes on its links.
    budget, budget_left : float
        The lifetime limit on epsilon of this party's ledger, and what is left of it after this run; 0 without one.
    certificate_ends : float
        When this party's own certificate expires, in seconds since the epoch; 0 without a roster.
    earlier : sequence of mapping
        Earlier runs of this party, each with `begun`, `run`, `protocol`, `title`, `with` and `outcome`; for the
        operator alone.
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
    budget: float = 0.0
    budget_left: float = 0.0
    certificate_ends: float = 0.0
    earlier: Sequence[Mapping[str, str]] = ()
    exit_code: int | None = None

    def take(self, event: str, values: Mapping[str, Any]) -> None:
        """Update from an event of `report.progress` with the `sent_bytes` and `received_bytes` of the own links."""
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
        """Return what this party waits for, with the parties' names; empty once the run has ended."""
        if self.exit_code is not None:
            return ""
        try:
            return with_names(self.waiting(), self.names)
        except RuntimeError:  # another thread changed a collection during the iteration
            return "working"
