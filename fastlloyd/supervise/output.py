"""What a launcher and its ranks write, taken apart: events, the launcher's own words, text of the ranks.

Ranks write events to standard output (`report/progress.py`); these become the progress bar. The launcher's banner is
hidden, and everything else passes through.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from fastlloyd.report.lines import json_line
from fastlloyd.report.progress import Progress, split_event
from fastlloyd.supervise.banner import BannerFilter

_BLOCK_S = 0.25


@dataclass(slots=True)
class _Stream:
    """One output of the launcher, cut into lines."""

    target: TextIO
    banner: BannerFilter = field(default_factory=BannerFilter)
    rest: bytes = b""


class LauncherOutput:
    """What the launcher writes, sorted into events, the launcher's own words, and the ranks'."""

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool, debug: bool, json_lines: bool = False) -> None:
        self._err = err
        self._json_lines = json_lines
        self._debug = debug
        self._progress = Progress(err if err.isatty() else out, quiet=quiet)
        self._streams = (_Stream(out), _Stream(err))
        self._last = time.monotonic()

    def feed(self, index: int, chunk: bytes) -> list[dict[str, Any]]:
        """Take bytes of standard output (0) or error (1), pass text on, give the events."""
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
        """Show lines that were held back, once nothing has followed them for a while."""
        if time.monotonic() - self._last > _BLOCK_S:
            for stream in self._streams:
                self._show(stream, stream.banner.flush())

    def finish(self) -> list[dict[str, Any]]:
        """Take in last lines without their end."""
        events = []
        for index, stream in enumerate(self._streams):
            if stream.rest:
                events += self.feed(index, b"\n")
            self._show(stream, stream.banner.flush())
        return events

    def say(self, sentence: str) -> None:
        """Print a sentence of our own."""
        line = json_line("error", sentence) if self._json_lines else f"fastlloyd: {sentence}\n"
        self._progress.write(line, self._err)

    def confess(self) -> None:
        """Show what was hidden: it is all there is."""
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
