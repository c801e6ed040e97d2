"""A flag, choice or name that is nearly right is answered with the right one, by every command."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.cli import COMMANDS
from fastlloyd.cli.options import Parser
from fastlloyd.client import parser as client_parser
from fastlloyd.errors import ConfigError
from tests.protocols.whole import run_whole

PARSERS = {
    **{name: import_module(f"fastlloyd.cli.{name.replace('-', '_')}").parser for name in COMMANDS},
    "client": client_parser,
}


def refusal(parser: Parser, *words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parser.parse_args(words)
    return str(caught.value)


@pytest.mark.parametrize("command", PARSERS)
def test_every_flag_of_every_command_that_is_nearly_right_is_answered(command: str) -> None:
    parser = PARSERS[command]()
    flags = [flag for flag in parser._flags() if len(flag) > 5]
    for flag in flags:
        typed = flag[:4] + "x" + flag[4:]
        assert f"(did you mean {flag!r}?)" in refusal(parser, typed), typed


@pytest.mark.parametrize(
    ("command", "words", "sentence"),
    [
        ("choose", ["--n-total", "5"], "unrecognized arguments: --n-total 5 (did you mean '--n'?)"),
        ("choose", ["--clients=3"], "(did you mean '--parties'?)"),
        ("run", ["--clients", "3"], "(did you mean '-n', with one more for the server?)"),
        ("run", ["--parties", "3"], "(did you mean '-n', with one more for the server?)"),
        ("check", ["--n-clusters", "3"], "(did you mean '--k'?)"),
        ("run", ["-k", "3"], "(did you mean '--k'?)"),
        ("label", ["--eps", "5"], "(--epsilon is a flag of a run, and fastlloyd label does not take it)"),
        ("check", ["--rounds", "5"], "(--rounds is a flag of a run, and fastlloyd check does not take it)"),
        ("check", ["--cl", "5"], "unrecognized arguments: --cl 5 (did you mean '--client'?); see"),
        (
            "join",
            ["--client", "1"],
            "--server; --client is none of its flags (did you mean '--client-caps'?); see",
        ),
        ("run", ["--eps", "2"], "unrecognized arguments: --eps 2 (did you mean '--epsilon'?); see"),
        ("agree", ["--confg", "x"], "required: --config; --confg is none of its flags (did you mean '--config'?)"),
        ("roster", ["add", "--roster", "x", "--cert", "y", "--nme", "z"], "(did you mean '--name'?)"),
        ("roster", ["ad"], "(did you mean 'add'?)"),
        ("choose", ["--split", "row"], "(did you mean 'rows'?)"),
        ("run", ["--missing", "dropp"], "(did you mean 'drop'?)"),
    ],
)
def test_other_names_and_choices_are_answered_too(command: str, words: list[str], sentence: str) -> None:
    assert sentence in refusal(PARSERS[command](), *words)


@pytest.mark.parametrize("command", PARSERS)
def test_no_command_takes_a_shortened_flag_and_each_names_the_whole_one(command: str) -> None:
    made = PARSERS[command]()
    actions = [action for action in made._actions if isinstance(action, argparse._SubParsersAction)]
    ways = [([name], parser) for action in actions for name, parser in action.choices.items()] or [([], made)]
    for words, parser in ways:
        flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
        for flag in flags:
            typed = flag[:-1]
            if typed != "--" and typed not in flags:
                said = refusal(made, *words, typed)
                assert re.search(rf" {typed} .*\(did you mean '{typed}", said), (words, typed, said)


def test_what_is_like_nothing_is_answered_with_nothing() -> None:
    assert "did you mean" not in refusal(PARSERS["report"](), "--zzzzzz")
    assert refusal(PARSERS["agree"]()).startswith("the following arguments are required: --config; see ")
    for command, flag in (("init", "--forse"), ("agree", "--eps")):  # dashes alone are no likeness
        assert "did you mean" not in refusal(PARSERS[command](), flag)
    assert PARSERS["run"]().parse_args(["-n3", "--epsilon", "2", "--bounds=-1,1"]).epsilon == 2


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["plan", "--dataset", "phto"], "photo"),
        (["run", "--split", "labl", "--dataset", "iris"], "label"),
        (["plan", "--set", "fastlloyd-plus.start=survy"], "survey"),
        (["datasets", "download", "adlt", "--data-dir", "."], "adult"),
        (["bench", "fastloyd-table3"], "fastlloyd-table3"),
    ],
)
def test_names_and_settings_are_answered_too(
    words: list[str], meant: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FASTLLOYD_DATA", raising=False)
    assert main(words) == 2
    assert f"(did you mean {meant!r}?)" in capfd.readouterr().err


LONG = "a" * 300
BOUNDED = ["--bounds", "0,1", "--n-total", "90", "--k", "2"]


@pytest.mark.parametrize(
    "words",
    [
        *(["report", LONG], ["ledger", LONG], ["runs", LONG], ["describe", LONG, "--quality", "--epsilon", "1"]),
        *(["label", "--centroids", LONG, "--data", "x.csv"], ["init", LONG], ["init-state", LONG, "--rank", "1"]),
        *(["site", LONG, "--once"], ["release", LONG], ["discard", LONG], ["roster", "add", "--roster", LONG]),
        *(["check", "--data", LONG, *BOUNDED], ["check", "--data", f"sqlite:///{LONG}", "--table", "t", *BOUNDED]),
        ["plan", "-n", "3", "--dataset", LONG],
    ],
    ids=lambda words: " ".join(words[:2])[:20],
)
def test_a_path_that_the_system_refuses_is_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("fastlloyd: ")


def test_a_path_that_the_system_refuses_ends_a_run_as_wrong_input(tmp_path: Path) -> None:
    """The others hear who did not start; before, one path too long was an internal error of all."""
    config = {"protocol": "lloyd", "bounds": "0,10", "k": 3, "deadline": 20.0}
    assert run_whole(tmp_path, 2, state_dir=str(tmp_path / LONG), **config) == [2, 2]
