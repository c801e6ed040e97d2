"""The outcome of systems in which the server has the result, and the other parties where they get it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.outcome import Facts, Result, ResultFiles
from fastlloyd.systems.session import Session
from fastlloyd.wire import PartyId


class SharedOutcome:
    """What a party has at the end; a system's subclass fills in what the result is.

    Parameters
    ----------
    session : Session

    Attributes
    ----------
    files : ResultFiles
        With the party's ledger.
    late : frozenset of PartyId
    """

    def __init__(self, session: Session) -> None:
        self._facts: Facts = session.facts
        self._common = session.common
        self._everybody = session.everybody
        self.files = ResultFiles(session.facts, session.ledger_path)
        self.late: frozenset[PartyId] = frozenset()
        self._result: Callable[[], Result] | None = None
        self._has_result = True
        self._raw_labels: NDArray[np.int64] | None = None

    def write(self) -> None:
        """Write the own labels, if there are any, and the shared files if this party is the one to do it."""
        if self._result is None:
            raise InternalError("a party's outcome is incomplete")
        self.files.write(self._raw_labels, self._result, shared=self._has_result)

    def discard(self) -> None:
        """Leave nothing half-written."""
        self.files.discard()

    def announce(self, note: Callable[[str], None]) -> None:
        """Print the table, if this party wrote the shared files."""
        self.files.announce(note)
