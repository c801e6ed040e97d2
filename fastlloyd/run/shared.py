"""Outcomes of several systems: of a server without the result, and of a party that may have it.

Both say farewell when they are made: the parties compare what they were told before any of them writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import InternalError, PeerError
from fastlloyd.privacy.ledger import Release
from fastlloyd.report import document
from fastlloyd.report.signed import SignedRecord
from fastlloyd.run.driver import Driver
from fastlloyd.run.farewell import compare, part
from fastlloyd.run.outcome import Facts, Farewell, Result, ResultFiles, write_server_report
from fastlloyd.run.session import Session
from fastlloyd.wire.header import PartyId


class ReportOnly:
    """What a server has at the end that learns no result: who was included, and traffic.

    Parameters
    ----------
    session : Session
    driver : Driver
        All parties are still there: counters and signatures are exchanged now.
    common : document.Common
    releases : sequence of Release
    late : frozenset of PartyId
    """

    def __init__(
        self,
        session: Session,
        driver: Driver,
        common: document.Common,
        releases: Sequence[Release],
        *,
        late: frozenset[PartyId],
    ) -> None:
        self._facts = session.facts
        run = session.facts.run_id.hex()
        self._releases = [dataclasses.replace(release, run=run).to_dict() for release in releases]
        farewell = part(session, driver, SignedRecord(common=common, releases=self._releases, covers="public"), late)
        self._common = dataclasses.replace(common, traffic=farewell.traffic)
        self.late = late
        self.fault = farewell.fault

    def write(self) -> None:
        """Write server.json."""
        write_server_report(self._facts, self._common, self._releases)

    def discard(self) -> None:
        """Nothing stays behind."""

    def announce(self, note: Callable[[str], None]) -> None:
        """The server has nothing to tell: the result is the clients'."""


class SharedOutcome:
    """What a party has at the end; a system's subclass says what the result is.

    Parameters
    ----------
    session : Session

    Attributes
    ----------
    files : ResultFiles
        With the party's ledger.
    late : frozenset of PartyId
        Clients that missed the last round; the end does not wait for them.
    fault : PeerError or None
        What a peer did wrong in the last exchange; the result stands.
    """

    def __init__(self, session: Session) -> None:
        self._facts: Facts = session.facts
        self._common = session.common
        self._everybody = session.everybody
        self.files = ResultFiles(session.facts, session.ledger)
        self.late: frozenset[PartyId] = frozenset()
        self.fault: PeerError | None = None
        self._result: Result | None = None
        self._farewell: Farewell | None = None
        self._raw_labels: NDArray[np.int64] | None = None
        self._raw_files: Mapping[str, str] = {}

    def conclude(
        self,
        session: Session,
        driver: Driver,
        result: Callable[[], Result | SignedRecord],
        *,
        took_part: Sequence[PartyId],
        writers: Sequence[PartyId],
        heard: tuple[PartyId, ...] | None = None,
        late: frozenset[PartyId] = frozenset(),
        raw_labels: NDArray[np.int64] | None = None,
        raw_files: Mapping[str, str] | None = None,
    ) -> None:
        """Compare with the others, and only then make the result; sign it, and exchange counters.

        Parameters
        ----------
        result : callable
            Gives the result; of a party without it, what it signs instead.
        took_part : sequence of PartyId
            Who must say what it was told.
        writers : sequence of PartyId
            Who may write the shared files.
        heard : tuple of PartyId, optional
            Who was told the same; all clients by default. A party that is not among them compares nothing.
        late : frozenset of PartyId
            At the server: who is not waited for.
        raw_labels : int64 array, shape (n,), optional
            Of the own records.
        raw_files : mapping from file name to text, optional
            This party's alone.

        Raises
        ------
        SecurityError
            They were told different things: names who told them.
        PeerTimeout, PeerGone
            One that took part is silent.
        """
        group = self._everybody if heard is None else heard
        if session.me in group:
            compare(session, driver, took_part, group)
        self.files.choose_writer(writers)
        made = result()
        self._result = made if isinstance(made, Result) else None
        self._farewell = part(session, driver, made.record() if isinstance(made, Result) else made, late)
        self.fault = self._farewell.fault
        self.late, self._raw_labels, self._raw_files = late, raw_labels, dict(raw_files or {})

    def write(self) -> None:
        """Write the own labels, if there are any, and the shared files if this party is the one to do it."""
        if self._farewell is None:
            raise InternalError("a party's outcome is incomplete")
        self.files.write(self._raw_labels, self._result, self._farewell, raw_files=self._raw_files)

    def discard(self) -> None:
        """Leave nothing half-written."""
        self.files.discard()

    def announce(self, note: Callable[[str], None]) -> None:
        """Print the table, if this party wrote the shared files."""
        self.files.announce(note)
