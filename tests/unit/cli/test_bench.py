"""`fastlloyd bench`, `compare` and `datasets download` are done by another distribution, found by its entry points."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from fastlloyd.__main__ import main
from fastlloyd.cli import bench, compare
from fastlloyd.cli.options import GROUP

WORDS = [
    ["bench", "--list"],
    ["compare", "--data", "x"],
    ["datasets", "download", "wine", "--data-dir", "x"],
    ["datasets", "make", "loan"],
]


def adds(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    """These entry points and no others are installed."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **wanted: EntryPoints(points).select(**wanted))


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_without_the_papers_a_sentence_says_how_to_get_them(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    adds(monkeypatch)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "fastlloyd-papers: pip install ./papers" in said and said.count("\n") == 1


def test_papers_that_cannot_be_imported_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    adds(monkeypatch, EntryPoint("bench", "no_such_package.command", GROUP))
    assert main(["bench", "--list"]) == 2
    assert "no_such_package.command, the module of `fastlloyd bench`" in capsys.readouterr().err


def test_without_the_papers_a_shell_still_completes_the_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    adds(monkeypatch)
    assert (bench.parser().prog, compare.parser().prog) == ("fastlloyd bench", "fastlloyd compare")


def test_a_list_of_sets_needs_no_papers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    adds(monkeypatch)
    assert main(["datasets"]) == 0
    assert "iris" in capsys.readouterr().out
