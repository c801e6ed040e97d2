"""Integers of 1 to 3 bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.ring.pack import pack, unpack


@given(st.sampled_from([1, 2, 3]), st.data())
def test_packing_is_little_endian_and_unpacking_its_inverse(width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 256**width - 1), max_size=13))
    packed = pack(np.array(values, dtype=np.uint32), width)
    assert packed == b"".join(value.to_bytes(width, "little") for value in values)
    assert unpack(memoryview(packed), width, len(values)).tolist() == values


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 4096])
def test_any_number_of_values_packs(count: int) -> None:
    values = np.arange(count, dtype=np.uint32) * np.uint32(4093)
    assert (unpack(pack(values, 3), 3, count) == values).all()
