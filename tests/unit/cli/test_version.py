"""`fastlloyd --version`: what two sites compare before a run."""

from __future__ import annotations

import pytest

from fastlloyd.__main__ import main
from fastlloyd.protocols.registry import ROWS
from fastlloyd.version import __version__
from fastlloyd.wire.header import PROTOCOL_VERSION


def test_the_numbers_that_parties_compare_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    first, messages, results = capsys.readouterr().out.splitlines()
    assert (first, messages) == (f"fastlloyd {__version__}", f"messages: {PROTOCOL_VERSION}")
    assert results.startswith("results: ")
    assert {f"{row.name} {row.results}" for row in ROWS} <= set(results.removeprefix("results: ").split(", "))


@pytest.mark.parametrize(("name", "version"), [(row.name, row.results) for row in ROWS])
def test_plan_says_the_version_of_the_results(name: str, version: int, capsys: pytest.CaptureFixture[str]) -> None:
    public = ["--n-total", "3000", "--d", "6", "--k", "3", "--epsilon", "10", "-n", "5"]
    assert main(["plan", "--protocol", name, *public]) == 0
    assert f"results: version {version} of {name}; " in capsys.readouterr().out
