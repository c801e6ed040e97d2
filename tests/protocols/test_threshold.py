"""Rounds with threshold masks, whoever is lost at whatever step: the exact sum, and the planned noise on it.

In memory, with the real parties, fixed keys, and messages that do not arrive: no false alarm.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.lifecycle.masked_sums import GlobalMsa, MaskedUpdate, server
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.lifecycle.threshold.client import ClientOpening
from fastlloyd.lifecycle.threshold.messages import QuickAnswer, SetAnswer, SetVote
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.party.effects import Party
from fastlloyd.party.plain_plan import SumsTerms
from fastlloyd.privacy.release import LAPLACE_SHARES
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.reference import reference
from fastlloyd.protocols.fastlloyd.rounds import draw_share
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.simulation import Simulation, Tap
from fastlloyd.wire.header import SERVER, PartyId, clients
from tests.dealt import fixed_random
from tests.protocols.support import blobs, central_plus, no_noise, opened_masks, plan_for, run

# Clients and c: T is 3 of 5 and 4 of 6, so two may be lost.
SITES = [(5, 0), (6, 1)]
STEPS = (MaskedUpdate, QuickAnswer, SetVote, SetAnswer)
VARIANTS = {
    "fastlloyd": {},
    "fastlloyd-plus": {},
    "glloyd": {"domain": "fold"},
    "sulloyd": {"domain": "truncate"},
    "lloyd": {},
}


def plan_of(m: int, lying: int, *, k: int = 3, d: int = 2, rounds: int = 3, n: int = 400, **changes: Any) -> Plan:
    """A plan whose T is the least that is allowed."""
    least = max((m + lying) // 2 + 1, 2)
    changes = {"protocol": "glloyd", "settings": {"domain": "fold"}, **changes}
    return plan_for(
        np.zeros((n, d)),
        k,
        clients=m,
        masking="threshold",
        min_clients=least,
        colluding=lying,
        rounds=rounds,
        **changes,
    )


def losing(*lost: tuple[int, type]) -> Tap:
    """Lose what these clients send at these steps and later, in every round."""
    order = {kind.TYPE: place for place, kind in enumerate(STEPS)}
    first = {rank: order[kind.TYPE] for rank, kind in lost}

    def tap(sender: PartyId, receiver: PartyId, header: Any, body: bytes) -> bytes | None:
        return None if order.get(header.type, -1) >= first.get(sender.rank, len(order)) else body

    return tap


@dataclass
class Sums:
    """The sums of all rounds as client 1 received them, and what the server noted."""

    sums: list[NDArray[np.int64]]
    included: list[tuple[PartyId, ...]]
    silent: dict[int, tuple[PartyId, ...]]


def add_up(
    plan: Plan, vectors: Sequence[NDArray[np.int64]], draw: Any, tap: Tap | None = None, run: str = "run"
) -> Sums:
    """Add the same vectors up in each round."""
    masks, opening = opened_masks(plan, draw, run=run)
    found = Sums([], [], opening.silent)

    def member(me: PartyId) -> Party[None]:
        msa = GlobalMsa(me, plan, masks[me], share=None, stored=StoredRounds())
        for t in range(len(plan.rounds)):
            total, among = yield from msa.add_up(t, lambda: vectors[me.rank - 1])
            if me.rank == 1:
                found.sums.append(total)
                found.included.append(among)

    parties: dict[PartyId, Party[Any]] = {me: member(me) for me in clients(plan.clients)}
    parties[SERVER] = server(plan, None, opening=opening)
    Simulation(parties, tap).run()
    return found


def silent_part(plan: Plan) -> Any:
    """Parts of noise that are zeros."""
    return lambda me: lambda t, share, secret: np.zeros(plan.elements(t), np.int64)


@pytest.mark.parametrize("protocol", VARIANTS)
@pytest.mark.parametrize("m,bits", [(2, 32), (3, 64), (5, 32), (6, 64), (40, 32)])
def test_without_noise_the_parties_come_to_the_centres_of_all_records(protocol: str, m: int, bits: int) -> None:
    points = blobs(400, 3, 2, seed=m)
    plan = plan_of(m, 0, protocol=protocol, settings=VARIANTS[protocol], ring_bits=bits, epsilon=20.0)
    masks, opening = opened_masks(plan, silent_part(plan))
    got = run(points, plan, masks=masks, noise=no_noise(plan), opening=opening).first
    assert set(got.included) == {clients(m)}
    if protocol == "fastlloyd-plus":
        assert (got.centers.grid == central_plus(points, plan, no_noise(plan)).grid).all()
        return
    expected = reference(points, plan, no_noise(plan))
    assert (got.centers.grid == expected.grid).all()
    assert (got.centers.noisy_counts == expected.noisy_counts).all()


def losses(m: int) -> list[tuple[tuple[int, type], ...]]:
    """Nobody, and each combination of one and two clients at each step."""
    ranks = (1, 2, m)
    single = [((rank, step),) for rank in ranks for step in STEPS]
    double = [
        ((a, first), (b, second))
        for a, b in itertools.permutations(ranks, 2)
        for first, second in itertools.combinations_with_replacement(STEPS, 2)
    ]
    return [(), *single, *double]


@pytest.mark.parametrize("m,lying", SITES)
def test_whoever_is_lost_the_sum_is_exact_but_for_the_parts_that_stay(m: int, lying: int) -> None:
    plan = plan_of(m, lying, rounds=2)
    rng = np.random.default_rng(m)
    vectors = [rng.integers(-1000, 1000, plan.elements(0)) for _ in range(m)]
    parts = Parts(plan.numbers, Fraction(1), laplace=True)
    for number, lost in enumerate(losses(m)):
        kept: dict[tuple[int, PartyId], list[NDArray[np.int64]]] = defaultdict(list)

        def noted(me: PartyId, t: int, share: Fraction, secret: SecretRandom, kept: Any = kept) -> NDArray[np.int64]:
            kept[t, me].append(draw_share(plan, t, share, secret))
            return kept[t, me][-1]

        found = add_up(plan, vectors, lambda me: partial(noted, me), losing(*lost), run=f"{m} {number}")
        gone = {PartyId(rank) for rank, step in lost if step is MaskedUpdate}
        for t, total in enumerate(found.sums):
            among = found.included[t]
            assert among == tuple(one for one in clients(m) if one not in gone)
            expected = np.sum([vectors[one.rank - 1] for one in among], axis=0)
            off, dumb = parts.taken_off(len(among)), {PartyId(rank) for rank, step in lost if step is not MaskedUpdate}
            # A quick answer holds no excess: whoever gives none is missed by nobody.
            assert set(found.silent[t]) == (dumb & set(among) if off and len(among) < m else set())
            for one in among:
                assert len(kept[t, one]) == len(parts.shapes)
                for j, part in enumerate(kept[t, one]):
                    expected += part * (j not in off or one in found.silent[t])
            assert (total == expected).all(), (lost, t)


def overflow(plan: Plan) -> float:
    """All parts of all clients at their tail, before any is taken off, beside the largest sum: of half the ring."""
    numbers = plan.numbers
    ratio, grid = numbers.clients / (numbers.threshold - numbers.known), 2.0**plan.fraction_bits
    tail = 45 * ratio if plan.mechanism == LAPLACE_SHARES else 12 * ratio**0.5
    noise = max(max(planned.sum_scale, planned.count_scale) for planned in plan.rounds)
    return (plan.n_total * grid + tail * noise) / 2.0 ** (plan.ring_bits - 1)


@pytest.mark.parametrize("protocol", ["glloyd", "sulloyd"])
def test_all_parts_fit_the_ring_before_any_is_taken_off(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fraction bits are chosen for the noise of M clients of which T are needed, not for what stays in the end."""

    def fullest() -> float:
        plans = [
            plan_of(m, lying, protocol=protocol, settings=VARIANTS[protocol], epsilon=epsilon, rounds=1)
            for m, lying in SITES
            for epsilon in np.geomspace(0.0005, 0.02, 16).tolist()
        ]
        return max(map(overflow, plans))

    assert 0.95 < fullest() < 1.0
    monkeypatch.setattr(SumsTerms, "most_noise", SumsTerms.all_noise)
    assert fullest() > 1.0


def of_round(u: int, m: int, silent: int) -> tuple[tuple[int, type], ...]:
    """Lose enough vectors that u clients are in, and what opens the noise of some of them."""
    gone = [(m - i, MaskedUpdate) for i in range(m - u)]
    return (*gone, *((1 + i, SetAnswer) for i in range(silent)))


NOISES = [
    *((m, c, u, 0) for m, c in SITES for u in range(m - 2, m + 1)),
    # A member that dies before it opens: with two more lost there are T answers left, and nothing to take off.
    *((m, c, m - 1, 1) for m, c in SITES),
]


def noise_over_planned(
    protocol: str, m: int, lying: int, u: int, silent: int, *, rounds: int = 4, k: int = 250, draw: Any = draw_share
) -> tuple[float, float, Fraction]:
    """Measure the variance of all noise over s^2; return it, its standard error, and what is planned."""
    settings = VARIANTS[protocol]
    plan = plan_of(m, lying, protocol=protocol, k=k, d=3, n=4000, rounds=rounds, ring_bits=64, settings=settings)
    vectors = [np.full(plan.elements(0), 1000 * rank) for rank in range(m)]
    lost = losing(*of_round(u, m, silent))
    found = add_up(plan, vectors, lambda me: partial(draw, plan), lost, run=f"noise {protocol} {m} {u} {silent}")
    scores = []
    for t, total in enumerate(found.sums):
        among, planned = found.included[t], plan.rounds[t]
        assert len(among) == u and len(found.silent[t]) == silent
        scales = np.repeat([planned.sum_scale, planned.count_scale], plan.lengths(t))
        variance = scales**2 * (2.0 if protocol == "sulloyd" else 1.0)
        noise = total - np.sum([vectors[one.rank - 1] for one in among], axis=0)
        scores.append(noise**2 / variance)
    squares = np.concatenate(scores)
    parts = Parts(plan.numbers, Fraction(1), laplace=True)
    return float(squares.mean()), float(squares.std() / np.sqrt(squares.size)), parts.total(u, silent)


def check_noise(protocol: str, m: int, lying: int, u: int, silent: int, **size: int) -> None:
    measured, error, planned = noise_over_planned(protocol, m, lying, u, silent, **size)
    # Without t = 1 clients s^2 remains, so there is u / (u - 1) of it in all; more only where a member was silent.
    assert planned > Fraction(u, u - 1) if silent else planned == Fraction(u, u - 1)
    assert abs(measured - planned) < 5 * error


@pytest.mark.parametrize("protocol", ["glloyd", "sulloyd"])
@pytest.mark.parametrize("m,lying,u,silent", NOISES)
def test_the_noise_is_the_planned_one_for_every_number_of_lost_clients(
    protocol: str, m: int, lying: int, u: int, silent: int
) -> None:
    check_noise(protocol, m, lying, u, silent)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("protocol", ["glloyd", "sulloyd"])
@pytest.mark.parametrize("m,lying,u,silent", NOISES)
def test_the_noise_is_the_planned_one_to_half_a_percent(protocol: str, m: int, lying: int, u: int, silent: int) -> None:
    check_noise(protocol, m, lying, u, silent, rounds=50, k=1000)


@pytest.mark.parametrize("u", [4, 5])
@pytest.mark.parametrize("times", [0, 2])
def test_a_part_that_is_not_taken_off_or_twice_is_caught(times: int, u: int, monkeypatch: pytest.MonkeyPatch) -> None:
    excess = ClientOpening._excess

    def wrong(self: ClientOpening, t: int, history: bytes, ring: Ring, included: int) -> RingArray:
        right = excess(self, t, history, ring, included)
        return right - right if times == 0 else right + right

    monkeypatch.setattr(ClientOpening, "_excess", wrong)
    measured, error, planned = noise_over_planned("glloyd", 5, 0, u, 0)
    assert measured - planned > 10 * error


def test_parts_that_forget_t_or_depend_on_each_other_are_caught() -> None:
    def quieter(plan: Plan, t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
        return draw_share(plan, t, share * Fraction(4, 5), secret)

    measured, error, planned = noise_over_planned("glloyd", 5, 0, 5, 0, draw=quieter)
    assert planned - measured > 8 * error

    def dependent(plan: Plan, t: int, share: Fraction, secret: SecretRandom) -> NDArray[np.int64]:
        # Every part of every client from the same bits.
        return draw_share(plan, t, share, fixed_random(f"round {t}"))

    measured, error, planned = noise_over_planned("glloyd", 5, 0, 3, 0, draw=dependent)
    assert measured - planned > 10 * error
