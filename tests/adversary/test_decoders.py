"""The fuzzer over all decoders, in short, and that no decoder is left out."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.party.plain_plan import PlainPlan, RoundsPlan
from fastlloyd.protocol.sums import PlayedSums
from fastlloyd.protocols.fastlloyd.plan import PlayedPlan
from tests.adversary.decoders import Subject, decoders, fuzz, subjects


@pytest.fixture(scope="module")
def everything() -> list[Subject]:
    return subjects()


def test_every_decoder_is_fuzzed(everything: list[Subject]) -> None:
    covered = {kind for subject in everything for kind in subject.covers}
    # Bases, and plans with what was played: they never travel.
    found = decoders() - {PlainPlan, RoundsPlan, PlayedPlan, PlayedSums}
    assert found == covered, "give each new message or decoder valid encodings in decoders.py"


def test_every_valid_encoding_is_accepted(everything: list[Subject]) -> None:
    for subject in everything:
        for body in subject.valid:
            subject.use(subject.decode(body))


def test_nothing_but_our_own_errors_comes_out(everything: list[Subject]) -> None:
    tally = fuzz(everything, 12_000, seed=12)
    assert not tally.unhandled, tally.unhandled[0]
    # Every subject refuses something, so each act reaches it.
    idle = [s.name for s in everything if not tally.refused[s.name]]
    assert set(idle) <= {"Counters", "Totals", "samples", "final centres"}, idle


@pytest.mark.slow
def test_nothing_but_our_own_errors_comes_out_of_many_records(everything: list[Subject]) -> None:
    with np.errstate(all="raise", under="ignore"):
        tally = fuzz(everything, 200_000, seed=2026)
    assert not tally.unhandled, tally.unhandled[0]


def test_the_fuzzer_notices_an_error_that_is_not_ours() -> None:
    def careless(body: bytes) -> int:
        return {b"{": 1}[body[:1]]

    subject = Subject("careless", (), (b'{"k":1}',), careless)
    tally = fuzz([subject], 400, seed=1)
    assert any("KeyError" in line for line in tally.unhandled)
    assert tally.accepted["careless"]
