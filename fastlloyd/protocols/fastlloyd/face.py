"""FastLloyd and its baselines GLloyd, SuLloyd and Lloyd: one party's run over real links.

The server sees no centroid (with pairwise masking, the noisy sums that they follow from) and writes `server.json`
only; the result is the clients'.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from fastlloyd.data.bounds import Bounds, unscale
from fastlloyd.data.records import ClientRecords
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.masked_messages import NoisyMaskedSum, vector_format
from fastlloyd.lifecycle.masked_sums import bounds, server
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator, Masks
from fastlloyd.masking.pairwise import PairwiseMasks
from fastlloyd.party.effects import Party
from fastlloyd.party.message import recall
from fastlloyd.party.option import describe_settings
from fastlloyd.protocols.fastlloyd.client import ClientResult, client
from fastlloyd.protocols.fastlloyd.face_inputs import gather, load, public_parameters
from fastlloyd.protocols.fastlloyd.face_noise import expect, noise_of
from fastlloyd.protocols.fastlloyd.face_words import about_ranges, data_flow, who_sees
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, lifetime_delta, make_plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share, first_centers
from fastlloyd.protocols.fastlloyd.settings import Settings
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import PlanLine
from fastlloyd.run.agreement import MaskAgreement
from fastlloyd.run.closing import conclude, conclude_without_result
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import begin_client, run_server
from fastlloyd.run.inputs import plan_inputs
from fastlloyd.run.outcome import (
    Claim,
    Foreseen,
    Outcome,
    Result,
)
from fastlloyd.run.promise import record_unit, size_conditions
from fastlloyd.run.session import Face, Session
from fastlloyd.wire.header import PartyId

_AGAINST = (
    "any single other client, over all messages to it (not against the server: it gets masked vectors, but knows the "
    "noise, and can take it off where a client's masks or the result reach it)"
)


def writes_result(me: PartyId) -> bool:
    """Whether this party can receive the result."""
    return not me.is_server


def links_clients(config: RunConfig) -> bool:
    """Whether the clients need links to each other: with a common seed they agree and compare through the server."""
    return config.masking == "pairwise"


def adds_up(config: RunConfig) -> bool:
    """Whether aggregators can add up what clients send in a round: under common masks it goes to the server alone."""
    return config.masking != "pairwise"


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe what a run would do, from public numbers alone."""
    from fastlloyd.protocols.fastlloyd.face_plan import plan_lines as describe

    return describe(config, clients, d)


def foresee(config: RunConfig, clients: int, d: int | None) -> Foreseen:
    """Return what a run would claim and release, from public numbers alone."""
    public, d = plan_inputs(config, clients, d, public_parameters)
    plan = make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)))
    return Foreseen(
        claim=_claim(config, plan),
        releases=plan.all_releases(),
        parameters=plan.to_json(),
        masking=plan.masking,
        expected=expect(plan) if plan.private else None,
    )


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    return None if config.protocol == "lloyd" else record_unit(config)


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings of a protocol, and say what each is."""
    return describe_settings(Settings, protocol)


def serve(session: Session) -> Party[Outcome]:
    """Live as the server."""
    public, secret = session.common.public, SecretRandom()
    plan, result = yield from run_server(
        session,
        kind=Plan,
        make=lambda announced: make_plan(public, d=len(announced.names), names=announced.names),
        bounds=bounds,
        play=lambda plan, stored, done: server(
            plan, lambda t: draw_noise(plan, t, secret), stored=stored, rounds_done=done
        ),
        included=_included,
        relays_seed=lambda plan: plan.masking != "pairwise",
    )
    common = _common_part(session, plan, result.included)
    took_part = None if plan.masking == "pairwise" else result.included[-1]
    releases = plan.all_releases()
    return (yield from conclude_without_result(session, common, releases, result.late, took_part=took_part))


def take_part(session: Session) -> Party[Outcome]:
    """Live as a client."""
    own = session.take_own(ClientRecords)  # type: ignore[type-abstract]  # in memory or in a file
    public, names, bounds_ = session.common.public, own.names, own.bounds
    begun = yield from begin_client(
        session,
        own,
        kind=Plan,
        check=lambda plan: check_plan(plan, public, d=len(names), names=names),
        bounds=bounds,
        lifetime_delta=lifetime_delta,
        ahead=True,
    )
    plan = begun.plan
    masks, seed = yield from make_masks(begun.agreement(first_centers(plan).grid.tobytes()), plan)
    points = own.quantise(plan.fraction_bits)
    del own  # the scaled copy is no longer needed
    yield from begun.start()
    share = partial(draw_share, plan, secret=SecretRandom()) if plan.masking == "pairwise" else None
    result = yield from client(session.me, points, plan, masks, share=share, stored=begun.stored)
    return (
        yield from conclude(
            session,
            _make_result(session, plan, names, bounds_, result),
            took_part=result.included[-1],
            writers=result.included[-1],
            raw_labels=result.raw_labels,
            seed=seed,
        )
    )


def make_masks(agreement: MaskAgreement, plan: Plan) -> Party[tuple[Masks, bytes | None]]:
    """Agree with the other clients on the masks that the plan asks for, of the shape of round 0, and on a common seed.

    Returns
    -------
    Masks, bytes or None
        The seed is None with pairwise masks.
    """
    ring = Ring(plan.ring_bits)
    if plan.masking == "pairwise":
        return PairwiseMasks((yield from agreement.pairs()), ring, plan.elements(0), agreement.run_id), None
    seed = yield from agreement.seed()
    return MaskGenerator(seed, ring, plan.elements(0), agreement.run_id), seed


def _included(plan: Plan, t: int, reply: bytes) -> tuple[PartyId, ...]:
    """Name the clients whose updates are in the stored reply of round t."""
    return recall(NoisyMaskedSum, reply, vector_format(plan, t), f"reply-{t}").included


def _parameters(plan: Plan) -> dict[str, Any]:
    """Return the public parameters for the reports; all parties sign them, and the server does not know a k chosen."""
    values = {key: value for key, value in plan.to_json().items() if key not in ("rounds", "names", "protocol")}
    price = {"noise_price": plan.noise_price} if plan.masking == "pairwise" else {}
    most = {"k_max": plan.k} if plan.choose_k else {}
    return {**values, **price, **most, "rounds": len(plan.rounds)}


def _against(plan: Plan) -> str:
    """Say from whom the claim protects."""
    if plan.masking != "pairwise":
        return _AGAINST
    known = "one client" if plan.known_shares == 1 else f"up to {plan.known_shares} clients together"
    return (
        f"{known}, the server, or both together, over all messages to them (each client adds a share of the noise; the "
        "server sees the noisy sums)"
    )


def _claim(config: RunConfig, plan: Plan) -> Claim:
    """Say what the run promises."""
    return Claim(
        epsilon=plan.epsilon if plan.private else math.inf,
        delta=plan.delta,
        against=_against(plan),
        unit=privacy_unit(config),
        conditions=size_conditions(config),
        lifetime_delta=lifetime_delta(plan),
    )


def _common_part(session: Session, plan: Plan, included: tuple[tuple[PartyId, ...], ...]) -> dict[str, Any]:
    return session.shared_entries(
        clients=plan.clients,
        masking=plan.masking,
        parameters=_parameters(plan),
        included=included,
    )


def _make_result(session: Session, plan: Plan, names: tuple[str, ...], bounds: Bounds, result: ClientResult) -> Result:
    """Return the result that the clients have at the end."""
    chosen = result.chosen
    left = result.centers if chosen is None else chosen
    sizes = tuple(float(size) for size in left.noisy_counts)
    return Result(
        common=_common_part(session, plan, result.included),
        claim=_claim(session.config, plan),
        features=names,
        bounds=bounds,
        centroids=unscale(left.exact, bounds),
        noisy_sizes=sizes,
        noise=noise_of(plan, result.centers, chosen),
        releases=session.own_releases(),
        evaluated=left.exact,
        movement=movements(result.path) if plan.private else None,
        costs=None if chosen is None else chosen.merging.costs,
    )


FACE = Face(
    gather=gather,
    load=load,
    writes_result=writes_result,
    serve=serve,
    take_part=take_part,
    plan_lines=plan_lines,
    privacy_unit=privacy_unit,
    settings_help=settings_help,
    foresee=foresee,
    claim_of=_claim,
    links_clients=links_clients,
    adds_up=adds_up,
    who_sees=who_sees,
    about_ranges=about_ranges,
    data_flow=data_flow,
)
