"""Parts of the noise, as fractions: the planned noise stays for each set, and no less for any pattern of losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import pytest

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.parts import Parts

S2 = Fraction(10**9, 7)


def all_numbers(most: int) -> Iterator[Numbers]:
    """Every M, c, t and T up to `most` clients."""
    for M in range(2, most + 1):
        for c in range(M):
            for t in range(max(1, c), M):
                for T in range(max((M + c) // 2 + 1, t + 1), M + 1):
                    yield Numbers(M, T, c, t, 0)


def test_variances_for_all_numbers_sets_and_silent_members() -> None:
    cases = 0
    # c appears in T alone, so each (M, T, t) once.
    for M, T, t in sorted({(n.clients, n.threshold, n.known) for n in all_numbers(25)}):
        parts = Parts(Numbers(M, T, 0, t, 0), S2)
        v = parts.variances
        assert v[0] == S2 / (M - t)
        assert v[1:] == tuple(S2 / ((M - j + 1 - t) * (M - j - t)) for j in range(1, M - T + 1))
        assert sum(v) == S2 / (T - t)
        for u in range(T, M + 1):
            # With l lost the parts after l go.
            assert parts.taken_off(u) == tuple(range(M - u + 1, M - T + 1))
            kept = sum(v[: M - u + 1], Fraction(0))
            assert parts.kept(u) == kept == S2 / (u - t)
            assert (u - t) * parts.kept(u) == S2
            for e in {0, 1, u - 1, u}:
                planned = S2 * u / (u - t) + e * (S2 / (T - t) - S2 / (u - t))
                assert parts.total(u, e) == planned
                assert planned >= S2 * u / (u - t)
                cases += 1
    assert cases > 20_000


def test_without_losses_the_parts_are_the_shares_of_pairwise_masks() -> None:
    assert Parts(Numbers(4, 4, 0, 1, 0), S2).variances == (S2 / 3,)
    assert Parts(Numbers(40, 40, 0, 3, 0), S2).variances == (S2 / 37,)


@pytest.mark.parametrize(
    "M,T,t,count,most", [(33, 17, 1, 6, 0.03), (50, 26, 1, 7, 0.012), (200, 101, 1, 9, 0.004), (200, 101, 20, 9, 0.02)]
)
def test_binary_parts_keep_no_less_than_planned_and_little_more(
    M: int, T: int, t: int, count: int, most: float
) -> None:
    parts = Parts(Numbers(M, T, 0, t, 0), Fraction(10**16))
    v = parts.variances
    assert len(v) == count
    assert v[1] == v[2]
    assert all(second == 2 * first for first, second in itertools.pairwise(v[2:]))
    assert sum(v) == parts.variance / (T - t)
    assert parts.taken_off(T) == ()
    assert parts.taken_off(M) == tuple(range(1, count))
    for u in range(T, M + 1):
        planned = parts.variance / (u - t)
        more = parts.kept(u) / planned
        assert more >= 1
        assert parts.kept(u) + sum((v[j] for j in parts.taken_off(u)), Fraction(0)) == sum(v)
        assert math.sqrt(more) <= 1 + most
        # Taking one unit more off would leave less than planned.
        assert parts.kept(u) - v[1] < planned
    assert parts.kept(M) == parts.variance / (M - t)
    assert parts.kept(T) == parts.variance / (T - t)


def test_binary_parts_of_few_that_may_be_lost() -> None:
    for lost in (1, 2, 3):
        numbers = Numbers(40, 40 - lost, 0, 1, 0)
        parts = Parts(numbers, S2)
        for u in range(40 - lost, 41):
            assert S2 / (u - 1) <= parts.kept(u) <= S2 / (39 - lost)
        assert parts.kept(40) == S2 / 39


@pytest.mark.parametrize("s,taken", [(149, False), (156, True)])
def test_the_least_part_is_checked_and_not_the_share(s: int, taken: bool) -> None:
    numbers = Numbers.settle(32, lying=0)
    least = s / math.sqrt(31 * 30)
    assert taken == (least >= 5.0)
    assert s / math.sqrt(31) > 25  # the share is large enough in both cases
    if taken:
        assert min(Parts(numbers, Fraction(s * s)).variances) >= 25
    else:
        with pytest.raises(
            ConfigError, match=r"deviation of 4\.89 grid units, expected at least 5; set ring_bits = 64"
        ):
            Parts(numbers, Fraction(s * s))


def test_the_least_part_of_one_share_and_of_binary_parts_is_checked_too() -> None:
    Parts(Numbers(4, 4, 0, 1, 0), Fraction(75))
    with pytest.raises(ConfigError, match="expected at least 5"):
        Parts(Numbers(4, 4, 0, 1, 0), Fraction(74))
    numbers = Numbers.settle(50)
    unit = Parts(numbers, Fraction(10**9)).shapes[1]
    Parts(numbers, 25 / unit)
    with pytest.raises(ConfigError, match="expected at least 5"):
        Parts(numbers, 25 / unit - Fraction(1, 10**6))


@pytest.mark.parametrize("M", [3, 10, 32, 33, 50, 200])
def test_shapes_of_laplace_noise_add_up_to_a_laplace_variable_or_more(M: int) -> None:
    numbers = Numbers.settle(M)
    parts = Parts(numbers, Fraction(1), laplace=True)
    for u in range(numbers.threshold, M + 1):
        kept = sum(parts.shapes) - sum(parts.shapes[j] for j in parts.taken_off(u))
        assert (u - numbers.known) * kept >= 1
        assert M > 32 or (u - numbers.known) * kept == 1
        assert 0 < kept <= 1
    assert M > 32 or all(shape.numerator == 1 for shape in parts.shapes)


def test_a_set_that_no_answers_open_is_a_bug() -> None:
    parts = Parts(Numbers.settle(5), S2)
    for included in (3, 6):
        with pytest.raises(InternalError, match="4 to 5 clients in the set"):
            parts.taken_off(included)
    with pytest.raises(ConfigError, match="positive variance"):
        Parts(Numbers.settle(5), Fraction(0))
