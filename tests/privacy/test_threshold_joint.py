"""Threshold masks: what parts, masks, words and answers are together, and how much noise is left for each set.

All from fixed keys, so each test gives the same result each time; with fresh ones it would alarm with the probability
that `joint.py` states, or where the limit is five standard errors in 10^-6 of runs for each comparison.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.masking.threshold.words import KINDS, check_of
from fastlloyd.privacy.noise.discrete import discrete_gaussian, polya_difference
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId, clients
from tests.dealt import HISTORY, deal, draw_parts, fixed, fixed_random, parts_of
from tests.privacy.joint import dependent, uniform_scores
from tests.privacy.stage_noise import has_unit_variance

FIVE = Numbers.settle(5, lying=0)


def test_parts_of_clients_rounds_and_histories_are_independent() -> None:
    """A table of 2 clients, 2 rounds, 2 histories and 3 parts; a row for each of 400 coordinates."""
    dealt, parts, size = deal(FIVE), parts_of(FIVE), 400
    scores = {
        f"client {rank}, round {r}, history {h}, part {j}": noise / math.sqrt(parts.variances[j])
        for rank in (1, 2)
        for r in (0, 1)
        for h in (0, 1)
        for j, noise in enumerate(draw_parts(dealt[rank], parts, size, r, bytes([h]) * 32))
    }
    assert len(scores) == 24
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


def test_one_stream_for_two_parts_would_be_seen() -> None:
    """The mistake: the same bits for two parts. Rejection takes them out of step, so few coordinates show it."""
    held, parts = deal(FIVE)[1], parts_of(FIVE)
    same = [discrete_gaussian(v, 400, held.part_random(0, HISTORY, 0)) / math.sqrt(v) for v in parts.variances]
    assert dependent({f"part {j}": noise for j, noise in enumerate(same)}) != set()


def test_masks_and_boxes_of_clients_and_rounds_are_uniform_and_independent() -> None:
    dealt, ring = deal(FIVE), Ring(64)
    scores = {}
    for rank in range(1, 6):
        for r in (0, 1):
            held = dealt[rank]
            for name, mask in (
                ("vector", held.vector_mask(r, HISTORY, ring=ring, elements=300)),
                ("box", held.box_mask(r, HISTORY, ring=ring, elements=300)),
            ):
                scores[f"{name} of client {rank} in round {r}"] = uniform_scores(mask / 2.0**64)
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


def test_words_tables_and_t_minus_1_shares_are_uniform_and_independent() -> None:
    """What everybody sees of one dealer, and what two clients of T = 3 hold, in 200 runs."""
    rows = []
    for run in range(200):
        pairs = {other: fixed(f"joint {run} {other.rank}") for other in clients(5)[1:]}
        held, words = ClientSecrets.deal(FIVE, PartyId(1), pairs, 1, fixed_random(f"joint {run}"))
        row = [words.word(0, kind, holder) for kind in KINDS for holder in clients(5)[1:]]
        row += [int.from_bytes(held._own[0][at : at + 32], "little") for at in (0, 32, 64)]
        table = [int.from_bytes(words.table(0)[at : at + 32], "little") / 2**256 for at in (32, 64, 96, 128)]
        rows.append([element / shamir.PRIME for element in row] + table)
    scores = dict(zip(map(str, range(len(rows[0]))), uniform_scores(np.array(rows)).T, strict=True))
    assert dependent(scores) == set()
    assert has_unit_variance(np.stack(list(scores.values())))


@pytest.mark.parametrize(
    "numbers,size", [(FIVE, 1_000_000), (Numbers.settle(6), 200_000), (Numbers.settle(7, lying=2), 200_000)]
)
def test_the_noise_in_total_and_without_t_clients_is_the_planned_one(numbers: Numbers, size: int) -> None:
    """Each u, with nobody and with one member silent; of 10^6 coordinates five standard errors are 0.7 %."""
    parts, dealt = parts_of(numbers), deal(numbers)
    drawn = [draw_parts(dealt[rank], parts, size) for rank in range(1, numbers.clients + 1)]
    limit = 5.0 * math.sqrt(2.0 / size)
    for u in range(numbers.threshold, numbers.clients + 1):
        taken = parts.taken_off(u)
        kept = [sum(part for j, part in enumerate(one) if j not in taken) for one in drawn[:u]]
        s2 = float(parts.variance)
        assert abs(np.var(sum(kept)) / (s2 * u / (u - numbers.known)) - 1.0) < limit
        assert abs(np.var(sum(kept[numbers.known :])) / s2 - 1.0) < limit
        silent = sum(kept) + sum(one[j] for one in drawn[:1] for j in taken)
        assert abs(np.var(silent) / float(parts.total(u, 1)) - 1.0) < limit
        # What is opened says nothing about what stays.
        if taken:
            opened = [sum(one[j] for j in taken) for one in drawn[:u]]
            for first, second in zip(opened, kept, strict=True):
                assert abs(np.corrcoef(first, second)[0, 1]) < 5.0 / math.sqrt(size)
                assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 5.0 / math.sqrt(size)


@pytest.mark.parametrize("u", [3, 4, 5])
def test_polya_parts_that_stay_are_a_laplace_variable_without_t_clients(u: int) -> None:
    """False alarm: below 1e-6 with fresh keys."""
    scale, parts, dealt = 30.0, Parts(FIVE, Fraction(2 * 30**2), laplace=True), deal(FIVE)
    left = np.zeros(20_000, dtype=np.int64)
    for rank in range(FIVE.known + 1, u + 1):
        for j, shape in enumerate(parts.shapes):
            if j not in parts.taken_off(u):
                left += polya_difference(scale, shape, left.size, dealt[rank].part_random(0, HISTORY, j))
    # Spread over its unit, the discrete law is continuous.
    coins = np.random.default_rng(0).random(left.size) - 0.5
    p = math.exp(-1.0 / scale)
    steps = np.arange(-2000, 2001)
    law = (1 - p) / (1 + p) * p ** np.abs(steps)
    cumulative = np.concatenate(([0.0], np.cumsum(law)))
    at = np.interp(left + coins, np.arange(-2000.5, 2001.5), cumulative)
    assert stats.kstest(at, "uniform").pvalue > 1e-6


def test_checks_of_equal_secrets_differ_by_client_round_and_kind() -> None:
    digests = {check_of(PartyId(i), r, kind, 5) for i in (1, 2) for r in (0, 1) for kind in KINDS}
    assert len(digests) == 12


def test_two_set_ups_have_no_secret_in_common() -> None:
    """Root and coefficients come from the system: the same pairs and numbers deal other words each time."""
    pairs = {other: fixed(f"again {other.rank}") for other in clients(5)[1:]}
    dealt = [ClientSecrets.deal(FIVE, PartyId(1), pairs, 2, SecretRandom()) for _ in range(2)]
    (first, words), (second, others) = dealt
    pieces = [{each.to_bytes()[at : at + 32] for at in range(0, len(words.to_bytes()), 32)} for each in (words, others)]
    assert len(pieces[0]) == len(pieces[1]) == len(words.to_bytes()) // 32
    assert not pieces[0] & pieces[1]
    assert first._root != second._root
    assert not set(first._own) & set(second._own)
