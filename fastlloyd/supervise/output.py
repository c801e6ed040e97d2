"""What a launcher and its ranks write, separated: events, the launcher's banner, and text of the ranks.

Ranks write events to standard output (`report/progress.py`); these become the progress bar. The launcher's banner is
hidden, and everything else passes through. MPICH prints a banner of `=` signs when a rank ends badly, Open MPI a block
between two lines of dashes. Neither helps the person who started the run: `fastlloyd run` reports the same in one
sentence. MPICH's banner even names the wrong process: once one rank is killed, all end by signal 9, and it takes the
lowest of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from fastlloyd.report.lines import json_line
from fastlloyd.report.progress import Progress, split_event

_MPICH = re.compile(
    r"=   (BAD TERMINATION|PID |EXIT CODE:|CLEANING UP|YOU CAN IGNORE)"
    r"|YOUR APPLICATION TERMINATED WITH THE EXIT STRING"
    r"|This typically refers to a problem with your application"
    r"|Please see the FAQ page for debugging suggestions"
    r"|\[(mpiexec|proxy:[^\]]*)@?[^\]]*\] "
    r"|Abort\(\d+\) on node \d+ .*application called MPI_Abort"
)
_MPICH_RULE = re.compile(r"={60,}\s*$")
_OPENMPI = re.compile(
    r"(prterun|prte|mpirun|mpiexec|orterun)(\.\w+)? (noticed|detected|has exited|was unable to)"
    r"|PRTE has lost communication|Primary job +terminated normally|MPI_ABORT was invoked"
)
_OPENMPI_RULE = re.compile(r"-{60,}\s*$")
_SIGNAL = re.compile(r"\(signal (\d+)\)|exited on\s+signal (\d+)")
_HOST = re.compile(r"=   PID \d+ RUNNING AT (\S+)|\bon node (\S+) exited on\s+signal")
_BLOCK_LINES = 40
_BLOCK_S = 0.25


class BannerFilter:
    """Sort the lines of one stream into the ranks' and the launcher's.

    Attributes
    ----------
    hidden : list of str
        The launcher's lines, in order.
    """

    def __init__(self) -> None:
        self.hidden: list[str] = []
        self._held: list[str] = []
        self._in_block = False
        self._after_hidden = False

    def feed(self, line: str) -> list[str]:
        """Take one line; return the lines that certainly are the ranks'."""
        before, hidden = self._after_hidden, len(self.hidden)
        shown = self._sort(line)
        self._after_hidden = len(self.hidden) > hidden or (before and not line.strip())
        if before and not line.strip() and self._held == [line]:
            # An empty line right after the launcher's text belongs to it.
            self.hidden += self.flush()
        return shown

    def _sort(self, line: str) -> list[str]:
        """Take one line; hide it, hold it back, or return it with the lines held back before."""
        if self._in_block:
            return self._feed_block(line)
        if _OPENMPI_RULE.match(line):
            passed = self.flush()
            self._held, self._in_block = [line], True
            return passed
        if _MPICH.match(line):
            # Of the lines held back, the empty line and the rule belong to the banner.
            self.hidden += [*self._held, line]
            self._held = []
            return []
        if _MPICH_RULE.match(line) or not line.strip():
            passed = self.flush() if len(self._held) > 1 else []
            if _MPICH_RULE.match(line) and self._follows_banner():
                self.hidden.append(line)
                return passed
            self._held.append(line)
            return passed
        return [*self.flush(), line]

    def flush(self) -> list[str]:
        """Return the lines held back so far: they are the ranks'."""
        held, self._held, self._in_block = self._held, [], False
        return held

    @property
    def signal(self) -> int | None:
        """The signal that the launcher names, or None."""
        found = _SIGNAL.search(" ".join(line.strip() for line in self.hidden))
        return int(found[1] or found[2]) if found else None

    @property
    def host(self) -> str | None:
        """The host where a rank was killed, as the launcher reports it; reliable only with one rank on each host."""
        found = _HOST.search(" ".join(line.strip() for line in self.hidden))
        return found[1] or found[2] if found else None

    def _follows_banner(self) -> bool:
        return bool(self.hidden) and self.hidden[-1].startswith("=   ")

    def _feed_block(self, line: str) -> list[str]:
        self._held.append(line)
        if _OPENMPI_RULE.match(line):
            block = self.flush()
            if _OPENMPI.search(" ".join(block)):
                self.hidden += block
                return []
            return block
        return self.flush() if len(self._held) > _BLOCK_LINES else []


@dataclass(slots=True)
class _Stream:
    """One output of the launcher, split into lines."""

    target: TextIO
    banner: BannerFilter = field(default_factory=BannerFilter)
    rest: bytes = b""


class LauncherOutput:
    """Separates the launcher's output into events, its banner, and the ranks' text."""

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool, debug: bool, json_lines: bool = False) -> None:
        self._err = err
        self._json_lines = json_lines
        self._debug = debug
        self._progress = Progress(err if err.isatty() else out, quiet=quiet)
        self._streams = (_Stream(out), _Stream(err))
        self._last = time.monotonic()

    def feed(self, index: int, chunk: bytes) -> list[dict[str, Any]]:
        """Take bytes of standard output (0) or error (1), pass text on, return the events."""
        stream = self._streams[index]
        self._last = time.monotonic()
        *lines, stream.rest = (stream.rest + chunk).split(b"\n")
        events = []
        for line in lines:
            rest, event = split_event(line.decode("utf-8", errors="replace") + "\n")
            if event is not None:
                events.append(event)
                self._progress.show(event)
            if rest:
                self._show(stream, [rest] if self._debug else stream.banner.feed(rest))
        return events

    def idle(self) -> None:
        """Show the lines held back once nothing has followed them for a while."""
        if time.monotonic() - self._last > _BLOCK_S:
            for stream in self._streams:
                self._show(stream, stream.banner.flush())

    def finish(self) -> list[dict[str, Any]]:
        """Take the last lines that lack their end."""
        events = []
        for index, stream in enumerate(self._streams):
            if stream.rest:
                events += self.feed(index, b"\n")
            self._show(stream, stream.banner.flush())
        return events

    def say(self, sentence: str) -> None:
        """Print a sentence of the supervisor."""
        line = json_line("error", sentence) if self._json_lines else f"fastlloyd: {sentence}\n"
        self._progress.write(line, self._err)

    def show_hidden(self) -> None:
        """Show the launcher's banner, when there is nothing else to show."""
        for stream in self._streams:
            self._show(stream, stream.banner.hidden)

    @property
    def signal(self) -> int | None:
        """The signal that the launcher names."""
        return next((s.banner.signal for s in self._streams if s.banner.signal is not None), None)

    @property
    def host(self) -> str | None:
        """The host where the launcher saw a rank killed."""
        return next((s.banner.host for s in self._streams if s.banner.host is not None), None)

    def close(self) -> None:
        """End the progress bar."""
        self._progress.close()

    def _show(self, stream: _Stream, lines: Sequence[str]) -> None:
        if lines:
            self._progress.write("".join(lines), stream.target)
