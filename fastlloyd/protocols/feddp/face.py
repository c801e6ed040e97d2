"""FedDP-KMeans: one party's run over real links.

The server works on the noisy sums and has the result, as the clients do; it writes the shared files where it shares
their folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, unscale
from fastlloyd.data.records import OwnRecords
from fastlloyd.errors import ConfigError, Reason, format_count
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.hello import Announced
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.pairwise import PairwiseMasks
from fastlloyd.party.effects import Party
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER
from fastlloyd.protocols.feddp.client import ClientResult, client
from fastlloyd.protocols.feddp.face_inputs import (
    FedDPCommon,
    ServerPoints,
    UserRecords,
    gather,
    has_users,
    load,
    most_users,
)
from fastlloyd.protocols.feddp.face_noise import expect, noise_of
from fastlloyd.protocols.feddp.face_plan import make_foreseen, plan_lines
from fastlloyd.protocols.feddp.face_words import data_flow, who_sees
from fastlloyd.protocols.feddp.math.noise import draw_share
from fastlloyd.protocols.feddp.messages import MESSAGES
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.proposal import check_plan, make_plan
from fastlloyd.protocols.feddp.server import ServerResult, server
from fastlloyd.protocols.feddp.settings import PRIVATE, Settings, settings_from
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import begin_client, run_server
from fastlloyd.run.outcome import Claim, Foreseen, Outcome, Result
from fastlloyd.run.promise import CLIENT, USER, record_unit, size_conditions
from fastlloyd.run.session import Face, Session
from fastlloyd.wire.header import SERVER, PartyId, clients

_SERVER_SHOWN = "the server's own points are not protected: the clients see them, projected"


def writes_result(me: PartyId) -> bool:
    """Whether this party can receive the result."""
    return True


def foresee(config: RunConfig, clients: int, d: int | None) -> Foreseen:
    """Return what a run would claim and release, from public numbers alone."""
    plan, note = make_foreseen(config, clients, d)
    return Foreseen(
        claim=_claim(config, plan),
        releases=plan.all_releases(),
        parameters=plan.to_json(),
        masking="pairwise",
        note=note,
        expected=expect(plan, most_users(config, plan.clients, plan.n_total)),
    )


def privacy_unit(config: RunConfig) -> str | None:
    """Say what neighbours differ in; None where nothing is private."""
    if settings_from(config.own_settings).privacy_level == "record":
        return record_unit(config)
    return USER if has_users(config) else CLIENT


def people(config: RunConfig) -> str | None:
    """Return the setting that names the column of users, as typed: a ledger counts users by one column."""
    users = settings_from(config.own_settings).users
    return None if users is None else f"--set feddp.users={users}"


def needs_server_data(config: RunConfig) -> bool:
    """Whether the server must have points of its own, where the clients have theirs in files."""
    return settings_from(config.own_settings).needs_points


def settings_help(protocol: str) -> Mapping[str, str]:
    """Name the settings, and say what each is."""
    return describe_settings(Settings, protocol)


def serve(session: Session) -> Party[Outcome]:
    """Live as the server."""
    own = session.take_own(ServerPoints)
    public = session.common.public
    settings = settings_from(public.settings)
    points = own.points if settings.needs_points else None

    def make(announced: Announced) -> Plan:
        if own.names is not None and own.names != announced.names:
            raise ConfigError(
                f"--server-data has {format_count(len(own.names), 'feature')}, the clients have "
                f"{len(announced.names)}, or other names; "
                "all parties need the same columns in the same order: name them with --columns",
                reason=Reason.CONFIG_MISMATCH,
            )
        return make_plan(public, d=len(announced.names), names=announced.names, server_points=points)

    plan, result = yield from run_server(
        session,
        kind=Plan,
        make=make,
        bounds=partial(plan_bounds, MESSAGES),
        play=lambda plan, stored, done: server(
            plan, points, restarts=settings.restarts, stored=stored, rounds_done=done
        ),
        included=lambda plan, t, reply: clients(plan.clients),
    )
    return (yield from _conclude(session, plan, result))


def take_part(session: Session) -> Party[Outcome]:
    """Live as a client."""
    own = session.take_own(OwnRecords)
    raw_users = own.raw_users if isinstance(own, UserRecords) else None
    public, names = session.common.public, own.names
    begun = yield from begin_client(
        session,
        own,
        kind=Plan,
        check=lambda plan: check_plan(plan, public, d=len(names), names=names),
        bounds=partial(plan_bounds, MESSAGES),
        lifetime_delta=lambda plan: plan.delta,
    )
    plan = begun.plan
    pairs = yield from begun.agreement().pairs()
    masks = PairwiseMasks(pairs, Ring(plan.ring_bits), 1, session.run_id)
    points = own.quantise(plan.fraction_bits)
    del own
    yield from begun.start()
    secret = SecretRandom()
    result = yield from client(
        session.me,
        points,
        plan,
        masks,
        share=lambda t, k: draw_share(plan, t, k, secret),
        raw_users=raw_users,
        stored=begun.stored,
    )
    return (yield from _conclude(session, plan, result))


def _conclude(session: Session, plan: Plan, result: ServerResult | ClientResult) -> Party[Outcome]:
    """End the run: every party has the result, a client its labels as well."""
    return (
        yield from conclude(
            session,
            _make_result(session, plan, result),
            took_part=session.everybody,
            writers=(SERVER, *session.everybody),
            raw_labels=result.raw_labels if isinstance(result, ClientResult) else None,
        )
    )


def _make_result(session: Session, plan: Plan, result: ServerResult | ClientResult) -> Result:
    """Return the result that every party has at the end."""
    centers = result.centers
    bounds: Bounds = session.common.bounds.match(plan.names)
    centroids = unscale(centers.exact, bounds)
    sizes = tuple(float(size) for size in centers.noisy_counts)
    return Result(
        common=session.shared_entries(
            clients=plan.clients,
            masking="pairwise",
            parameters=_parameters(plan, len(centroids)),
            included=result.included,
        ),
        claim=_claim(session.config, plan),
        features=plan.names,
        bounds=bounds,
        centroids=centroids,
        noisy_sizes=sizes if any(sizes) else None,
        noise=noise_of(plan, centers, most_users(session.config, plan.clients, plan.n_total), result.costs),
        releases=session.own_releases(),
        evaluated=centers.exact,
        evaluated_rows=_client_rows(session.common),
        movement=movements(result.path),
        costs=result.costs if result.costs.size else None,
    )


def _claim(config: RunConfig, plan: Plan) -> Claim:
    """Say what the run promises."""
    return Claim(
        epsilon=plan.epsilon,
        delta=plan.delta,
        against=_against(plan),
        neighbours=ADD_REMOVE_USER if plan.by_user else ADD_REMOVE,
        unit=privacy_unit(config),
        conditions=size_conditions(config),
    )


def _client_rows(common: Any) -> NDArray[np.int64] | None:
    """Return the rows of a demonstration's data set that the clients hold."""
    if not isinstance(common, FedDPCommon) or common.splits is None:
        return None
    return np.concatenate(common.splits)


def _parameters(plan: Plan, k: int) -> dict[str, Any]:
    """Return the public parameters for the report; `k` is the number of clusters in the result."""
    values = {key: value for key, value in plan.to_json().items() if key not in ("rounds", "names", "protocol")}
    limit = {"k_max": plan.k} if plan.choose_k else {}
    steps = [step.kind for step in plan.rounds]
    return {**values, **limit, "k": k, "noise_price": plan.noise_price, "rounds": len(plan.rounds), "steps": steps}


def _against(plan: Plan) -> str:
    """Say from whom the claim protects."""
    shown = "" if plan.start == PRIVATE else f"; {_SERVER_SHOWN}"
    known = "one client" if plan.known_shares == 1 else f"up to {plan.known_shares} clients together"
    return (
        f"{known}, the server, or both together, over all messages to them (each client adds a share of the noise; the "
        f"server sees the noisy sums{shown})"
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
    people=people,
    needs_server_data=needs_server_data,
    who_sees=who_sees,
    data_flow=data_flow,
)
