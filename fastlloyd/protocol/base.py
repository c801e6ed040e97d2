"""The base of every protocol: what runs, commands and pages ask, derived from the plan and the claim.

A protocol of a package is one instance of a class, named `PROTOCOL` in its module `protocol`. The class says what is
special; whatever follows from its plan, its claim and its settings stands here, once.

Source: docs/adding-a-protocol.md.
"""

from __future__ import annotations

import typing
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from fastlloyd.errors import InternalError
from fastlloyd.party.declaration import Messages, Seen
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.accountant import spent
from fastlloyd.report.outlook import Expected, PlanLine
from fastlloyd.report.unit import format_count
from fastlloyd.run.checks import refuse_resume
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Foreseen, no_claim
from fastlloyd.run.promise import promise_lines, record_unit, size_conditions
from fastlloyd.run.session import Adapter, AgreedPlan, Session
from fastlloyd.run.work import Work, work_lines
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.numbers import FIRST_OUTSIDE

P = TypeVar("P", bound=AgreedPlan)


class Protocol(Adapter, Generic[P]):
    """A protocol: how it plans, runs and describes itself.

    Attributes
    ----------
    starts_anew : tuple of (str, str) or None
        Why an interrupted run cannot go on, and what it costs; None: it can.
    settings : type or None
        The dataclass of its settings (`party.option.option`); None: it has none.
    messages : tuple
        All that it sends, in about that order.
    not_private : str
        Why a run protects nobody's record; empty for a protocol with noise.
    unreported : tuple of str
        Fields of the plan that the report does not repeat among the parameters.
    """

    starts_anew: ClassVar[tuple[str, str] | None] = None
    settings: ClassVar[type | None] = None
    messages: ClassVar[Messages]
    not_private: ClassVar[str] = ""
    unreported: ClassVar[tuple[str, ...]] = ("names", "protocol", "rounds")

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuse two messages of one number, and another package's message with a number that is not its own to give.

        Raises
        ------
        TypeError
            The class of the protocol is at fault.
        """
        super().__init_subclass__(**given)
        taken: dict[int, type] = {}
        listed: Messages = vars(cls).get("messages", ())
        for kind in (kind for one in listed for kind in (one.kinds if isinstance(one, Seen) else (one,))):
            other, own = taken.setdefault(kind.TYPE, kind), kind.__module__.startswith("fastlloyd.")
            if other is not kind:
                raise TypeError(
                    f"{cls.__name__}.messages: {other.__module__}.{other.__name__} and {kind.__module__}."
                    f"{kind.__name__} both have the number {kind.TYPE}; change TYPE of one of them"
                )
            if not own and not FIRST_OUTSIDE <= kind.TYPE < 256:
                raise TypeError(
                    f"{kind.__module__}.{kind.__name__}: expected a TYPE from {FIRST_OUTSIDE} to 255 for a message of "
                    f"another package than fastlloyd, got {kind.TYPE}"
                )

    def check_resume(self, config: RunConfig) -> None:
        """Refuse `--resume` where an interrupted run cannot go on."""
        if self.starts_anew is not None:
            refuse_resume(config, *self.starts_anew)

    @abstractmethod
    def planned(self, config: RunConfig, clients: int, d: int | None) -> P:
        """Return the plan of a run that is only planned, from public numbers alone.

        Raises
        ------
        ConfigError
            Public parameters that do not fit, or an unknown number of features.
        """

    # What a run promises.

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in: one record by default; None where nothing is private."""
        return None if self.not_private else record_unit(config)

    def claim(self, config: RunConfig, plan: P) -> Claim:
        """Return what a run of the agreed plan will claim: its epsilon and delta, or that nothing is promised."""
        if self.not_private:
            return no_claim(self.not_private)
        promised: Any = plan
        return Claim(
            epsilon=promised.epsilon,
            delta=promised.delta,
            against=self.against(plan),
            unit=self.privacy_unit(config),
            conditions=size_conditions(config),
        )

    def against(self, plan: P) -> str:
        """Say from whom the claim protects, and no more than is proved."""
        return "nobody"

    def expected(self, config: RunConfig, plan: P) -> Expected | None:
        """Say what noise to expect on the result, from public numbers alone; None where there is none."""
        return None

    def assumed(self, config: RunConfig, clients: int, d: int | None) -> str:
        """Say what a plan assumes because it is not known before the run; empty: nothing."""
        return ""

    def foresee(self, config: RunConfig, clients: int, d: int | None) -> Foreseen:
        """Return what a run would claim and release, from public numbers alone."""
        plan = self.planned(config, clients, d)
        return Foreseen(
            claim=self.claim(config, plan),
            releases=plan.all_releases(),
            parameters=plan.to_json(),
            masking=self.masking(plan),
            note=self.assumed(config, clients, d),
            expected=self.expected(config, plan),
        )

    # What a plan says to people.

    def plan_lines(self, config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
        """Describe what a run would do, from public numbers alone."""
        plan = self.planned(config, clients, d)
        costs = [*self.cost_lines(config, plan), *work_lines(config, self.work(config, plan))]
        return [self.size_line(plan), *costs, *self.privacy_lines(config, plan)]

    def size_line(self, plan: P) -> PlanLine:
        """Say how many records, features, clusters and clients a run has."""
        sizes: Any = plan
        most = "at most " if getattr(plan, "choose_k", False) else ""
        return PlanLine(
            sizes.protocol,
            f"{format_count(sizes.n_total, 'record')} at most, {format_count(sizes.d, 'feature')}, "
            f"{most}{format_count(sizes.k, 'cluster')}, {format_count(plan.clients, 'client')}",
        )

    def cost_lines(self, config: RunConfig, plan: P) -> list[PlanLine]:
        """Say what a run takes: rounds, bytes, whatever else is worth knowing."""
        return []

    def work(self, config: RunConfig, plan: P) -> Work | str:
        """Estimate what a run computes, by times measured on this machine, or say why it is not known."""
        return "this protocol does not estimate them"

    def privacy_lines(self, config: RunConfig, plan: P) -> list[PlanLine]:
        """Say what a run promises, and what noise to expect for it."""
        claim, sizes = self.claim(config, plan), typing.cast(Any, plan)
        if not claim.private:
            return [PlanLine("privacy", f"none; {claim.not_private_reason}")]
        epsilon = f"epsilon {spent(plan.all_releases(), claim.delta):.6g} of {claim.epsilon:g}"
        delta = f", delta {claim.delta:.3g}" if claim.delta else " (pure)"
        mechanism = f", {sizes.mechanism} noise" if hasattr(plan, "mechanism") else ""
        return [
            PlanLine("privacy", f"{epsilon}{delta}, {claim.neighbours}{mechanism}"),
            *promise_lines(config, delta=claim.delta, n_total=sizes.n_total),
            *self.noise_lines(plan),
            *self.outlook(config, plan),
        ]

    def noise_lines(self, plan: P) -> list[PlanLine]:
        """Say what noise there is, round by round or in another way that is worth knowing."""
        return []

    def outlook(self, config: RunConfig, plan: P) -> list[PlanLine]:
        """Say what noise to expect on the result, if that is known."""
        expected = self.expected(config, plan)
        return [] if expected is None else [PlanLine("expected", expected.sentence)]

    def settings_help(self, protocol: str) -> Mapping[str, str]:
        """Name the settings, and say what each is."""
        return {} if self.settings is None else describe_settings(self.settings, protocol)

    # What the report says.

    def masking(self, plan: P) -> str | None:
        """Return how vectors are masked: 'common', 'pairwise', or None where nothing is."""
        return getattr(plan, "masking", None)

    def parameters(self, plan: P, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report, the same for all parties: they sign them."""
        values = {name: value for name, value in plan.to_json().items() if name not in self.unreported}
        return {**values, "rounds": rounds}

    def common(
        self,
        session: Session,
        plan: P,
        included: Sequence[Sequence[PartyId]],
        silent: Sequence[Sequence[PartyId]] = (),
    ) -> dict[str, Any]:
        """Return what the reports of all parties have in common.

        Parameters
        ----------
        session : Session
        plan : Plan
        included : sequence of sequences of PartyId
            The clients in each round.
        silent : sequence of sequences of PartyId
            With threshold masks, those of them that left more of their noise in it.

        Raises
        ------
        InternalError
            With threshold masks `silent` does not speak of each round: a bug in the protocol.
        """
        noisy: Any = plan
        masking = self.masking(plan)
        opened = masking == "threshold"
        if opened and len(silent) != len(included):
            raise InternalError(
                f"{type(self).__name__}: with threshold masks a result says who was silent in each of its "
                f"{len(included)} rounds, got {len(silent)}: pass silent=end.silent to make_result"
            )
        pairs = zip(included, silent if opened else (), strict=opened)
        return session.shared_entries(
            silent=silent if opened else (),
            noise=[noisy.noise_with(len(among), len(left)) for among, left in pairs],
            clients=plan.clients,
            masking=masking,
            parameters=self.parameters(plan, len(included)),
            included=included,
        )
