"""Vertical DP clustering and its baseline without privacy as a protocol: plan, session and result.

The server has the result and writes it; the parties have it only if the run shares it.

Two errors move a centre: that of the estimated weights of its cells (`likelihood_error`, `basic_error`), and the noise
on the local centres that make up the cells. Before a run both are computed for average cells and clusters. Afterwards
they are drawn again around the released values (`server.py`).

Privacy: post-processing of releases, with the noise that the plan states.

Source: docs/vertical-dp.md, "Who sees what".
Noise: Vertical DP, §5.2; docs/report.md, "Quality".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastlloyd.lifecycle.align.columns import gather_columns, plan_columns, send_columns
from fastlloyd.lifecycle.align.ids import ALIGNMENT
from fastlloyd.lifecycle.hello import await_plan, propose_plan
from fastlloyd.party.declaration import largest_bodies
from fastlloyd.party.effects import Afford, Allow, Party, Publish, Record
from fastlloyd.privacy.calibration import automatic_delta, settle_delta
from fastlloyd.privacy.ledger import keyed_digest
from fastlloyd.protocol.vertical import Vertical
from fastlloyd.protocols.vertical_dp.client import client, prepare
from fastlloyd.protocols.vertical_dp.keys import set_up
from fastlloyd.protocols.vertical_dp.local_plan import FRACTION_BITS, SHORTENED, STEPS
from fastlloyd.protocols.vertical_dp.math.estimate import basic_error
from fastlloyd.protocols.vertical_dp.math.pair import likelihood_error
from fastlloyd.protocols.vertical_dp.messages import MESSAGES, SharedResult, bounds, synopsis_format
from fastlloyd.protocols.vertical_dp.plan import PLAIN, Plan, PublicParameters, check_plan, make_plan
from fastlloyd.protocols.vertical_dp.plan_lines import estimate_work
from fastlloyd.protocols.vertical_dp.server import await_prepared, server
from fastlloyd.protocols.vertical_dp.settings import Settings
from fastlloyd.protocols.vertical_dp.sketch.sketch import ZERO_OUT
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import PRIOR_VARIANCE, Expect, Expected, PlanLine
from fastlloyd.report.quality import EXACT, ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL
from fastlloyd.report.sight import GUESSED_IDS, NO_LABELS, NOISE, NOTHING, Flow, Sight, Sights, recorded
from fastlloyd.report.signed import SignedRecord
from fastlloyd.report.unit import format_count
from fastlloyd.run.checks import accept_plan, refuse_old_run
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import fill_public
from fastlloyd.run.outcome import Claim, Outcome, Result
from fastlloyd.run.session import Session
from fastlloyd.run.vertical import OwnColumns
from fastlloyd.run.work import Work
from fastlloyd.wire.header import SERVER


def expect(plan: Plan) -> Expected:
    """Return roughly the noise to expect on an average centre, from public numbers alone."""
    shape, users = plan.shape, float(plan.n_total)
    error = likelihood_error if plan.estimator == "likelihood" else basic_error
    # A cluster is the mean of its cells, which are as far from it as records are.
    away = math.sqrt(PRIOR_VARIANCE) * plan.k ** (-1.0 / plan.d)
    weights = error(users, users / shape.cells, shape) * math.sqrt(shape.cells / plan.k) * away * plan.k / users
    local = max(_local_deviation(plan, place) for place in range(plan.clients))
    return Expected(centre_noise=math.hypot(weights, local) / 2.0, k=plan.k, d=plan.d)


def noise_of(plan: Plan, shared: SharedResult) -> ResultNoise:
    """Return the errors of centres and sizes, from the server's draws, as it sent them to the parties."""
    if shared.weights is None or shared.spread is None:
        return EXACT  # vertical-plain
    spread, reach = shared.spread, NORMAL_TAIL * shared.spread.weights
    sizes = np.column_stack([shared.weights - reach, shared.weights + reach])
    return ResultNoise(
        size_ranges=np.clip(sizes, 0.0, plan.n_total),
        centre_deviations=spread.centers,
        unsettled=spread.unsettled,
        expected=expect(plan),
    )


def _local_deviation(plan: Plan, place: int) -> float:
    """Return the standard deviation of the noise on a coordinate of an average local centre.

    If the noise is larger than the variation of features, the centre stays at its place on the grid.
    """
    local = plan.local_plan(place)
    features = math.sqrt(PRIOR_VARIANCE)
    if local.method == SHORTENED:
        # The steps are weighted; together they count as one step with half of their budget.
        radius = features * math.sqrt(local.d) * math.pow(local.clusters, -1.0 / local.d)
        noise = local.step_scale / math.sqrt(0.5 * STEPS) * radius * local.clusters / local.n
    else:
        noise = math.sqrt(2.0) * local.sum_scale / (1 << FRACTION_BITS) * local.clusters / local.n
    return min(noise, features)


def _who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, without the network."""
    private = protocol == "vertical-dp"
    columns = Sight(
        "each other party",
        "its own columns; names and bounds of all columns, which people all parties have and how many"
        + f"; {_shown(private)}" * bool(parameters.get("share_result")),
        "no message about another party's columns reaches it",
    )
    if not private:
        plain = "each party's local centres and every person's local cluster, hence the final centres"
        return Sights((Sight("the server", plain, NOTHING), columns), (), recorded(plain + GUESSED_IDS, NOTHING))
    return Sights(
        (
            Sight(
                "the server",
                "noisy local centres and noisy sketches of each party, a noisy number of people; hence the final "
                "centres",
                NOISE,
            ),
            columns,
        ),
        (
            Sight(
                "the server and any one party",
                "with that party's keys, the possible local clusters of a person at another party",
                "nothing, for the sketches of these pairs; the noise, for the local centres",
                bare=True,
            ),
            Sight(
                "several parties without the server",
                "where ids were intersected, which of their own ids another party holds",
                "no message about another party's columns reaches them",
            ),
        ),
        recorded(f"what the server sees{GUESSED_IDS}", f"{NOISE}; nothing, for ids that can be guessed"),
    )


def _data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return the data flow."""
    private = protocol == "vertical-dp"
    one_message = "in one message of this party to the server: "
    return Flow(
        records=one_message
        + (
            "noisy centres of its own columns and noisy sketches of its own clusters"
            if private
            else "centres of its own columns and, of every person, the local cluster, without noise"
        ),
        labels=NO_LABELS if private else "the server learns every person's local cluster at each party",
        result=f"{_shown(private)}: the server" + " and all parties" * bool(facts.get("share_result")),
        messages=MESSAGES,
        readers=("server", "other parties"),
    )


def _shown(private: bool) -> str:
    """Return the parts of the result."""
    return "the final centres" + ", estimated sizes, and how far off both may be" * private


class VerticalDP(Vertical[Plan]):
    """Vertical DP clustering: one message of noisy local centres and sketches from each party."""

    settings = Settings
    messages = MESSAGES
    make_plan = staticmethod(make_plan)
    who_sees = staticmethod(_who_sees)
    data_flow = staticmethod(_data_flow)
    unreported = ("protocol", "lo", "hi")

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
        """Return the public parameters of a run."""
        delta = settle_delta(config.delta, n_total=n_total, paper=1.0 / n_total, accept_large=config.accept_large_delta)
        return fill_public(PublicParameters, config, clients=clients, k=k, n_total=n_total, delta=delta)

    def replan(self, public: PublicParameters, plan: Plan) -> Plan:
        """Make a quick plan, with more noise, for the same columns and other public parameters."""
        return make_plan(public, plan.features, tight=False)

    def expectation(self, config: RunConfig, plan: Plan, public: PublicParameters) -> Expect:
        """Return roughly what plans with other clusters, epsilon and N expect.

        Tight plans are slow, so other settings get quick plans, whose noise is scaled by the gain of this tight one.
        """
        quick, found = super().expectation(config, plan, public), expect(plan)
        own = (plan.k, plan.epsilon, plan.n_total)
        gained = (found.centre_noise or 0.0) / (quick(*own).centre_noise or 1.0)

        def scaled(k: int, epsilon: float, n_total: int) -> Expected:
            if (k, epsilon, n_total) == own:
                return found
            other = quick(k, epsilon, n_total)
            return replace(other, centre_noise=(other.centre_noise or 0.0) * gained)

        return scaled

    def privacy_unit(self, config: RunConfig) -> str | None:
        """Return what neighbours differ in; None if nothing is private."""
        return None if config.protocol == PLAIN else super().privacy_unit(config)

    def against(self, plan: Plan) -> str:
        """Return against whom the claim protects."""
        return (
            "the server and the public, but not between the parties (each of them knows hash keys and could test in "
            "another's sketches what a person's cluster may be)"
        )

    def neighbours(self, plan: Plan) -> str:
        """Return the neighbouring relation of the claim."""
        return ZERO_OUT

    def change_epsilon(self, plan: Plan) -> float:
        """Return epsilon for neighbours that differ in the values of one row."""
        return plan.change_epsilon()

    def privacy_words(self, plan: Plan) -> str:
        """Return towards whom the promise holds."""
        return f"{plan.note}; epsilon {plan.change_epsilon():.4g} for a change of one row's values"

    def why_not_private(self, plan: Plan) -> str:
        """Return why a plan has no differential privacy."""
        return plan.note

    def claim(self, config: RunConfig, plan: Plan) -> Claim:
        """Return the claim of a run of the agreed plan."""
        return replace(super().claim(config, plan), lifetime_delta=automatic_delta(plan.n_total))

    def expected(self, config: RunConfig, plan: Plan) -> Expected | None:
        """Return the noise to expect on the result, from public numbers alone."""
        return expect(plan) if plan.private else None

    def size_line(self, plan: Plan) -> PlanLine:
        """Return the line with the numbers of records, columns, parties and clusters."""
        return PlanLine(
            plan.protocol,
            f"{format_count(plan.n_total, 'record')} at most, {format_count(plan.d, 'column')} of "
            f"{plan.clients} parties, {format_count(plan.k, 'cluster')}, one round",
        )

    def cost_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Return lines about what a party computes and sends."""
        cells = format_count(plan.local_clusters**plan.clients, "cell")
        lines = [PlanLine("local clusters", f"{plan.local_clusters} at each party, a grid of {cells}")]
        if plan.key_groups:
            groups = f"{format_count(len(plan.key_groups), 'group')} of parties, {format_count(plan.rows, 'row')}"
            phantoms = f"{format_count(plan.phantoms, 'phantom')} in each cell of a group's grid"
            lines.append(PlanLine("sketches", f"{groups}, {phantoms}"))
        most = max(synopsis_format(plan, place).fixed_bytes for place in range(plan.clients))
        return [*lines, PlanLine("bytes", f"at most {most:,} up from a party")]

    def work(self, config: RunConfig, plan: Plan) -> Work | str:
        """Estimate what a run computes."""
        return estimate_work(config, plan)

    def serve(self, session: Session) -> Party[Outcome]:
        """Run the server."""
        yield from session.begin(sizes=largest_bodies(ALIGNMENT, session.inputs.public))
        features = yield from gather_columns(session.everybody)
        plan = plan_columns(session.everybody, features, partial(make_plan, session.inputs.public))
        yield Allow(bounds(plan))
        yield from propose_plan(session.everybody, plan.to_json(), 0)
        yield from await_prepared(plan)
        yield Publish("setup")
        yield Record(plan.all_releases())  # the parties' own ledgers count; this one is for the report
        end = yield from server(plan)
        return (yield from self._conclude(session, plan, end.shared))

    def take_part(self, session: Session) -> Party[Outcome]:
        """Run a party that holds columns."""
        own = session.take_own(OwnColumns)
        public, me, secret = session.inputs.public, session.me, SecretRandom()
        place, features = me.rank - 1, own.features
        refuse_old_run(session)
        yield from session.begin(keyed_digest(session.ledger.digest_key(), own.table.raw_values))
        yield from send_columns(features)
        proposal = yield from await_plan()

        def read(values: Mapping[str, Any]) -> Plan:
            plan = Plan.from_json(values)
            check_plan(plan, public, place=place, own=features)
            return plan

        plan = accept_plan(session, proposal.plan, read)
        yield Allow(bounds(plan))
        session.plan = plan
        yield Afford(plan.all_releases(), automatic_delta(plan.n_total))
        shared = json.dumps(plan.to_json(), sort_keys=True).encode()
        ready = yield from set_up(
            me,
            plan,
            own.table.raw_ids,
            align=self.alignment(session).align,
            run_id=session.run_id,
            context=hashlib.sha256(session.digest + hashlib.sha256(shared).digest()).digest(),
            secret=secret,
        )
        try:
            message = yield from prepare(me, own.points(ready.raw_ids), plan, ready.keys, secret=secret)
        finally:
            ready.keys.erase()
        del own
        yield Publish("setup")
        return (yield from self._conclude(session, plan, (yield from client(message, plan))))

    def _conclude(self, session: Session, plan: Plan, shared: SharedResult | None) -> Party[Outcome]:
        """End the run: the server has the result, and the parties if it is shared."""
        writers = (SERVER, *session.everybody) if plan.share_result else (SERVER,)
        made = self._result(session, plan, shared)
        return (yield from conclude(session, made, took_part=session.everybody, writers=writers))

    def _result(self, session: Session, plan: Plan, shared: SharedResult | None) -> Result | SignedRecord:
        """Return the result that a party has at the end."""
        if shared is None:
            common = self.common(session, plan, (session.everybody,))
            releases = [release.to_dict() for release in session.own_releases()]
            return SignedRecord(common=common, releases=releases, covers="public")
        return self.make_result(
            session,
            plan,
            plan.features,
            rounds=1,
            centers=shared.centers,
            sizes=shared.weights,
            noise=noise_of(plan, shared),
            # What all have is compared and signed: of vertical-plain the exact weights are the server's alone.
            covers="centroids" if shared.weights is None or (plan.share_result and not plan.private) else "result",
        )


PROTOCOL = VerticalDP()
