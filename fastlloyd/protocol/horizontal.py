"""The base of protocols whose clients hold records: the session of server and client, from hello to result.

::

    server                                       client
      run_server: hello, plan        <------>      begin_client: hello, plan, checks, budget
                                                   points: its records on the grid
      agreement through the server   <------>      agree: secrets that masks come from
      play_server                    <------>      play_client
      conclude                       <------>      conclude

A protocol says what stands in its plan, what its rounds do, and what its result is made of.

Source: docs/protocol.md, "A run from start to end".
"""

from __future__ import annotations

import typing
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import unscale
from fastlloyd.data.records import ClientRecords
from fastlloyd.errors import ConfigError, format_count
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints, round_centers
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.sealed import relay_seed
from fastlloyd.party.declaration import MOST_MESSAGE_BYTES, MessageBounds
from fastlloyd.party.effects import Keep, Party
from fastlloyd.privacy.calibration import automatic_delta
from fastlloyd.protocol.base import Protocol
from fastlloyd.report.outlook import Expected, PlanLine, outlook_line
from fastlloyd.run.closing import conclude, conclude_without_result
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import Begun, HorizontalPlan, begin_client, run_server
from fastlloyd.run.inputs import PublicInputs, fill_public, gather_horizontal, plan_inputs
from fastlloyd.run.outcome import Outcome, Result
from fastlloyd.run.own_records import load_client, load_large
from fastlloyd.run.session import Session
from fastlloyd.wire.header import SERVER, PartyId


class RoundsEnd(typing.Protocol):
    """What both have after the last round."""

    @property
    def included(self) -> Sequence[tuple[PartyId, ...]]:
        """Per round, the clients whose uplinks were in it."""


class ServerRoundsEnd(RoundsEnd, typing.Protocol):
    """What the server has after the last round."""

    @property
    def late(self) -> frozenset[PartyId]:
        """Clients that missed the last round."""


class ClientEnd(RoundsEnd, typing.Protocol):
    """What a client has after the last round."""

    @property
    def raw_labels(self) -> NDArray[np.int64] | None:
        """Of its own records, shape (n,); None where the protocol makes no clusters."""


H = TypeVar("H", bound=HorizontalPlan)


class OfRecords(Protocol[H]):
    """A protocol whose clients hold records: its inputs, its plan before a run, its result.

    Attributes
    ----------
    public_type : type
        Of the public parameters that the plan is made from.
    server_has_result : bool
        Whether the server receives the result, too; else the clients alone do.
    """

    public_type: ClassVar[type[Any]]
    server_has_result: ClassVar[bool] = False

    @abstractmethod
    def make_plan(self, public: Any, names: tuple[str, ...]) -> H:
        """Make the plan of a run from the public parameters and the features' names; run by the server."""

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> Any:
        """Return the public parameters of a run: what is configured by the names of their fields.

        Raises
        ------
        ConfigError
            Any that does not fit.
        """
        return fill_public(self.public_type, config, clients=clients, k=k, n_total=n_total)

    def gather(self, config: RunConfig, clients: int) -> tuple[RunConfig, PublicInputs]:
        """Check what is public and the same for all parties."""
        self.check_resume(config)
        return gather_horizontal(config, clients, self.public_parameters)

    def load(self, config: RunConfig, inputs: Any, me: PartyId) -> Any:
        """Load a client's own records; the server has none."""
        return (load_large if config.row.streams else load_client)(config, inputs, me)

    def writes_result(self, me: PartyId) -> bool:
        """Say whether this party can receive the result."""
        return self.server_has_result or not me.is_server

    def planned(self, config: RunConfig, clients: int, d: int | None) -> H:
        """Return the plan of a run that is only planned, from public numbers alone."""
        public, d = plan_inputs(config, clients, d, self.public_parameters)
        return self.sendable(self.make_plan(public, tuple(f"x{i + 1}" for i in range(d))))

    def sendable(self, plan: H) -> H:
        """Return the plan of a run; a subclass that knows the lengths of its messages refuses one that is too long."""
        return plan

    def outlook(self, config: RunConfig, plan: H) -> list[PlanLine]:
        """Say what noise to expect on the result, and what would be good, by the plans of other runs."""
        if self.expected(config, plan) is None:
            return []
        sizes: Any = plan
        public = self.public_parameters(config, plan.clients, sizes.n_total, sizes.k)

        def expect(k: int, epsilon: float, n_total: int) -> Expected:
            other = self.make_plan(replace(public, k=k, epsilon=epsilon, n_total=n_total), sizes.names)
            return self.expected(config, other) or Expected(centre_noise=None, k=k, d=sizes.d)

        fixed = config.dataset is not None
        return [outlook_line(expect, k=sizes.k, epsilon=sizes.epsilon, n_total=sizes.n_total, fixed_n=fixed)]

    def make_result(
        self,
        session: Session,
        plan: H,
        included: Sequence[tuple[PartyId, ...]],
        *,
        silent: Sequence[tuple[PartyId, ...]] = (),
        centers: NDArray[np.float64] | None,
        sizes: NDArray[np.float64] | None = None,
        **more: Any,
    ) -> Result:
        """Return the result of a run.

        Parameters
        ----------
        session : Session
        plan : Plan
        included : sequence of tuples of PartyId
            Per round, who was in it.
        silent : sequence of tuples of PartyId
            Per round, with threshold masks: those of them that left more of their noise in it.
        centers : float64 array, shape (k, d), or None
            Scaled domain; released. None where the result has none.
        sizes : float64 array, shape (k,), optional
            Noisy sizes; released.
        more : object
            Other fields of `Result`: `noise` above all.
        """
        described: Any = plan
        bounds = session.inputs.bounds.match(described.names)
        return Result(
            **{
                "common": self.common(session, plan, included, silent),
                "claim": self.claim(session.config, plan),
                "features": described.names,
                "bounds": bounds,
                "centroids": None if centers is None else unscale(centers, bounds),
                "noisy_sizes": None if sizes is None else tuple(map(float, sizes)),
                "releases": session.own_releases(),
                "evaluated": centers,
                **more,
            }
        )


class Horizontal(OfRecords[H]):
    """A protocol whose clients hold records, and whose rounds a resume goes on with.

    Attributes
    ----------
    plan_type : type
        Of the plan.
    records_ahead : bool
        Whether a client records the next round's releases as soon as it has sent its uplink (`lifecycle.rounds.Ahead`).
    """

    plan_type: ClassVar[type[Any]]
    records_ahead: ClassVar[bool] = False

    # What a protocol says.

    @abstractmethod
    def check_plan(self, plan: H, public: Any, names: tuple[str, ...]) -> object:
        """Check the server's plan against a client's own configuration.

        Raises
        ------
        ValueError
            The plan differs, or spends more than was agreed: the server is at fault.
        """

    @abstractmethod
    def included(self, plan: H, t: int, reply: bytes) -> Sequence[PartyId]:
        """Name the clients whose uplinks are in the stored reply of round t."""

    @abstractmethod
    def play_server(self, session: Session, plan: H, secret: Any, stored: StoredRounds) -> Party[ServerRoundsEnd]:
        """Play the server's rounds.

        Parameters
        ----------
        session : Session
        plan : Plan
        secret : object
            What `relay` gave, or `server_secret`.
        stored : StoredRounds
            On resume, the replies that were fixed before.
        """

    @abstractmethod
    def play_client(self, session: Session, plan: H, points: Any, secrets: Any, stored: StoredRounds) -> Party[Any]:
        """Play a client's rounds with its records and secrets; gives a `ClientEnd`."""

    @abstractmethod
    def result(self, session: Session, plan: H, end: Any) -> Result:
        """Return the result that this party has at the end, by `make_result`."""

    # What it may say otherwise.

    def fresh_plan(self, session: Session, names: tuple[str, ...]) -> H:
        """Make the plan of a new run of the features that the clients announced; run by the server."""
        return self.sendable(self.make_plan(session.inputs.public, names))

    def sendable(self, plan: H) -> H:
        """Return the plan of a run, if its messages go through a link.

        Raises
        ------
        ConfigError
            One is too long; says how many clusters would do.
        """
        sizes: Any = plan
        longest = self.bounds(plan).largest
        if longest > MOST_MESSAGE_BYTES:
            fitting = sizes.k * MOST_MESSAGE_BYTES // longest
            raise ConfigError(
                f"{format_count(sizes.k, 'cluster')} make a message of {longest:,} bytes with these columns, expected "
                f"at most {MOST_MESSAGE_BYTES:,}: use at most {fitting:,} clusters (--k), or fewer columns"
            )
        return plan

    def server_secret(self) -> Any:
        """Return what the server draws its noise from, made before its first message; None: it draws none."""
        return None

    def points(self, own: ClientRecords, plan: H) -> Any:
        """Return a client's records as its rounds take them: on the grid of the plan."""
        grid: Any = plan
        return own.quantise(grid.fraction_bits)

    def agree(self, session: Session, begun: Begun[H]) -> Party[tuple[Any, bytes | None]]:
        """Agree with the other clients on secrets; gives them, and the seed that all clients share if there is one.

        By default there are none, and what a resume compares is kept.
        """
        yield Keep(begun.to_keep)
        return None, None

    def relabel(self, points: Any, plan: H, made: Result) -> NDArray[np.int64] | None:
        """Label a client's records by the centres that `--min-size` leaves; None: this protocol has other labels."""
        grid: Any = plan
        if not isinstance(points, GridPoints) or made.evaluated is None:
            return None
        return assign(points, round_centers(made.evaluated, grid.fraction_bits))

    def relays_seed(self, plan: H) -> bool:
        """Say whether the clients agree on a common seed through the server, and compare through it at the end."""
        return False

    def relay(self, session: Session, plan: H) -> Party[Any]:
        """Relay what the clients agree on through the server; gives what the server's rounds need of it, or None."""
        if self.relays_seed(plan):
            yield from relay_seed(
                session.everybody, run=session.digest, credentials=session.credentials, resumed=session.resumed
            )

    def bounds(self, plan: H) -> MessageBounds:
        """Return the bounds of what a peer may send once the plan is known."""
        return plan_bounds(self.messages, plan)

    def lifetime_delta(self, plan: H) -> float:
        """Return the delta at which a ledger over many runs is read: the run's, or the default where it has none.

        At delta 0 any Gaussian release of an earlier run would count as infinite.
        """
        numbers: Any = plan
        return getattr(numbers, "delta", 0.0) or automatic_delta(numbers.n_total)

    def silent(self, end: ServerRoundsEnd) -> Sequence[tuple[PartyId, ...]]:
        """Name the clients in each round that left more of their noise in it; only with threshold masks."""
        return ()

    # What follows.

    def serve(self, session: Session) -> Party[Outcome]:
        """Run the server."""
        secrets = [self.server_secret()]

        def relay(plan: H) -> Party[Any]:
            opens = yield from self.relay(session, plan)
            secrets.extend([] if opens is None else [opens])
            return opens

        plan, end = yield from run_server(
            session,
            kind=self.plan_type,
            make=lambda announced: self.fresh_plan(session, announced.names),
            bounds=self.bounds,
            play=lambda plan, replies, done: self.play_server(
                session, plan, secrets[-1], StoredRounds(replies=replies, clients_done=done)
            ),
            included=self.included,
            relay=relay,
        )
        present = end.included[-1]
        if self.server_has_result:
            made = self.result(session, plan, end)
            return (
                yield from conclude(session, made, took_part=present, writers=self._writers(present), late=end.late)
            )
        return (
            yield from conclude_without_result(
                session,
                self.common(session, plan, end.included, self.silent(end)),
                plan.all_releases(),
                end.late,
                took_part=present if self.relays_seed(plan) else None,
            )
        )

    def take_part(self, session: Session) -> Party[Outcome]:
        """Run a client."""
        own = session.take_own(ClientRecords)  # type: ignore[type-abstract]  # in memory or in a file
        public, names = session.inputs.public, own.names
        begun = yield from begin_client(
            session,
            own,
            kind=self.plan_type,
            check=lambda plan: self.check_plan(plan, public, names),
            bounds=self.bounds,
            lifetime_delta=self.lifetime_delta,
            ahead=self.records_ahead,
        )
        plan: H = begun.plan
        secrets, seed = yield from self.agree(session, begun)
        points = self.points(own, plan)
        del own  # the scaled copy is no longer needed
        yield from begun.start()
        end: ClientEnd = yield from self.play_client(session, plan, points, secrets, begun.stored)
        present = end.included[-1]
        made = self.result(session, plan, end)
        return (
            yield from conclude(
                session,
                made,
                took_part=present,
                writers=self._writers(present),
                raw_labels=end.raw_labels,
                relabel=partial(self.relabel, points, plan),
                seed=seed,
            )
        )

    def _writers(self, present: tuple[PartyId, ...]) -> tuple[PartyId, ...]:
        """Return the parties that may write the shared files."""
        return (SERVER, *present) if self.server_has_result else present
