"""`fastlloyd choose`: what it names, why, and what it refuses."""

from __future__ import annotations

import io
import shlex
import sys

import pytest

from fastlloyd.__main__ import main

NUMBERS = ["--n", "20000", "--d", "4", "--k", "5"]


def chosen(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, list[str]]:
    """The lines that `choose` prints, by their heads."""
    assert main(["choose", *NUMBERS, *flags]) == 0
    lines: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        head, _, rest = line.partition(":")
        lines.setdefault(head, []).append(rest.strip())
    return lines


@pytest.fixture(autouse=True)
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.mark.parametrize(
    ("flags", "protocol", "words"),
    [
        (["--split", "rows"], "fastlloyd-plus", ["--masking", "threshold"]),
        (["--split", "rows", "--parties", "2"], "fastlloyd-plus", []),
        (["--split", "rows", "--collude", "server+clients"], "fastlloyd-plus", ["--masking", "threshold"]),
        (
            ["--split", "rows", "--parties", "2", "--collude", "server+clients"],
            "fastlloyd-plus",
            ["--masking", "pairwise"],
        ),
        (["--split", "rows", "--dropouts", "yes"], "fastlloyd-plus", ["--masking", "threshold"]),
        (["--split", "rows", "--parties", "300", "--dropouts", "yes"], "fastlloyd-plus", ["--min-clients", "299"]),
        (["--split", "rows", "--server-data", "yes"], "feddp", ["--masking", "threshold"]),
        (["--split", "rows", "--unit", "person"], "fastlloyd-plus", []),
        (["--split", "rows", "--unit", "person", "--server-data", "yes"], "feddp", []),
        (["--split", "rows", "--exact", "yes"], "secfc", []),
        (["--split", "columns", "--parties", "2"], "vertical-he", ["-n", "2"]),
        (["--split", "columns", "--parties", "2", "--collude", "server+clients"], "vertical-he", ["-n", "2"]),
        (["--split", "columns", "--parties", "3"], "vertical-he", ["-n", "4"]),
    ],
)
def test_the_protocol_that_fits_and_a_plan_of_it(
    capsys: pytest.CaptureFixture[str], flags: list[str], protocol: str, words: list[str]
) -> None:
    lines = chosen(capsys, *flags)
    assert lines["protocol"] == [protocol] and lines["why"]
    assert ("person" in flags) == any('put unit = "COLUMN" into the run file' in note for note in lines.get("note", ()))
    command = shlex.split(lines["plan"][0])
    assert set(words) <= set(command) and command[:2] == ["fastlloyd", "plan"]
    assert main(command[1:]) == 0  # as printed
    planned = [line for line in capsys.readouterr().out.splitlines() if line.startswith("expected: ")]
    assert planned == [f"expected: {lines['expected'][0]}"] or (not planned and protocol == "secfc")


def test_a_number_of_clusters_that_is_a_guess_can_be_left_to_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    notes = chosen(capsys, "--split", "rows", "--parties", "2", "--k", "5")["note"]
    known = "if 5 is a guess: --k auto:10 lets the run choose k, at the noise of 10 clusters"
    assert notes[:-1] == [f"{known}; --k 2..10 shows silhouettes too"] and "--quality" in notes[-1]
    for flags in (["--split", "rows", "--k", "1"], ["--split", "rows", "--server-data", "yes"]):
        assert "auto:" not in str(chosen(capsys, *flags))


def test_without_data_of_the_server_feddp_is_offered_where_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    colluding = chosen(capsys, "--split", "rows", "--collude", "server+clients")
    assert colluding["else"][1].startswith("feddp --set feddp.start=private: noise of ")
    people = chosen(capsys, "--split", "rows", "--unit", "person")
    assert "--set feddp.start=private --set feddp.privacy_level=client --set feddp.users=COLUMN" in people["else"][1]
    assert any("without merging them" in note for note in people["note"])
    assert "feddp" not in str(chosen(capsys, "--split", "rows"))


def test_many_owners_of_columns_send_sketches(capsys: pytest.CaptureFixture[str]) -> None:
    lines = chosen(capsys, "--split", "columns", "--parties", "6", "--d", "12")
    assert lines["protocol"] == ["vertical-dp"] and "not between the parties" in lines["why"][0]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "expected --split, or a terminal to ask on"),
        (["--split", "rows", "--exact", "yes", "--parties", "2"], "secfc, which needs at least 3"),
        (["--split", "columns", "--exact", "yes"], "no protocol for columns gives exact labels"),
        (["--split", "columns", "--collude", "server+clients"], "no protocol protects from a server that works"),
        (["--split", "rows", "--parties", "1"], "one party alone needs no protocol"),
        (["--split", "rows", "--epsilon", "0"], "expected a number from 0.001 to 100, got 0.0"),
        (["--split", "rows", "--k", "0"], "expected a whole number, at least 1, got 0"),
        (["--split", "cells"], "invalid choice: 'cells'"),
        (["--split", "rows", "--n", "500", "--k", "900"], "expected at most the public N = 500 clusters"),
    ],
)
def test_what_does_not_fit_is_a_sentence(capsys: pytest.CaptureFixture[str], flags: list[str], sentence: str) -> None:
    assert main(["choose", *NUMBERS, *flags]) == 2
    said = capsys.readouterr()
    assert sentence in said.err and not said.out


def test_what_is_missing_is_asked_for_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    # rows; three parties by default; a wrong number, then N; no exact labels; the rest as it is
    typed = ["sideways", "rows", "", "many", "20000", "no", "", "", "yes", "", ""]
    monkeypatch.setattr(sys, "stdin", Terminal("\n".join(typed) + "\n"))
    assert main(["choose", "--d", "4", "--k", "5"]) == 0
    said = capsys.readouterr().out
    assert "expected 'rows' or 'columns', got 'sideways'" in said
    assert "expected a whole number, at least 3, got 'many'" in said
    assert "protocol: fastlloyd-plus" in said and "--masking threshold" in said
    monkeypatch.setattr(sys, "stdin", Terminal("columns\n"))  # then Ctrl-D
    assert main(["choose", "--d", "4", "--k", "5"]) == 2
    assert "the answers ended before --parties; see fastlloyd choose --help" in capsys.readouterr().err
