"""Vertical DP clustering and its baseline without privacy: one party's run over real links.

The server has the result and writes it; the parties have it too only where the run shares it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from fastlloyd.data.vertical import assemble_centers, assemble_names, whole_bounds
from fastlloyd.errors import InternalError
from fastlloyd.lifecycle.align.columns import gather_columns, tell_columns
from fastlloyd.lifecycle.align.messages import ALIGNMENT
from fastlloyd.lifecycle.hello import await_plan, propose_plan
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.party.declaration import largest_bodies
from fastlloyd.party.effects import Afford, Allow, Party, Publish, Record
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.delta import automatic_delta
from fastlloyd.privacy.ledger import keyed_digest
from fastlloyd.protocols.vertical_dp.client import client, prepare
from fastlloyd.protocols.vertical_dp.face_inputs import gather, load
from fastlloyd.protocols.vertical_dp.face_noise import expect, noise_of
from fastlloyd.protocols.vertical_dp.face_plan import plan_lines, planned
from fastlloyd.protocols.vertical_dp.face_words import data_flow, who_sees
from fastlloyd.protocols.vertical_dp.keys import set_up
from fastlloyd.protocols.vertical_dp.messages import MESSAGES, Told
from fastlloyd.protocols.vertical_dp.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.vertical_dp.server import await_prepared, server
from fastlloyd.protocols.vertical_dp.settings import Settings
from fastlloyd.protocols.vertical_dp.sketch.release import ZERO_OUT
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.signed import SignedRecord
from fastlloyd.run.checks import accept_plan, refuse_old_run
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Foreseen, Outcome, Result
from fastlloyd.run.promise import PERSON
from fastlloyd.run.session import Face, Session
from fastlloyd.run.vertical import HELP as VERTICAL_HELP
from fastlloyd.run.vertical import OwnColumns, VerticalCommon, assumed_widths
from fastlloyd.wire.header import SERVER, PartyId

_AGAINST = (
    "the server and the public, but not between the parties (each of them knows hash keys and could test in another's "
    "sketches what a person's cluster may be)"
)


def writes_result(me: PartyId) -> bool:
    """Whether this party can receive the result."""
    return True


def foresee(config: RunConfig, clients: int, d: int | None) -> Foreseen:
    """Return what a run would claim and release, from public numbers alone."""
    plan = planned(config, clients, d)
    return Foreseen(
        claim=_claim(config, plan),
        releases=plan.all_releases(),
        parameters=plan.to_json(),
        note=assumed_widths(config, d),
        expected=expect(plan) if plan.private else None,
    )


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    return None if config.protocol == "vertical-plain" else PERSON


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings, and say what each is."""
    return describe_settings(Settings, protocol) | VERTICAL_HELP


def serve(session: Session) -> Party[Outcome]:
    """Live as the server."""
    yield from session.begin(sizes=largest_bodies(ALIGNMENT, session.common.public))
    features = yield from gather_columns(session.everybody)
    plan = make_plan(session.common.public, features)
    yield Allow(plan_bounds(MESSAGES, plan))
    yield from propose_plan(session.everybody, plan.to_json(), 0)
    yield from await_prepared(plan)
    yield Publish("setup")
    yield Record(plan.all_releases())  # the parties' own ledgers count; this one is for the report
    result = yield from server(plan)
    return (yield from _conclude(session, plan, result.told))


def take_part(session: Session) -> Party[Outcome]:
    """Live as a party that holds columns."""
    own = session.take_own(OwnColumns)
    public, me, secret = session.common.public, session.me, SecretRandom()
    place, features = me.rank - 1, own.features
    refuse_old_run(session)
    yield from session.begin(keyed_digest(session.ledger.digest_key(), own.table.raw_values))
    yield from tell_columns(features)
    proposal = yield from await_plan()

    def read(values: Mapping[str, Any]) -> Plan:
        plan = Plan.from_json(values)
        check_plan(plan, public, place=place, own=features)
        return plan

    plan = accept_plan(session, proposal.plan, read)
    yield Allow(plan_bounds(MESSAGES, plan))
    session.plan = plan
    yield Afford(plan.all_releases(), automatic_delta(plan.n_total))
    shared = json.dumps(plan.to_json(), sort_keys=True).encode()
    ready = yield from set_up(
        me,
        plan,
        own.table.raw_ids,
        align=_alignment(session),
        run_id=session.run_id,
        context=hashlib.sha256(session.digest + hashlib.sha256(shared).digest()).digest(),
        secret=secret,
    )
    try:
        prepared = yield from prepare(me, own.points(ready.raw_ids), plan, ready.keys, secret=secret)
    finally:
        ready.keys.erase()
    del own
    yield Publish("setup")
    result = yield from client(prepared, plan)
    return (yield from _conclude(session, plan, result.told))


def _alignment(session: Session) -> str:
    """Return how the records are aligned."""
    common = session.common
    if not isinstance(common, VerticalCommon):
        raise InternalError("a vertical protocol was set up with other public facts")
    return common.alignment.align


def _writers(session: Session, plan: Plan) -> tuple[PartyId, ...]:
    """Return the parties that have the result."""
    return (SERVER, *session.everybody) if plan.share_result else (SERVER,)


def _conclude(session: Session, plan: Plan, told: Told | None) -> Party[Outcome]:
    """End the run: the server has the result, and the parties where it is shared."""
    return (
        yield from conclude(
            session,
            _make_result(session, plan, told),
            took_part=session.everybody,
            writers=_writers(session, plan),
        )
    )


def _make_result(session: Session, plan: Plan, told: Told | None) -> Result | SignedRecord:
    """Return the result that a party has at the end."""
    releases = session.own_releases()
    common = session.shared_entries(
        clients=plan.clients,
        masking=None,
        parameters=_parameters(plan),
        included=(session.everybody,),
    )
    if told is None:
        return SignedRecord(common=common, releases=[release.to_dict() for release in releases], covers="public")
    features = plan.features
    return Result(
        common=common,
        claim=_claim(session.config, plan),
        features=assemble_names(features),
        bounds=whole_bounds(features),
        centroids=assemble_centers(told.centers, features),
        noisy_sizes=None if told.weights is None else tuple(told.weights.tolist()),
        noise=noise_of(plan, told),
        releases=releases,
        evaluated=told.centers,
        # What all have is compared and signed: of vertical-plain the exact weights are the server's alone.
        covers="centroids" if told.weights is None or (plan.share_result and not plan.private) else "result",
    )


def _claim(config: RunConfig, plan: Plan) -> Claim:
    """Say what the run promises."""
    return Claim(
        epsilon=plan.epsilon if plan.private else math.inf,
        delta=plan.delta,
        against=_AGAINST,
        neighbours=ZERO_OUT,
        unit=privacy_unit(config) if plan.private else None,
        conditions=_conditions(plan),
        bounded=False,
        lifetime_delta=automatic_delta(plan.n_total),
        not_private_reason=None if plan.private else plan.note,
    )


def _conditions(plan: Plan) -> list[str]:
    """Say what the claim rests on besides the noise, and what it is for other neighbours."""
    change = f"; for any change of the row's values epsilon is {plan.change_epsilon():.4g}" if plan.private else ""
    return [f"that all parties follow the protocol{change}"]


def _parameters(plan: Plan) -> dict[str, Any]:
    """Return the public parameters for the report."""
    values = {key: value for key, value in plan.to_json().items() if key not in ("protocol", "lo", "hi")}
    change = {"epsilon_for_a_change": plan.change_epsilon()} if plan.private else {}
    return {**values, **change, "names": [list(own) for own in plan.names], "d": plan.d, "rounds": 1}


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
    who_sees=who_sees,
    data_flow=data_flow,
)
