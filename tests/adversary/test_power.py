"""After a power cut at any moment a run goes on: whatever left rests on what was synced, and no set is opened twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fastlloyd.run import budget_terms, state
from fastlloyd.wire import regular
from tests.adversary.power import Story
from tests.contracts import whole_run


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Iterator[Story]]:
    """Runs of a protocol with power cuts, one after the other; they know how many moments a whole run has."""
    folder = tmp_path_factory.mktemp("power")
    begun: list[None] = []

    def make(protocol: str, masking: str, seed: str) -> Story:
        begun.append(None)
        config = dataclasses.replace(whole_run.config(protocol), masking=masking, rounds=2 - (protocol == "feddp"))
        return Story(config, folder / str(len(begun)), Random(f"{protocol} {masking} {seed}"))

    @cache
    def whole(protocol: str, masking: str) -> Story:
        story = make(protocol, masking, "whole")
        story.tell()
        assert not story.faults and story.released
        return story

    def tell(protocol: str, masking: str, count: int) -> Iterator[Story]:
        for number in range(count):
            story = make(protocol, masking, str(number))
            story.tell(whole(protocol, masking).moments)
            yield story

    return tell


def check(told: Iterator[Story]) -> None:
    every = list(told)
    assert not [story.faults for story in every if story.faults]
    assert all(story.released == every[0].released for story in every)
    assert sum(story.cuts for story in every) >= len(every) / 2


def test_a_run_with_threshold_masks_survives_power_cuts(stories: Any) -> None:
    check(stories("fastlloyd", "threshold", 6))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "protocol,masking",
    [("fastlloyd", "threshold"), ("fastlloyd-plus", "threshold"), ("feddp", "threshold"), ("fastlloyd", "common")],
)
def test_runs_survive_many_power_cuts(protocol: str, masking: str, stories: Any) -> None:
    check(stories(protocol, masking, 150))


def fault(told: Iterator[Story]) -> list[str]:
    """What the first story with a fault has; nothing if there is none."""
    return next((story.faults for story in told if story.faults), [])


def without_its_folder(target: Path, content: bytes) -> None:
    """Sync a file of the state but not its name."""
    regular.replace_file(target, [content], mode=0o600, draft=f".{target.name}.part")


def without_its_content(target: Path, content: bytes) -> None:
    """Sync the name of a file but not the file."""
    aside = target.with_name(f".{target.name}.part")
    aside.write_bytes(content)
    aside.replace(target)
    regular.sync_directory(target.parent)


def without_sets(target: Path, content: bytes) -> None:
    """Lose which set was stated, or given shares for."""
    if not target.name.startswith("set-"):
        budget_terms.write(target, content)


def test_folders_of_the_state_whose_names_are_not_synced_are_seen(
    stories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lambda path, mode: path.mkdir(parents=True, exist_ok=True, mode=mode)  # noqa: E731
    monkeypatch.setattr(state, "make_directory", made)
    assert fault(stories("fastlloyd", "threshold", 40))


def test_files_that_are_not_synced_are_seen(stories: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "write", without_its_content)
    assert fault(stories("fastlloyd", "threshold", 40))


@pytest.mark.slow
@pytest.mark.parametrize("write,seen", [(without_its_folder, ""), (without_sets, "different messages of type 34")])
def test_names_that_are_not_synced_and_sets_that_are_not_stored_are_seen(
    write: Any, seen: str, stories: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "write", write)
    found = fault(stories("fastlloyd", "threshold", 150))
    assert any(seen in text for text in found), found
