"""Clients with dealt threshold secrets, from fixed keys: what tests of masking, privacy and vectors share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastlloyd.masking.fixed import Ring, RingArray
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.masking.threshold.opening import Board
from fastlloyd.masking.threshold.parts import Parts
from fastlloyd.masking.threshold.secrets import ClientSecrets
from fastlloyd.masking.threshold.words import Words
from fastlloyd.privacy.noise.discrete import discrete_gaussian
from fastlloyd.randomness.secret import KeyedRandom
from fastlloyd.wire.header import PartyId, clients

HISTORY = bytes(range(32))


def fixed(text: str) -> bytes:
    """32 bytes that look random."""
    return hashlib.sha256(text.encode()).digest()


def fixed_random(text: str) -> KeyedRandom:
    """A source that gives the same bits in every run of the tests."""
    return KeyedRandom(fixed(text), fixed(f"{text}, further"))


@dataclass
class Dealt:
    """All clients after the set-up, with what they published, and the server's board."""

    numbers: Numbers
    secrets: dict[PartyId, ClientSecrets]
    words: dict[PartyId, Words]
    board: Board

    def __getitem__(self, rank: int) -> ClientSecrets:
        return self.secrets[PartyId(rank)]


def deal(numbers: Numbers, rounds: int = 2, run: str = "run") -> Dealt:
    """Set all clients up."""
    everybody = clients(numbers.clients)
    dealt = {
        me: ClientSecrets.deal(
            numbers,
            me,
            {
                other: fixed(f"{run}: pair {min(me, other).rank} {max(me, other).rank}")
                for other in everybody
                if other != me
            },
            rounds,
            fixed_random(f"{run}: client {me.rank}"),
        )
        for me in everybody
    }
    words = {me: words for me, (_, words) in dealt.items()}
    return Dealt(numbers, {me: secrets for me, (secrets, _) in dealt.items()}, words, Board(numbers, words))


def draw_parts(
    secrets: ClientSecrets, parts: Parts, elements: int, round_: int = 0, history: bytes = HISTORY
) -> list[NDArray[np.int64]]:
    """Draw one client's parts of a round's noise."""
    return [
        discrete_gaussian(variance, elements, secrets.part_random(round_, history, j))
        for j, variance in enumerate(parts.variances)
    ]


def excess(drawn: list[NDArray[np.int64]], parts: Parts, included: int, ring: Ring) -> RingArray:
    """X(u) of a client: the sum of the parts that it takes off."""
    return ring.reduce(sum((drawn[j] for j in parts.taken_off(included)), np.zeros_like(drawn[0])))


def parts_of(numbers: Numbers, s: int = 200) -> Parts:
    """Parts of noise with a standard deviation of s."""
    return Parts(numbers, Fraction(s * s))
