"""Vertical k-means under CKKS as a protocol: its plan, session and result.

Rank 0 coordinates. With two parties it holds data, and either party computes, whichever is cheaper; with more it
computes and holds none. Every party has the result.

Both sides add noise. Ranges are for what the last round would have given without noise; the encryption's errors are far
smaller. All of it is post-processing of releases.

Source: Vertical HE, §3, Figure 1, steps (4) and (5); docs/report.md, "Quality"; docs/vertical-he-privacy.md, "Who sees
what".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.vertical import PartyFeatures, check_features
from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.kmeans.update import movements
from fastlloyd.lifecycle.align.columns import (
    describe_features,
    gather_columns,
    gather_count,
    plan_columns,
    read_features,
    send_columns,
    send_count,
)
from fastlloyd.lifecycle.align.ids import check_ids, intersect_ids
from fastlloyd.lifecycle.hello import await_plan, await_ready, propose_plan, send_ready
from fastlloyd.lifecycle.sealed_messages import seal_between
from fastlloyd.lifecycle.shared_secrets import agree_pairs
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.effects import Afford, Allow, Party, Publish
from fastlloyd.privacy.calibration import settle_delta
from fastlloyd.privacy.ledger import keyed_digest
from fastlloyd.protocol.vertical import Vertical
from fastlloyd.protocols.vertical_he.computing import computing_party
from fastlloyd.protocols.vertical_he.holder import key_holder
from fastlloyd.protocols.vertical_he.math.choose import options, planned_option
from fastlloyd.protocols.vertical_he.math.circuit import RINGS
from fastlloyd.protocols.vertical_he.math.computer import Engine
from fastlloyd.protocols.vertical_he.math.workers import open_engine, round_seconds, shape_of
from fastlloyd.protocols.vertical_he.messages import MESSAGES, KeyPiece, bounds, early, several_parties, shares_key
from fastlloyd.protocols.vertical_he.owner import owner
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, THRESHOLD, PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import Proposal, change_epsilon, check_plan, make_plan, try_options
from fastlloyd.protocols.vertical_he.rounds import (
    Draw,
    Estimate,
    Released,
    expected_deviation,
    fresh_noise,
    noise_deviations,
)
from fastlloyd.protocols.vertical_he.settings import Settings
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.report.outlook import Expected, PlanLine, expect_mean
from fastlloyd.report.quality import ResultNoise
from fastlloyd.report.ranges import NORMAL_TAIL, ratio_deviations
from fastlloyd.report.sight import GUESSED_IDS, NO_LABELS, NOISE, NOTHING, Flow, Sight, Sights, recorded
from fastlloyd.report.unit import format_count
from fastlloyd.run.checks import accept_plan, refuse_old_run
from fastlloyd.run.closing import conclude
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import fill_public
from fastlloyd.run.outcome import Outcome, Result
from fastlloyd.run.own_records import own_workers
from fastlloyd.run.session import Session
from fastlloyd.run.vertical import OwnColumns, alignment_seconds
from fastlloyd.run.work import Work, machine_factor
from fastlloyd.wire.decode import decode
from fastlloyd.wire.header import SERVER, PartyId

FLOODING = (
    "vertical-he.noise = flooding adds only what protects the key: the parties learn soft sums of each round almost "
    "exactly"
)
LISTED_STEP = RINGS[1] // 2
"""Lists of common ids have a multiple of it as their length: the number of blocks shows no less (privacy page)."""
_AGAINST = (
    "any single other party, over all messages to it (the computing party sees ciphertexts, the {} noisy sums; "
    "the two together can open everything)"
)
_AGAINST_SEVERAL = (
    "{}, over all messages to them (they see ciphertexts that only {} can open, and each round's sums with noise that "
    "they do not know)"
)
_HINTS = (
    "that ring-LWE is hard at 128 bits although the opened sums are hints on errors and key (an assumption: the "
    "theorem on hints is for Gaussian secrets and hints fixed in advance)"
)
_HEURISTIC = {
    PAIRWISE: "that eight standard deviations bound the circuit's rounding errors, as if these were independent of the "
    "data (heuristic, not proved)",
    THRESHOLD: "that no error under the common key exceeds eight standard deviations",
}


def against(plan: Plan, done: int) -> str:
    """Say against whom the claim protects, and what is counted beyond the rounds done."""
    left_out = plan.rounds - done
    whom = _AGAINST.format("other" if plan.mode == THRESHOLD else "key holder")
    if plan.openers and plan.threshold == plan.parties:
        whom = _AGAINST_SEVERAL.format("all other parties together", "all parties together")
    elif plan.openers:
        few = plan.threshold - 1
        whose = "any single other party" if few == 1 else f"any {few} other parties together"
        whom = _AGAINST_SEVERAL.format(whose, f"rank 0 with {format_count(few, 'owner')}")
    if not plan.tolerance or not left_out:
        return whom
    return f"{whom}, with all {plan.rounds} planned rounds counted, since the releases decided to stop after {done}"


def conditions(plan: Plan) -> list[str]:
    """Return what the claim rests on besides the noise, and epsilon for other neighbours."""
    heuristic = [_HEURISTIC[kind] for kind in (plan.scheme, plan.mode) if kind in _HEURISTIC]
    *others, last = ["that all parties follow the protocol", *heuristic, _HINTS]
    return [*others, f"{last}; for any change of the row's values epsilon is {change_epsilon(plan):.4g}"]


def who_sees(protocol: str, parameters: Mapping[str, Any]) -> Sights:
    """Return who sees what, without the network."""
    private = parameters.get("private", True)
    sums = "noisy" if private else "almost exact"
    shared, several = parameters.get("mode") == THRESHOLD, several_parties(parameters)
    whose = "noise that it does not know" if shared and several else "the other side's noise"
    shield = f"{whose}: this is what the promise is about" if private else NOTHING
    parties = [
        Sight("the computing party", f"its own columns if it has any; ciphertexts; {sums} sums of each round", shield),
        Sight(
            ("each other party" if several else "the other party") if shared else "the key holder",
            f"its own columns; {sums} sums of each round" + "; a share of the key, which opens nothing" * shared,
            shield,
        ),
    ]
    if parameters.get("mode") == "server-aided":
        both = "both sides' noise: this is what the promise is about" if private else NOTHING
        parties.append(Sight("each further owner", f"its own columns; {sums} sums of each round", both))
    holder = ("all parties" if several else "both parties") if shared else "the computing party and the key holder"
    needed = parameters.get("threshold")
    if several and needed and needed != parameters.get("parties"):
        holder = f"the computing party and {format_count(needed - 1, 'other owner')}"
    return Sights(
        tuple(parties),
        (Sight(holder, "everything that is encrypted", NOTHING),),
        recorded(
            f"what the computing party sees besides its own columns: ciphertexts, which rest on lattices; {sums} sums"
            + GUESSED_IDS,
            NOISE if private else NOTHING,
        ),
    )


def data_flow(protocol: str, facts: Mapping[str, Any]) -> Flow:
    """Return where data are and where they go."""
    key, rest = "The key holder's key", "key holder, further owners"
    if shares_key(facts):
        key = "The shares of rank 0 and t - 1 owners together (of all parties unless a threshold t is set)"
        rest = "other parties" if several_parties(facts) else "other party"
    return Flow(
        records="an owner's columns go to the computing party encrypted, and it cannot open them; what is opened are "
        f"noisy sums of each round. {key} could open the columns. Columns of the computing party itself do not "
        "leave it",
        labels=NO_LABELS,
        result="the released centres: all parties",
        messages=MESSAGES,
        readers=("computing party", rest),
    )


def expect(plan: Plan) -> Expected:
    """Return the noise to expect on an average centre, from public numbers alone."""
    if plan.shrinks:
        return Expected(centre_noise=expected_deviation(plan) / 2.0, k=plan.k, d=plan.d)
    (sums, *_), counts = noise_deviations(plan)
    return expect_mean(sums=sums, counts=counts, share=plan.n_total / plan.k, k=plan.k, d=plan.d)


def noise_of(plan: Plan, state: Estimate) -> ResultNoise:
    """Return how far off the released centres and sizes may be; without privacy, by the noise that protects the key.

    The error of a weighed centre or count is given by its variance. The last noisy step does not count as well: most of
    the part that weighing left out is noise. Without weighing, a centre whose count is mostly noise did not move.
    """
    (sums, *_), counts = noise_deviations(plan)
    size_deviations = np.sqrt(state.count_variance) if plan.shrinks else np.full(plan.k, counts)
    reach = NORMAL_TAIL * size_deviations
    sizes = np.clip(np.column_stack([state.counts - reach, state.counts + reach]), 0.0, plan.n_total)
    expected = expect(plan) if plan.private else None
    if not plan.shrinks:
        deviations = ratio_deviations(state.centers, state.counts, sums=sums, counts=counts, tail=NORMAL_TAIL)
        return ResultNoise(size_ranges=sizes, centre_deviations=deviations, expected=expected)
    return ResultNoise(
        size_ranges=sizes,
        centre_deviations=np.sqrt(state.variance),
        steps=state.steps,
        step_deviations=np.sqrt(state.step_variance.mean(axis=1)),
        expected=expected,
    )


class VerticalHE(Vertical[Plan]):
    """Vertical k-means under CKKS: owners encrypt their columns, and the parties open each round's noisy sums."""

    settings = Settings
    messages = MESSAGES
    who_sees = staticmethod(who_sees)
    data_flow = staticmethod(data_flow)
    change_epsilon = staticmethod(change_epsilon)
    conditions = staticmethod(conditions)
    unreported = ("rounds", "scales")

    def public_parameters(self, config: RunConfig, clients: int, n_total: int, k: int) -> PublicParameters:
        """Return what is public before the records are aligned."""
        delta = settle_delta(config.delta, n_total=n_total, paper=1.0 / n_total, accept_large=config.accept_large_delta)
        return fill_public(PublicParameters, config, parties=clients + 1, k=k, n_total=n_total, delta=delta)

    def owners(self, config: RunConfig, clients: int) -> tuple[PartyId, ...]:
        """Return the parties that hold columns: all but a server that computes for others."""
        # The number of records is not known yet: with so few, no delta is too large.
        few = config.n_total or max(3, config.k or 2)
        return self.public_parameters(config, clients, few, config.k or 2).owning

    def make_plan(self, public: PublicParameters, features: Sequence[PartyFeatures]) -> Plan:
        """Make the plan of a run."""
        return make_plan(public, [own.names for own in features])

    def replan(self, public: PublicParameters, plan: Plan) -> Plan:
        """Make the plan of a run of the same columns with other public parameters."""
        return make_plan(public, plan.names)

    def against(self, plan: Plan) -> str:
        """Say against whom the claim protects, if all rounds take place."""
        return against(plan, plan.rounds)

    def neighbours(self, plan: Plan) -> str:
        """Return the relation that the claim is about."""
        return plan.all_releases()[0].neighbours

    def privacy_words(self, plan: Plan) -> str:
        """Say what the promise covers."""
        return f"{self.neighbours(plan)}; epsilon {change_epsilon(plan):.4g} for any change of a row"

    def why_not_private(self, plan: Plan) -> str:
        """Say why a plan without differential privacy has none."""
        return FLOODING

    def expected(self, config: RunConfig, plan: Plan) -> Expected | None:
        """Return the noise to expect on the result, from public numbers alone."""
        return expect(plan) if plan.private else None

    def parameters(self, plan: Plan, rounds: int, **more: Any) -> dict[str, Any]:
        """Return the public parameters for the report."""
        encryption = {"ring": plan.scales.ring, "prime_bits": list(plan.scales.prime_bits)}
        return {**super().parameters(plan, rounds, encryption=encryption, **more), "planned_rounds": plan.rounds}

    def size_line(self, plan: Plan) -> PlanLine:
        """Say how many records, columns, clusters and rounds a run has."""
        widths = " + ".join(str(len(own)) for own in plan.names)
        return PlanLine(
            "vertical-he",
            f"{format_count(plan.n_total, 'record')} at most, {widths} columns, "
            f"{format_count(plan.k, 'cluster')}, {plan.mode}, {format_count(plan.rounds, 'round')}",
        )

    def cost_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say which scheme was chosen, what the others would cost, and how the columns are encrypted."""
        public = self.public_parameters(config, plan.clients, plan.n_total, plan.k)
        widths = tuple(map(len, plan.names))
        chosen = planned_option(public, widths, plan.scheme, plan.computing)
        reasons = dict(try_options(public, plan.names)[1])
        others = [choice for choice in options(public, widths) if choice != chosen and choice not in reasons]
        primes = f"primes of {', '.join(map(str, plan.scales.prime_bits))} bits (128-bit security)"
        return [
            PlanLine("choice", chosen.line(plan.rounds, machine_factor())),
            *(PlanLine("", f"  instead of {choice.line(plan.rounds, machine_factor())}") for choice in others),
            *(
                PlanLine(f"  not scheme {choice.scheme}, rank {choice.computing} computing", str(reasons[choice]))
                for choice in reasons
            ),
            PlanLine("encryption", f"ring degree {plan.scales.ring}, {primes}"),
        ]

    def work(self, config: RunConfig, plan: Plan) -> Work | str:
        """Estimate what a run computes; not known where more than two parties share the key."""
        if plan.openers:
            return "nobody measured more than two parties that share the key"
        shape, factor = shape_of(plan), machine_factor()
        everybody, path = alignment_seconds(config, len(plan.owners), plan.n_total)
        ids = "mostly to find the common ids in lists of N entries" if everybody > factor * shape.setup else ""
        return Work(
            rounds=plan.rounds,
            setup=everybody + factor * shape.setup,
            round=factor * shape.round,
            setup_wait=path + factor * shape.setup,
            round_wait=factor * shape.round,
            because=ids,
        )

    def privacy_lines(self, config: RunConfig, plan: Plan) -> list[PlanLine]:
        """Say what a run promises, and the noise that it takes."""
        none = "none on the result; only as much noise as protects the key"
        return super().privacy_lines(config, plan) if plan.private else [PlanLine("privacy", none)]

    def noise_lines(self, plan: Plan) -> list[PlanLine]:
        """Say how much noise each side adds, and what its accounting rests on."""
        lines = []
        if plan.scheme == PAIRWISE:
            why = "the bound on its rounding errors is not proved"
            lines.append(PlanLine("privacy of the pairwise circuit is heuristic", why))
        if plan.tolerance:
            lines.append(PlanLine("", "every round is charged, also where the tolerance ends the run earlier"))
        count, total = plan.count_scale / plan.unit, plan.sum_scale / plan.unit
        own = plan.step_scale / plan.unit * plan.radius
        steps = f", {own:.3g} on one of steps from the centres (rank {plan.computing}'s columns)"
        noise = f"{count:.3g} on a count, {total:.3g} on a sum (scaled to [-1, 1])" + steps * bool(plan.stepping)
        return [*lines, PlanLine("noise of each side", noise)]

    def take_part(self, session: Session) -> Party[Outcome]:
        """Run another rank, which does the same."""
        return self.serve(session)

    def serve(self, session: Session) -> Party[Outcome]:
        """Align, plan, and run this party's role."""
        me, secret = session.me, SecretRandom()
        own = session.take_own(OwnColumns) if session.own is not None else None
        digest = "" if own is None else keyed_digest(session.ledger.digest_key(), own.table.raw_values)
        refuse_old_run(session)
        yield from session.begin(digest, *early(session.inputs.public))
        points, pairs = (None, None) if own is None else (yield from self._align(session, own, secret))
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
            yield from send_ready()
        yield Publish("setup")
        engine = partial(open_engine, plan, columns, own_workers(session.config))
        part = play(me, plan, columns, fresh_noise(plan, secret), engine)
        # The pieces of the key open the columns, so they must not lie open in a recorded link.
        end = yield from part if pairs is None else seal_between(part, pairs, (KeyPiece,), run_id=session.run_id)
        everybody = (SERVER, *session.everybody)
        there = (SERVER, *end.present) if plan.openers else everybody
        return (
            yield from conclude(
                session,
                self._result(session, plan, features, end),
                took_part=there,
                writers=there,
                heard=everybody if plan.parties > 2 else (),  # two parties have nobody to compare with
                late=frozenset(everybody) - frozenset(there),
            )
        )

    def _align(
        self, session: Session, own: OwnColumns, secret: SecretRandom
    ) -> Party[tuple[NDArray[np.float64], PairSecrets]]:
        """Bring the owners' records into one order; return this party's, shape (n, d_own), scaled, and its secrets."""
        alignment, run_id = self.alignment(session), session.run_id
        owners, most = session.inputs.public.owning, session.inputs.public.n_total
        pairs = yield from agree_pairs(session.me, owners, run_id=run_id, context=session.digest, secret=secret)
        ids = own.table.raw_ids
        if alignment.align == "intersect":
            step = LISTED_STEP
            ids = yield from intersect_ids(session.me, owners, ids, run_id=run_id, most=most, step=step, secret=secret)
        yield from check_ids(ids, pairs, run_id=run_id)
        return own.points(ids), pairs

    def _result(self, session: Session, plan: Plan, features: tuple[PartyFeatures, ...], end: Released) -> Result:
        """Return the result that every party has: the released centres."""
        run, rounds = session.run_id.hex(), end.rounds
        charged = [dataclasses.replace(release, run=run) for release in plan.charged_releases(rounds)]
        return self.make_result(
            session,
            plan,
            features,
            rounds=rounds,
            centers=end.centers,
            sizes=end.state.counts,
            claim=dataclasses.replace(self.claim(session.config, plan), against=against(plan, rounds)),
            releases=session.own_releases() or charged,
            noise=noise_of(plan, end.state),
            movement=movements(end.path) if plan.private else None,
        )


def _agree(
    session: Session, own: OwnColumns | None, n: int | None
) -> Party[tuple[Plan, tuple[PartyFeatures, ...], int]]:
    """Exchange columns and the number of records, and agree on the plan, which does not depend on that number."""
    public: PublicParameters = session.inputs.public
    if session.me.is_server:
        others = tuple(party for party in public.owning if not party.is_server)
        received = yield from gather_columns(others)
        features = received if own is None else (own.features, *received)
        check_features(features)
        n = yield from gather_count(others, n, most=public.n_total)
        plan = plan_columns(others, features, lambda all_: make_plan(public, [own_.names for own_ in all_]))
        proposal = Proposal(plan, tuple(map(describe_features, features)))
        yield Allow(bounds(plan))
        yield from propose_plan(session.everybody, dataclasses.asdict(proposal), 0)
        return plan, features, n
    if own is None or n is None:
        raise InternalError("a client of vertical-he has no columns")
    yield from send_columns(own.features)
    yield from send_count(n)
    values = (yield from await_plan()).plan
    found: list[tuple[PartyFeatures, ...]] = []

    def read(values: Mapping[str, Any]) -> Plan:
        proposal = decode(Proposal, values, "")
        plan, features = proposal.plan, tuple(map(read_features, proposal.features))
        check_plan(plan, public, [own_.names for own_ in features])
        place = public.owning.index(session.me)
        bounds, mine = features[place].bounds, own.features.bounds
        same = features[place].names == own.features.names
        if not same or (bounds.lo != mine.lo).any() or (bounds.hi != mine.hi).any():
            raise ValueError("its description of this party's columns differs from the one that this party sent")
        found.append(features)
        return plan

    plan = accept_plan(session, values, read)
    yield Allow(bounds(plan))
    return plan, found[0], n


def _check_deadline(config: RunConfig, plan: Plan, n: int) -> None:
    """Refuse, before any budget is spent, a run whose rounds would not end within the deadline."""
    expected = round_seconds(plan, own_workers(config), n)
    if expected > config.deadline:
        raise ConfigError(
            f"--deadline: expected at least {math.ceil(1.5 * expected)} seconds, since a round is estimated at "
            f"{expected:.0f} with {own_workers(config)} workers, got {config.deadline:g}; all parties need the "
            "same, or use more --workers"
        )


def play(
    me: PartyId,
    plan: Plan,
    raw_columns: NDArray[np.float64],
    noise: Draw,
    engine: Callable[[], AbstractContextManager[Engine]],
    *,
    start: NDArray[np.float64] | None = None,
) -> Party[Released]:
    """Run the role that the plan gives a party; with one engine, all parties may run in one process.

    Parameters
    ----------
    me : PartyId
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        Its own columns, scaled to [-1, 1].
    noise : callable
        From `rounds.fresh_noise`; only simulations may leave the noise out.
    engine : callable
        Opens what the computing party computes with.
    start : float64 array, shape (k, d), optional
        Public centres to start from instead of sphere packing.
    """
    if me.rank == plan.computing:  # Figure 1: Alice
        with engine() as opened:
            return (yield from computing_party(plan, opened, noise, start=start))
    if me.rank == plan.holder:  # Bob
        return (yield from key_holder(plan, raw_columns, noise, start=start))
    return (yield from owner(me, plan, raw_columns, noise, start=start))  # §4.1


PROTOCOL = VerticalHE()
