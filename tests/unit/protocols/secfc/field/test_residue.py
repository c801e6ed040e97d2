"""Centred residues: exact up to the last integer allowed, and primes."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.protocols.secfc.field.residue import LARGEST_EXACT, is_prime, mixed_radix, primes_below, reduce_rows


def centred(value: int, modulus: int) -> int:
    rest = value % modulus
    return rest - modulus if rest > modulus // 2 else rest


def test_reduction_is_centred_up_to_the_last_exact_integer() -> None:
    limit = LARGEST_EXACT
    for p in (3, 7, 65521, 16777213, 16777153):
        top = limit // p
        near = [k * p + p // 2 + c for k in (0, 1, 2**20 // p, top // 2, top - 2, top - 1) for c in (-1, 0, 1, 2)]
        values = [v for v in near if v <= limit] + [limit, limit - 1]
        values += [-v for v in values]
        reduced = reduce_rows(np.array([values], dtype=np.float64), (p,))
        assert reduced[0].tolist() == [centred(v, p) for v in values]


@given(st.sampled_from([(7,), (13, 251), (16777213, 16777199, 65521)]), st.data())
def test_mixed_radix_digits_are_centred_and_give_the_integer(primes: tuple[int, ...], data: st.DataObject) -> None:
    half = math.prod(primes) // 2
    value = data.draw(st.integers(-half, half))
    residues = np.array([[centred(value, p)] for p in primes], dtype=np.float64)
    digits = mixed_radix(residues, primes)[:, 0]
    total = 0
    for p, digit in zip(primes[::-1], digits[::-1], strict=True):
        assert abs(digit) <= p // 2
        total = total * p + int(digit)
    assert total == value


def test_primes_are_told_from_other_numbers() -> None:
    assert [v for v in range(60) if is_prime(v)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]
    assert not is_prime(4093 * 4091)
    assert primes_below(1 << 24, 3) == (16777213, 16777199, 16777183)
    assert primes_below(1 << 16, 1) == (65521,)
