"""Streams of a process that cannot be written, for tests of what goes on without them."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

LOST = ("full", "pipe", "closed")
"""A full disk, a pipe whose reader went away, and a descriptor that was closed before the start."""


def _open(what: str, encoding: str) -> TextIO | None:
    """Open a stream as Python does at its start."""
    if what == "closed":
        return None
    if what == "pipe":
        read, write = os.pipe()
        os.close(read)
    else:
        write = os.open("/dev/full" if what == "full" else what, os.O_WRONLY | os.O_CREAT, 0o600)
    return io.TextIOWrapper(os.fdopen(write, "wb"), encoding=encoding)


@contextlib.contextmanager
def own_streams(
    monkeypatch: pytest.MonkeyPatch, *, out: str | None = None, err: str | None = None, encoding: str = "utf-8"
) -> Iterator[None]:
    """Give this process other streams: one of `LOST`, or the path of a file."""
    opened = []
    with monkeypatch.context() as patch:
        for name, what in (("stdout", out), ("stderr", err)):
            if what is not None:
                stream = _open(what, encoding)
                opened.append(stream)
                patch.setattr(sys, name, stream)
                patch.setattr(sys, f"__{name}__", stream)
        yield
        for stream in opened:
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
