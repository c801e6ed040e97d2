"""FastLloyd and its baselines GLloyd, SuLloyd and Lloyd: one party's run over real links.

The server sees no centroid (with pairwise masking, the noisy sums that they follow from) and writes `server.json`
only; the result is the clients'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fastlloyd.data.bounds import Bounds, unscale
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator, Masks
from fastlloyd.masking.pairwise import PairwiseMasks
from fastlloyd.party.message import recall
from fastlloyd.privacy.accountant import ACCOUNTANT, spent
from fastlloyd.privacy.ledger import Ledger, Release
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.face_inputs import gather, load
from fastlloyd.protocols.fastlloyd.messages import NoisyMaskedSum, VectorFormat
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, lifetime_delta, make_plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share, first_centers
from fastlloyd.protocols.fastlloyd.server import server
from fastlloyd.protocols.fastlloyd.settings import APPLICABLE, HELP
from fastlloyd.protocols.fastlloyd.sizes import bounds
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report import document
from fastlloyd.run.agreement import MaskAgreement
from fastlloyd.run.config import RunConfig
from fastlloyd.run.driver import Driver
from fastlloyd.run.horizontal import begin_client, run_server
from fastlloyd.run.inputs import OwnRecords
from fastlloyd.run.outcome import (
    Facts,
    Result,
    common_part,
    draw_result,
    evaluate_result,
)
from fastlloyd.run.promise import ROW, size_conditions
from fastlloyd.run.session import Outcome, Session, discarding
from fastlloyd.run.shared import ReportOnly, SharedOutcome
from fastlloyd.wire.header import PartyId

__all__ = ["gather", "load", "plan_lines", "privacy_unit", "serve", "settings_help", "take_part"]

_AGAINST = (
    "any single other client, over all messages to it (the server sees masked values only; it knows the noise, and can "
    "take it off where a client's masks or the result reach it)"
)


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[str]:
    """Describe what a run would do, from public numbers alone."""
    from fastlloyd.protocols.fastlloyd.face_plan import plan_lines as describe

    return describe(config, clients, d)


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    return None if config.protocol == "lloyd" else ROW


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings of a protocol, and say what each is."""
    return {key: HELP[key] for key in APPLICABLE[protocol]}


def serve(session: Session) -> Outcome:
    """Run the server."""
    public = session.common.public
    ledger = session.ledger or Ledger()
    secret = SecretRandom()
    played = run_server(
        session,
        ledger,
        kind=Plan,
        make=lambda schema: make_plan(public, d=len(schema.names), names=schema.names),
        bounds=bounds,
        play=lambda plan, stored, done: server(
            plan, lambda t: draw_noise(plan, t, secret), stored=stored, rounds_done=done
        ),
        included=_included,
    )
    plan, result = played.plan, played.result
    common = _common_part(session.facts, plan, result.included)
    outcome = ReportOnly(session, played.driver, common, plan.all_releases(), late=result.late)
    ledger.close()
    return outcome


def take_part(session: Session) -> Outcome:
    """Run a client."""
    outcome = ClientOutcome(session)
    with discarding(outcome):
        _run_client(session, outcome)
    return outcome


def _run_client(session: Session, outcome: ClientOutcome) -> None:
    """Run a client and fill in its outcome."""
    own = session.take_own(OwnRecords)
    public, names = session.common.public, own.names
    begun = begin_client(
        session,
        own,
        outcome.files.ledger,
        kind=Plan,
        check=lambda plan: check_plan(plan, public, d=len(names), names=names),
        bounds=bounds,
        lifetime_delta=lifetime_delta,
        ahead=True,
    )
    plan = begun.plan
    masks = make_masks(begun.agreement(first_centers(plan).grid.tobytes()), begun.driver, plan)
    points = own.quantise(plan.fraction_bits)
    del own  # the scaled copy is no longer needed
    begun.start()
    share = partial(draw_share, plan, secret=SecretRandom()) if plan.masking == "pairwise" else None
    result = begun.driver.drive(client(session.me, points, plan, masks, share=share, stored=begun.stored))
    outcome.finish(session, begun.driver, plan, result)


def make_masks(agreement: MaskAgreement, driver: Driver, plan: Plan) -> Masks:
    """Agree with the other clients on the masks that the plan asks for."""
    ring = Ring(plan.ring_bits)
    if plan.masking == "pairwise":
        return PairwiseMasks(agreement.pairs(driver), ring, plan.elements, agreement.run_id)
    return MaskGenerator(agreement.seed(driver), ring, plan.elements, agreement.run_id)


def _included(plan: Plan, reply: bytes) -> tuple[PartyId, ...]:
    """Name the clients whose updates are in a stored reply."""
    shape = VectorFormat(Ring(plan.ring_bits), plan.elements, plan.clients)
    return recall(NoisyMaskedSum, reply, shape, "reply").included


def _parameters(facts: Facts, plan: Plan) -> dict[str, Any]:
    """Give the public parameters for the report."""
    values = {key: value for key, value in plan.to_json().items() if key not in ("rounds", "names", "protocol")}
    price = {"noise_price": plan.noise_price} if plan.masking == "pairwise" else {}
    return {**values, **price, "rounds": len(plan.rounds)}


def _against(plan: Plan) -> str:
    """Say from whom the claim protects."""
    if plan.masking != "pairwise":
        return _AGAINST
    known = "one client" if plan.known_shares == 1 else f"up to {plan.known_shares} clients together"
    return (
        f"{known}, the server, or both together, over all messages to them (each client adds a share of the noise; the "
        "server sees the noisy sums)"
    )


def _common_part(facts: Facts, plan: Plan, included: tuple[tuple[PartyId, ...], ...]) -> document.Common:
    return common_part(
        facts,
        clients=plan.clients,
        masking=plan.masking,
        parameters=_parameters(facts, plan),
        included=included,
    )


class ClientOutcome(SharedOutcome):
    """What a client has at the end; `take_part` fills it in."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._bounds: Bounds = session.own.bounds
        self._names: tuple[str, ...] = session.own.names

    def finish(self, session: Session, driver: Driver, plan: Plan, result: ClientResult) -> None:
        """Compare with the other clients, and note how the run ended."""
        self.conclude(
            session,
            driver,
            lambda: self._make_result(plan, result),
            took_part=result.included[-1],
            writers=result.included[-1],
            raw_labels=result.raw_labels,
        )

    def _make_result(self, plan: Plan, result: ClientResult) -> Result:
        releases = self.files.own_releases()
        centroids = unscale(result.centers.exact, self._bounds)
        sizes = tuple(float(size) for size in result.centers.noisy_counts)
        return Result(
            common=_common_part(self._facts, plan, result.included),
            privacy=partial(self._privacy, plan, releases),
            features=self._names,
            centroids=centroids,
            noisy_sizes=sizes,
            against=_against(plan),
            evaluation=partial(evaluate_result, self._facts, self._bounds, result.centers.exact),
            releases=releases,
            pictures=partial(draw_result, self._facts, self._bounds, self._names, centroids, sizes),
        )

    def _privacy(self, plan: Plan, releases: Sequence[Release]) -> document.Privacy:
        config = self._facts.config
        return document.Privacy(
            epsilon=plan.epsilon if plan.private else math.inf,
            delta=plan.delta,
            spent_epsilon=spent(releases, plan.delta) if plan.private else math.inf,
            neighbours="add-remove record",
            unit=privacy_unit(config),
            conditions=size_conditions(config),
            accountant=ACCOUNTANT,
            releases=[release.to_dict() for release in releases],
            lifetime_epsilon=self.files.ledger.epsilon(lifetime_delta(plan)) if config.state_dir else None,
            budget=config.budget,
        )
