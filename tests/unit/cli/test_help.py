"""Short help shows what most people need, all help what the command uses; both come at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastlloyd.cli import COMMANDS, join, plan, run, serve
from fastlloyd.cli.options import Parser, parse_run_options, show_all
from fastlloyd.client import parser as client_parser
from fastlloyd.protocols.registry import summaries
from fastlloyd.run.config import OPTIONS, RunConfig

PARSERS = {"run": run.parser, "client": client_parser, "plan": plan.parser, "serve": serve.parser, "join": join.parser}

ROOT = Path(__file__).parents[3]


def flags(help_text: str) -> set[str]:
    """Return the flags that a help lists, one to a line."""
    first = [line.split()[0].rstrip(",") for line in help_text.splitlines() if line.startswith("  -")]
    return {word for word in first if word.startswith("--")}


def short_and_long(made: Parser) -> tuple[set[str], set[str]]:
    short = flags(made.format_help())
    show_all(made)
    return short, flags(made.format_help())


@pytest.mark.parametrize("command", PARSERS)
def test_short_help_is_short_and_part_of_the_long_one(command: str) -> None:
    short, long = short_and_long(PARSERS[command]())
    assert short < long
    assert short >= {"--help-all", "--config", "--protocol", "--k", "--epsilon", "--n-total"}
    assert len(short) <= 18
    assert not short & {"--ring-bits", "--delay", "--set", "--log-level"}


def test_help_of_a_run_shows_a_dozen_flags() -> None:
    assert len(short_and_long(run.parser())[0] - {"--help-all"}) == 12


@pytest.mark.parametrize("document", ["README.md", "docs/first-run.md"])
def test_what_new_users_are_told_to_type_stands_in_the_short_help(document: str) -> None:
    text = (ROOT / document).read_text("utf-8").replace("\\\n", " ")
    found = 0
    for words in ("fastlloyd run", "fastlloyd.client", "fastlloyd serve", "fastlloyd join", "fastlloyd plan"):
        command = re.split(r"[ .]", words)[1]
        for line in re.findall(rf"^(?:\S*bin/|\S*mpirun .*)?{re.escape(words)}(?= )(.*)$", text, re.M):
            typed = set(re.findall(r"--[a-z][a-z-]*", line.partition(" #")[0].partition("||")[0]))
            assert typed <= short_and_long(PARSERS[command]())[0], line
            found += 1
    assert found >= 4


def test_all_help_of_a_run_lists_every_flag_that_is_not_hidden() -> None:
    _, long = short_and_long(run.parser())
    assert {option.flag for option in OPTIONS.values() if not option.hidden} | {"--set"} <= long
    assert "--shaping" not in long


def test_commands_show_only_what_they_use_and_take_the_rest_from_a_run_file() -> None:
    shown = {command: short_and_long(make())[1] for command, make in PARSERS.items()}
    assert not shown["plan"] & {"--data", "--key", "--roster", "--output", "--state-dir", "--transport"}
    assert not shown["serve"] & {"--data", "--missing", "--id", "--budget", "--transport", "--network"}
    assert not shown["join"] & {"--transport", "--network"}
    assert "--network" in shown["run"]
    assert "--network" not in shown["client"]
    config, _ = parse_run_options(plan.parser(), ["--output", "elsewhere"])
    assert config == RunConfig(output="elsewhere")


def test_help_of_a_run_has_a_line_for_each_protocol_and_the_settings_of_the_one_asked_about() -> None:
    short = run.parser(["--help"]).format_help()
    for name, summary in summaries():
        assert f"{name:<16}{summary}" in short
    assert "fastlloyd-plus.reach" not in short
    assert "fastlloyd-plus.reach" in run.parser(["--help-all"]).format_help()
    assert "feddp.restarts" in run.parser(["--protocol", "feddp", "--help"]).format_help()


@pytest.mark.process
@pytest.mark.parametrize("command", ["run", "plan", "serve", "join"])
def test_help_imports_nothing_that_takes_long(command: str) -> None:
    code = (
        "import sys; from fastlloyd.__main__ import main\n"
        f"try: main([{command!r}, '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(', '.join({'numpy', 'cryptography', 'mpi4py', 'dp_accounting'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"usage: fastlloyd {command}" in done.stdout


def test_every_command_offers_its_parser() -> None:
    from importlib import import_module

    for command in COMMANDS:
        assert import_module(f"fastlloyd.cli.{command.replace('-', '_')}").parser().prog == f"fastlloyd {command}"
