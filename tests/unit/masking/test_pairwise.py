"""Pairwise masks: they cancel in the sum over all clients, and hide everything in any smaller sum.

False alarms of the statistical tests: 1e-6 each.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from scipy import stats

from fastlloyd.errors import PeerError
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, continue_history
from fastlloyd.masking.pairwise import PairSecrets, PairwiseMasks
from fastlloyd.wire.header import PartyId, clients

RUN = bytes(range(16))


def secrets(count: int) -> list[PairSecrets]:
    """What each of `count` clients has after the exchange of keys."""
    everybody = clients(count)
    shared = {frozenset(pair): os.urandom(32) for pair in itertools.combinations(everybody, 2)}
    return [
        PairSecrets(me, {other: shared[frozenset((me, other))] for other in everybody if other != me})
        for me in everybody
    ]


def masks(count: int, bits: int = 32, elements: int = 64, **changes) -> list[PairwiseMasks]:
    return [PairwiseMasks(pairs, Ring(bits), elements, RUN, **changes) for pairs in secrets(count)]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_masks_of_all_clients_cancel_exactly(count: int, bits: int) -> None:
    everybody = masks(count, bits)
    for t in (0, 1, 2**32 - 3):
        total = sum(m.mask(t, m.me, NO_HISTORY) for m in everybody)
        assert total.dtype == Ring(bits).dtype
        assert (total == 0).all()
        assert (everybody[0].total(t, clients(count), NO_HISTORY) == 0).all()


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_sum_without_one_client_or_more_stays_uniform(bits: int, size: int) -> None:
    # The vectors are constant, so anything but a uniform partial sum would show.
    everybody = masks(4, bits, elements=1 << 14)
    partial = sum(
        (m.mask(5, m.me, NO_HISTORY) for m in everybody[:size]), start=np.full(1 << 14, 12345, Ring(bits).dtype)
    )
    counts = np.bincount(partial.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6
    # Adding what the missing ones have makes it the sum of the vectors again: the test looked at the right thing.
    rest = sum(m.mask(5, m.me, NO_HISTORY) for m in everybody[size:])
    assert (partial + rest == 12345).all()


def test_one_pair_s_secret_more_takes_nothing_off() -> None:
    # Clients 1 and 2 collude: their pair's stream goes, the streams with 3 and 4 stay.
    pairs = secrets(4)
    first, second = (PairwiseMasks(pairs[i], Ring(32), 1 << 14, RUN) for i in (0, 1))
    alone = PairwiseMasks(PairSecrets(PartyId(1), {PartyId(2): pairs[0].secrets[PartyId(2)]}), Ring(32), 1 << 14, RUN)
    rest = first.mask(0, PartyId(1), NO_HISTORY) - alone.mask(0, PartyId(1), NO_HISTORY)
    assert stats.chisquare(np.bincount(rest.view(np.uint8), minlength=256)).pvalue > 1e-6
    assert (first.mask(0, PartyId(1), NO_HISTORY) != second.mask(0, PartyId(2), NO_HISTORY)).any()


def test_each_round_history_and_run_has_masks_of_its_own() -> None:
    pairs = secrets(2)[0]
    ring, me = Ring(64), PartyId(1)
    seen = [
        PairwiseMasks(pairs, ring, 8, run).mask(t, me, history).tobytes()
        for run in (RUN, RUN[::-1])
        for history in (NO_HISTORY, continue_history(NO_HISTORY, b"a"), continue_history(NO_HISTORY, b"b"))
        for t in (0, 1)
    ]
    assert len(set(seen)) == len(seen)
    assert PairwiseMasks(pairs, ring, 8, RUN).mask(0, me, NO_HISTORY).tobytes() == seen[0]


def test_a_sum_that_lacks_a_client_is_refused() -> None:
    with pytest.raises(PeerError, match="lacks client 2, expected all clients") as caught:
        masks(3)[0].total(4, (PartyId(1), PartyId(3)), NO_HISTORY)
    assert caught.value.rank == 0


def test_another_client_s_mask_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="expected client 1"):
        masks(2)[0].mask(0, PartyId(2), NO_HISTORY)


def test_secrets_survive_storage_and_show_nowhere() -> None:
    pairs = secrets(3)[1]
    content = pairs.to_bytes()
    others = [PartyId(3), PartyId(1)]
    assert PairSecrets.from_bytes(PartyId(2), others, content) == pairs
    with pytest.raises(ValueError, match="expected 64 bytes, got 63"):
        PairSecrets.from_bytes(PartyId(2), others, content[:-1])
    text = repr(pairs) + repr(PairwiseMasks(pairs, Ring(32), 4, RUN))
    for secret in pairs.secrets.values():
        assert secret.hex() not in text and repr(secret)[2:-1] not in text


def test_a_stream_knows_its_pair_even_under_one_secret() -> None:
    pairs = PairSecrets(PartyId(2), {PartyId(1): b"p" * 32, PartyId(3): b"p" * 32})
    # With one stream for both pairs the two would cancel: 1 < 2 takes it off, 2 < 3 adds it.
    mask = PairwiseMasks(pairs, Ring(32), 64, RUN).mask(0, PartyId(2), NO_HISTORY)
    assert np.count_nonzero(mask) > 60


@pytest.mark.parametrize("place", range(32))
def test_every_byte_of_the_history_counts(place: int) -> None:
    (one, *_) = masks(2)
    history = bytearray(continue_history(NO_HISTORY, b"reply"))
    before = one.mask(1, one.me, bytes(history))
    history[place] ^= 1
    assert np.count_nonzero(before != one.mask(1, one.me, bytes(history))) > 60
