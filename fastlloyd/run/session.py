"""One party's run, and what runs ask of a protocol.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, Protocol, TypeVar

from fastlloyd.crypto.link.identity import Credentials, Identity
from fastlloyd.crypto.link.roster import Roster
from fastlloyd.data.records import ClientRecords, RawRows
from fastlloyd.errors import InternalError
from fastlloyd.lifecycle.messages import setup_bounds
from fastlloyd.masking.threshold.numbers import MOST_CLIENTS
from fastlloyd.net.meter import Meter
from fastlloyd.party.effects import Allow, Identify, Party
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.protocols.registry import read_protocol
from fastlloyd.report import document
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.sight import ProtocolWords
from fastlloyd.run.config import RunConfig, study
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.outcome import Claim, Cost, Foreseen, Outcome
from fastlloyd.wire.decode import plain
from fastlloyd.wire.header import PartyId

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Session:
    """One party's run: what it starts from, and what the runner notes as it goes on.

    All of it is the party's own. The party asks for every change on its machine.

    Attributes
    ----------
    me : PartyId
    everybody : tuple of PartyId
        All clients.
    config : RunConfig
    inputs : PublicInputs
        What the protocol's `gather` gave.
    own : object or None
        What the protocol's `load` gave; `take_own` hands it over.
    identity : Identity
        The key of this party's links.
    roster : Roster or None
    stored : dict
        What the state directory keeps of the interrupted run; empty unless this run resumes it.
    ledger : Ledger
        To read: over all runs where there is a state directory, else of this run.
    meter : Meter
        To read: this party's traffic.
    run_id, digest : bytes
        The run's id, and what the links were confirmed with: run id, roster and everything public. Empty until the
        parties start together.
    carrier : str
        What brings the frames, for the report.
    mpi : str or None
        The MPI library and its version.
    prints : bool
        Whether released values may be printed.
    started : float
        When the set-up began, on the clock of `time.perf_counter`.
    setup_seconds : float
        How long everything before round 0 took.
    round_costs : list of Cost
        One for each closed round.
    plan : object or None
        The protocol's plan; set by the party before it asks whether the run can be afforded.
    raw_rows : RawRows or None
        The rows behind the records that were handed over; its own labels at the end are for these.
    """

    me: PartyId
    everybody: tuple[PartyId, ...]
    config: RunConfig
    inputs: PublicInputs
    own: Any = field(default=None, repr=False)
    identity: Identity = field(repr=False)
    roster: Roster | None = None
    stored: dict[str, Any] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    meter: Meter = field(default_factory=Meter)
    run_id: bytes = b""
    digest: bytes = b""
    carrier: str = "memory"
    key_exchange: list[str] | None = None
    mpi: str | None = None
    prints: bool = False
    started: float = field(default_factory=time.perf_counter)
    setup_seconds: float = 0.0
    round_costs: list[Cost] = field(default_factory=list)
    plan: Any = None
    raw_rows: RawRows | None = field(default=None, repr=False)

    @property
    def common(self) -> PublicInputs:
        """`inputs`, for packages that were written for an earlier version."""
        return self.inputs

    @property
    def facts(self) -> Session:
        """The session itself, for faces of other packages that still ask for its facts."""
        return self

    @property
    def protocol(self) -> Adapter:
        """The protocol that runs."""
        return find_protocol(self.config.protocol)

    @property
    def resumed(self) -> bool:
        """Whether this run goes on with an interrupted one."""
        return bool(self.stored)

    @property
    def credentials(self) -> Credentials:
        """What this party signs with, and the certificates of all; nothing without a roster."""
        return Credentials() if self.roster is None else Credentials(self.identity, self.roster.certificates())

    def begin_run(self, run_id: bytes) -> None:
        """Take the id that the parties agreed on, and make the digest that the links are confirmed with."""
        roster = b"" if self.roster is None else self.roster.digest()
        self.run_id = run_id
        self.digest = hashlib.sha256(run_id + self.inputs.digest(self.config, roster)).digest()

    def take_own(self, kind: type[T]) -> T:
        """Hand over this party's records, and keep no second reference to them."""
        own, self.own = self.own, None
        if not isinstance(own, kind):
            raise InternalError("a party started without its records")
        if isinstance(own, ClientRecords):
            self.raw_rows = own.raw_rows
        return own

    def begin(self, data_digest: str = "", sizes: Mapping[int, int] | None = None, ahead: int = 0) -> Party[None]:
        """Say whose records the ledger is about, and what peers may send before the plan (as in `setup_bounds`)."""
        yield Identify(data_digest)
        yield Allow(setup_bounds(self.me, sizes, ahead))

    def end_setup(self) -> None:
        """Note how long everything before round 0 took."""
        self.setup_seconds = time.perf_counter() - self.started

    def own_releases(self) -> list[Release]:
        """Return this run's releases from the ledger, without the digest of the data."""
        run = self.run_id.hex()
        return [dataclasses.replace(release, data="") for release in self.ledger.releases if release.run == run]

    def shared_entries(
        self,
        *,
        clients: int,
        masking: str | None,
        parameters: Mapping[str, Any],
        included: Sequence[Sequence[PartyId]],
        silent: Sequence[Sequence[PartyId]] = (),
        noise: Sequence[float] = (),
    ) -> dict[str, Any]:
        """Return what that report.json and server.json share, without traffic and machine, which the writer adds.

        Parameters
        ----------
        clients : int
        masking : {'common', 'pairwise'} or None
        parameters : mapping
            Public parameters of the protocol.
        included : sequence of sequences of PartyId
            Per round, who was included.
        silent : sequence of sequences of PartyId
            With threshold masks, per round: who of them left more of its noise in the sum.
        noise : sequence of float
            The same, per round: all noise over the noise that counts. Empty otherwise.
        """
        config, categories = self.config, self.inputs.categories
        unit = {} if config.unit is None else {"unit": config.unit, "per_unit": config.per_unit}
        listed = {"categories": categories.to_json()} if categories.lists else {}
        resumed = len(included) - len(self.round_costs)  # rounds closed before a resume were not timed
        costs = [Cost()] * resumed + self.round_costs
        rounds = [
            {"round": t, "clients_included": sorted(party.rank for party in parties), **plain(cost)}
            for t, (parties, cost) in enumerate(zip(included, costs, strict=True))
        ]
        for entry, left, all_noise in zip(rounds, silent, noise, strict=False):
            entry |= {"clients_silent": sorted(party.rank for party in left), "noise": all_noise}
        return {
            **study(config),
            "protocol": config.protocol,
            "results_version": config.row.results,
            "run": self.run_id.hex(),
            "parties": {
                "clients": clients,
                "authenticated": self.roster is not None,
                **({} if masking is None else {"masking": masking}),
            },
            "parameters": {
                **parameters,
                **unit,
                **listed,
                "settings": dict(config.own_settings),
                "client_caps": list(self.inputs.caps),
                **({"min_size": config.min_size} if config.min_size else {}),
            },
            "rounds": rounds,
            "timing": document.timing(self.setup_seconds, rounds),
            "traffic": None,
            "network": {
                "transport": self.carrier,
                "delay_seconds": config.delay,
                "profile": config.network,
                "shaping": config.shaping,
                "key_exchange": self.key_exchange,
            },
        }


class AgreedPlan(Protocol):
    """What every plan has: what all parties of a run agree on."""

    @property
    def clients(self) -> int:
        """How many clients take part."""

    def all_releases(self) -> tuple[Release, ...]:
        """Return the releases of all rounds."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""


class Adapter(ProtocolWords, ABC):
    """What runs and commands ask of a protocol; `protocol.base` derives most of it.

    Attributes
    ----------
    opens_rounds : bool
        Whether it has threshold masks.
    """

    opens_rounds: ClassVar[bool] = False

    @abstractmethod
    def gather(self, config: RunConfig, clients: int) -> tuple[RunConfig, PublicInputs]:
        """Return the configuration with defaults filled in, and what all parties have in common, checked."""

    @abstractmethod
    def load(self, config: RunConfig, inputs: Any, me: PartyId) -> Any:
        """Return what this party alone has; None: it has no records. `inputs` is what `gather` gave."""

    @abstractmethod
    def writes_result(self, me: PartyId) -> bool:
        """Say whether a party can receive the result; one that cannot writes server.json."""

    @abstractmethod
    def serve(self, session: Session) -> Party[Outcome]:
        """Run rank 0, from the first message to the last."""

    @abstractmethod
    def take_part(self, session: Session) -> Party[Outcome]:
        """Run another rank, from the first message to the last."""

    @abstractmethod
    def plan_lines(self, config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
        """Describe what a run would do, from public numbers alone; `d` is the number of features, where it is known."""

    @abstractmethod
    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in, as `run.promise` names it; None where nothing is private."""

    @abstractmethod
    def settings_help(self, protocol: str) -> Mapping[str, str]:
        """Name the settings as `--set` does, PROTOCOL.NAME, and say what each is."""

    def foresee(self, config: RunConfig, clients: int, d: int | None) -> Foreseen | None:
        """Return what a run would claim and release, from public numbers alone; None: it does not say."""
        return None

    def claim(self, config: RunConfig, plan: Any) -> Claim | None:
        """Return what a run of the agreed plan will claim; None: it does not say.

        An approval is compared with it before anything is released.
        """
        return None

    def people(self, config: RunConfig) -> str | None:
        """Return the setting that names the column of people, as typed, where the protocol protects all their rows."""
        return None

    def links_clients(self, config: RunConfig) -> bool:
        """Say whether clients need links to each other."""
        return True

    def site_masking(self, clients: int) -> str | None:
        """Return the masking that `choose` and `init` write for sites: 'threshold' from three clients on, or None."""
        return "threshold" if self.opens_rounds and 3 <= clients <= MOST_CLIENTS else None

    def adds_up(self, config: RunConfig) -> bool:
        """Say whether aggregators may add up what clients send in a round."""
        return False

    def needs_server_data(self, config: RunConfig) -> bool:
        """Say whether the server must bring records (`--server-data`) where the clients bring files."""
        return False


class Face(SimpleNamespace):
    """What a package for fastlloyd 0.1 has as `FACE`: functions by name. Use `fastlloyd.protocol`."""


def find_protocol(name: str) -> Adapter:
    """Import the module that runs a protocol; no other one is imported.

    Raises
    ------
    ConfigError
        There is no such protocol, or the distribution that adds it is at fault.
    """
    return read_protocol(name, Adapter)  # type: ignore[type-abstract]
