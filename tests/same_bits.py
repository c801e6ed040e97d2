"""Random bytes that are the same in each run of a test."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
from collections.abc import Iterator


class SameBits:
    """Stands in for `os.urandom` where this package asks: the same bytes each time for one test, thread and fork.

    So keys, masks and noise of the parties that live in this process are what they were in every other run of a test.
    Libraries keep the real one: what they name by it must differ between two runs on one machine.
    """

    def __init__(self) -> None:
        self._real = os.urandom
        self._label, self._forks = "", 0
        self._streams: dict[str, random.Random] = {}
        os.register_at_fork(before=self._count_fork, after_in_child=self._fork)

    def __call__(self, count: int) -> bytes:
        if not sys._getframe(1).f_globals["__name__"].startswith(("fastlloyd", "tests.", "papers.")):
            return self._real(count)
        # A pool's name counts the pools before it; behind the underscore stands the thread's place in it.
        thread = threading.current_thread().name.rpartition("_")[2]
        if thread not in self._streams:
            self._streams[thread] = random.Random(f"{self._label} {thread}")
        return self._streams[thread].randbytes(count)

    @contextlib.contextmanager
    def drawn_for(self, label: str) -> Iterator[None]:
        """Begin the streams of a test, or of a fixture that several tests share."""
        before = self._label, self._forks, self._streams
        self._label, self._forks, self._streams = label, 0, {}
        try:
            yield
        finally:
            self._label, self._forks, self._streams = before

    def of_a_fork(self) -> str:
        """Return the label of a process that is now forked elsewhere for this one."""
        self._count_fork()
        return f"{self._label} {self._forks}"

    def stand_in(self, label: str) -> None:
        """Give this process the streams of a fork."""
        self._label = label
        os.urandom = self

    def _count_fork(self) -> None:
        self._forks += 1

    def _fork(self) -> None:
        self._label, self._forks, self._streams = f"{self._label} {self._forks}", 0, {}
