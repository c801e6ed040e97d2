"""Ties the histogram to runs, data and reports: the one module here that knows them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastlloyd.data.bounds import Bounds, unscale
from fastlloyd.data.records import OwnRecords
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import MaskGenerator
from fastlloyd.party.effects import Keep, Party
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import settle_delta
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.sight import NOISE, NOTHING, Sight, Sights
from fastlloyd.run.checks import refuse_resume
from fastlloyd.run.closing import conclude, conclude_without_result
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import begin_client, run_server
from fastlloyd.run.inputs import PublicInputs, fill_public, gather_horizontal, plan_inputs
from fastlloyd.run.outcome import Claim, Outcome, Result
from fastlloyd.run.own_records import load_client
from fastlloyd.run.promise import promise_lines, record_unit, size_conditions
from fastlloyd.run.session import Face, Session
from fastlloyd.wire.header import PartyId, clients
from fastlloyd_histogram.client import ClientResult, client
from fastlloyd_histogram.messages import MESSAGES
from fastlloyd_histogram.plan import RING_BITS, Plan, PublicParameters, bins_of, check_plan, make_plan, middles
from fastlloyd_histogram.server import server

_AGAINST = "whoever sees the histogram; the server sees masked counts only"


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Return the public parameters of a run."""
    delta = settle_delta(config.delta, n_total=n_total, paper=1.0 / n_total, accept_large=config.accept_large_delta)
    return fill_public(PublicParameters, config, clients=clients, k=k, n_total=n_total, delta=delta)


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, PublicInputs]:
    """Check what is public and alike for all parties."""
    refuse_resume(config, because="it is a single round", spent="what was released stays in the ledger")
    return gather_horizontal(config, clients, public_parameters)


def writes_result(me: PartyId) -> bool:
    """The clients have the histogram, the server has not."""
    return not me.is_server


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe what a run would do, from public numbers alone."""
    public, d = plan_inputs(config, clients, d, public_parameters)
    plan = make_plan(public, tuple(f"x{i + 1}" for i in range(d)))
    return [
        PlanLine("histogram", f"{plan.n_total:,} records at most, {plan.k} bins, {plan.clients} clients"),
        PlanLine("one round", f"{plan.k * RING_BITS // 8:,} bytes up from each client, as many down to each"),
        PlanLine(
            "privacy",
            f"epsilon {spent(plan.all_releases(), plan.delta):.6g} at delta {plan.delta:.3g}; noise of standard "
            f"deviation {plan.scale:.3g} on each count",
        ),
        *promise_lines(config, delta=plan.delta, n_total=plan.n_total),
    ]


def privacy_unit(config: RunConfig) -> str | None:
    """Neighbours differ in one record."""
    return record_unit(config)


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, for the page of the result and the dossier."""
    return Sights(
        (
            Sight("the server", "masked counts; it knows the noise", "the masks"),
            Sight("each client", "its own records; the noisy counts of all", NOISE),
        ),
        (
            Sight("the server and any one client", "the exact counts of every client", NOTHING),
            Sight("several clients", "the noisy counts of all", NOISE),
        ),
    )


def settings_help(protocol: str) -> Mapping[str, str]:
    """There is nothing to set besides k, epsilon and delta."""
    return {}


def serve(session: Session) -> Party[Outcome]:
    """Live as the server."""
    public, secret = session.inputs.public, SecretRandom()
    plan, result = yield from run_server(
        session,
        kind=Plan,
        make=lambda schema: make_plan(public, schema.names),
        bounds=partial(plan_bounds, MESSAGES),
        play=lambda plan, stored, done: server(plan, lambda: round_normal(plan.scale, plan.k, secret)),
        included=lambda plan, t, reply: clients(plan.clients),
    )
    common = _common_part(session, plan)
    return (yield from conclude_without_result(session, common, plan.all_releases(), result.late))


def take_part(session: Session) -> Party[Outcome]:
    """Live as a client."""
    own = session.take_own(OwnRecords)
    public = session.inputs.public
    begun = yield from begin_client(
        session,
        own,
        kind=Plan,
        check=lambda plan: check_plan(plan, public, own.names),
        bounds=partial(plan_bounds, MESSAGES),
        lifetime_delta=lambda plan: plan.delta,
    )
    plan = begun.plan
    masks = MaskGenerator((yield from begun.fresh_seed()), Ring(RING_BITS), plan.k, session.run_id)
    yield Keep(begun.to_keep)
    yield from begun.start()
    result = yield from client(session.me, bins_of(own.raw_points, plan.k), plan, masks)
    everybody = session.everybody
    return (
        yield from conclude(
            session,
            _make_result(session, plan, own.bounds, result),
            took_part=everybody,
            writers=everybody,
            raw_labels=result.raw_labels,
        )
    )


def _common_part(session: Session, plan: Plan) -> Any:
    values = {key: value for key, value in plan.to_json().items() if key not in ("names", "protocol")}
    return session.shared_entries(
        clients=plan.clients,
        masking="common",
        parameters={**values, "d": 1, "rounds": 1},
        included=(session.everybody,),
    )


def _make_result(session: Session, plan: Plan, bounds: Bounds, result: ClientResult) -> Result:
    """Return the result that the clients have at the end: the bins' middles, and the noisy counts as sizes."""
    points = middles(plan.k)
    return Result(
        common=_common_part(session, plan),
        claim=Claim(
            epsilon=plan.epsilon,
            delta=plan.delta,
            against=_AGAINST,
            unit=record_unit(session.config),
            conditions=size_conditions(session.config),
        ),
        features=plan.names,
        bounds=bounds,
        centroids=unscale(points, bounds),
        noisy_sizes=tuple(map(float, result.counts)),
        releases=session.own_releases(),
        evaluated=points,
    )


FACE = Face(
    gather=gather,
    load=load_client,
    writes_result=writes_result,
    serve=serve,
    take_part=take_part,
    plan_lines=plan_lines,
    privacy_unit=privacy_unit,
    settings_help=settings_help,
    who_sees=who_sees,
)
