"""What the life of one party starts from, and what a protocol's face offers.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.crypto.link.signature import Credentials
from fastlloyd.data.records import ClientRecords
from fastlloyd.data.rows import RawRows
from fastlloyd.errors import InternalError
from fastlloyd.life.sizes import setup_bounds
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Allow, Identify, Party
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.protocols.registry import load_face
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import CommonInputs
from fastlloyd.run.outcome import Facts, Outcome
from fastlloyd.wire.header import PartyId

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Session:
    """What one party's life starts from; all of it is the party's own. The party asks for every change on its machine.

    Attributes
    ----------
    me : PartyId
    everybody : tuple of PartyId
        All clients.
    config : RunConfig
    common : CommonInputs
        What the face's `gather` gave.
    own : object or None
        What the face's `load` gave; `take_own` hands it over.
    ledger : Ledger
        To read: over all runs where there is a state directory, else of this run.
    stored : dict
        Public facts of the interrupted run; empty unless this one resumes it.
    facts : Facts
        Filled in by the runner as the run goes on.
    meter : Meter
        To read: this party's traffic.
    digest : bytes
        What the links were confirmed with: run id, roster and everything public.
    identity : Identity
        The key of this party's links.
    roster : Roster or None
    plan : object or None
        The protocol's plan; set by the party before it asks whether the run can be afforded.
    raw_rows : RawRows or None
        The rows behind the records that were handed over; its own labels at the end are for these.
    """

    me: PartyId
    everybody: tuple[PartyId, ...]
    config: RunConfig
    common: CommonInputs
    own: Any = field(repr=False)
    ledger: Ledger
    stored: dict[str, Any]
    facts: Facts
    meter: Meter
    digest: bytes
    identity: Identity = field(repr=False)
    roster: Roster | None
    plan: Any = None
    raw_rows: RawRows | None = field(default=None, repr=False)

    @property
    def resumed(self) -> bool:
        """Whether this run goes on with an interrupted one."""
        return bool(self.stored)

    @property
    def credentials(self) -> Credentials:
        """What this party signs with, and the certificates of all; nothing without a roster."""
        return Credentials() if self.roster is None else Credentials(self.identity, self.roster.certificates())

    def take_own(self, kind: type[T]) -> T:
        """Hand over this party's records, and keep no second reference to them."""
        own, self.own = self.own, None
        if not isinstance(own, kind):
            raise InternalError("a party started without its records")
        if isinstance(own, ClientRecords):
            self.raw_rows = own.raw_rows
        return own

    def begin(self, data_digest: str = "", sizes: Mapping[int, int] | None = None) -> Party[None]:
        """Say whose records the ledger is about, and what peers may send before the plan (`sizes`: `setup_bounds`)."""
        yield Identify(data_digest)
        yield Allow(setup_bounds(self.me, sizes))

    def own_releases(self) -> list[Release]:
        """Return this run's releases from the ledger, without the digest of the data."""
        run = self.facts.run_id.hex()
        return [dataclasses.replace(release, data="") for release in self.ledger.releases if release.run == run]


class Face(Protocol):
    """What the face of a protocol offers: `protocols/NAME/face.py`."""

    def gather(self, config: RunConfig, clients: int) -> tuple[RunConfig, CommonInputs]:
        """Check what is public and alike for all parties; fill in defaults."""

    def load(self, config: RunConfig, common: Any, me: PartyId) -> Any:
        """Load what this party alone has; None for a party without records."""

    def writes_result(self, me: PartyId) -> bool:
        """Whether this party can receive the result; one that cannot writes server.json."""

    def serve(self, session: Session) -> Party[Outcome]:
        """Live as rank 0, from the first message to the last."""

    def take_part(self, session: Session) -> Party[Outcome]:
        """Live as another rank."""

    def plan_lines(self, config: RunConfig, clients: int, d: int | None) -> list[str]:
        """Describe what a run would do, from public numbers alone."""

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in, as `run.promise` names it; None where nothing is private."""

    def settings_help(self, protocol: str) -> Mapping[str, str]:
        """Name the settings of a protocol as `--set` does, PROTOCOL.NAME, and say what each is."""


def find_face(protocol: str) -> Face:
    """Import the module that runs a protocol; no other one is imported.

    Raises
    ------
    ConfigError
        There is no such protocol, or the distribution that adds it is at fault.
    """
    return cast(Face, load_face(protocol, (name for name in vars(Face) if not name.startswith("_"))))
