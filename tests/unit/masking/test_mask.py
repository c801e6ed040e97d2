"""Common masks telescope: what any set of them adds up to, and that no call of the cipher gives other streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.masking import mask as module
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, MaskGenerator, continue_history
from fastlloyd.randomness.prg import BLOCK_BYTES, NONCE_BYTES, KeyStream, keystream
from fastlloyd.wire.header import PartyId, clients

RUN = bytes(16)
SEED = bytes(range(32))


def generator(bits: int = 32, elements: int = 20) -> MaskGenerator:
    return MaskGenerator(SEED, Ring(bits), elements, RUN)


@given(
    included=st.sets(st.integers(1, 12), min_size=1),
    bits=st.sampled_from([32, 64]),
    elements=st.sampled_from([1, 8, 17, 3000]),
)
def test_the_total_is_the_sum_of_the_masks(included: set[int], bits: int, elements: int) -> None:
    masks = generator(bits, elements)
    parties = [PartyId(rank) for rank in included]
    separate = np.zeros(elements, dtype=Ring(bits).dtype)
    for party in parties:
        separate += masks.mask(3, party, NO_HISTORY)
    assert (masks.total(3, parties, NO_HISTORY) == separate).all()


@given(one=st.sets(st.integers(1, 12), min_size=1), other=st.sets(st.integers(1, 12), min_size=1))
def test_what_a_sum_over_another_set_leaves_is_uniform(one: set[int], other: set[int]) -> None:
    masks = generator(elements=1000)
    totals = [masks.total(0, [PartyId(rank) for rank in ranks], NO_HISTORY) for ranks in (one, other)]
    ones = np.unpackbits((totals[0] - totals[1]).view(np.uint8)).mean()
    assert abs(ones - (one != other) / 2) < 7 * 0.5 / np.sqrt(1000 * 32)


def test_streams_read_ahead_or_one_by_one_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = generator(elements=40)
    together = [masks.mask(0, party, NO_HISTORY) for party in clients(3)]
    monkeypatch.setattr(module, "_READ_AHEAD_BYTES", 0)
    assert [a.tolist() for a in together] == [masks.mask(0, party, NO_HISTORY).tolist() for party in clients(3)]


def test_a_client_expands_as_much_whatever_the_number_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    expanded = []
    read = KeyStream.read

    def watched(self: KeyStream, nonce: bytes, length: int, *, block: int = 0) -> bytes:
        expanded.append(length)
        return read(self, nonce, length, block=block)

    monkeypatch.setattr(KeyStream, "read", watched)
    masks = generator(elements=10_000)
    of_count = []
    for count in (3, 300):
        expanded.clear()
        masks.mask(0, PartyId(2), NO_HISTORY)
        masks.total(0, clients(count), NO_HISTORY)
        of_count.append(sum(expanded))
    assert of_count == [4 * 40_000] * 2


def test_masks_differ_by_round_client_run_seed_and_history() -> None:
    masks = generator()
    first = PartyId(1)
    seen = [
        masks.mask(0, first, NO_HISTORY),
        masks.mask(1, first, NO_HISTORY),
        masks.mask(0, PartyId(2), NO_HISTORY),
        masks.mask(0, first, continue_history(NO_HISTORY, b"reply")),
        MaskGenerator(SEED, Ring(32), 20, bytes([1] * 16)).mask(0, first, NO_HISTORY),
        MaskGenerator(bytes(32), Ring(32), 20, RUN).mask(0, first, NO_HISTORY),
    ]
    assert len({mask.tobytes() for mask in seen}) == len(seen)


def test_masks_are_uniform_and_independent() -> None:
    """Bits of two neighbours and of their sum, from a fixed key: each one half of the time."""
    masks = generator(elements=20_000)
    own, next_ = masks.mask(0, PartyId(1), NO_HISTORY), masks.mask(0, PartyId(2), NO_HISTORY)
    for vector in (own, next_, own + next_, own - next_, own ^ next_):
        ones = np.unpackbits(vector.view(np.uint8)).mean()
        assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(20_000 * 32)


def test_a_key_stream_begins_at_any_block_and_ends_with_the_counter() -> None:
    nonce, stream = bytes(NONCE_BYTES), KeyStream(SEED)
    whole = stream.read(nonce, 5 * BLOCK_BYTES)
    assert stream.read(nonce, 70, block=2) == whole[128:198]
    assert stream.read(nonce, 5 * BLOCK_BYTES) == whole == keystream(SEED, nonce, 5 * BLOCK_BYTES)
    assert len(stream.read(nonce, BLOCK_BYTES, block=2**32 - 1)) == BLOCK_BYTES
    with pytest.raises(ValueError, match=r"at most 2\^32 blocks"):
        stream.read(nonce, BLOCK_BYTES + 1, block=2**32 - 1)


def test_nothing_secret_is_shown() -> None:
    text = repr(generator())
    assert SEED.hex() not in text and repr(SEED)[2:-1] not in text
