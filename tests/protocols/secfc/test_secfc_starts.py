"""Several starts of SecFC: the one of least inertia wins, each is what it would be alone, and no total is shown."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fastlloyd.errors import PeerError
from fastlloyd.protocols.secfc import plan as plan_module
from fastlloyd.protocols.secfc.math.attempt import coins, first_seed, random_labels
from fastlloyd.protocols.secfc.math.masks import squared_norm_bound
from fastlloyd.protocols.secfc.math.signs import largest_value
from fastlloyd.protocols.secfc.messages import CodedValues, Signs, SignsFormat, ValuesFormat
from fastlloyd.protocols.secfc.reference import _draw, copied_at, course, reference
from fastlloyd.wire.header import PartyId, clients, decode_included
from tests.protocols.secfc.support import Run, mixture, named, plan_for, run

MIXTURE = mixture(240, 6, 3, seed=2)


def inertia(points: NDArray[np.int64], labels: NDArray[np.int64]) -> Fraction:
    """Exactly, in squared steps of the grid."""
    total = Fraction(int((points.astype(object) ** 2).sum()))
    for h in np.unique(labels):
        own = points[labels == h].astype(object)
        total -= Fraction(int((own.sum(axis=0) ** 2).sum()), len(own))
    return total


def last_answers(sent: dict[int, dict[int, bytes]], outcome: Run, before: int) -> tuple[list[int], Any]:
    """What the server decoded in the `before`-th message before the end: Python integers."""
    plan = outcome.plan
    answers = sent[max(sent) - before]
    data = {
        rank: CodedValues.read(body, ValuesFormat(plan.field, plan.answer_values)) for rank, body in answers.items()
    }
    count = data[1].values(plan.field)
    stacked = np.stack([plan.field.from_bytes(answer.data, (count,)) for answer in data.values()], axis=1)
    return plan.field.decode(plan.code.decode_sums(stacked, list(answers))).tolist(), outcome.masks[max(sent) - before]


def recorder() -> tuple[dict[int, dict[int, bytes]], Any]:
    """A tap that notes all answers, message by message."""
    sent: dict[int, dict[int, bytes]] = {}

    def tap(sender, receiver, header, body):
        if header.type == CodedValues.TYPE and body != b"\2":
            sent.setdefault(header.round, {})[sender.rank] = body
        return body

    return sent, tap


@pytest.mark.parametrize("start", ["random", "separated"])
def test_the_start_of_least_inertia_wins(start: str) -> None:
    winners, apart = set(), []
    for seed in range(4):
        outcome = run(MIXTURE, 6, clients=3, seed=seed, settings={"start": start, "starts": 5})
        totals = [inertia(outcome.points, labels[-1]) for labels in outcome.courses]
        assert outcome.first.start == totals.index(min(totals))
        assert (outcome.first.labels == outcome.courses[outcome.first.start][-1]).all()
        assert {outcome.results[party].start for party in clients(3)} == {outcome.first.start}
        winners.add(outcome.first.start)
        apart.append(max(totals) / min(totals))
    # Else nothing is chosen.
    assert len(winners) > 1 and max(apart) > 2


def test_the_first_of_equal_starts_wins() -> None:
    points = np.repeat([[0.5, -0.25], [-0.5, 0.25]], 10, axis=0)
    outcome = run(points, 2, clients=3, settings={"start": "separated", "starts": 7})
    assert {inertia(outcome.points, labels[-1]) for labels in outcome.courses} == {Fraction(0)}
    assert outcome.first.start == 0 and outcome.first.state == "repeated"


@pytest.mark.parametrize("start", ["random", "separated"])
def test_a_start_is_the_same_alone_among_others_and_in_passes(start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(outcome: Run) -> list[int]:
        return [len(labels) - 1 for labels in outcome.courses]

    # In one feature a rotation changes nothing but the sign, so runs can be compared.
    points = np.sort(MIXTURE[:, :1], axis=0)
    alone = run(points, 4, clients=3, rounds=9, settings={"start": start, "starts": 1})
    among = run(points, 4, clients=3, rounds=9, settings={"start": start, "starts": 5})
    whole = [course(among.points, among.plan, number) for number in range(5)]
    assert [one.tolist() for one in alone.history] == [one.tolist() for one in whole[0]]

    def ends(outcome: Run) -> int:
        """How many starts are no copies; each of the others ends where it has come to what a start had."""
        copies = copied_at(whole, outcome.plan)
        for ours, theirs, end in zip(outcome.courses, whole, copies, strict=True):
            until = theirs if end is None else theirs[: end + 1]
            assert [one.tolist() for one in ours] == [one.tolist() for one in until]
        return copies.count(None)

    assert among.plan.passes == (range(5),)
    assert len(among.first.included) == max(steps(among)) + (ends(among) > 1)
    monkeypatch.setattr(plan_module, "_TOGETHER_BYTES", 2 * among.plan.most_bytes + 1)
    passes = run(points, 4, clients=3, rounds=9, settings={"start": start, "starts": 5})
    assert passes.plan.passes == (range(2), range(2, 4), range(4, 5))
    taken = steps(passes)
    assert len(passes.first.included) == max(taken[:2]) + max(taken[2:4]) + taken[4] + (ends(passes) > 1)
    assert inertia(passes.points, passes.first.labels) == inertia(among.points, among.first.labels)
    assert len(passes.first.included) <= passes.plan.rounds == 3 * (passes.plan.start_rounds + 9) + 1


def test_several_starts_reach_the_optimum_where_one_does_not() -> None:
    points = np.rint(MIXTURE * 65536).astype(np.int64)

    def inertias(starts: int) -> list[Fraction]:
        plans = [plan_for(240, 3, 6, seed=i, settings={"start": "separated", "starts": starts}) for i in range(12)]
        return [inertia(points, reference(points, one)[-1]) for one in plans]

    alone, together = inertias(1), inertias(8)
    assert max(alone) > 2 * min(alone)
    assert min(together) == min(alone) and max(together) < Fraction(21, 20) * min(together)


@pytest.mark.parametrize("weights", [[3, 0, 1, 4], [0, 0, 7], [1, 1], [5], [1, 10**40, 10**40]])
def test_a_seed_is_drawn_by_its_weight(weights: list[int]) -> None:
    # All coins of 12 bits: each index as often as its weight says, but for one at either end.
    drawn = np.bincount([_draw(weights, coin, 12) for coin in range(1 << 12)], minlength=len(weights))
    for count, weight in zip(drawn.tolist(), weights, strict=True):
        assert abs(Fraction(count, 1 << 12) - Fraction(weight, sum(weights))) < Fraction(1, 1 << 12)
        assert weight or not count
    assert _draw([0, 0, 0], 5, 12) == 2


def test_coins_and_first_seeds_are_even_and_differ_from_start_to_start() -> None:
    many = plan_for(900, 2, 5, settings={"start": "separated", "starts": 1000})
    drawn = np.array([coins(many, number) for number in range(1000)]) / 2.0**many.coin_bits
    assert drawn.shape == (1000, 4) and stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-7
    assert len(np.unique(drawn)) == 4000
    firsts = [first_seed(many, 900, number) for number in range(1000)]
    assert stats.kstest(np.array(firsts) / 900, "uniform").pvalue > 1e-7
    assert (random_labels(many, 900, 0) != random_labels(many, 900, 1)).mean() > 0.6


def test_the_server_decodes_no_total_but_a_blurred_difference_of_two() -> None:
    sent, tap = recorder()
    outcome = run(MIXTURE, 6, clients=3, seed=2, tap=tap, settings={"start": "separated", "starts": 3})
    plan, weight = outcome.plan, 2**outcome.plan.weight_bits
    worths = []
    for labels in outcome.courses:
        members = [outcome.points[labels[-1] == h].astype(object) for h in np.unique(labels[-1])]
        worths.append(sum(int((own.sum(axis=0) ** 2).sum()) * (weight // len(own)) for own in members))
    # Three starts that end differently: two messages of one value. The winner of the first two meets the third.
    assert copied_at(outcome.courses, plan) == [None] * 3
    winner = max(worths[:2])
    for before, difference in ((1, worths[0] - worths[1]), (0, winner - worths[2])):
        (decoded,), masks = last_answers(sent, outcome, before)
        (factor,), (noise,) = masks.signs(1).integers()
        assert decoded == factor * difference + noise
        assert plan.mantissa_bits < abs(factor // 2).bit_length() <= plan.mantissa_bits + 64
    # All that it decodes fits the field.
    assert max(worths) <= weight * plan.n_total * squared_norm_bound(3, 16)
    assert weight >= 2**24 * plan.n_total
    assert largest_value(weight * plan.n_total * squared_norm_bound(3, 16), plan.mantissa_bits) <= plan.field.largest


def test_the_server_decodes_no_distance_of_a_separated_start() -> None:
    # Distances from the seeds, their sums, the coins' shares of them: none comes as it is, nor as a multiple of it.
    sent, tap = recorder()
    outcome = run(MIXTURE, 3, clients=3, seed=1, tap=tap, settings={"start": "separated", "starts": 1})
    x, plan = outcome.points, outcome.plan
    first = first_seed(plan, 240, 0)
    near = ((x - x[first]) ** 2).sum(axis=1).astype(object)
    sums, coin = np.cumsum(near), coins(plan, 0)[0]
    exact = [coin * int(sums[-1]) - (int(total) << plan.coin_bits) for total in sums[:-1]]
    decoded, masks = last_answers(sent, outcome, max(sent))
    secrets, order = masks.signs(239), masks.shuffled(239)
    made = [f * value + e for f, value, e in zip(secrets.integers()[0], exact, secrets.integers()[1], strict=True)]
    # The sum at the first seed is that before it: it is not sent again.
    assert 0 < first < 239 and exact[first] == exact[first - 1]
    assert [decoded[i] == made[j] for i, j in enumerate(order)] == [j != first for j in order]
    assert abs(stats.spearmanr(order, np.arange(239)).statistic) < 6 / 239**0.5
    # A seed takes two messages, the groups two here; an iteration two: nothing is left out.
    counts = [len(body[1]) // plan.field.element_bytes for body in sent.values()]
    assert counts[:6] == [239, 240, 239, 240, 240, 240]


@pytest.mark.parametrize("position", [0, 1])
def test_a_liar_in_the_choice_among_starts_is_named(position: int) -> None:
    honest, tap = recorder()
    settings = {"segments": 2, "threshold": 1, "extra_answers": 2, "starts": 3}
    run(MIXTURE[:60, :1], 2, clients=7, rounds=2, tap=tap, settings=settings)
    message = max(honest) - position

    def lie(sender, receiver, header, body):
        if header.type == CodedValues.TYPE and sender.rank == 3 and header.round == message and body != b"\2":
            return body[:1] + bytes([body[1] ^ 1]) + body[2:]
        return body

    with pytest.raises(PeerError, match="the answer of client 3 does not fit"):
        run(MIXTURE[:60, :1], 2, clients=7, rounds=2, tap=lie, settings=settings)


def test_stragglers_of_the_choice_and_of_seeds_cost_nothing() -> None:
    decoded: list[tuple[PartyId, ...]] = []

    def tap(sender, receiver, header, body):
        if header.type == Signs.TYPE and receiver.rank == 1:
            decoded.append(decode_included(body[:1], 4))
        late = header.type == CodedValues.TYPE and sender.rank == 1 + header.round % 4 and body != b"\2"
        return None if late else body

    settings = {"segments": 1, "threshold": 1, "start": "separated", "starts": 4}
    outcome = run(named("iris"), 3, clients=4, tap=tap, settings=settings)
    expected = reference(outcome.points, outcome.plan)
    assert all((outcome.results[party].labels == expected[-1]).all() for party in clients(4))
    assert len(decoded) > 10
    assert all(PartyId(1 + t % 4) not in included for t, included in enumerate(decoded))


def test_wrong_signs_cannot_aim_at_a_start() -> None:
    # Flipping all signs of the choice makes another one win: no party is harmed, and nothing but labels is wrong.
    honest, tap = recorder()
    points = np.sort(MIXTURE[:, :1], axis=0)
    settings = {"start": "separated", "starts": 2}
    right = run(points, 4, clients=3, tap=tap, settings=settings)

    def flip(sender, receiver, header, body):
        if header.type == Signs.TYPE and header.round == max(honest):
            signs = Signs.read(body, SignsFormat(1, 3))
            return Signs(~signs.positive, signs.included, signs.format).body()
        return body

    wrong = run(points, 4, clients=3, tap=flip, settings=settings)
    assert (right.first.start, wrong.first.start) in ((0, 1), (1, 0))
    assert {wrong.results[party].start for party in clients(3)} == {wrong.first.start}


def test_larger_fields_are_taken_only_where_starts_need_them() -> None:
    for n, d, k in ((150, 4, 3), (1000, 20, 4), (16_384, 100, 16)):
        alone, several = (plan_for(n, d, k, settings={"start": "random", "starts": starts}) for starts in (1, 8))
        assert 0 <= len(several.primes) - len(alone.primes) <= 1
        assert (several.largest_difference == alone.largest_difference) == (n > 1000)
