"""Ring arithmetic and the choice of fraction bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import RangeError
from fastlloyd.masking.fixed import Ring, choose_fraction_bits


@given(st.sampled_from([32, 64]), st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_encoding_and_decoding_are_inverse(bits: int, values: list[int]) -> None:
    ring = Ring(bits)
    array = np.array(values, dtype=np.int64)
    assert (ring.decode(ring.encode(array)) == array).all()


@given(
    st.sampled_from([32, 64]),
    st.lists(st.tuples(st.integers(-(2**29), 2**29), st.integers(0, 2**64 - 1)), min_size=1, max_size=8),
)
def test_masks_cancel_exactly(bits: int, pairs: list[tuple[int, int]]) -> None:
    ring = Ring(bits)
    values = np.array([value for value, _ in pairs], dtype=np.int64)
    masks = np.array([mask % 2**bits for _, mask in pairs], dtype=ring.dtype)
    masked = ring.encode(values) + masks
    assert (ring.decode(masked - masks) == values).all()


def test_a_value_beyond_the_ring_is_refused_not_wrapped() -> None:
    with pytest.raises(RangeError, match="ring_bits = 64"):
        Ring(32).encode(np.array([2**31], dtype=np.int64))
    with pytest.raises(RangeError):
        Ring(32).encode(np.array([-(2**31) - 1], dtype=np.int64))
    assert Ring(64).decode(Ring(64).encode(np.array([-(2**31) - 1], dtype=np.int64)))[0] == -(2**31) - 1


def test_other_widths_are_refused() -> None:
    with pytest.raises(RangeError, match="32 or 64"):
        Ring(16)


def test_wire_bytes_are_little_endian_and_length_is_checked() -> None:
    assert Ring(32).encode(np.array([1, -1], dtype=np.int64)).tobytes() == bytes.fromhex("01000000ffffffff")
    with pytest.raises(ValueError, match="expected 8 payload bytes, got 7"):
        Ring(32).from_bytes(bytes(7), 2)


def test_the_papers_own_setting_would_overflow_and_ours_does_not() -> None:
    # N = 100,000, d = 2, q = 16: the paper's code wraps there.
    q = choose_fraction_bits(ring_bits=32, n_total=100_000, d=2, largest_coordinate=2**0.5, tail=500.0)
    assert q == 13
    assert (100_000 * 2**0.5 + 500) * 2**q < 2**31 <= (100_000 * 2**0.5 + 500) * 2 ** (q + 1)


def test_too_many_records_name_the_mend() -> None:
    with pytest.raises(RangeError, match="ring_bits = 64"):
        choose_fraction_bits(ring_bits=32, n_total=10**8, d=2, largest_coordinate=1.0, tail=0.0)
    assert choose_fraction_bits(ring_bits=64, n_total=10**8, d=2, largest_coordinate=1.0, tail=0.0) == 16


def test_too_many_features_lower_the_fraction_bits_before_scores_lose_a_bit() -> None:
    assert choose_fraction_bits(ring_bits=64, n_total=10, d=1, largest_coordinate=1.0, tail=0.0) == 16
    assert choose_fraction_bits(ring_bits=64, n_total=10, d=2**18, largest_coordinate=1.0, tail=0.0) == 15
    with pytest.raises(RangeError, match="too many"):
        choose_fraction_bits(ring_bits=64, n_total=10, d=2**34, largest_coordinate=1.0, tail=0.0)


@pytest.mark.parametrize("largest_center,d", [(1.0, 1 << 17), (16.0, 1 << 9)])
def test_every_feature_that_exact_scores_allow_and_not_one_more(largest_center: float, d: int) -> None:
    # 2 q + 2 + log2(4 d B^2) < 53: at q = 16 that is 4 d B^2 < 2^19.
    def bits(features: int) -> int:
        return choose_fraction_bits(
            ring_bits=64,
            n_total=1,
            d=features,
            largest_coordinate=1.0,
            tail=0.0,
            largest_center=largest_center,
        )

    assert (bits(d - 1), bits(d), bits(4 * d - 1), bits(4 * d)) == (16, 15, 15, 14)


def test_every_record_that_the_ring_holds_and_not_one_more() -> None:
    def bits(n_total: int, tail: float = 0.0) -> int:
        return choose_fraction_bits(ring_bits=32, n_total=n_total, d=1, largest_coordinate=0.5, tail=tail)

    assert (bits((1 << 15) - 1), bits(1 << 15), bits(1 << 16)) == (16, 15, 14)
    assert (bits(1 << 14, (1 << 14) - 1.0), bits(1 << 14, 1 << 14)) == (16, 15)
    assert bits((1 << 23) - 1) == 8
    with pytest.raises(RangeError, match="does not fit the 32-bit ring"):
        bits(1 << 23)
