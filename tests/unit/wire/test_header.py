"""Frames: headers and the bitmap of clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.wire.header import (
    FINAL_ROUND,
    SERVER,
    SETUP_ROUND,
    Header,
    PartyId,
    clients,
    decode_included,
    encode_included,
    round_order,
)


@given(st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
def test_headers_read_back(kind: int, round_: int, attempt: int) -> None:
    header = Header(kind, round_, attempt)
    assert len(header.encode()) == 8
    assert Header.decode(header.encode() + b"body") == header


def test_the_bytes_of_a_header() -> None:
    assert Header(33, 2, 1).encode().hex() == "2109010002000000"


def test_short_frames_and_other_versions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8 bytes"):
        Header.decode(bytes(7))
    with pytest.raises(ValueError, match="version"):
        Header.decode(b"\x01\x01" + bytes(6))


@given(st.integers(1, 70), st.data())
def test_bitmaps_read_back(count: int, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(1, count)))
    parties = tuple(PartyId(rank) for rank in sorted(chosen))
    bitmap = encode_included(parties, count)
    assert len(bitmap) == (count + 7) // 8
    assert decode_included(bitmap, count) == parties


def test_bitmaps_with_strangers_are_refused() -> None:
    with pytest.raises(ValueError, match="beyond client 3"):
        decode_included(b"\x08", 3)
    with pytest.raises(ValueError, match="1 bytes"):
        decode_included(b"\x01\x00", 3)
    with pytest.raises(ValueError, match="not one of 3"):
        encode_included([SERVER], 3)


def test_order_in_time_and_names() -> None:
    assert round_order(SETUP_ROUND) < round_order(0) < round_order(7) < round_order(FINAL_ROUND)
    assert [str(party) for party in (SERVER, *clients(2))] == ["the server", "client 1", "client 2"]
