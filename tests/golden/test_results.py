"""Results that change need another version: parties of builds that come to different results must refuse each other."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from fastlloyd.protocols import registry
from fastlloyd.protocols.fastlloyd import rounds
from fastlloyd.protocols.registry import FOLLOWING, PROTOCOLS, find
from tests.golden import history
from tests.golden.history import PATH, committed, current, problem, read, rewritten
from tests.golden.runs import CASES


@pytest.mark.parametrize("name", CASES)
def test_the_results_are_those_of_the_version_that_the_row_states(name: str) -> None:
    why = problem(name, find(name).results, read(PATH.read_text()).get(name, {}), current(name))
    assert not why, why


def test_every_protocol_has_cases_and_no_version_is_left_out() -> None:
    hashes = read(PATH.read_text())
    assert {*PROTOCOLS, *(row.name for row in FOLLOWING)} == CASES.keys() == hashes.keys()
    for name, versions in hashes.items():
        assert list(map(int, versions)) == list(range(1, find(name).results + 1)), name


def test_no_commit_has_changed_what_stood_there_for_a_version() -> None:
    for before, after in itertools.pairwise([*committed(), read(PATH.read_text())]):
        assert not list(rewritten(before, after))


def test_a_change_of_the_last_figures_is_seen_and_cannot_be_written_under_the_same_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "results.json"
    copy.write_text(PATH.read_text())
    monkeypatch.setattr(history, "PATH", copy)
    monkeypatch.setattr(history, "CASES", {"lloyd": CASES["lloyd"]})
    assert history.main() == 0 and read(copy.read_text()) == read(PATH.read_text())

    whole = rounds.post_process

    def moved(*given: object, **more: object) -> object:
        found = whole(*given, **more)  # type: ignore[arg-type]
        return replace(found, exact=found.exact * (1 - 2.0**-12))

    monkeypatch.setattr("fastlloyd.protocols.fastlloyd.client.post_process", moved)
    sentence = (
        "the results of lloyd changed (defaults): raise its number (`results` of its row, now 1) in "
        "fastlloyd/protocols/registry.py and write the hashes anew with `python -m tests.golden.history`"
    )
    assert problem("lloyd", 1, read(copy.read_text())["lloyd"], current("lloyd")) == sentence
    assert history.main() == 1 and sentence in capsys.readouterr().err
    assert copy.read_text() == PATH.read_text()
    monkeypatch.setitem(registry._BY_NAME, "lloyd", replace(find("lloyd"), results=find("lloyd").results + 1))
    assert history.main() == 0
    written = read(copy.read_text())
    assert not list(rewritten(read(PATH.read_text()), written))
    assert written["lloyd"]["1"] != written["lloyd"]["2"]
    monkeypatch.setitem(registry._BY_NAME, "lloyd", replace(find("lloyd"), results=1))
    assert "has 2: state 2" in problem("lloyd", 1, written["lloyd"], written["lloyd"]["2"])


def test_a_hash_that_was_written_by_hand_is_named() -> None:
    before = {"lloyd": {"1": {"defaults": "a", "other": "b"}}}
    assert not list(rewritten(before, {"lloyd": {**before["lloyd"], "2": {"defaults": "c"}}}))
    assert list(rewritten(before, {"lloyd": {"1": {"defaults": "c"}}})) == [
        "version 1 of lloyd, defaults",
        "version 1 of lloyd, other",
    ]
