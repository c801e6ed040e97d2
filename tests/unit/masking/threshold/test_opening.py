"""The server opens what T clients answer, to the last unit, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.errors import PeerError
from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.threshold import opening, shamir
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.opening import Board
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.masking.threshold.words import OWN, PAIRS, Words, check_of, hide_table
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import Derivation, derive
from fastlloyd.wire.header import PartyId, clients
from tests.dealt import HISTORY, Dealt, deal, draw_parts, excess, parts_of

L = 12
FIVE, SIX = Numbers.settle(5, lying=0), Numbers.settle(6)


def vectors(count: int) -> dict[PartyId, NDArray[np.int64]]:
    return {party: np.arange(L, dtype=np.int64) * 1000 - 77 * party.rank for party in clients(count)}


def uplinks(
    dealt: Dealt, parts: Parts, round_: int, ring: Ring
) -> tuple[dict[PartyId, RingArray], dict[PartyId, RingArray], dict[PartyId, list[NDArray[np.int64]]]]:
    """Each client's masked vector, its box, and its parts of the noise."""
    drawn = {party: draw_parts(held, parts, L, round_) for party, held in dealt.secrets.items()}
    up, boxes = {}, {}
    for party, held in dealt.secrets.items():
        vector = vectors(dealt.numbers.clients)[party] + sum(drawn[party])
        up[party] = ring.reduce(vector) + held.vector_mask(round_, HISTORY, ring=ring, elements=L)
        whole = excess(drawn[party], parts, dealt.numbers.clients, ring)
        boxes[party] = whole + held.box_mask(round_, HISTORY, ring=ring, elements=L)
    return up, boxes, drawn


def total(arrays: Iterable[NDArray], ring: Ring) -> RingArray:
    found = np.zeros(L, ring.dtype)
    for array in arrays:
        found += ring.reduce(array) if array.dtype == np.int64 else array
    return found


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("numbers", [FIVE, SIX], ids=["M=5, T=3", "M=6, T=4"])
def test_the_sum_is_right_to_the_last_unit_for_each_pattern_of_two_losses(numbers: Numbers, bits: int) -> None:
    """Noise less kept parts and the excess of the silent is 0: lost before the vector, or silent in the answer."""
    ring, parts, everybody = Ring(bits), parts_of(numbers), clients(numbers.clients)
    dealt = deal(numbers)
    up, _, drawn = uplinks(dealt, parts, 1, ring)
    patterns = 0
    for gone in itertools.chain.from_iterable(itertools.combinations(everybody, n) for n in range(3)):
        for lost in itertools.chain.from_iterable(itertools.combinations(gone, n) for n in range(len(gone) + 1)):
            if numbers.clients - len(gone) < numbers.threshold:
                continue
            included = [party for party in everybody if party not in lost]
            silent = set(gone) - set(lost)
            u = len(included)
            answers = {party: held.answer(1, included) for party, held in dealt.secrets.items() if party not in gone}
            found = total((up[party] for party in included), ring)
            found -= dealt.board.masks(1, included, answers, HISTORY, ring=ring, elements=L)
            for party in included:
                if party not in silent:
                    found -= excess(drawn[party], parts, u, ring)
            found -= total((vectors(numbers.clients)[party] for party in included), ring)
            kept = [
                part
                for party in included
                for j, part in enumerate(drawn[party])
                if party in silent or j not in parts.taken_off(u)
            ]
            assert (found == total(kept, ring)).all(), (lost, silent)
            assert dealt.board.wrong == {}
            patterns += 1
    assert patterns == sum(2**n * len(list(itertools.combinations(everybody, n))) for n in range(3))


@pytest.mark.parametrize("numbers", [FIVE, SIX], ids=["M=5, T=3", "M=6, T=4"])
def test_a_quick_answer_opens_the_set_of_everybody(numbers: Numbers) -> None:
    ring, parts = Ring(32), parts_of(numbers)
    dealt = deal(numbers)
    up, boxes, drawn = uplinks(dealt, parts, 0, ring)
    quick = {party: held.quick(0) for party, held in dealt.secrets.items()}
    for chosen in itertools.combinations(quick, numbers.threshold):
        own, covers = dealt.board.quick_masks(
            0, {party: quick[party] for party in chosen}, HISTORY, ring=ring, elements=L
        )
        found = total(up.values(), ring) - own
        for party, box in boxes.items():
            opened = box - covers[party.rank - 1]
            assert (opened == excess(drawn[party], parts, numbers.clients, ring)).all()
            found -= opened
        found -= total(vectors(numbers.clients).values(), ring)
        assert (found == total((noise[0] for noise in drawn.values()), ring)).all()


def test_the_masks_of_another_set_leave_uniform_values() -> None:
    """Own masks alone, pair masks with the other sign, or another set: nothing that looks like a sum comes out."""
    ring, dealt = Ring(64), deal(SIX)
    up = {p: held.vector_mask(0, HISTORY, ring=ring, elements=L) for p, held in dealt.secrets.items()}
    included = clients(6)[1:]
    answers = {party: held.answer(0, included) for party, held in dealt.secrets.items()}
    right = dealt.board.masks(0, included, answers, HISTORY, ring=ring, elements=L)
    assert (total((up[party] for party in included), ring) == right).all()
    for others in (clients(6), clients(5), included[1:]):
        rest = total((up[party] for party in others), ring) - right
        assert (np.abs(ring.decode(rest)) > 2**40).all()


def test_fewer_answers_than_the_threshold_open_nothing() -> None:
    dealt, ring = deal(FIVE), Ring(32)
    quick = {party: dealt.secrets[party].quick(0) for party in clients(2)}
    with pytest.raises(PeerError, match="2 answers of round 0 do not open .* expected 3 right ones"):
        dealt.board.quick_masks(0, quick, HISTORY, ring=ring, elements=L)
    answers = {party: dealt.secrets[party].answer(0, clients(4)) for party in clients(2)}
    with pytest.raises(PeerError, match="do not open"):
        dealt.board.masks(0, clients(4), answers, HISTORY, ring=ring, elements=L)


def swapped(first: int, second: int, M: int):
    """Exchange two pieces of M elements of each answer."""

    def change(answer: bytes) -> bytes:
        pieces = [answer[at : at + 32 * M] for at in range(0, len(answer), 32 * M)]
        pieces[first], pieces[second] = pieces[second], pieces[first]
        return b"".join(pieces)

    return change


def test_shares_of_another_round_kind_run_or_direction_do_not_open() -> None:
    dealt, other, ring = deal(FIVE, 3), deal(FIVE, 3, run="another run"), Ring(32)
    everybody = clients(5)

    def turned(party: PartyId) -> bytes:
        """Pads of what this client deals, in place of those of what it holds."""
        from fastlloyd.masking.threshold.secrets import _pad

        held = dealt.secrets[party]
        pads = {peer: shamir.to_bytes(_pad(Derivation(pair), party, peer, OWN)) for peer, pair in held._pairs.items()}
        own = held.answer(0, everybody)[32 * party.rank - 32 : 32 * party.rank]
        return b"".join(pads.get(peer, own) for peer in everybody)

    kinds = swapped(0, 1, 5)
    mixed_quick = {
        "another round": {party: held.quick(1) for party, held in dealt.secrets.items()},
        "another kind": {party: kinds(held.quick(0)) for party, held in dealt.secrets.items()},
        "another run": {party: held.quick(0) for party, held in other.secrets.items()},
        "rounds mixed": {party: held.quick(party.rank % 2) for party, held in dealt.secrets.items()},
    }
    for answers in mixed_quick.values():
        with pytest.raises(PeerError, match="do not open"):
            dealt.board.quick_masks(0, answers, HISTORY, ring=ring, elements=L)
    mixed = {
        "OWN in place of PAIRS": (
            clients(4),
            {party: held.answer(0, everybody) for party, held in dealt.secrets.items()},
        ),
        "PAIRS in place of OWN": (
            everybody,
            {party: held.answer(0, clients(4)) for party, held in dealt.secrets.items()},
        ),
        "direction": (everybody, {party: turned(party) for party in everybody}),
    }
    for included, answers in mixed.values():
        with pytest.raises(PeerError, match="do not open"):
            dealt.board.masks(0, included, answers, HISTORY, ring=ring, elements=L)
    assert dealt.board.wrong == {}


def test_of_a_client_declared_lost_the_pair_keys_come_out_and_the_own_mask_does_not() -> None:
    """Its vector that arrives later stays covered by b_i(r), and the pair keys of round r + 1 are others."""
    dealt, late = deal(FIVE, 3), PartyId(5)
    included = clients(4)
    answers = {party: held.answer(1, included) for party, held in dealt.secrets.items()}
    # All that anybody holds of the lost client's secrets: its words, and the pads in the answers.
    words = dealt.board._words[late]
    shares = {
        party.rank: (int.from_bytes(answer[128:160], "little") + words.word(1, PAIRS, party)) % shamir.PRIME
        for party, answer in answers.items()
    }
    chosen = {rank: shares[rank] for rank in (1, 2, 3)}
    opened = shamir.combine(shamir.weights(chosen), chosen)
    assert check_of(late, 1, PAIRS, opened) == words.check(1, PAIRS)
    keys = hide_table(words.table(1), opened)
    dealt[5].forget_before(1)
    for other, pair in dealt[5]._pairs.items():
        key = keys[32 * other.rank - 32 : 32 * other.rank]
        assert key == derive(pair, domains.THRESHOLD_PAIR_KEY)
        assert key != derive(derive(pair, domains.THRESHOLD_NEXT), domains.THRESHOLD_PAIR_KEY)
    as_own = {
        rank: (int.from_bytes(answers[PartyId(rank)][128:160], "little") + words.word(1, OWN, PartyId(rank)))
        % shamir.PRIME
        for rank in (1, 2, 3)
    }
    assert check_of(late, 1, OWN, shamir.combine(shamir.weights(as_own), as_own)) != words.check(1, OWN)
    hidden = hide_table(words.table(2), opened)
    dealt[5].forget_before(2)
    assert not any(
        hidden[32 * other.rank - 32 : 32 * other.rank] == derive(pair, domains.THRESHOLD_PAIR_KEY)
        for other, pair in dealt[5]._pairs.items()
    )


def wrong_answer(answer: bytes, dealer: int) -> bytes:
    """Change a share of one dealer's secret."""
    at = 32 * dealer - 32
    return answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]


@pytest.mark.parametrize("liar", [1, 3, 6])
def test_a_wrong_share_is_named_and_others_open_the_secret(liar: int, caplog: pytest.LogCaptureFixture) -> None:
    dealt, ring, included = deal(SIX), Ring(32), clients(5)
    answers = {party: held.answer(0, included) for party, held in dealt.secrets.items()}
    right = deal(SIX).board.masks(0, included, answers, HISTORY, ring=ring, elements=L)
    answers[PartyId(liar)] = wrong_answer(answers[PartyId(liar)], 4)
    found = dealt.board.masks(0, included, answers, HISTORY, ring=ring, elements=L)
    assert (found == right).all()
    # Client 6 is not among the first four, so nobody looks at its answer.
    assert set(dealt.board.wrong) == ({PartyId(liar)} if liar != 6 else set())
    if liar != 6:
        assert dealt.board.wrong[PartyId(liar)].startswith(f"client {liar} sent a wrong share of a secret of client 4")
        assert caplog.messages == [dealt.board.wrong[PartyId(liar)]]


def test_with_t_answers_a_wrong_one_ends_in_one_sentence() -> None:
    dealt, ring = deal(SIX), Ring(32)
    answers = {party: dealt.secrets[party].quick(0) for party in clients(4)}
    answers[PartyId(2)] = wrong_answer(answers[PartyId(2)], 5)
    with pytest.raises(PeerError, match=r"secret of client 5, .* one of the clients 1, 2, 3, 4 sent a wrong answer"):
        dealt.board.quick_masks(0, answers, HISTORY, ring=ring, elements=L)


def test_an_answer_of_another_length_names_its_sender() -> None:
    dealt, ring = deal(SIX), Ring(32)
    answers = {party: dealt.secrets[party].quick(0) for party in clients(4)}
    answers[PartyId(3)] += b"\0"
    with pytest.raises(PeerError, match="client 3 sent an answer of 385 bytes, expected 384") as error:
        dealt.board.quick_masks(0, answers, HISTORY, ring=ring, elements=L)
    assert error.value.rank == 3


def test_a_dealer_whose_words_are_wrong_is_named_beside_the_holder() -> None:
    dealt, ring = deal(SIX), Ring(32)
    words = dict(dealt.board._words)
    content = words[PartyId(2)].to_bytes()
    words[PartyId(2)] = Words(PartyId(2), 6, 2, bytes([content[0] ^ 1]) + content[1:])  # the word for client 1
    board = Board(SIX, words)
    answers = {party: held.quick(0) for party, held in dealt.secrets.items()}
    board.quick_masks(0, answers, HISTORY, ring=ring, elements=L)
    assert set(board.wrong) == {PartyId(1)}
    assert "or client 2 dealt it a wrong word" in board.wrong[PartyId(1)]


def test_many_answers_with_some_wrong_ones_open_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Numbers.settle(24)
    dealt, ring, everybody = deal(numbers, 1), Ring(32), clients(24)
    answers = {party: held.quick(0) for party, held in dealt.secrets.items()}
    right, _ = deal(numbers, 1).board.quick_masks(0, answers, HISTORY, ring=ring, elements=L)
    for liar in (1, 5, 9):
        answers[PartyId(liar)] = b"\1" * len(answers[PartyId(liar)])
    found, _ = dealt.board.quick_masks(0, answers, HISTORY, ring=ring, elements=L)
    assert (found == right).all()
    assert set(dealt.board.wrong) == {PartyId(1), PartyId(5), PartyId(9)}
    # Once they are known they are used last.
    order = sorted(everybody, key=lambda party: (party in dealt.board.wrong, party))
    assert next(iter(opening._choices(order, numbers.threshold)))[0] == PartyId(2)
    # With no good set among them it ends.
    monkeypatch.setattr(opening, "MOST_TRIALS", 5)
    bad = {party: b"\1" * len(answer) for party, answer in answers.items()}
    with pytest.raises(PeerError, match="do not open"):
        dealt.board.quick_masks(0, bad, HISTORY, ring=ring, elements=L)
