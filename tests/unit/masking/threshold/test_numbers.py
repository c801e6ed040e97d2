"""The numbers of threshold masks: defaults, the table of the specification, and what is refused."""

from __future__ import annotations

import struct

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.masking.threshold.numbers import Numbers

# M, then (t, T, D, Q) for c = 0, 1, 2; None where no threshold fits.
TABLE = [
    (2, [(1, 2, 0, 2), (1, 2, 0, 2), None]),
    (3, [(1, 2, 1, 3), (1, 3, 0, 3), (2, 3, 0, 3)]),
    (4, [(1, 3, 1, 3), (1, 3, 1, 4), (2, 4, 0, 4)]),
    (5, [(1, 3, 2, 4), (1, 4, 1, 4), (2, 4, 1, 5)]),
    (6, [(1, 4, 2, 4), (1, 4, 2, 5), (2, 5, 1, 5)]),
    (7, [(1, 4, 3, 5), (1, 5, 2, 5), (2, 5, 2, 6)]),
    (8, [(1, 5, 3, 5), (1, 5, 3, 6), (2, 6, 2, 6)]),
    (9, [(1, 5, 4, 6), (1, 6, 3, 6), (2, 6, 3, 7)]),
    (10, [(1, 6, 4, 6), (1, 6, 4, 7), (2, 7, 3, 7)]),
]


@pytest.mark.parametrize("clients,rows", TABLE)
def test_the_table_of_small_runs(clients: int, rows: list[tuple[int, ...] | None]) -> None:
    for lying, row in enumerate(rows):
        if row is None:
            with pytest.raises(ConfigError, match="too few against a lying server"):
                Numbers.settle(clients, lying=lying)
            continue
        found = Numbers.settle(clients, lying=lying)
        assert (found.known, found.threshold, found.lost, found.statements) == row
        assert found.restored == min(1, found.threshold - lying - 1)


def test_defaults() -> None:
    assert [Numbers.settle(M).lying for M in (2, 3, 4, 200)] == [0, 0, 1, 1]
    assert Numbers.settle(10, known=8).threshold == 9
    assert Numbers.settle(200).to_bytes() == struct.pack("<5I", 200, 101, 1, 1, 1)


@pytest.mark.parametrize("clients", [*range(2, 20), 33])
def test_every_threshold_that_is_taken_allows_one_set_only(clients: int) -> None:
    taken = 0
    for lying in range(clients):
        for known in range(max(1, lying), clients):
            for threshold in range(clients + 2):
                try:
                    numbers = Numbers.settle(clients, lying=lying, known=known, threshold=threshold)
                except ConfigError:
                    assert not (2 * threshold > clients + lying and known < threshold <= clients)
                    continue
                taken += 1
                assert 2 * threshold > clients + lying
                assert known < threshold <= clients
                assert 0 <= numbers.restored <= threshold - lying - 1
                # Two sets with T votes each would need this many honest ones.
                assert 2 * (threshold - lying) > clients - lying
    assert taken


@pytest.mark.parametrize(
    "given,sentence",
    [
        ({"clients": 201}, "at most 200 clients, got 201; use common masks, with aggregators"),
        ({"clients": 1}, "at least 2 clients"),
        ({"clients": 5, "lying": -1}, "no negative number"),
        ({"clients": 5, "lying": 2, "known": 1}, "--known-shares 1: expected at least 2"),
        ({"clients": 5, "known": 0}, "--known-shares 0: expected at least 1"),
        ({"clients": 5, "known": 5}, "5 clients are too few"),
        ({"clients": 5, "lying": 1, "threshold": 3}, "threshold 3: expected 4 to 5 of 5 clients"),
        ({"clients": 5, "threshold": 6}, "threshold 6: expected 4 to 5"),
        ({"clients": 5, "lying": 0, "restored": 3}, "expected at most 2 with threshold 3"),
        ({"clients": 5, "restored": -1}, "no negative number"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(given: dict[str, int], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Numbers.settle(**given)
