from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.protocols.vertical_he.he.residues import (
    SEED_BYTES,
    Halves,
    check_nonzero,
    check_uniform,
    object_bytes,
    pack,
    unpack,
)

PRIMES = (1125899906826241, 1073643521, 18014398509404161)
BITS = tuple(prime.bit_length() for prime in PRIMES)
SEED = bytes(range(SEED_BYTES))


def test_the_layout_stays() -> None:
    packed = pack(Halves(np.array([[1, 0x0102030405], [0x0A0B, 2]]), SEED), (41, 16))
    assert packed.hex() == "010000000000" + "050403020100" + "0b0a0200" + SEED.hex()
    assert len(packed) == object_bytes(2, (41, 16), seeded=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_numbers_come_back(seed: int, limbs: int, seeded: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = np.stack([np.stack([rng.integers(0, prime, 8) for prime in PRIMES[:limbs]]) for _ in range(2)])
    rows[0, :, 0] = np.array(PRIMES[:limbs]) - 1
    content = pack(Halves(rows[0], SEED if seeded else rows[1]), BITS)
    assert len(content) == object_bytes(8, BITS[:limbs], seeded=seeded)
    halves = unpack(content, PRIMES[:limbs], 8, seeded=seeded)
    np.testing.assert_array_equal(halves.first, rows[0])
    np.testing.assert_array_equal(halves.second, SEED if seeded else rows[1])


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("limb", [0, 1, 2])
@pytest.mark.parametrize("excess", [0, 1])
def test_a_number_that_is_not_below_its_prime_is_refused(half: int, limb: int, excess: int) -> None:
    rows = np.zeros((2, 3, 8), dtype=np.int64)
    rows[half, limb, 5] = PRIMES[limb] + excess
    with pytest.raises(ValueError, match="not below its prime"):
        unpack(pack(Halves(*rows), BITS), PRIMES, 8, seeded=False)


@pytest.mark.parametrize("length", [0, 1, 8 * 18 + SEED_BYTES - 1, 8 * 18 + SEED_BYTES + 1, 2 * 8 * 18])
def test_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"expected a ciphertext or key of 208 bytes, got {length}"):
        unpack(bytes(length), PRIMES, 8, seeded=True)


def test_eight_bytes_of_ones_are_no_negative_number() -> None:
    with pytest.raises(ValueError, match="not below"):
        unpack(b"\xff" * 64, (2**60 - 2**14 + 1,), 4, seeded=False)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_uniform_halves_pass(seed: int) -> None:
    rng = np.random.default_rng(seed)
    check_uniform(np.stack([rng.integers(0, prime, 2048) for prime in PRIMES]), PRIMES)


@pytest.mark.parametrize("limb", [0, 1, 2])
def test_halves_that_are_small_or_sparse_modulo_one_prime_are_refused(limb: int) -> None:
    rng = np.random.default_rng(1)
    good = np.stack([rng.integers(0, prime, 2048) for prime in PRIMES])
    prime = PRIMES[limb]
    one, sparse = np.zeros(2048, dtype=np.int64), np.zeros(2048, dtype=np.int64)
    one[0], sparse[:400] = 1, prime // 2
    for bad in (one, prime - one - 1, sparse, rng.integers(0, prime // 8, 2048), np.zeros(2048, dtype=np.int64)):
        wrong = good.copy()
        wrong[limb] = bad
        with pytest.raises(ValueError, match="hides nothing"):
            check_uniform(wrong, PRIMES)
    check_nonzero(good)
    good[limb] = 0
    with pytest.raises(ValueError, match="hides nothing"):
        check_nonzero(good)
