"""Vertical k-means under CKKS: one party's run over real links.

Rank 0 coordinates. With two parties it holds data, and either party computes, whichever is cheaper; with more it
computes and holds none. Every party has the result.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.vertical import PartyFeatures, assemble_centers, assemble_names, check_features, whole_bounds
from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.align.check import check_ids
from fastlloyd.lifecycle.align.columns import (
    describe_features,
    gather_columns,
    gather_count,
    read_features,
    tell_columns,
    tell_count,
)
from fastlloyd.lifecycle.align.intersect import intersect_ids
from fastlloyd.lifecycle.hello import await_plan, await_ready, propose_plan, tell_ready
from fastlloyd.lifecycle.pairs import agree_pairs
from fastlloyd.party.effects import Afford, Allow, Party, Publish
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.ledger import keyed_digest
from fastlloyd.protocols.vertical_he.computing import computing_party
from fastlloyd.protocols.vertical_he.face_claim import FLOODING, against, conditions
from fastlloyd.protocols.vertical_he.face_inputs import RunParameters, gather, load
from fastlloyd.protocols.vertical_he.face_noise import expect, noise_of
from fastlloyd.protocols.vertical_he.face_plan import plan_lines, planned
from fastlloyd.protocols.vertical_he.face_words import data_flow, who_sees
from fastlloyd.protocols.vertical_he.holder import key_holder
from fastlloyd.protocols.vertical_he.math.cost import round_seconds
from fastlloyd.protocols.vertical_he.messages import bounds, early_sizes
from fastlloyd.protocols.vertical_he.owner import owner
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import Proposal, change_epsilon, check_plan, make_plan
from fastlloyd.protocols.vertical_he.rounds import Released, draw_noise
from fastlloyd.protocols.vertical_he.settings import Settings
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.checks import accept_plan, refuse_old_run
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.outcome import Claim, Foreseen, Outcome, Result
from fastlloyd.run.own_records import own_workers
from fastlloyd.run.promise import PERSON
from fastlloyd.run.session import Face, Session
from fastlloyd.run.vertical import HELP as VERTICAL_HELP
from fastlloyd.run.vertical import OwnColumns, VerticalCommon, assumed_widths
from fastlloyd.wire.decode import decode
from fastlloyd.wire.header import SERVER, PartyId


def writes_result(me: PartyId) -> bool:
    """Whether this party can receive the result."""
    return True


def foresee(config: RunConfig, clients: int, d: int | None) -> Foreseen:
    """Return what a run would claim and release, from public numbers alone."""
    plan = planned(config, clients, d)
    return Foreseen(
        claim=claim_of(config, plan),
        releases=plan.all_releases(),
        parameters=_parameters(plan, plan.rounds),
        note=assumed_widths(config, d),
        expected=expect(plan) if plan.private else None,
    )


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    return PERSON


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings, and say what each is."""
    return describe_settings(Settings, protocol) | VERTICAL_HELP


def serve(session: Session) -> Party[Outcome]:
    """Live as rank 0."""
    return _live(session)


def take_part(session: Session) -> Party[Outcome]:
    """Live as another rank."""
    return _live(session)


def _live(session: Session) -> Party[Outcome]:
    """Align, plan, and play the party's part, whichever that is."""
    me, secret = session.me, SecretRandom()
    own = session.take_own(OwnColumns) if session.own is not None else None
    digest = "" if own is None else keyed_digest(session.ledger.digest_key(), own.table.raw_values)
    refuse_old_run(session)
    yield from session.begin(digest, early_sizes(session.common.public))
    points = None if own is None else (yield from _align(session, own, secret))
    plan, features, n = yield from _agree(session, own, None if points is None else len(points))
    session.plan = plan
    if plan.columns(me.rank):
        yield Afford(plan.all_releases(), plan.delta)
    if me.rank == plan.computing:
        _check_deadline(session.config, plan, n)
    columns = np.zeros((0, n)) if points is None else np.ascontiguousarray(points.T)
    del own, points
    if me.is_server:
        yield from await_ready(session.everybody)
    else:
        yield from tell_ready()
    yield Publish("setup")
    result = yield from _compute(session, plan, columns, secret)
    everybody = (SERVER, *session.everybody)
    there = (SERVER, *result.present) if plan.openers else everybody
    return (
        yield from conclude(
            session,
            _make_result(session, plan, features, result),
            took_part=there,
            writers=there,
            heard=everybody if plan.parties > 2 else (),  # two parties have nobody to compare with
            late=frozenset(everybody) - frozenset(there),
        )
    )


def _align(session: Session, own: OwnColumns, secret: SecretRandom) -> Party[NDArray[np.float64]]:
    """Bring the owners' records into one order; gives this party's, shape (n, d_own), scaled."""
    common, run_id = session.common, session.run_id
    if not isinstance(common, VerticalCommon):
        raise InternalError("a vertical protocol was set up with other public facts")
    owners = common.public.owners
    pairs = yield from agree_pairs(session.me, owners, run_id=run_id, context=session.digest, secret=secret)
    ids = own.table.raw_ids
    if common.alignment.align == "intersect":
        most = common.public.n_total
        ids = yield from intersect_ids(session.me, owners, ids, run_id=run_id, most=most, secret=secret)
    yield from check_ids(ids, pairs, run_id=run_id)
    return own.points(ids)


def _agree(
    session: Session, own: OwnColumns | None, n: int | None
) -> Party[tuple[Plan, tuple[PartyFeatures, ...], int]]:
    """Exchange columns and the number of records, and agree on the plan, which does not depend on that number."""
    public: RunParameters = session.common.public
    if session.me.is_server:
        others = tuple(party for party in public.owners if not party.is_server)
        told = yield from gather_columns(others)
        features = told if own is None else (own.features, *told)
        check_features(features)
        n = yield from gather_count(others, n, most=public.n_total)
        plan = make_plan(public.settled(), [own_.names for own_ in features])
        proposal = Proposal(plan, tuple(map(describe_features, features)))
        yield Allow(bounds(plan))
        yield from propose_plan(session.everybody, asdict(proposal), 0)
        return plan, features, n
    if own is None or n is None:
        raise InternalError("a rank but 0 of vertical-he has no columns")
    yield from tell_columns(own.features)
    yield from tell_count(n)
    values = (yield from await_plan()).plan
    found: list[tuple[PartyFeatures, ...]] = []

    def read(values: Mapping[str, Any]) -> Plan:
        proposal = decode(Proposal, values, "")
        plan, features = proposal.plan, tuple(map(read_features, proposal.features))
        check_plan(plan, public.settled(), [own_.names for own_ in features])
        place = public.owners.index(session.me)
        bounds, mine = features[place].bounds, own.features.bounds
        same = features[place].names == own.features.names
        if not same or (bounds.lo != mine.lo).any() or (bounds.hi != mine.hi).any():
            raise ValueError("it describes this party's columns in another way than it did itself")
        found.append(features)
        return plan

    plan = accept_plan(session, values, read)
    yield Allow(bounds(plan))
    return plan, found[0], n


def _check_deadline(config: RunConfig, plan: Plan, n: int) -> None:
    """Refuse, before anything is paid for, a run whose rounds would not end within the deadline."""
    expected = round_seconds(plan, own_workers(config), n)
    if expected > config.deadline:
        raise ConfigError(
            f"--deadline: expected at least {math.ceil(1.5 * expected)} seconds, since a round is estimated at "
            f"{expected:.0f} with {own_workers(config)} workers, got {config.deadline:g}; all parties need the "
            "same, or use more --workers"
        )


def _compute(session: Session, plan: Plan, columns: NDArray[np.float64], secret: SecretRandom) -> Party[Released]:
    """Play the part that the plan gives this party."""
    me = session.me

    def noise(t: int, grid: float = 1.0) -> NDArray[np.int64]:
        return draw_noise(plan, secret, grid)

    if me.rank not in (plan.computing, plan.holder):
        return (yield from owner(me, plan, columns, noise))
    if me.rank != plan.computing:
        return (yield from key_holder(plan, columns, noise))
    from fastlloyd.protocols.vertical_he.math.workers import open_engine

    with open_engine(plan, columns, own_workers(session.config)) as engine:
        return (yield from computing_party(plan, engine, noise))


def _make_result(session: Session, plan: Plan, features: tuple[PartyFeatures, ...], result: Released) -> Result:
    """Return the result that every party has at the end: the released centres."""
    run = session.run_id.hex()
    planned = [dataclasses.replace(r, run=run) for r in plan.charged_releases(result.rounds)]
    releases = session.own_releases() or planned
    sizes = tuple(float(size) for size in result.state.counts)
    return Result(
        common=session.shared_entries(
            clients=plan.parties - 1,
            masking=None,
            parameters=_parameters(plan, result.rounds),
            included=(session.everybody,) * result.rounds,
        ),
        claim=claim_of(session.config, plan, result.rounds),
        features=assemble_names(features),
        bounds=whole_bounds(features),
        centroids=assemble_centers(result.centers, features),
        noisy_sizes=sizes,
        noise=noise_of(plan, result.state),
        releases=releases,
        evaluated=result.centers,
        movement=movements(result.path) if plan.private else None,
    )


def claim_of(config: RunConfig, plan: Plan, done: int | None = None) -> Claim:
    """Say what a run promises of which so many rounds are done; None: all."""
    return Claim(
        epsilon=plan.epsilon if plan.private else math.inf,
        delta=plan.delta,
        against=against(plan, plan.rounds if done is None else done),
        neighbours=plan.all_releases()[0].neighbours,
        unit=privacy_unit(config) if plan.private else None,
        conditions=conditions(plan),
        bounded=False,
        not_private_reason=None if plan.private else FLOODING,
    )


def _parameters(plan: Plan, rounds: int) -> dict[str, Any]:
    """Return the public parameters for the report."""
    values = {key: value for key, value in plan.to_json().items() if key not in ("rounds", "scales")}
    encryption = {"ring": plan.scales.ring, "prime_bits": list(plan.scales.prime_bits)}
    change = {"epsilon_for_a_change": change_epsilon(plan)} if plan.private else {}
    return {
        **values,
        **change,
        "encryption": encryption,
        "d": plan.d,
        "rounds": rounds,
        "planned_rounds": plan.rounds,
    }


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
    claim_of=claim_of,
    who_sees=who_sees,
    data_flow=data_flow,
)
