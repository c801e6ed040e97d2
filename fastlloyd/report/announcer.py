"""What one rank reports to people or to the supervisor: public values only."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastlloyd.errors import printable
from fastlloyd.report.display import with_names
from fastlloyd.report.lines import Journal
from fastlloyd.report.progress import Progress, encode_event, round_line
from fastlloyd.report.unit import format_seconds
from fastlloyd.report.view import View
from fastlloyd.wire.header import PartyId

_log = logging.getLogger(__name__)
FIRST_S = 10.0
"""Silent seconds of the set-up before the first report of what it waits for; the next pause is twice as long, etc."""


class Patience:
    """Report what a party waits for while its set-up is silent.

    Parameters
    ----------
    say : callable
        Takes a sentence.
    first_s : float, optional
        Seconds before the first one.
    """

    def __init__(self, say: Callable[[str], None], *, first_s: float | None = None) -> None:
        self.stage: Callable[[], str] = lambda: "reading the inputs"
        self._say = say
        self._first_s = FIRST_S if first_s is None else first_s
        self._over = threading.Event()

    def start(self) -> None:
        """Start to count, in a separate thread because the set-up may block anywhere."""
        threading.Thread(target=self._watch, name="patience", daemon=True).start()

    def end(self) -> None:
        """Say no more; idempotent."""
        self._over.set()

    def _watch(self) -> None:
        passed, wait = 0.0, self._first_s
        while not self._over.wait(wait):
            passed += wait
            self._say(f"set-up: {format_seconds(passed)} so far; {self.stage()}")
            wait = passed


@dataclass(slots=True)
class Announcer:
    """Report what happens to people and the supervisor; public values only.

    Parameters
    ----------
    me : PartyId
    events : bool
        Write machine-readable events for `fastlloyd run` instead of text.
    quiet : bool
    one_host : bool
        All ranks are on this host, so a result may be printed: the output of ranks passes through the launcher.
    own_terminal : bool
        No launcher is involved: this rank shows its progress, its result, and what all ranks see.
    mpi : str or None
        The MPI library, for the report.
    carrier : str or None
        How the parties are connected, for the report, if `--transport` does not say it.
    names : mapping from rank to str
        The parties' names in the roster; empty without one.
    journal : Journal
        Where it is reported besides.

    Attributes
    ----------
    view : View
        The same values for monitoring.
    """

    me: PartyId
    events: bool = False
    quiet: bool = False
    one_host: bool = False
    own_terminal: bool = False
    mpi: str | None = None
    carrier: str | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    journal: Journal = Journal.TEXT
    view: View = field(init=False, repr=False)
    patience: Patience = field(init=False, repr=False)
    _progress: Progress = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.patience = Patience(self.remark)
        self.view = View(me=self.me, waiting=self._awaited)
        self._progress = Progress(sys.stdout, quiet=self.quiet or self.journal is Journal.LOG)

    @property
    def speaks(self) -> bool:
        """Whether this rank reports what all ranks see; under a launcher only rank 0 does."""
        return self.own_terminal or self.me.is_server

    @property
    def may_print(self) -> bool:
        """Whether a result printed here reaches only its owner."""
        return self.own_terminal or self.one_host

    def event(self, name: str, **values: Any) -> None:
        """Announce an event."""
        if self.journal is not Journal.TEXT and name != "progress":
            line = round_line(values) if name == "round" else name
            _log.info("%s", line, extra={"values": {"event": name, **values}})
        if self.events:
            sys.stdout.write(encode_event(name, **values))
            sys.stdout.flush()
        elif self.speaks:
            self._progress.show({"event": name, **values})

    def _awaited(self) -> str:
        """Return what this rank waits for; the stage changes during the run."""
        return self.patience.stage()

    def note(self, text: str) -> None:
        """Print a text for the people who watch this rank."""
        if self.journal is not Journal.TEXT and "\n" not in text.strip():  # tables are for people
            _log.info("%s", text)
        if not self.quiet and self.journal is not Journal.LOG:
            self._progress.write(printable(text.rstrip("\n"), lines=True) + "\n", sys.stdout)

    def remark(self, text: str) -> None:
        """Print a sentence that is no error on standard error, unless this rank is quiet."""
        if not self.quiet:
            self._say(text, logging.WARNING)

    def complain(self, text: str) -> None:
        """Print a sentence on this rank's own standard error."""
        self._say(text, logging.ERROR)

    def confide(self, text: str) -> None:
        """Print a sentence that depends on this party's records, on standard error if only their owner reads that.

        It is left out if a launcher collects the standard error of several hosts, and in the log of a framework.
        """
        if self.may_print and self.journal is not Journal.LOG:
            self._say(text, logging.WARNING)

    def _say(self, text: str, level: int) -> None:
        text = printable(with_names(text, self.names))
        if self.journal is not Journal.TEXT:
            _log.log(level, "%s", text)
        if self.journal in (Journal.STDERR, Journal.LOG):
            return
        named = self.me.rank and not self.own_terminal
        self._progress.write(f"fastlloyd: {self.me}: {text}\n" if named else f"fastlloyd: {text}\n", sys.stderr)
