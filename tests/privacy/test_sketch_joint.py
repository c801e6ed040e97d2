"""The joint row of all parties is epsilon'-DP: every outcome's exact probability, with and without one user.

All words of users and phantoms are enumerated (one for each level, with the level's exact probability) and put through
the code that makes sketches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_dp.sketch.sketch import PAPER_PHANTOMS, SketchShape, join_levels, party_phantoms

Cell = tuple[int, ...]


def distribution(totals: Sequence[int]) -> tuple[list[int], list[Fraction]]:
    """Return the lowest word of each level that occurs, and the level's probability."""
    steps = [(low, Fraction(high - low, totals[-1])) for low, high in itertools.pairwise(totals) if high > low]
    return [low for low, _ in steps], [chance for _, chance in steps]


def joint_row(users: Sequence[Cell], shape: SketchShape) -> dict[tuple[int, ...], Fraction]:
    """Return the exact distribution of all parties' entries of one row."""
    user_words, user_chances = distribution(shape.user_levels.totals)
    phantom_words, phantom_chances = distribution(shape.phantom_levels.totals)
    paper = shape.scheme == PAPER_PHANTOMS
    spots = shape.parties * shape.clusters if paper else shape.cells
    sides = [len(user_words)] * len(users) + [len(phantom_words)] * spots
    choice = np.indices(sides).reshape(len(sides), -1).T
    drawn = np.array(user_words, dtype=np.uint32)[choice[:, : len(users)]]
    phantoms = np.array(phantom_words, dtype=np.uint64)[choice[:, len(users) :]]
    chances = [*([user_chances] * len(users)), *([phantom_chances] * spots)]
    columns = []
    for party in range(shape.parties):
        largest = np.zeros((len(choice), shape.clusters), dtype=np.uint32)
        for user, cell in enumerate(users):
            np.maximum(largest[:, cell[party]], drawn[:, user], out=largest[:, cell[party]])
        if paper:
            own = phantoms[:, party * shape.clusters : (party + 1) * shape.clusters]
        else:
            own = party_phantoms(phantoms, party, shape)
        columns.append(join_levels(largest, own, shape))
    weight = np.ones(len(choice), dtype=object)
    for column, table in enumerate(chances):
        weight = weight * np.array(table, dtype=object)[choice[:, column]]
    outcomes, where = np.unique(np.hstack(columns), axis=0, return_inverse=True)
    sums = [Fraction(0)] * len(outcomes)
    for place, chance in zip(where.ravel().tolist(), weight, strict=True):
        sums[place] += chance
    return {tuple(outcome): chance for outcome, chance in zip(outcomes.tolist(), sums, strict=True)}


def loss(users: Sequence[Cell], shape: SketchShape) -> float:
    """Return the largest privacy loss, in either direction, between all users and all but the first."""
    full, less = joint_row(users, shape), joint_row(users[1:], shape)
    assert sum(full.values()) == sum(less.values()) == 1
    if full.keys() != less.keys():
        return math.inf
    return max(abs(math.log(full[outcome] / less[outcome])) for outcome in full)


def small(parties: int, clusters: int, phantoms: int, word_bits: int, scheme: str = "grid") -> SketchShape:
    return SketchShape(
        rows=1, clusters=clusters, parties=parties, gamma=1.0, phantoms=phantoms, word_bits=word_bits, scheme=scheme
    )


@pytest.mark.parametrize("phantoms", [1, 2, 3])
@pytest.mark.parametrize(
    "users",
    [
        pytest.param([(0, 0)], id="alone in its cluster at every party"),
        pytest.param([(0, 0), (1, 1)], id="alone, another user elsewhere"),
        pytest.param([(0, 0), (0, 1)], id="alone at one party"),
        pytest.param([(0, 0), (0, 0)], id="two in one cell"),
    ],
)
def test_the_joint_row_of_two_parties_keeps_its_epsilon(users: list[Cell], phantoms: int) -> None:
    shape = small(2, 2, phantoms, word_bits=3)
    assert loss(users, shape) <= shape.row_epsilon


@pytest.mark.parametrize(("parties", "clusters"), [pytest.param(2, 3, marks=pytest.mark.slow), (3, 2)])
def test_the_joint_row_of_larger_grids_keeps_its_epsilon(parties: int, clusters: int) -> None:
    shape = small(parties, clusters, 1, word_bits=2)
    assert loss([(0,) * parties], shape) <= shape.row_epsilon


def test_the_claim_is_met_and_not_loose() -> None:
    shape = small(2, 2, 2, word_bits=4)
    assert loss([(0, 0)], shape) >= 0.9 * shape.row_epsilon


@pytest.mark.parametrize("phantoms", [1, 2, 3])
def test_the_papers_phantoms_break_the_claim_for_a_user_alone_at_every_party(phantoms: int) -> None:
    claimed = small(2, 2, phantoms, word_bits=3).row_epsilon
    found = loss([(0, 0)], small(2, 2, phantoms, word_bits=3, scheme="paper"))
    # More than even two independent mechanisms would spend, so composing over the parties does not describe it.
    assert found > 2.0 * claimed


def test_the_papers_phantoms_hold_for_one_party_alone() -> None:
    """The lemma for one party is right: it is the step to all parties together that fails."""
    shape = small(2, 2, 2, word_bits=3, scheme="paper")
    full, less = (joint_row(users, shape) for users in ([(0, 0)], []))

    def first_party(row: dict[tuple[int, ...], Fraction]) -> dict[tuple[int, ...], Fraction]:
        sums: dict[tuple[int, ...], Fraction] = {}
        for outcome, chance in row.items():
            sums[outcome[:2]] = sums.get(outcome[:2], Fraction(0)) + chance
        return sums

    one, other = first_party(full), first_party(less)
    assert max(abs(math.log(one[x] / other[x])) for x in one) <= small(2, 2, 2, word_bits=3).row_epsilon


def test_no_epsilon_is_claimed_for_the_papers_phantoms() -> None:
    with pytest.raises(ConfigError, match="paper"):
        _ = small(2, 2, 2, word_bits=3, scheme="paper").row_epsilon
