"""What a protocol's face gets to run one party with, and what it gives back.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from fastlloyd.crypto.link.identity import Identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import InternalError, PeerError
from fastlloyd.life.sizes import setup_bounds
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.net.meter import Meter
from fastlloyd.party.transcript import Transcript
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.protocols.registry import find
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.driver import Deadlines, Driver
from fastlloyd.run.inputs import Common
from fastlloyd.run.outcome import Facts
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId, clients

T = TypeVar("T")


@contextmanager
def discarding(outcome: Outcome) -> Iterator[None]:
    """Leave nothing of an outcome half-written if what follows fails."""
    try:
        yield
    except BaseException:
        outcome.discard()
        raise


class Outcome(Protocol):
    """What a party has at the end of a run."""

    @property
    def late(self) -> frozenset[PartyId]:
        """Clients that missed the last round; the end does not wait for them."""
        ...

    @property
    def fault(self) -> PeerError | None:
        """What a peer did wrong in the last exchange."""
        ...

    def write(self) -> None:
        """Write this party's files."""
        ...

    def discard(self) -> None:
        """The run failed: leave nothing half-written."""
        ...

    def announce(self, note: Callable[[str], None]) -> None:
        """Tell this party's people what came out."""
        ...


@dataclass(slots=True, kw_only=True)
class Session:
    """One party's run once its links are up.

    Attributes
    ----------
    config : RunConfig
    common : Common
        What the face's `gather` gave.
    own : object or None
        What the face's `load` gave; `take_own` hands it over.
    state : StateDir or None
    ledger : Ledger or None
        Over all runs; None without a state directory.
    stored : dict
        Public facts of the interrupted run; empty unless this one resumes it.
    digest : bytes
        What the links were confirmed with: run id, roster and everything public.
    identity : Identity
        The key of this party's links.
    roster : Roster or None
    """

    config: RunConfig
    common: Common
    own: Any = field(repr=False)
    state: StateDir | None
    ledger: Ledger | None
    stored: dict[str, Any]
    facts: Facts
    links: SecureLinks
    meter: Meter
    announcer: Announcer
    digest: bytes
    identity: Identity = field(repr=False)
    roster: Roster | None
    _since: float = field(default=0.0, init=False)

    @property
    def me(self) -> PartyId:
        """Who this party is."""
        return self.links.me

    @property
    def everybody(self) -> tuple[PartyId, ...]:
        """All clients."""
        return clients(len(self.links.peers))

    @property
    def resumed(self) -> bool:
        """Whether this run goes on with an interrupted one."""
        return bool(self.stored)

    def take_own(self, kind: type[T]) -> T:
        """Hand over this party's records, and keep no second reference to them."""
        own, self.own = self.own, None
        if not isinstance(own, kind):
            raise InternalError("a party started without its records")
        return own

    def rounds(self, kind: str) -> dict[int, bytes]:
        """Give what the interrupted run stored under `kind-ROUND`."""
        return {} if self.state is None or not self.resumed else self.state.rounds(kind)

    def driver(self, ledger: Ledger, data_digest: str = "", sizes: Mapping[int, int] | None = None) -> Driver:
        """Make the driver of this run; `sizes` of messages before the plan as in `setup_bounds`."""
        driver = Driver(
            self.me,
            self.links,
            self.meter,
            Deadlines(setup_s=self.config.setup_deadline, round_s=self.config.deadline),
            ledger=ledger,
            run_id=self.facts.run_id,
            data_digest=data_digest,
            save=None if self.state is None else self.state.save,
            publish=self._publish,
            transcript=Transcript(self.digest),
        )
        driver.allow(setup_bounds(self.me, sizes))
        return driver

    def rounds_start(self, driver: Driver) -> None:
        """Set-up is over."""
        driver.restart_clock()
        self._since = 0.0
        self.facts.end_setup()
        if self.announcer.speaks:
            self.announcer.event("setup", seconds=self.facts.setup_seconds)

    def _publish(self, event: str, values: dict[str, Any]) -> None:
        """Note a round's time; whoever speaks tells people, with all payload bytes that passed it."""
        if event == "progress":
            self._since += values["seconds"]
            if self.announcer.speaks:
                self.announcer.event(event, **values)
            return
        values = {"clients": len(self.links.peers), **values, "seconds": values["seconds"] + self._since}
        self._since = 0.0
        self.facts.round_seconds.append(values["seconds"])
        if self.announcer.speaks:
            counts = (self.meter.sent, self.meter.received)
            payload = sum(c[peer, values["round"]].payload_bytes for c in counts for peer in self.links.peers)
            self.announcer.event(event, **values, bytes=payload)


class Face(Protocol):
    """What the face of a protocol offers: `protocols/NAME/face.py`."""

    def gather(self, config: RunConfig, clients: int) -> tuple[RunConfig, Common]:
        """Check what is public and alike for all parties; fill in defaults."""
        ...

    def load(self, config: RunConfig, common: Any, me: PartyId) -> Any:
        """Load what this party alone has; None for a party without records."""
        ...

    def serve(self, session: Session) -> Outcome:
        """Run rank 0."""
        ...

    def take_part(self, session: Session) -> Outcome:
        """Run a client."""
        ...

    def plan_lines(self, config: RunConfig, clients: int, d: int | None) -> list[str]:
        """Describe what a run would do, from public numbers alone."""
        ...

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in, as `run.promise` names it; None where nothing is private."""
        ...

    def settings_help(self, protocol: str) -> Mapping[str, str]:
        """Name the settings of a protocol for `--set`, and say what each is."""
        ...


def find_face(protocol: str) -> Face:
    """Import the module that runs a protocol; no other one is imported."""
    return cast(Face, import_module(f"fastlloyd.protocols.{find(protocol).folder}.face"))
