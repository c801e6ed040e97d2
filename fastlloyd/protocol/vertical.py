"""The base of protocols whose parties hold different columns of the same records.

A protocol says who holds columns, how it plans, what its parties play, and what the plan's noise is for neighbours that
differ in a row's values. Inputs, the claim, the plan of a run that is only planned and the result follow.

Source: docs/protocol.md, "Vertical tables" and "Alignment".
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures, assemble_centers, assemble_names, whole_bounds
from fastlloyd.errors import InternalError
from fastlloyd.privacy.accountant import spent
from fastlloyd.protocol import base
from fastlloyd.report.outlook import Expect, Expected, PlanLine, outlook_line
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Result
from fastlloyd.run.promise import PERSON, promise_lines
from fastlloyd.run.session import AgreedPlan, Session
from fastlloyd.run.vertical import (
    HELP,
    Alignment,
    OwnColumns,
    VerticalInputs,
    assumed_widths,
    gather_vertical,
    load_vertical,
    plan_widths,
    read_alignment,
    settle_aligned,
)
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.header import clients as name_clients


class VerticalPlan(AgreedPlan, Protocol):
    """What these systems' plans have in common."""

    @property
    def private(self) -> bool:
        """Whether the noise gives differential privacy."""

    @property
    def k(self) -> int:
        """Clusters."""

    @property
    def d(self) -> int:
        """Columns of all owners together."""

    @property
    def n_total(self) -> int:
        """Public upper bound on the number of records."""

    @property
    def epsilon(self) -> float:
        """Asked for."""

    @property
    def delta(self) -> float:
        """At which epsilon holds."""


V = TypeVar("V", bound=VerticalPlan)


class Vertical(base.Protocol[V]):
    """A protocol whose parties hold different columns of the same records."""

    starts_anew = ("its keys are kept nowhere", "what the broken run released is in the ledger")

    # What a protocol says.

    @abstractmethod
    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> Any:
        """Return the public parameters of a run.

        Raises
        ------
        ConfigError
            Any that does not fit.
        """

    @abstractmethod
    def make_plan(self, public: Any, features: Sequence[PartyFeatures]) -> V:
        """Make the plan of a run from the public parameters and what the owners say of their columns."""

    @abstractmethod
    def replan(self, public: Any, plan: V) -> V:
        """Make the plan of a run of the same columns with other public parameters."""

    @abstractmethod
    def neighbours(self, plan: V) -> str:
        """Return the relation that the claim is about, as releases name it."""

    @abstractmethod
    def change_epsilon(self, plan: V) -> float:
        """Return epsilon for neighbours that differ in the values of one row."""

    @abstractmethod
    def privacy_words(self, plan: V) -> str:
        """Say whom the promise of a private plan is about, for one line of it."""

    @abstractmethod
    def why_not_private(self, plan: V) -> str:
        """Say why a plan without differential privacy has none."""

    # What it may say otherwise.

    def conditions(self, plan: V) -> list[str]:
        """Say what the claim rests on besides the noise, and what it is for other neighbours."""
        change = f"; for any change of the row's values epsilon is {self.change_epsilon(plan):.4g}"
        return ["that all parties follow the protocol" + change * plan.private]

    def owners(self, config: RunConfig, clients: int) -> tuple[PartyId, ...]:
        """Return who holds columns: by default all clients."""
        return name_clients(clients)

    def expectation(self, config: RunConfig, plan: V, public: Any) -> Expect:
        """Return what plans of other clusters, epsilon and N expect."""

        def expect(k: int, epsilon: float, n_total: int) -> Expected:
            other = self.replan(replace(public, k=k, epsilon=epsilon, n_total=n_total), plan)
            return self.expected(config, other) or Expected(centre_noise=None, k=k, d=plan.d)

        return expect

    # What follows.

    def gather(self, config: RunConfig, clients: int) -> tuple[RunConfig, VerticalInputs]:
        """Check what is public and the same for all parties.

        Raises
        ------
        ConfigError
            A parameter does not fit, or an interrupted run is to be resumed.
        """
        self.check_resume(config)
        return gather_vertical(config, self.owners(config, clients), clients, self.public_parameters)

    def load(self, config: RunConfig, inputs: VerticalInputs, me: PartyId) -> OwnColumns | None:
        """Load a party's columns; None for a party that holds none."""
        return load_vertical(config, inputs, inputs.owners.index(me), me.rank) if me in inputs.owners else None

    def writes_result(self, me: PartyId) -> bool:
        """Say whether this party can receive the result."""
        return True

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in."""
        return PERSON

    def claim(self, config: RunConfig, plan: V) -> Claim:
        """Return what a run of the agreed plan will claim."""
        return Claim(
            epsilon=plan.epsilon if plan.private else math.inf,
            delta=plan.delta,
            against=self.against(plan),
            neighbours=self.neighbours(plan),
            unit=self.privacy_unit(config) if plan.private else None,
            conditions=self.conditions(plan),
            bounded=False,
            not_private_reason=None if plan.private else self.why_not_private(plan),
        )

    def assumed(self, config: RunConfig, clients: int, d: int | None) -> str:
        """Say how columns are divided among their owners, where nobody has said it."""
        return assumed_widths(config, d)

    def settings_help(self, protocol: str) -> Mapping[str, str]:
        """Name the settings, those of the alignment too, and say what each is."""
        return {**super().settings_help(protocol), **HELP}

    def planned(self, config: RunConfig, clients: int, d: int | None) -> V:
        """Return the plan of a run; without names of columns, `d` of them are divided among the owners."""
        if config.data is None and config.dataset is None and (d is not None or read_alignment(config).widths):
            public = self.public_parameters(config, clients, *settle_aligned(config, None))
        else:
            config, inputs = self.gather(config, clients)
            public = inputs.public
            if inputs.tables:
                own = [load_vertical(config, inputs, place).features for place in range(len(inputs.tables))]
                return self.make_plan(public, own)
        numbers, features = itertools.count(1), []
        for width in plan_widths(config, len(self.owners(config, clients)), d):
            names = tuple(f"x{next(numbers)}" for _ in range(width))
            bounds = Bounds(np.full(width, -1.0), np.full(width, 1.0), names)
            features.append(PartyFeatures(names=names, bounds=bounds))
        return self.make_plan(public, features)

    def privacy_lines(self, config: RunConfig, plan: V) -> list[PlanLine]:
        """Say what a run promises, and what noise to expect for it."""
        if not plan.private:
            return [PlanLine("privacy", f"none; {self.why_not_private(plan)}")]
        epsilon = f"epsilon {spent(plan.all_releases(), plan.delta):.6g} of {plan.epsilon:g}"
        return [
            PlanLine("privacy", f"{epsilon}, delta {plan.delta:.3g}, {self.privacy_words(plan)}"),
            *promise_lines(config, delta=plan.delta, n_total=plan.n_total),
            *self.noise_lines(plan),
            *self.outlook(config, plan),
        ]

    def outlook(self, config: RunConfig, plan: V) -> list[PlanLine]:
        """Say what noise to expect on the result, and what would be good."""
        public = self.public_parameters(config, plan.clients, plan.n_total, plan.k)
        expect = self.expectation(config, plan, public)
        fixed = config.dataset is not None
        return [outlook_line(expect, k=plan.k, epsilon=plan.epsilon, n_total=plan.n_total, fixed_n=fixed)]

    def parameters(self, plan: V, rounds: int, **more: Any) -> dict[str, Any]:
        """Return the public parameters for the report: `more` and epsilon for a change of a row's values too."""
        change = {"epsilon_for_a_change": self.change_epsilon(plan)} if plan.private else {}
        values = {name: value for name, value in plan.to_json().items() if name not in self.unreported}
        return {**values, **change, **more, "d": plan.d, "rounds": rounds}

    def alignment(self, session: Session) -> Alignment:
        """Return how this run's records are brought into one order."""
        inputs = session.inputs
        if not isinstance(inputs, VerticalInputs):
            raise InternalError("a vertical protocol was set up with other public facts")
        return inputs.alignment

    def make_result(
        self,
        session: Session,
        plan: V,
        features: Sequence[PartyFeatures],
        *,
        rounds: int,
        centers: NDArray[np.float64],
        sizes: NDArray[np.float64] | None,
        **more: Any,
    ) -> Result:
        """Return the result of a run.

        Parameters
        ----------
        session : Session
        plan : Plan
        features : sequence of PartyFeatures, one per owner
        rounds : int
            That took place.
        centers : float64 array, shape (k, d)
            Scaled domain, the owners' columns in their order; released.
        sizes : float64 array, shape (k,), or None
            Noisy sizes; released.
        more : object
            Other fields of `Result`: `noise` above all.
        """
        return Result(
            **{
                "common": self.common(session, plan, (session.everybody,) * rounds),
                "claim": self.claim(session.config, plan),
                "features": assemble_names(features),
                "bounds": whole_bounds(features),
                "centroids": assemble_centers(centers, features),
                "noisy_sizes": None if sizes is None else tuple(map(float, sizes)),
                "releases": session.own_releases(),
                "evaluated": centers,
                **more,
            }
        )
