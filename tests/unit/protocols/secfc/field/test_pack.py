"""Rows of integers of 1 to 3 bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.protocols.secfc.field.pack import pack, row_type, unpack


@given(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=8), st.integers(0, 6), st.data())
def test_rows_are_little_endian_without_gaps_and_unpacking_their_inverse(
    widths: list[int], count: int, data: st.DataObject
) -> None:
    values = [[data.draw(st.integers(0, 256**width - 1)) for width in widths] for _ in range(count)]
    rows = np.empty(count, dtype=row_type(tuple(widths)))
    for column in range(len(widths)):
        pack(rows, column, np.array([row[column] for row in values], dtype=np.uint32))
    packed = b"".join(
        value.to_bytes(width, "little") for row in values for value, width in zip(row, widths, strict=True)
    )
    assert rows.tobytes() == packed
    again = np.frombuffer(packed, dtype=rows.dtype)
    assert [unpack(again, column).tolist() for column in range(len(widths))] == [
        [row[column] for row in values] for column in range(len(widths))
    ]
