from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.protocols.vertical_he.he.keyshare import draw_error
from fastlloyd.protocols.vertical_he.he.lattice import Sample
from fastlloyd.protocols.vertical_he.math import lwe
from tests.protocols.vertical_dp.support import Replay

MODULUS = (1 << 48) - 59


def sample(values: np.ndarray, degree: int, seed: int = 0) -> tuple[Sample, np.ndarray]:
    rng = np.random.default_rng(seed)
    secret = rng.integers(-1, 2, degree)
    vectors = rng.integers(0, MODULUS, (values.size, degree))
    inner = (vectors.astype(object) @ secret.astype(object)) % MODULUS
    return Sample(((values - inner) % MODULUS).astype(np.int64), vectors), secret


@pytest.mark.parametrize("wire_bits", [32, 40])
def test_opening_gives_the_integers_back(wire_bits: int) -> None:
    values = np.array([0, 1, -1, 10**13, -(10**13), MODULUS // 2 - 10**12, -(MODULUS // 2) + 10**12], dtype=object)
    hidden, secret = sample(values, 512)
    switched = lwe.switch(hidden, MODULUS, wire_bits)
    data = lwe.encode_samples(switched, wire_bits)
    assert len(data) == 7 * lwe.sample_bytes(512, wire_bits)
    back = lwe.decode_samples(data, 512, wire_bits)
    np.testing.assert_array_equal(back.vectors, switched.vectors)
    opened = lwe.open_samples(back, secret, MODULUS, wire_bits)
    assert np.abs(opened - values.astype(np.int64)).max() <= lwe.switch_error(512, MODULUS, wire_bits)


def test_sums_are_those_of_the_integers() -> None:
    hidden, secret = sample(np.array([100, 40, -70]), 64)
    doubled = lwe.add(hidden, hidden, MODULUS)
    opened = lwe.open_samples(lwe.switch(doubled, MODULUS, 40), secret, MODULUS, 40)
    assert np.abs(opened - np.array([200, 80, -140])).max() <= lwe.switch_error(64, MODULUS, 40)


def test_errors_of_one_key_keep_their_bound_and_have_their_variance() -> None:
    errors = draw_error(50_000, Replay(1)).astype(float)
    assert np.abs(errors).max() <= lwe.ONE_KEY.bound
    assert errors.var() == pytest.approx(lwe.ONE_KEY.variance, rel=0.03)
    assert lwe.ONE_KEY.key == 1.0


def test_the_error_of_switching_is_that_of_its_roundings() -> None:
    # N + 1 = 4 roundings of at most 1/2 each, one unit of the wire worth 2^3.
    assert lwe.switch_error(3, 2.0**20, 17) == pytest.approx(8.0 * lwe.SWITCH_TAIL, rel=1e-12)
