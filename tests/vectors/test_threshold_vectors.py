"""Threshold masks: the package against the whole run of threshold.json, which another program computed."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.opening import Board
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.masking.threshold.words import Words
from fastlloyd.wire.header import PartyId, clients
from tests.dealt import Dealt, draw_parts, excess

CASE: dict[str, Any] = json.loads(Path(__file__).with_name("threshold.json").read_text())
NUMBERS = Numbers.settle(5, lying=0)
PARTS = Parts(NUMBERS, Fraction(CASE["variance"]))
SET = [PartyId(rank) for rank in CASE["set"]]


class Drawn:
    """Gives out known bytes where a client draws secret ones."""

    def __init__(self, content: bytes) -> None:
        self.left = content

    def bytes(self, count: int) -> bytes:
        given, self.left = self.left[:count], self.left[count:]
        assert len(given) == count
        return given


@pytest.fixture(scope="module")
def dealt() -> Dealt:
    held, published = {}, {}
    for me in clients(5):
        source: Any = Drawn(bytes.fromhex(CASE["drawn"][str(me.rank)]))
        pairs = {
            other: bytes.fromhex(CASE["pairs"][f"{min(me, other).rank} {max(me, other).rank}"])
            for other in clients(5)
            if other != me
        }
        held[me], published[me] = ClientSecrets.deal(NUMBERS, me, pairs, CASE["rounds"], source)
        assert source.left == b""
        assert published[me].to_bytes().hex() == CASE["words"][str(me.rank)]
        assert published[me].digest().hex() == CASE["digests"][str(me.rank)]
    words = {me: Words.from_bytes(NUMBERS, CASE["rounds"], me, one.to_bytes()) for me, one in published.items()}
    return Dealt(NUMBERS, held, words, Board(NUMBERS, words))


def test_numbers_and_parts() -> None:
    assert NUMBERS.to_bytes().hex() == CASE["numbers"]
    assert list(map(str, PARTS.variances)) == CASE["variances"]
    for binary in CASE["binary"]:
        M, T, t = binary["numbers"]
        parts = Parts(Numbers(M, T, 0, t, 0), Fraction(10**9))
        assert list(map(str, parts.shapes)) == binary["shapes"]
        assert {str(u): list(parts.taken_off(u)) for u in range(T, M + 1)} == binary["taken_off"]


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("r", [0, 1])
def test_masks_boxes_and_what_is_opened(dealt: Dealt, r: int, bits: int) -> None:
    case, ring = CASE["in_rounds"][r], Ring(bits)
    history, known = bytes.fromhex(case["history"]), case[str(bits)]
    shape: Any = {"ring": ring, "elements": CASE["elements"]}
    for me, held in dealt.secrets.items():
        rank = str(me.rank)
        assert held.vector_mask(r, history, **shape).tolist() == known["vector_masks"][rank]
        assert held.box_mask(r, history, **shape).tolist() == known["box_masks"][rank]
    quick = {me: bytes.fromhex(case["quick"][str(me.rank)]) for me in clients(5)[2:]}
    masks, boxes = dealt.board.quick_masks(r, quick, history, **shape)
    assert masks.tolist() == known["sum_of_masks"]
    assert {str(rank): mask.tolist() for rank, mask in enumerate(boxes, 1)} == known["box_masks"]
    answers = {me: bytes.fromhex(case["answers"][str(me.rank)]) for me in clients(5)[1:4]}
    assert dealt.board.masks(r, SET, answers, history, **shape).tolist() == known["sum_of_masks_of_set"]


@pytest.mark.parametrize("r", [0, 1])
def test_answers_noise_and_excess(dealt: Dealt, r: int) -> None:
    case, left = CASE["in_rounds"][r], np.zeros(CASE["elements"], dtype=np.int64)
    history = bytes.fromhex(case["history"])
    for me, held in dealt.secrets.items():
        rank = str(me.rank)
        assert held.quick(r).hex() == case["quick"][rank]
        assert held.answer(r, SET).hex() == case["answers"][rank]
        drawn = draw_parts(held, PARTS, CASE["elements"], r, history)
        assert [part.tolist() for part in drawn] == case["parts"][rank]
        for bits in (32, 64):
            assert excess(drawn, PARTS, 5, Ring(bits)).tolist() == case[str(bits)]["excess_of_all"][rank]
            if me in SET:
                assert excess(drawn, PARTS, 4, Ring(bits)).tolist() == case[str(bits)]["excess_of_set"][rank]
        if me in SET:
            stays = [part for j, part in enumerate(drawn) if me.rank == CASE["silent"] or j not in PARTS.taken_off(4)]
            left += sum(stays)
    for bits in (32, 64):
        assert Ring(bits).reduce(left).tolist() == case[str(bits)]["noise_left"]
