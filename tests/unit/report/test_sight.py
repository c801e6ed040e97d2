from __future__ import annotations

import pytest

from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.report.sight import ProtocolWords, Sights, about_ranges, who_sees


def sights(protocol, parameters=(), **known) -> Sights:
    found = who_sees(protocol, dict(parameters), **known)
    assert found is not None
    return found


def protection(found, who):
    return next(sight.protection for sight in (*found.alone, *found.together) if sight.who == who)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_protocol_says_who_sees_what(protocol):
    found = sights(protocol)
    assert len(found.alone) >= 3 and found.together
    assert all(sight.who and sight.sees and sight.protection for sight in (*found.alone, *found.together))


@pytest.mark.parametrize(
    ("plus", "words"),
    [
        (
            {"survey": True, "cells": 0, "stages": [{"rounds": 9, "clusters": 3}]},
            "hence the centroids; before that a noisy mean and spread of each feature and a noisy number of records",
        ),
        (
            {"survey": False, "cells": 12, "stages": [{"rounds": 4, "clusters": 6}, {"rounds": 5, "clusters": 3}]},
            "hence the centroids, in the first 4 rounds of 6 clusters, which are then merged to 3; before that a noisy "
            "number of the records in each cell of a grid",
        ),
        (
            {
                "survey": False,
                "cells": 0,
                "stages": [{"rounds": r, "clusters": c} for r, c in ((3, 9), (1, 6), (2, 4), (3, 3))],
            },
            "hence the centroids, in the first 3 rounds of 9 clusters, which are then merged step by step to 3",
        ),
        ({"survey": False, "cells": 0, "stages": [{"rounds": 2, "clusters": 3}]}, "hence the centroids"),
    ],
)
def test_of_survey_and_histogram_the_one_that_was_planned_is_named(plus, words):
    found = sights("fastlloyd-plus", {"k": 3, "plus": plus})
    assert next(sight.sees for sight in found.alone if sight.who == "each client").endswith(words)


def test_a_protocol_of_another_distribution_has_no_words_here():
    assert who_sees("histogram", {}) is None


def test_only_ranges_that_are_not_of_the_last_step_have_words_of_their_own(monkeypatch):
    assert [name for name in PROTOCOLS if about_ranges(name)] == ["fastlloyd-plus"]
    assert about_ranges("histogram") is None
    ranges = type("Ranges", (ProtocolWords,), {"about_ranges": lambda self, name: f"of {name}"})
    monkeypatch.setattr("fastlloyd.report.sight.read_protocol", lambda *_: ranges())
    assert about_ranges("histogram") == "of histogram"


def test_words_that_fail_are_left_out(monkeypatch, caplog):
    class Failing(ProtocolWords):
        def who_sees(self, protocol, parameters):
            raise KeyError("bins")

    monkeypatch.setattr("fastlloyd.report.sight.read_protocol", lambda *_: Failing())
    assert who_sees("histogram", {}) is None
    assert "histogram cannot say who sees what" in caplog.text


@pytest.mark.parametrize("protocol", ["lloyd", "kfed", "vertical-plain"])
def test_nothing_protects_records_where_there_is_no_noise(protocol):
    assert "nothing" in {sight.protection for sight in sights(protocol).alone}


@pytest.mark.parametrize("protocol", ["fastlloyd", "lloyd"])
def test_common_masks_fall_where_the_server_meets_a_client(protocol):
    assert protection(sights(protocol, masking="common"), "the server and any one client") == "nothing"


def test_noise_in_shares_holds_against_the_server_and_as_many_clients_as_were_planned_for():
    found = sights("fastlloyd", {"known_shares": 3}, masking="pairwise")
    assert "promise" in protection(found, "the server and up to 3 clients")
    assert "less noise" in protection(found, "more than 3 of the clients, with or without the server")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_lies_open_is_a_value_and_agrees_with_its_words(protocol):
    for settings in ({}, {"private": False}, {"known_shares": 3}, {"mode": "threshold"}):
        for masking in ("common", "pairwise"):
            found = sights(protocol, settings, masking=masking)
            *parties, host = (*found.alone, *found.together)
            assert host.protection.startswith("nothing") and not host.open  # no agreement of parties is about it
            for one in parties:
                assert one.open == one.protection.startswith("nothing"), one
                assert one.weaker == one.protection.startswith("less noise"), one
                assert one.public == ("published" in one.who), one


@pytest.mark.parametrize(
    ("protocol", "masking", "sees", "protection"),
    [
        ("fastlloyd", "common", "masked sums, which are random numbers", "ML-KEM-768"),
        ("lloyd", "common", "masked sums, which are random numbers", "ML-KEM-768"),
        ("fastlloyd", "threshold", "masked sums, which are random numbers", "ML-KEM-768"),
        ("feddp", "threshold", "noisy sums of each step", "the noise"),
        ("fastlloyd", "pairwise", "noisy sums and counts of each cluster", "the noise"),
        ("lloyd", "pairwise", "exact sums and counts", "nothing"),
        ("feddp", None, "noisy sums of each step", "the noise"),
        ("kfed", None, "each client's own centres", "nothing"),
        ("secfc", None, "what the server sees", "ML-KEM-768"),
        ("vertical-dp", None, "which of the ids that it can guess", "the noise"),
        ("vertical-plain", None, "every person's local cluster", "nothing"),
        ("vertical-he", None, "ciphertexts, which rest on lattices; noisy sums", "the noise"),
    ],
)
def test_what_a_recording_shows_once_x25519_is_broken_is_said(protocol, masking, sees, protection):
    found = sights(protocol, masking=masking)
    assert found.later in found.alone and "X25519" in found.later.who
    assert sees in found.later.sees and protection in found.later.protection


def test_settings_that_show_more_are_said():
    told = sights("secfc", {"reveal_centers": True, "segments": 2, "threshold": 1})
    client = told.alone[1]
    assert "final centres" in client.sees and "whose" in client.sees and "seeds" in client.sees
    assert "seeds" not in sights("secfc", {"start": "random"}).alone[1].sees
    assert "3 clients" in {sight.who for sight in told.together}
    assert "whose" not in sights("secfc", {"membership": True}).alone[1].sees
    assert protection(sights("vertical-he", {"private": False}), "the computing party") == "nothing"


def test_links_whose_keys_nobody_checked_are_called_so():
    assert "nobody checked" in protection(sights("fastlloyd", authenticated=False), "the network")
    assert "nobody" not in protection(sights("fastlloyd"), "the network")
