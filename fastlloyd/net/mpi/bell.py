"""Sleeping until the network has something for this process, beside a library that only offers polling.

MPI's libraries wait for their sockets through epoll descriptors, and an epoll descriptor can itself be waited for. So
a rank that waits sleeps instead of asking over and over, and wakes when bytes arrive rather than when a pause is over.
It is help only: every sleep has an end of its own, and where nothing can be listened to it is a plain pause.
"""

from __future__ import annotations

import contextlib
import ctypes
import select
import time
from pathlib import Path

_SET_TIMER_SLACK = 29
_TIMER_SLACK_NS = 1000
_EPOLL = "anon_inode:[eventpoll]"
# What select() can take.
_MOST_DESCRIPTORS = 1024
_FIRST_PAUSE_S = 0.000_02
_LONGEST_PAUSE_S = 0.000_5
_PAUSE_GROWTH = 1.25


class Bell:
    """Pauses for one thread: longer and longer ones, which end early when the bell rings.

    Parameters
    ----------
    descriptors : iterable of int
        What becomes readable when something arrives; may be empty.

    Notes
    -----
    A descriptor may be readable although nothing is there for us, or stay silent although something is (shared memory
    rings no bell). So after a ring without a message the next pause is a plain one. Sleep for the longest pause only if
    the bell rang for the last message; otherwise poll more often.
    """

    def __init__(self, descriptors: tuple[int, ...]) -> None:
        self._descriptors = list(descriptors)
        self._pause_s = _FIRST_PAUSE_S
        self._rang = False
        self._trusted = False
        sharpen_timer()

    def pause(self, longest_s: float) -> None:
        """Sleep until the bell rings, at most for a while, and never longer than `longest_s`."""
        rang_in_vain = self._rang
        self._rang = False
        if self._descriptors and not rang_in_vain:
            length = _LONGEST_PAUSE_S if self._trusted else self._pause_s
            try:
                self._rang = bool(select.select(self._descriptors, (), (), min(length, longest_s))[0])
            except (OSError, ValueError):  # one of them was closed
                self._descriptors = []
                time.sleep(min(self._pause_s, longest_s))
        else:
            time.sleep(min(self._pause_s, longest_s))
        self._pause_s = min(self._pause_s * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    def arrived(self, *, after_pause: bool) -> None:
        """Take note that something came, and whether it had to be waited for: pauses are short again."""
        if after_pause:
            self._trusted = self._rang
        self._rang = False
        self._pause_s = _FIRST_PAUSE_S


def epoll_descriptors() -> tuple[int, ...]:
    """Find this process's epoll descriptors; none where the system does not tell."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if int(entry.name) < _MOST_DESCRIPTORS and str(entry.readlink()) == _EPOLL:
                    found.append(int(entry.name))
    return tuple(sorted(found))


def sharpen_timer() -> None:
    """Let this thread's sleeps end when they are over, not 50 us later, as Linux allows itself by default."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(_TIMER_SLACK_NS), 0, 0, 0)
