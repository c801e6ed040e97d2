"""SecFC as a protocol: its plan, session and result.

The result is the labels: every party knows the cluster of every point, and each client which points are its own. The
server writes `server.json` only; centres exist only where the run reveals them to the clients.

Source: docs/secfc.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import scale
from fastlloyd.data.records import OwnRecords
from fastlloyd.lifecycle.hello import await_ready, gather_announced, propose_plan, send_ready
from fastlloyd.lifecycle.messages import plan_bounds
from fastlloyd.lifecycle.sealed_messages import seal_between
from fastlloyd.party.effects import Allow, Party, Publish
from fastlloyd.privacy.calibration import automatic_delta
from fastlloyd.protocol.horizontal import OfRecords
from fastlloyd.protocols.secfc.client import ClientResult, client
from fastlloyd.protocols.secfc.math.masks import draw_rotation, rotate
from fastlloyd.protocols.secfc.math.tournament import count_rounds
from fastlloyd.protocols.secfc.messages import BETWEEN_CLIENTS, MESSAGES
from fastlloyd.protocols.secfc.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.secfc.server import server
from fastlloyd.protocols.secfc.settings import PublicParameters, Settings
from fastlloyd.protocols.secfc.sharing import await_shared, gather_sizes, send_size, share_points
from fastlloyd.protocols.secfc.work import estimate_work
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import PlanLine
from fastlloyd.report.quality import EXACT
from fastlloyd.report.sight import BOTH_KEYS, NOTHING, Flow, Sight, Sights, recorded
from fastlloyd.report.unit import format_count
from fastlloyd.run.closing import conclude, conclude_without_result
from fastlloyd.run.config import RunConfig
from fastlloyd.run.horizontal import begin_client
from fastlloyd.run.outcome import Claim, Outcome, Result, no_claim
from fastlloyd.run.session import Session
from fastlloyd.run.work import Work


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, without the network."""
    seeds = ", which records are seeds" * (parameters.get("start") != "random")
    owners = "" if parameters.get("membership") else " and whose they are"
    centres = "; the final centres" if parameters.get("reveal_centers") else ""
    t, needed = parameters.get("threshold", "t"), "l + t"
    if isinstance(t, int) and isinstance(parameters.get("segments"), int):
        needed = str(parameters["segments"] + t)
    return Sights(
        (
            Sight(
                "the server",
                "how many records there are and how many clusters are in use; of comparisons whose record, clusters, "
                "start and outcome it cannot tell, how close they are, blurred over 64 octaves",
                "the masks, which any client can take off",
            ),
            Sight(
                "each client",
                f"the cluster of every record in every iteration of every start{seeds}, how many records there "
                f"are{owners}{centres}",
                "secret shares, for the records; nothing, for their clusters",
            ),
        ),
        (
            Sight("the server and any one client", "count all records as known", NOTHING),
            Sight(
                "one client" if t == 1 else f"up to {t} clients",
                "what each sees alone",
                "secret shares, whatever the computing power",
            ),
            Sight(f"{needed} clients", "all records", NOTHING),
        ),
        recorded(
            "what the server sees; a digest of the result, by which a guess of all clusters can be confirmed",
            f"the masks, and seals of all shares, under {BOTH_KEYS}",
        ),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and where they go."""
    return Flow(
        records="every record leaves as secret shares, another share to each client; what is computed on shares goes "
        "to the server, masked",
        labels="every client learns the cluster of every record of all clients, in every iteration of every start",
        result="exact sizes of the clusters: all clients"
        + "; the final centres: all clients" * bool(facts.get("reveal_centers")),
        messages=MESSAGES,
    )


class SecFC(OfRecords[Plan]):
    """SecFC: exact k-means on secret shares."""

    settings = Settings
    messages = MESSAGES
    who_sees = staticmethod(who_sees)
    data_flow = staticmethod(data_flow)
    public_type = PublicParameters
    not_private = (
        "the result is exact: every client learns the cluster of every point in every iteration{starts}; the server "
        "learns how many clusters have points in each iteration and, of comparisons whose points, clusters and "
        "outcomes it cannot tell, how close they are, blurred over 64 octaves"
    )
    unreported = ("names", "protocol", "sizes")
    starts_anew = (
        "fresh shares under the same masks would show their difference",
        "the run adds no noise, so nothing is spent twice",
    )

    def make_plan(self, public: PublicParameters, names: tuple[str, ...]) -> Plan:
        """Make the plan of a run whose clients have equally many records."""
        sizes = tuple(len(part) for part in np.array_split(np.empty(public.n_total), public.clients))
        return make_plan(public, d=len(names), names=names, sizes=sizes)

    def claim(self, config: RunConfig, plan: Plan) -> Claim:
        """Say that the run promises nothing, and why."""
        return no_claim(self.not_private.format(starts=f" of {plan.starts} starts" * (plan.starts > 1)))

    def parameters(self, plan: Plan, rounds: int) -> dict[str, Any]:
        """Return the public parameters for the report."""
        return {**super().parameters(plan, rounds), "needed_answers": plan.needed_answers}

    def work(self, config: RunConfig, plan: Plan) -> Work | str:
        """Estimate what a run computes at most."""
        return estimate_work(plan)

    def cost_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say what a run costs."""
        element, hold = plan.field.element_bytes, format_count(plan.threshold, "client", "hold")
        shares = max(plan.sizes) * plan.width * element * (plan.clients - 1)
        return [
            PlanLine(
                "code",
                f"l = {format_count(plan.segments, 'segment')}, the shares that any t = {hold} say nothing of a "
                f"record, {format_count(plan.needed_answers, 'answer', 'decode')} an iteration",
            ),
            PlanLine(
                "field",
                f"{format_count(len(plan.primes), 'prime')}, {element} bytes an element; "
                f"grid of 2^-{plan.fraction_bits}",
            ),
            PlanLine(
                "values",
                f"a value and its difference have at most {plan.bits_in_common:.2f} bits in common; all values "
                f"together are within {plan.distance:.0e} of the law that is proved of them",
            ),
            PlanLine("set-up", f"{shares:,} bytes of shares from each client"),
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
        ]

    def privacy_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say that a run promises nothing, and why."""
        return [PlanLine("privacy", f"no noise; {self.claim(config, plan).not_private_reason}")]

    def serve(self, session: Session) -> Party[Outcome]:
        """Run the server."""
        inputs = session.inputs
        yield from session.begin()
        sizes = yield from gather_sizes(session.everybody, inputs.caps, padded=inputs.public.chosen.membership)
        announced = yield from gather_announced(session.everybody)
        plan = make_plan(inputs.public, d=len(announced.names), names=announced.names, sizes=sizes)
        yield Allow(plan_bounds(MESSAGES, plan))
        yield from propose_plan(session.everybody, plan.to_json(), 0)
        yield from await_shared(plan)
        yield from await_ready(session.everybody)
        yield Publish("setup")
        end = yield from server(plan)
        part = self.common(session, plan, end.included)
        return (yield from conclude_without_result(session, part, plan.all_releases(), end.late))

    def take_part(self, session: Session) -> Party[Outcome]:
        """Run a client."""
        own = session.take_own(OwnRecords)
        inputs, me, names = session.inputs, session.me, own.names
        size = inputs.caps[me.rank - 1] if inputs.public.chosen.membership else len(own.raw_points)
        yield from send_size(size)
        begun = yield from begin_client(
            session,
            own,
            kind=Plan,
            check=lambda plan: check_plan(plan, inputs.public, me=me, names=names, size=size, caps=inputs.caps),
            bounds=partial(plan_bounds, MESSAGES),
            lifetime_delta=lambda plan: automatic_delta(plan.n_total),
        )
        plan, run_id = begun.plan, session.run_id
        pairs, seed = yield from begun.fresh_secrets()
        rotation = draw_rotation(plan.d, seed=seed, run_id=run_id)
        points = rotate(own.raw_points, rotation, plan.fraction_bits)
        del own
        sharing = share_points(me, points, plan, run_id=run_id, secret=SecretRandom())
        shares = yield from seal_between(sharing, pairs, BETWEEN_CLIENTS, run_id=run_id)
        yield from send_ready()  # nothing is spent, and no run is resumed: nobody need wait for Go
        yield Publish("setup")
        rounds = client(me, shares, points, plan, rotation=rotation, seed=seed, run_id=run_id)
        end = yield from seal_between(rounds, pairs, BETWEEN_CLIENTS, run_id=run_id)
        inertia = end.raw_inertia
        return (
            yield from conclude(
                session,
                self._result(session, plan, end),
                took_part=end.present,
                writers=end.present,
                holders=end.present,  # who came too late has no centres
                raw_labels=end.raw_labels,
                raw_files={} if inertia is None else {f"inertia_{me.rank}.csv": f"inertia\n{inertia!r}\n"},
            )
        )

    def _result(self, session: Session, plan: Plan, end: ClientResult) -> Result:
        """Return the result that the clients have at the end."""
        return self.make_result(
            session,
            plan,
            end.included,
            centers=end.centers,
            noise=EXACT,
            evaluated=_evaluated(session, plan, end),
            exact_sizes=tuple(end.sizes.tolist()),
        )


def _evaluated(session: Session, plan: Plan, end: ClientResult) -> NDArray[np.float64] | None:
    """Return what is compared with a public data set: means by label, or the centres where labels have no owner."""
    dataset, splits = session.inputs.dataset, session.inputs.splits
    if not session.config.evaluate or dataset is None or splits is None:
        return None
    if not plan.membership:
        bounds = session.inputs.bounds.match(plan.names)
        points = scale(dataset.values[np.concatenate(splits)], bounds)
        return np.stack(
            [points[end.labels == cluster].mean(axis=0) for cluster in np.unique(end.labels[end.labels >= 0])]
        )
    return end.centers if end.centers is not None and np.isfinite(end.centers).all() else None


PROTOCOL = SecFC()
