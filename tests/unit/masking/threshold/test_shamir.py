"""Shamir's sharing: any T shares give the secret; T - 1 are uniform whatever it is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold.shamir import PRIME
from tests.dealt import fixed_random


def lagrange_by_fractions(points: dict[int, int], at: int) -> int:
    """The textbook formula."""
    total = 0
    for i, y in points.items():
        term = y
        for j in points:
            if j != i:
                term = term * (at - j) * pow(i - j, PRIME - 2, PRIME) % PRIME
        total += term
    return total % PRIME


@pytest.mark.parametrize("secret", [0, 1, PRIME - 1, 2**200 + 7])
def test_every_set_of_t_shares_gives_the_secret_and_every_other_share(secret: int) -> None:
    shares = dict(enumerate(shamir.split(secret, 3, 6, fixed_random("split")), 1))
    assert len(set(shares.values())) == 6
    for chosen in itertools.combinations(shares, 3):
        points = {j: shares[j] for j in chosen}
        assert shamir.combine(shamir.weights(chosen), shares) == secret == lagrange_by_fractions(points, 0)
        for other in shares:
            assert shamir.combine(shamir.weights(chosen, at=other), points) == shares[other]
    for chosen in itertools.combinations(shares, 2):
        assert shamir.combine(shamir.weights(chosen), shares) != secret


def test_t_minus_1_shares_are_uniform_and_independent_of_the_secret() -> None:
    """False alarm: 1e-6 for each secret and client (fixed keys)."""
    for secret in (0, PRIME - 1):
        rows = [shamir.split(secret, 3, 4, fixed_random(f"{secret} {n}"))[:2] for n in range(1000)]
        for column in zip(*rows):
            positions = np.array([share / PRIME for share in column])
            assert stats.kstest(positions, "uniform").pvalue > 1e-6
        first, second = (np.array([share / PRIME for share in column]) for column in zip(*rows))
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / 1000**0.5


def test_elements_have_one_encoding() -> None:
    for element in (0, 1, PRIME - 1):
        assert shamir.from_bytes(shamir.to_bytes(element)) == element
    for content in (PRIME.to_bytes(32, "little"), b"\xff" * 32, bytes(31), bytes(33)):
        with pytest.raises(ValueError, match="below 2"):
            shamir.from_bytes(content)
    assert shamir.reduce_wide((PRIME * 5 + 3).to_bytes(64, "little")) == 3
