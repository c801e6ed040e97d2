"""Outcomes of several systems: of a server without the result, and of all parties where the server has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError
from fastlloyd.outcome import Facts, Result, ResultFiles, write_server_report
from fastlloyd.privacy.ledger import Release
from fastlloyd.report import document
from fastlloyd.systems.session import Session
from fastlloyd.wire import PartyId


class ReportOnly:
    """What a server has at the end that learns no result: who was included, and traffic.

    Parameters
    ----------
    facts : Facts
    common : callable
        Gives the part of the report that all parties have alike, once the run is over.
    releases : sequence of Release
    late : frozenset of PartyId
    """

    def __init__(
        self,
        facts: Facts,
        common: Callable[[], document.Common],
        releases: Sequence[Release],
        *,
        late: frozenset[PartyId],
    ) -> None:
        self._facts = facts
        self._common = common
        self._releases = releases
        self.late = late

    def write(self) -> None:
        """Write server.json."""
        write_server_report(self._facts, self._common(), self._releases)

    def discard(self) -> None:
        """Nothing stays behind."""

    def announce(self, note: Callable[[str], None]) -> None:
        """The server has nothing to tell: the result is the clients'."""


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
        self.files = ResultFiles(session.facts, session.ledger)
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
