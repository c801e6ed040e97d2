"""Standard output and standard error of a process: what cannot be written there is dropped, and ends nothing.

A run that is paid for must not end because a terminal, a log file or the reader of a pipe went away. So a process of
ours writes through `guard_streams`: a closed stream counts as one that nobody reads, or that has nothing to read, and
bytes that a full disk or a broken pipe refuses are dropped. Later ones are tried again. The first loss is said once, on
standard error.

A terminal gets its own encoding, with escapes for what that lacks; where it is narrow, lines are broken between words.
Files and pipes get UTF-8, whatever the locale.

Source: docs/operations.md, "Streams and locales".
"""

from __future__ import annotations

import errno
import io
import logging
import os
import select
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from fastlloyd.report.display import narrowed, paint
from fastlloyd.report.lines import speaks_json

_PATIENCE_MS = 1000
_USUAL_WIDTH = 80


class Guarded(io.RawIOBase):
    """Bytes for a descriptor; those that it refuses are dropped.

    Parameters
    ----------
    descriptor : int
    name : str
        As `sys` names the stream.
    lost : callable, optional
        Gets the first error.

    Attributes
    ----------
    error : OSError or None
        The first one.
    """

    def __init__(self, descriptor: int, name: str, lost: Callable[[OSError], None] | None = None) -> None:
        super().__init__()
        self.name = f"<{name}>"
        self.error: OSError | None = None
        self._descriptor, self._lost = descriptor, lost

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a terminal is at the other end."""
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write some bytes, or drop all of them."""
        try:
            return self._write(data)
        except OSError as error:
            if self.error is None:
                self.error = error
                if self._lost is not None:
                    self._lost(error)
            return len(data)

    def _write(self, data: Any) -> int:
        """Write some bytes; wait for a reader that is slow, a second at most, where another program set it so."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLOUT)
            poll.poll(_PATIENCE_MS)
            return os.write(self._descriptor, data)


def guard_streams(*, says_pipe: bool = True) -> None:
    """Replace `sys.stdout` and `sys.stderr`, where they are the process's own, by streams whose loss ends nothing.

    Parameters
    ----------
    says_pipe : bool
        Whether to say so if the reader of a pipe went away. It may have read all that it needed (`fastlloyd plan |
        head`).
    """
    # A file that is opened later must not get the number of a stream that is closed.
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None or getattr(sys, name).closed]
    if not closed:
        os.close(nowhere)
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 open while the process lives

    def lost(error: OSError) -> None:
        if says_pipe or error.errno != errno.EPIPE:
            complain(f"standard output cannot be written ({error.strerror}): what this process shows there is lost")

    for name, notes in (("stdout", lost), ("stderr", None)):
        stream: TextIO = getattr(sys, name)
        if name in closed:
            setattr(sys, name, _text(Guarded(nowhere, name), "utf-8"))
        elif stream is getattr(sys, f"__{name}__"):
            raw = Guarded(stream.fileno(), name, notes)
            setattr(sys, name, _text(raw, stream.encoding if raw.isatty() else "utf-8"))


def _text(raw: Guarded, encoding: str) -> TextIO:
    """Return the text stream of a descriptor, which buffers as Python's own would."""
    terminal = raw.isatty()
    made = _Terminal if terminal else io.TextIOWrapper
    lines = terminal or raw.name == "<stderr>"
    return made(io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=lines)


class _Terminal(io.TextIOWrapper):
    """The text stream of a terminal, which may be narrow."""

    def write(self, text: str) -> int:
        """Write a text, its lines broken between words where the terminal has fewer columns than most."""
        width = shutil.get_terminal_size().columns
        super().write(narrowed(text, width) if width < _USUAL_WIDTH else text)
        return len(text)


def lost_output() -> OSError | None:
    """Return why standard output was lost, after all of it was written; None where it was not."""
    sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.error if isinstance(raw, Guarded) else None


def complain(sentence: str) -> None:
    """Print the sentence of an error on standard error, or as a line of JSON where all lines are."""
    if speaks_json():
        logging.getLogger("fastlloyd").error("%s", sentence)
        return
    sys.stderr.write(paint(f"fastlloyd: {sentence}\n", sys.stderr))
    sys.stderr.flush()
