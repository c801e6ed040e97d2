"""FedDP-KMeans as a protocol: its plan, rounds and result.

The server works on the noisy sums and has the result, as the clients do; it writes the shared files where it shares
their folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.records import ClientRecords, OwnRecords
from fastlloyd.errors import ConfigError, InternalError, Reason, format_count
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.threshold.client import ThresholdMasks
from fastlloyd.lifecycle.threshold.server import ServerOpening
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import Masks
from fastlloyd.masking.pairwise import PairwiseMasks
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.party.declaration import MessageBounds, threshold
from fastlloyd.party.effects import Party
from fastlloyd.party.message import recall
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER
from fastlloyd.protocol.horizontal import Horizontal
from fastlloyd.protocol.threshold import see_opened, threshold_against, threshold_condition
from fastlloyd.protocols.feddp import inputs
from fastlloyd.protocols.feddp.client import ClientResult, client, draw_parts, draw_share
from fastlloyd.protocols.feddp.inputs import FedDPInputs, ServerPoints, UserRecords, has_users, most_users
from fastlloyd.protocols.feddp.messages import MESSAGES, CentersMessage
from fastlloyd.protocols.feddp.plan import Plan, PublicParameters
from fastlloyd.protocols.feddp.plan_lines import assumed_points, expect, noise_of, plan_lines, planned
from fastlloyd.protocols.feddp.proposal import check_plan, make_plan
from fastlloyd.protocols.feddp.server import REPLIES, ServerResult, server
from fastlloyd.protocols.feddp.settings import PRIVATE, Settings, settings_from
from fastlloyd.protocols.feddp.work import estimate_work
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import Expected
from fastlloyd.report.sight import NOISE, OWN_LABELS, RELEASED, Flow, Sight, Sights, recorded, see_shares
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import Begun, relay_threshold
from fastlloyd.run.outcome import Claim, Foreseen, Result
from fastlloyd.run.promise import CLIENT, USER
from fastlloyd.run.session import Session
from fastlloyd.run.work import Work
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.header import clients as name_clients

_NOISE_AND_NOTHING = "the noise, for the clients' records; nothing, for the server's points"
_SERVER_SHOWN = "the server's own points are not protected: the clients see them, projected"


class FedDP(Horizontal[Plan]):
    """FedDP-KMeans: steps of sums under pairwise or threshold masks, to which each client adds noise."""

    settings = Settings
    messages = MESSAGES
    public_parameters = staticmethod(inputs.public_parameters)
    gather = staticmethod(inputs.gather)
    load = staticmethod(inputs.load)
    planned = staticmethod(planned)
    plan_lines = staticmethod(plan_lines)
    opens_rounds = True
    plan_type = Plan
    public_type = PublicParameters
    server_has_result = True

    # Inputs.

    def people(self, config: RunConfig) -> str | None:
        """Return the setting that names the column of users, as typed: a ledger counts users by one column."""
        users = settings_from(config.own_settings).users
        return None if users is None else f"--set feddp.users={users}"

    def needs_server_data(self, config: RunConfig) -> bool:
        """Say whether the server must have points, where the clients have theirs in files."""
        return settings_from(config.own_settings).needs_points

    # Before a run.

    def foresee(self, config: RunConfig, clients: int, d: int | None) -> Foreseen:
        """Return what a run would claim and release, without looking at the server's file."""
        unread = config if config.dataset is not None else replace(config, server_data=None)
        return super().foresee(unread, clients, d)

    def assumed(self, config: RunConfig, clients: int, d: int | None) -> str:
        """Say what the plan of a run takes in place of the server's points, where these are not known."""
        return str(assumed_points(config) or "")

    def expected(self, config: RunConfig, plan: Plan) -> Expected | None:
        """Say what noise to expect on the result, from public numbers alone."""
        return expect(plan, most_users(config, plan.clients, plan.n_total))

    def work(self, config: RunConfig, plan: Plan) -> Work:
        """Estimate what a run computes."""
        return estimate_work(config, plan)

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Say what neighbours differ in."""
        if settings_from(config.own_settings).privacy_level == "record":
            return super().privacy_unit(config)
        return USER if has_users(config) else CLIENT

    def claim(self, config: RunConfig, plan: Plan) -> Claim:
        """Return what a run of the agreed plan will claim."""
        claim = replace(super().claim(config, plan), neighbours=ADD_REMOVE_USER if plan.by_user else ADD_REMOVE)
        if plan.numbers is None:
            return claim
        against = _threshold_against(plan, plan.numbers, roster=config.roster is not None)
        return replace(claim, against=against, conditions=(*claim.conditions, threshold_condition(plan.numbers)))

    def against(self, plan: Plan) -> str:
        """Say from whom the claim protects."""
        if plan.numbers is not None:
            return _threshold_against(plan, plan.numbers, roster=False)
        known = "one client" if plan.known_shares == 1 else f"up to {plan.known_shares} clients together"
        return (
            f"{known}, the server, or both together, over all messages to them (each client adds a share of the noise; "
            f"{_seen_by_server(plan)})"
        )

    # A run.

    def make_plan(self, public: PublicParameters, names: tuple[str, ...]) -> Plan:
        """Make the plan of a run in which the server needs no points."""
        return make_plan(public, d=len(names), names=names, server_points=None)

    def fresh_plan(self, session: Session, names: tuple[str, ...]) -> Plan:
        """Make the plan of a new run with the server's own points; run by the server."""
        own, public = _server_points(session), session.inputs.public
        if own.names is not None and own.names != names:
            raise ConfigError(
                f"--server-data has {format_count(len(own.names), 'feature')}, the clients have {len(names)}, or other "
                "names; all parties need the same columns in the same order: name them with --columns",
                reason=Reason.CONFIG_MISMATCH,
            )
        return make_plan(public, d=len(names), names=names, server_points=own.needed(public))

    def check_plan(self, plan: Plan, public: PublicParameters, names: tuple[str, ...]) -> float:
        """Check the server's plan against a client's own configuration."""
        return check_plan(plan, public, d=len(names), names=names)

    def bounds(self, plan: Plan) -> MessageBounds:
        """Return the bounds of what a peer may send once the plan is known."""
        return plan_bounds(MESSAGES, plan, facts={"masking": plan.masking})

    def included(self, plan: Plan, t: int, reply: bytes) -> tuple[PartyId, ...]:
        """Name the clients in a step: all with pairwise masks, which cancel in the sum of all of them alone."""
        kind = REPLIES.get(plan.rounds[t].kind, CentersMessage)
        return recall(kind, reply, plan, f"reply-{t}").included or name_clients(plan.clients)

    def relay(self, session: Session, plan: Plan) -> Party[ServerOpening | None]:
        """Relay what the clients agree on for threshold masks; return what opens their sums."""
        yield from ()
        return (yield from relay_threshold(session, plan)) if plan.masking == "threshold" else None

    def play_server(
        self, session: Session, plan: Plan, secret: ServerOpening | None, stored: StoredRounds
    ) -> Party[ServerResult]:
        """Make projection and centres of the noisy sums."""
        public = session.inputs.public
        points, restarts = _server_points(session).needed(public), settings_from(public.settings).restarts
        return server(plan, points, restarts=restarts, stored=stored, opening=secret)

    def points(self, own: ClientRecords, plan: Plan) -> tuple[GridPoints, NDArray[np.int64] | None]:
        """Return a client's records on the grid of the plan, and whose each is."""
        if not isinstance(own, OwnRecords):
            raise InternalError("the records of feddp are in memory")
        return own.quantise(plan.fraction_bits), own.raw_users if isinstance(own, UserRecords) else None

    def relabel(self, points: Any, plan: Plan, made: Result) -> NDArray[np.int64] | None:
        """Label a client's records by the centres that `--min-size` leaves."""
        return super().relabel(points[0], plan, made)

    def agree(self, session: Session, begun: Begun[Plan]) -> Party[tuple[Masks, None]]:
        """Agree with each other client on the masks of the pair, or through the server on threshold masks."""
        plan, agreement = begun.plan, begun.agreement()
        if plan.masking == "threshold":
            opening = yield from agreement.opening(plan, partial(draw_parts, plan), begun.stored)
            return ThresholdMasks(None, opening), None
        return PairwiseMasks((yield from agreement.pairs()), Ring(plan.ring_bits), 1, session.run_id), None

    def play_client(
        self, session: Session, plan: Plan, points: Any, secrets: Masks, stored: StoredRounds
    ) -> Party[ClientResult]:
        """Send one masked statistic with a share of the noise in each step."""
        (records, raw_users), secret = points, SecretRandom()
        return client(
            session.me,
            records,
            plan,
            secrets,
            share=(lambda t, k: draw_share(plan, t, k, secret)) if plan.masking == "pairwise" else None,
            raw_users=raw_users,
            stored=stored,
        )

    def result(self, session: Session, plan: Plan, end: ServerResult | ClientResult) -> Result:
        """Return the result that every party has at the end."""
        found, common = end.centers, self.common(session, plan, end.included, end.silent)
        common["parameters"]["k"] = len(found.exact)
        users = most_users(session.config, plan.clients, plan.n_total)
        return self.make_result(
            session,
            plan,
            end.included,
            silent=end.silent,
            common=common,
            centers=found.exact,
            sizes=found.noisy_counts if found.noisy_counts.any() else None,
            noise=noise_of(plan, found, users, end.costs, plan.noise_with(len(end.included[-1]), len(end.silent[-1]))),
            evaluated_rows=_client_rows(session.inputs),
            movement=movements(end.path),
            costs=end.costs if end.costs.size else None,
        )

    # What the report and people read.

    def parameters(self, plan: Plan, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report."""
        limit = {"k_max": plan.k} if plan.choose_k else {}
        values = {name: value for name, value in plan.to_json().items() if name not in self.unreported}
        steps = [step.kind for step in plan.rounds]
        return {**values, **limit, "noise_price": plan.noise_price, "rounds": rounds, "steps": steps}

    def who_sees(self, protocol: str, parameters: Mapping[str, Any]) -> Sights:
        """Return who sees what, the network left out."""
        private = parameters.get("start") == PRIVATE
        own, shown, noise = "its own points; ", "server's points projected", _NOISE_AND_NOTHING
        if private:
            own, shown, noise = "", "proxy points", NOISE
        client = f"its own records; the projection, the {shown}, the centres of each step"
        sums = "the noisy sums of each step"
        alone = (Sight("the server", f"{own}{sums}, hence the centres", NOISE), Sight("each client", client, noise))
        seen = f"{sums}, hence the centres; the projection, the {shown}; no client's own vector"
        if threshold(parameters):
            return Sights(alone, see_opened(parameters, sums, private=True), recorded(seen, noise))
        return Sights(alone, see_shares(parameters, sums), recorded(seen, noise))

    def in_this_mode(self, protocol: str, parameters: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what it does with its start: without points of the server nothing speaks of them."""
        start = parameters.get("start", "feddp")
        if start == PRIVATE:
            return {
                "summary": "FedDP-KMeans: starts from proxy points drawn from noisy sums, the server has no records",
                "n_server": "proxy points",
            }
        if start == "sphere-packing":
            return {"summary": "FedDP-KMeans: starts from a sphere packing"}
        return {"summary": "FedDP-KMeans: starts from points of the server"}

    def data_flow(self, protocol: str, facts: Mapping[str, Any]) -> Flow:
        """Return where data are and go."""
        records = "only inside one vector a step, of sums over this site's records under a mask, with a share of noise"
        shown = ". The server's own points are not protected: all clients see them, projected"
        further = (("the server's own points", "at the server; shown to the clients, projected, and not protected"),)
        private = facts.get("start") == PRIVATE
        return Flow(
            records=records if private else records + shown,
            labels=OWN_LABELS,
            result=f"{RELEASED}: the server and all clients",
            messages=self.messages,
            further=() if private else further,
        )


def _seen_by_server(plan: Plan) -> str:
    """Say what the server sees, and what it shows."""
    return "the server sees the noisy sums" + ("" if plan.start == PRIVATE else f"; {_SERVER_SHOWN}")


def _threshold_against(plan: Plan, numbers: Numbers, *, roster: bool) -> str:
    return f"{threshold_against(numbers, roster=roster)}; {_seen_by_server(plan)}"


def _server_points(session: Session) -> ServerPoints:
    """Return the server's own points."""
    if not isinstance(session.own, ServerPoints):
        raise InternalError("the server started without its points")
    return session.own


def _client_rows(given: Any) -> NDArray[np.int64] | None:
    """Return the rows of a demonstration's data set that the clients hold."""
    if not isinstance(given, FedDPInputs) or given.splits is None:
        return None
    return np.concatenate(given.splits)


PROTOCOL = FedDP()
