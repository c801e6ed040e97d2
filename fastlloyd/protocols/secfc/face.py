"""SecFC: one party's run over real links.

The result is the labels: every party knows the cluster of every point, and each client which points are its own. The
server writes `server.json` only; centres exist only where the run reveals them to the clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, scale, unscale
from fastlloyd.data.records import OwnRecords
from fastlloyd.lifecycle.hello import await_ready, gather_announced, propose_plan
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.party.effects import Allow, Party, Publish
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.delta import automatic_delta
from fastlloyd.protocols.secfc.client import ClientResult, client
from fastlloyd.protocols.secfc.face_words import data_flow, who_sees
from fastlloyd.protocols.secfc.math.rotation import draw_rotation, rotate
from fastlloyd.protocols.secfc.math.tournament import count_rounds
from fastlloyd.protocols.secfc.messages import MESSAGES
from fastlloyd.protocols.secfc.parameters import PublicParameters
from fastlloyd.protocols.secfc.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.secfc.server import server
from fastlloyd.protocols.secfc.settings import Settings
from fastlloyd.protocols.secfc.sharing import await_shared, gather_sizes, share_points, tell_size
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.quality import EXACT
from fastlloyd.report.unit import format_count
from fastlloyd.run.checks import refuse_resume
from fastlloyd.run.closing import conclude, conclude_without_result
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import begin_client
from fastlloyd.run.inputs import CommonInputs, fill_public, gather_horizontal, plan_inputs
from fastlloyd.run.outcome import (
    Claim,
    Foreseen,
    Outcome,
    Result,
    no_claim,
)
from fastlloyd.run.own_records import load_client
from fastlloyd.run.session import Face, Session
from fastlloyd.wire.header import PartyId

_NOT_PRIVATE = (
    "the result is exact: every client learns the cluster of every point in every iteration{starts}; the server learns "
    "how many clusters have points in each iteration and, of comparisons whose points, clusters and outcomes it cannot "
    "tell, how close they are, blurred over 64 octaves"
)


def public_parameters(config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
    """Return the public parameters of a run.

    Raises
    ------
    ConfigError
        Any that does not fit.
    """
    return fill_public(PublicParameters, config, clients=clients, k=k, n_total=n_total)


def gather(config: RunConfig, clients: int) -> tuple[RunConfig, CommonInputs]:
    """Check what is public and alike for all parties.

    Raises
    ------
    ConfigError
        A parameter does not fit, or an interrupted run is to be resumed.
    """
    refuse_resume(
        config,
        because="fresh shares under the same masks would show their difference",
        spent="the run adds no noise, so nothing is spent twice",
    )
    return gather_horizontal(config, clients, public_parameters)


def writes_result(me: PartyId) -> bool:
    """Whether this party can receive the result."""
    return not me.is_server


def plan_lines(config: RunConfig, clients: int, d: int | None) -> list[PlanLine]:
    """Describe what a run would do, from public numbers alone."""
    public, d = plan_inputs(config, clients, d, public_parameters)
    sizes = tuple(len(part) for part in np.array_split(np.empty(public.n_total), clients))
    plan = make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)), sizes=sizes)
    element = plan.field.element_bytes
    return [
        PlanLine(
            "secfc",
            f"{format_count(plan.n_total, 'record')} at most, {format_count(d, 'feature')}, "
            f"{format_count(plan.k, 'cluster')}, {format_count(clients, 'client')}",
        ),
        PlanLine(
            "code",
            f"l = {format_count(plan.segments, 'segment')}, the shares that any t = "
            f"{format_count(plan.threshold, 'client', 'hold')} say nothing of a record, "
            f"{format_count(plan.needed_answers, 'answer', 'decode')} an iteration",
        ),
        PlanLine(
            "field",
            f"{format_count(len(plan.primes), 'prime')}, {element} bytes an element; grid of 2^-{plan.fraction_bits}",
        ),
        PlanLine(
            "values",
            f"a value and its difference have at most {plan.bits_in_common:.2f} bits in common; all values "
            f"together are within {plan.distance:.0e} of the law that is proved of them",
        ),
        PlanLine("set-up", f"{max(sizes) * plan.width * element * (clients - 1):,} bytes of shares from each client"),
        PlanLine(
            "iteration",
            f"{(plan.k - 1) * plan.n_total * element:,} bytes up from each client for each start in "
            f"{format_count(count_rounds(plan.k), 'message')}; at most {format_count(plan.rounds, 'round')}",
        ),
        PlanLine(
            f"{plan.start} start",
            f"{format_count(plan.starts, 'start')}, {len(plan.passes[0])} at a time"
            + "; the least inertia wins" * (plan.starts > 1),
        ),
        PlanLine("privacy", f"no noise; {_claim(config, plan).not_private_reason}"),
    ]


def foresee(config: RunConfig, clients: int, d: int | None) -> Foreseen:
    """Return what a run would claim and release, from public numbers alone."""
    public, d = plan_inputs(config, clients, d, public_parameters)
    sizes = tuple(len(part) for part in np.array_split(np.empty(public.n_total), clients))
    plan = make_plan(public, d=d, names=tuple(f"x{i + 1}" for i in range(d)), sizes=sizes)
    return Foreseen(claim=_claim(config, plan), releases=plan.all_releases(), parameters=plan.to_json())


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    return None


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings, and say what each is."""
    return describe_settings(Settings, protocol)


def serve(session: Session) -> Party[Outcome]:
    """Live as the server."""
    common = session.common
    yield from session.begin()
    sizes = yield from gather_sizes(session.everybody, common.caps, padded=common.public.chosen.membership)
    announced = yield from gather_announced(session.everybody)
    plan = make_plan(common.public, d=len(announced.names), names=announced.names, sizes=sizes)
    yield Allow(plan_bounds(MESSAGES, plan))
    yield from propose_plan(session.everybody, plan.to_json(), 0)
    yield from await_shared(plan)
    yield from await_ready(session.everybody)
    yield Publish("setup")
    result = yield from server(plan)
    part = _common_part(session, plan, result.included)
    return (yield from conclude_without_result(session, part, plan.all_releases(), result.late))


def take_part(session: Session) -> Party[Outcome]:
    """Live as a client."""
    own = session.take_own(OwnRecords)
    common, me, names, bounds_ = session.common, session.me, own.names, own.bounds
    told = common.caps[me.rank - 1] if common.public.chosen.membership else len(own.raw_points)
    yield from tell_size(told)
    begun = yield from begin_client(
        session,
        own,
        kind=Plan,
        check=lambda plan: check_plan(plan, common.public, me=me, names=names, told=told, caps=common.caps),
        bounds=partial(plan_bounds, MESSAGES),
        lifetime_delta=lambda plan: automatic_delta(plan.n_total),
    )
    plan, run_id = begun.plan, session.run_id
    seed = yield from begun.fresh_seed()
    rotation = draw_rotation(plan.d, seed=seed, run_id=run_id)
    points = rotate(own.raw_points, rotation, plan.fraction_bits)
    del own
    shares = yield from share_points(me, points, plan, run_id=run_id, secret=SecretRandom())
    yield from begun.start()
    result = yield from client(me, shares, points, plan, rotation=rotation, seed=seed, run_id=run_id)
    inertia = result.raw_inertia
    return (
        yield from conclude(
            session,
            _make_result(session, plan, names, bounds_, result),
            took_part=result.present,
            writers=result.present,
            holders=result.present,  # who came too late has no centres
            raw_labels=result.raw_labels,
            raw_files={} if inertia is None else {f"inertia_{me.rank}.csv": f"inertia\n{inertia!r}\n"},
        )
    )


def _claim(config: RunConfig, plan: Plan) -> Claim:
    """Say that the run promises nothing, and why."""
    return no_claim(_NOT_PRIVATE.format(starts=f" of {plan.starts} starts" * (plan.starts > 1)))


def _common_part(session: Session, plan: Plan, included: Sequence[Sequence[PartyId]]) -> dict[str, Any]:
    values = {key: value for key, value in plan.to_json().items() if key not in ("names", "protocol", "sizes")}
    return session.shared_entries(
        clients=plan.clients,
        masking=None,
        parameters={**values, "rounds": len(included), "needed_answers": plan.needed_answers},
        included=included,
    )


def _make_result(session: Session, plan: Plan, names: tuple[str, ...], bounds: Bounds, result: ClientResult) -> Result:
    """Return the result that the clients have at the end."""
    sizes = "".join(f"{cluster},{size}\n" for cluster, size in enumerate(result.sizes.tolist()))
    return Result(
        common=_common_part(session, plan, result.included),
        claim=_claim(session.config, plan),
        features=names,
        bounds=bounds,
        centroids=None if result.centers is None else unscale(result.centers, bounds),
        noisy_sizes=None,
        noise=EXACT,
        releases=session.own_releases(),
        evaluated=_evaluated(session, plan, bounds, result),
        extra={"sizes.csv": "cluster,size\n" + sizes},
    )


def _evaluated(session: Session, plan: Plan, bounds: Bounds, result: ClientResult) -> NDArray[np.float64] | None:
    """Return what is compared with a public data set: means by label, or the centres where labels have no owner."""
    dataset, splits = session.common.dataset, session.common.splits
    if not session.config.evaluate or dataset is None or splits is None:
        return None
    if not plan.membership:
        return _means(scale(dataset.values[np.concatenate(splits)], bounds), result.labels)
    return result.centers if result.centers is not None and np.isfinite(result.centers).all() else None


def _means(points: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean of each cluster that has points, shape (clusters, d)."""
    used = np.unique(labels[labels >= 0])
    return np.stack([points[labels == cluster].mean(axis=0) for cluster in used])


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
