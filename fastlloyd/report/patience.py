"""Tells people what a party waits for while its set-up takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fastlloyd.report.unit import format_seconds

FIRST_S = 10.0
"""After so many silent seconds of the set-up people hear what it waits for; then after twice as many, and so on."""


class Patience:
    """Says what a party waits for, as long as its set-up is silent.

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
        """Begin to count; a thread of its own does, for what is waited for may be anything."""
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
