"""A client's secrets: masks that cancel, answers, streams that all differ, and nothing left of rounds that are over."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import InternalError
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.threshold import secrets as secrets_module
from fastlloyd.masking.threshold import shamir
from fastlloyd.masking.threshold import words as words_module
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.secrets import ClientSecrets, pair_mask
from fastlloyd.masking.threshold.words import BOX, KINDS, OWN, PAIRS, Words
from fastlloyd.privacy.noise.discrete import discrete_gaussian
from fastlloyd.randomness import domains, prg, secret
from fastlloyd.randomness.prg import KeyStream, derive
from fastlloyd.wire.header import PartyId, clients
from tests.dealt import HISTORY, Dealt, deal, draw_parts, fixed, fixed_random, parts_of

FOUR = Numbers.settle(4)


def masks(dealt: Dealt, round_: int, ring: Ring, elements: int, ranks: range) -> Any:
    total = np.zeros(elements, ring.dtype)
    for rank in ranks:
        total += dealt[rank].vector_mask(round_, HISTORY, ring=ring, elements=elements)
    return total


def test_the_keys_of_all_streams_of_a_whole_run_differ_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream has one key, wherever it is read; a key of two streams or a stream of two keys changes the count."""
    read: dict[bytes, set[tuple[bytes, str]]] = {}

    def note(key: bytes, nonce: bytes, reader: str) -> None:
        read.setdefault(key, set()).add((nonce, reader))

    class Noted(KeyStream):
        __slots__ = ("_key",)

        def __init__(self, key: bytes) -> None:
            self._key = key
            super().__init__(key)

        def read(self, nonce: bytes, length: int, *, block: int = 0) -> bytes:
            note(self._key, nonce, "stream")
            return super().read(nonce, length, block=block)

    class NotedRandom(secret.KeyedRandom):
        __slots__ = ()

        def __init__(self, key: bytes, further_key: bytes) -> None:
            note(key, b"", "part")
            note(further_key, b"", "part")
            super().__init__(key, further_key)

    monkeypatch.setattr(prg, "KeyStream", Noted)
    monkeypatch.setattr("fastlloyd.masking.mask.KeyStream", Noted)
    monkeypatch.setattr(secrets_module, "KeyedRandom", NotedRandom)
    M, R, parts, ring = 4, 3, parts_of(FOUR), Ring(32)
    dealt = deal(FOUR, R)
    for r in range(R):
        history = bytes([r]) * 32
        for rank in range(1, M + 1):
            dealt[rank].vector_mask(r, history, ring=ring, elements=3)
            dealt[rank].box_mask(r, history, ring=ring, elements=3)
            draw_parts(dealt[rank], parts, 5, r, history)
            dealt[rank].quick(r)
        chosen = frozenset(clients(3))
        answers = {party: held.answer(r, chosen) for party, held in dealt.secrets.items()}
        dealt.board.masks(r, chosen, answers, history, ring=ring, elements=3)
        quick = {party: held.quick(r) for party, held in dealt.secrets.items()}
        dealt.board.quick_masks(r, quick, history, ring=ring, elements=3)
    masks_of_a_round = 2 * M + M * (M - 1) // 2  # own, box, pairs
    pads, tables, shared = 3 * M * (M - 1), M, 3 * M
    drawn = 2 * M * len(parts.variances)
    assert len(read) == R * (masks_of_a_round + pads + tables + shared + drawn)
    # One nonce for each key: nothing is read twice with another meaning.
    assert all(len(uses) == 1 for uses in read.values())
    assert Counter(reader for uses in read.values() for _, reader in uses)["part"] == R * drawn


@pytest.mark.parametrize("bits", [32, 64])
def test_pair_masks_cancel_in_the_sum_of_all(bits: int) -> None:
    dealt, ring = deal(FOUR), Ring(bits)
    total = masks(dealt, 0, ring, 20, range(1, 5))
    for rank in range(1, 5):
        root = dealt[rank]._root
        own = shamir.reduce_wide(prg.keystream(derive(root, domains.THRESHOLD_SECRET, bytes([OWN])), bytes(12), 64))
        total -= secrets_module.own_mask(own, 0, HISTORY, ring=ring, elements=20)
    assert not total.any()


def test_masks_and_parts_depend_on_round_history_kind_and_part() -> None:
    held, ring = deal(FOUR)[1], Ring(64)
    found = [
        held.vector_mask(0, HISTORY, ring=ring, elements=4),
        held.vector_mask(1, HISTORY, ring=ring, elements=4),
        held.vector_mask(0, HISTORY[::-1], ring=ring, elements=4),
        held.box_mask(0, HISTORY, ring=ring, elements=4),
        held.box_mask(1, HISTORY, ring=ring, elements=4),
        held.box_mask(0, HISTORY[::-1], ring=ring, elements=4),
        *(held.part_random(r, h, j).uint64(4) for r in (0, 1) for h in (HISTORY, HISTORY[::-1]) for j in (0, 1)),
    ]
    assert len({int(one) for vector in found for one in vector}) == 4 * len(found)


def test_a_part_drawn_again_is_the_same_and_further_bits_move_nothing() -> None:
    held, parts = deal(FOUR)[2], parts_of(FOUR)
    again = ClientSecrets.from_bytes(FOUR, PartyId(2), held.to_bytes())
    for one, other in zip(draw_parts(held, parts, 500), draw_parts(again, parts, 500)):
        assert (one == other).all()
    source, drawn_on = held.part_random(0, HISTORY, 0), held.part_random(0, HISTORY, 0)
    assert drawn_on.further() != drawn_on.further()
    assert source.bytes(100) == drawn_on.bytes(100)


def test_on_a_machine_with_a_wider_error_bound_the_noise_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another library's logarithm leaves more decisions to further bits: with their stream, no sample changes."""
    from functools import partial

    from fastlloyd.privacy.noise import discrete

    held, parts = deal(FOUR)[2], parts_of(FOUR)
    plain = discrete_gaussian(parts.variances[1], 2000, held.part_random(0, HISTORY, 1))
    counted = []
    further = secret.KeyedRandom.further
    monkeypatch.setattr(secret.KeyedRandom, "further", lambda self: (counted.append(1), further(self))[1])
    monkeypatch.setattr(discrete, "exponentials", partial(discrete.exponentials, inflate=2.0**30))
    assert (discrete_gaussian(parts.variances[1], 2000, held.part_random(0, HISTORY, 1)) == plain).all()
    assert counted


def test_what_is_made_ready_is_what_is_made_when_asked_for() -> None:
    held, ring = deal(FOUR, 3)[2], Ring(64)
    for r in range(3):
        fresh = ClientSecrets.from_bytes(FOUR, PartyId(2), held.to_bytes())
        held.prepare_masks(r + 1)  # of round 3 there is none
        assert held.quick(r) == fresh.quick(r)
        for ready, made in (
            (held.vector_mask(r, HISTORY, ring=ring, elements=5), fresh.vector_mask(r, HISTORY, ring=ring, elements=5)),
            (held.box_mask(r, HISTORY, ring=ring, elements=5), fresh.box_mask(r, HISTORY, ring=ring, elements=5)),
        ):
            assert (ready == made).all()
        held.forget_before(r + 1)
        assert min(held._ready, default=3) > r  # nothing of the round that is over


def test_a_round_that_is_over_is_gone() -> None:
    held = deal(FOUR, 3)[2]
    before, later = held.to_bytes(), held.answer(2, clients(3))
    old = [held._root, *held._pairs.values(), *(held._own[0][i : i + 32] for i in (0, 32, 64))]
    next_mask = held.vector_mask(1, HISTORY, ring=Ring(32), elements=5)
    held.forget_before(1)
    after = held.to_bytes()
    assert all(one in before and one not in after for one in old)
    assert not any(one in after for one in (derive(held._root, domains.THRESHOLD_SECRET, bytes([k])) for k in KINDS))
    for ask in (
        lambda: held.quick(0),
        lambda: held.answer(0, clients(4)),
        lambda: held.part_random(0, HISTORY, 0),
        lambda: held.vector_mask(0, HISTORY, ring=Ring(32), elements=5),
        lambda: held.box_mask(0, HISTORY, ring=Ring(32), elements=5),
        lambda: held.quick(3),
    ):
        with pytest.raises(InternalError, match="threshold secrets of round"):
            ask()
    assert (held.vector_mask(1, HISTORY, ring=Ring(32), elements=5) == next_mask).all()
    held.forget_before(0)  # gone already
    assert held.to_bytes() == after
    kept = ClientSecrets.from_bytes(FOUR, PartyId(2), after)
    assert kept.answer(2, clients(3)) == later == held.answer(2, clients(3))
    assert kept.first == 1
    kept.forget_before(3)
    assert len(kept.to_bytes()) == 12 + 32 * 4
    with pytest.raises(InternalError, match="up to 3"):
        kept.forget_before(4)


def test_the_chain_cannot_be_run_backward_from_what_is_kept() -> None:
    """Root and pair secrets of round 1 follow from those of round 0 by HKDF, and nothing else of round 0 is kept."""
    held, same = deal(FOUR, 2)[1], deal(FOUR, 2)[1]
    held.forget_before(1)
    assert held._root == derive(same._root, domains.THRESHOLD_NEXT)
    for other, pair in same._pairs.items():
        assert held._pairs[other] == derive(pair, domains.THRESHOLD_NEXT)


def test_stored_secrets_are_read_strictly() -> None:
    content = deal(FOUR, 3)[2].to_bytes()
    assert ClientSecrets.from_bytes(FOUR, PartyId(2), content).to_bytes() == content
    too_large = content[:-32] + b"\xff" * 32
    late = content[:8] + b"\4\0\0\0" + content[12:]
    for wrong in (b"", content[:-1], content + b"\0", too_large, late, content[:11]):
        with pytest.raises(ValueError, match="expected"):
            ClientSecrets.from_bytes(FOUR, PartyId(2), wrong)
    with pytest.raises(ValueError, match="the secrets of client 1"):
        ClientSecrets.from_bytes(FOUR, PartyId(1), content)
    assert "2" in repr(ClientSecrets.from_bytes(FOUR, PartyId(2), content))
    assert content[12:44].hex() not in repr(ClientSecrets.from_bytes(FOUR, PartyId(2), content))


def dealt_words(numbers: Numbers = FOUR, rounds: int = 2, rank: int = 2) -> tuple[ClientSecrets, Words]:
    me = PartyId(rank)
    pairs = {other: fixed(f"{other.rank}") for other in clients(numbers.clients) if other != me}
    return ClientSecrets.deal(numbers, me, pairs, rounds, fixed_random("dealer"))


def test_words_are_read_strictly() -> None:
    _, words = dealt_words()
    content = words.to_bytes()
    assert len(content) == (128 * 3 + 96) * 2 == Words.size(FOUR, 2)
    again = Words.from_bytes(FOUR, 2, PartyId(2), content)
    assert again == words
    assert again.digest() == words.digest() != Words(PartyId(3), 4, 2, content).digest()
    with pytest.raises(ValueError, match="expected 960 bytes of words, got 959"):
        Words.from_bytes(FOUR, 2, PartyId(2), content[:-1])
    for place in (0, 8, 15, 23):  # a round is 9 words, 3 keys and 3 checks
        wrong = content[: 32 * place] + b"\xff" * 32 + content[32 * place + 32 :]
        with pytest.raises(ValueError, match="below 2"):
            Words.from_bytes(FOUR, 2, PartyId(2), wrong)


def test_one_changed_bit_of_the_words_changes_their_digest() -> None:
    _, words = dealt_words()
    content = words.to_bytes()
    digests = {
        Words(PartyId(2), 4, 2, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]).digest()
        for at in range(len(content))
    }
    assert len(digests) == len(content)
    assert words.digest() not in digests


def test_the_table_holds_the_pair_keys_and_no_stream_of_the_dealers_place() -> None:
    held, words = dealt_words()
    keys = words_module.hide_table(words.table(0), held_secret(held, PAIRS))
    for other, pair in held._pairs.items():
        key = keys[32 * other.rank - 32 : 32 * other.rank]
        assert key == derive(pair, domains.THRESHOLD_PAIR_KEY)
        assert pair_mask(key, 0, HISTORY, ring=Ring(32), elements=3).any()
    assert words.table(0)[32:64] == bytes(32)
    assert words.check(0, BOX) == words_module.check_of(PartyId(2), 0, BOX, held_secret(held, BOX))


def held_secret(held: ClientSecrets, kind: int) -> int:
    return secrets_module._secret(prg.Derivation(held._root), kind)
