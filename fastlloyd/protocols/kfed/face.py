"""k-FED: one party's run over real links. It is a baseline: nothing about it is private.

The server sees each client's centres and has the result; it writes the shared files where it shares their folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import unscale
from fastlloyd.data.records import OwnRecords
from fastlloyd.party.effects import Keep, Party
from fastlloyd.party.message import recall
from fastlloyd.party.settings import describe_settings
from fastlloyd.privacy.delta import automatic_delta
from fastlloyd.protocols.kfed.client import ClientResult, centers_format, client
from fastlloyd.protocols.kfed.face_words import data_flow, who_sees
from fastlloyd.protocols.kfed.messages import MergedCenters
from fastlloyd.protocols.kfed.parameters import PublicParameters
from fastlloyd.protocols.kfed.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.kfed.server import ServerResult, server
from fastlloyd.protocols.kfed.settings import Settings
from fastlloyd.protocols.kfed.sizes import bounds
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.quality import EXACT
from fastlloyd.report.unit import format_count
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import begin_client, run_server
from fastlloyd.run.inputs import CommonInputs, fill_public, gather_horizontal, plan_inputs
from fastlloyd.run.outcome import Claim, Foreseen, Outcome, Result, no_claim
from fastlloyd.run.own_records import load_client
from fastlloyd.run.session import Face, Session
from fastlloyd.wire.header import SERVER, PartyId

_NOT_PRIVATE = "means of the clients' records go to the server without noise or masks"


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Return the public parameters of a run."""
    return fill_public(PublicParameters, config, clients=clients, k=k, n_total=n_total)


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, CommonInputs]:
    """Check what is public and alike for all parties."""
    return gather_horizontal(config, clients, public_parameters)


def writes_result(me: PartyId) -> bool:
    """Whether this party can receive the result."""
    return True


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe what a run would do, from public numbers alone."""
    public, d = plan_inputs(config, clients, d, public_parameters)
    plan = make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)))
    return [
        PlanLine(
            "kfed",
            f"{format_count(plan.n_total, 'record')} at most, {format_count(d, 'feature')}, "
            f"{format_count(plan.k, 'cluster')}, {format_count(plan.clients, 'client')}",
        ),
        PlanLine(
            "one round",
            f"at most {8 * plan.most_elements:,} bytes up from each client, {8 * plan.k * d:,} down to each",
        ),
        PlanLine("privacy", f"none; {_NOT_PRIVATE}"),
    ]


def foresee(config: RunConfig, clients: int, d: int | None) -> Foreseen:
    """Return what a run would claim and release, from public numbers alone."""
    public, d = plan_inputs(config, clients, d, public_parameters)
    plan = make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)))
    return Foreseen(claim=_claim(config, plan), releases=plan.all_releases(), parameters=plan.to_json())


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    return None


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings, and say what each is."""
    return describe_settings(Settings, protocol)


def serve(session: Session) -> Party[Outcome]:
    """Live as the server."""
    public = session.common.public
    plan, result = yield from run_server(
        session,
        kind=Plan,
        make=lambda announced: make_plan(public, d=len(announced.names), names=announced.names),
        bounds=bounds,
        play=lambda plan, stored, done: server(plan, stored=stored, rounds_done=done),
        included=lambda plan, t, reply: recall(MergedCenters, reply, centers_format(plan), "reply-0").included,
    )
    return (yield from _conclude(session, plan, result))


def take_part(session: Session) -> Party[Outcome]:
    """Live as a client."""
    own = session.take_own(OwnRecords)
    public, names = session.common.public, own.names
    begun = yield from begin_client(
        session,
        own,
        kind=Plan,
        check=lambda plan: check_plan(plan, public, d=len(names), names=names),
        bounds=bounds,
        lifetime_delta=lambda plan: automatic_delta(plan.n_total),
    )
    points = own.quantise(begun.plan.fraction_bits)
    del own
    yield Keep(begun.facts)
    yield from begun.start()
    result = yield from client(session.me, points, begun.plan, stored=begun.stored)
    return (yield from _conclude(session, begun.plan, result))


def _conclude(session: Session, plan: Plan, result: ServerResult | ClientResult) -> Party[Outcome]:
    """End the run: every party has the result, a client its labels as well."""
    return (
        yield from conclude(
            session,
            _make_result(session, plan, result.centers, (result.included,)),
            took_part=result.included,
            writers=(SERVER, *result.included),
            late=result.late if isinstance(result, ServerResult) else frozenset(),
            raw_labels=result.raw_labels if isinstance(result, ClientResult) else None,
        )
    )


def _claim(config: RunConfig, plan: Plan) -> Claim:
    """Say that the run promises nothing, and why."""
    return no_claim(_NOT_PRIVATE)


def _make_result(
    session: Session, plan: Plan, centers: NDArray[np.float64], included: Sequence[Sequence[PartyId]]
) -> Result:
    """Return the result that every party has at the end."""
    bounds = session.common.bounds.match(plan.names)
    parameters = {key: value for key, value in plan.to_json().items() if key not in ("names", "protocol")}
    return Result(
        common=session.shared_entries(
            clients=plan.clients,
            masking=None,
            parameters={**parameters, "d": plan.d, "rounds": 1},
            included=included,
        ),
        claim=_claim(session.config, plan),
        features=plan.names,
        bounds=bounds,
        centroids=unscale(centers, bounds),
        noisy_sizes=None,
        noise=EXACT,
        releases=session.own_releases(),
        evaluated=centers,
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
    foresee=foresee,
    claim_of=_claim,
    who_sees=who_sees,
    data_flow=data_flow,
)
