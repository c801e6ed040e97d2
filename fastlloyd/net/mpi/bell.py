"""Sleeping until the network has data for this process, although MPI only offers polling.

MPI's libraries wait for their sockets through epoll descriptors, and a process can wait for an epoll descriptor. So a
rank sleeps instead of polling all the time, and wakes when bytes arrive. This is only an optimisation: every sleep has
its own limit, and without descriptors it is a plain pause.
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
# The limit of select().
_MOST_DESCRIPTORS = 1024
_FIRST_PAUSE_S = 0.000_02
_LONGEST_PAUSE_S = 0.000_5
_PAUSE_GROWTH = 1.25


class Bell:
    """Pauses for one thread, of increasing length, that end early when a descriptor becomes readable (the bell rings).

    Parameters
    ----------
    descriptors : iterable of int
        Become readable when something arrives; may be empty.

    Notes
    -----
    A descriptor may be readable without a message for this rank, or stay silent although there is one (shared memory
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
        """Sleep until the bell rings, for the current pause and `longest_s` at most."""
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
        """Note that a message came, and whether after a pause: pauses are short again."""
        if after_pause:
            self._trusted = self._rang
        self._rang = False
        self._pause_s = _FIRST_PAUSE_S


def epoll_descriptors() -> tuple[int, ...]:
    """Find this process's epoll descriptors; none without /proc."""
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if int(entry.name) < _MOST_DESCRIPTORS and str(entry.readlink()) == _EPOLL:
                    found.append(int(entry.name))
    return tuple(sorted(found))


def sharpen_timer() -> None:
    """Make this thread's sleeps end on time, not up to 50 us later as is the default of Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(_TIMER_SLACK_NS), 0, 0, 0)
