"""`fastlloyd choose`: name the protocol and setting that fit, why, and what to expect, from public numbers alone.

The rules are those of docs/guide.md, "The protocol"; the noise is that of the plans themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import join
from typing import Any

from fastlloyd.cli.options import Parser, add_flag, read_flag
from fastlloyd.dossier.choice import Answers, choose, expected, expected_or_why, init_flags, plan_flags, set_flags
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.party.option import Option, option, options_of


def main(argv: Sequence[str]) -> int:
    """Ask on a terminal for values that the flags leave open, and print the choice.

    Raises
    ------
    ConfigError
        A number is missing and nobody can be asked, or no protocol fits.
    """
    answers = _complete(parser().parse_args(argv), _ask if sys.stdin.isatty() else None)
    chosen = choose(answers)
    expectation = expected(chosen, answers)  # refuses numbers that no run takes before anything is said
    print(f"protocol: {chosen.protocol}")
    print(f"why:      {chosen.why}")
    for note in chosen.notes:
        print(f"note:     {note}")
    print(f"expected: {expectation}")
    for other in chosen.others:
        print(f"else:     {join([other.protocol, *set_flags(other)])}: {expected_or_why(other, answers)}")
    print(f"plan:     {join(['fastlloyd', 'plan', *plan_flags(chosen, answers)])}")
    print(f"next:     {join(['fastlloyd', 'init', 'DIR', *init_flags(chosen, answers)])}")
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    made = Parser(
        prog="fastlloyd choose",
        description="Name the protocol and setting that fit, why, and what noise to expect. Opens no data; asks on a "
        "terminal for values that the flags leave open.",
    )
    for question in _QUESTIONS:
        add_flag(made, question).help = question.help
    return made


_YES = ("yes", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The questions with their defaults; None: the answer is required."""

    split: str | None = option(
        None,
        "what differs between the parties: rows (other people) or columns (of the same)",
        choices=("rows", "columns"),
    )
    parties: int = option(3, "how many parties have records", "", "M", least=1)
    n: int | None = option(None, "largest number of records of all parties together", "", "N", least=3)
    d: int | None = option(None, "number of features, of all parties together", "", "D", least=1)
    k: int | None = option(None, "number of clusters", "", "K", least=1)
    exact: str = option("no", "must labels be exact, at the price of no differential privacy", choices=_YES)
    epsilon: float = option(1.0, "privacy budget of the run", "", "E", least=1e-3, most=100)
    collude: str = option("none", "who might work together against the others", choices=("none", "server+clients"))
    dropouts: str = option("no", "may a party be lost in the middle of a run", choices=_YES)
    server_data: str = option("no", "has the operator records of the same kind that all may see", choices=_YES)
    unit: str = option("record", "what is protected: one record, or all rows of a person", choices=("record", "person"))


_QUESTIONS = tuple(options_of(_Asked).values())


def _complete(given: argparse.Namespace, ask: Callable[[Option], Any] | None) -> Answers:
    """Fill in what the flags leave open."""
    values: dict[str, Any] = {}
    missing = []
    for question in _QUESTIONS:
        value = getattr(given, question.name)
        if value is None:
            value = ask(question) if ask is not None else question.default
        if value is None:
            missing.append(question.flag)
        values[question.name] = question.read(value)
    if missing:
        raise ConfigError(f"expected {', '.join(missing)}, or a terminal to ask on; see fastlloyd choose --help")
    return Answers(
        rows=values.pop("split") == "rows",
        collude=values.pop("collude") != "none",
        person=values.pop("unit") == "person",
        **{name: value == "yes" if value in _YES else value for name, value in values.items()},
    )


def _ask(question: Option) -> Any:
    """Ask on the terminal until the answer fits; nothing typed is the default."""
    choices = f" ({'/'.join(map(str, question.choices))})" if question.choices else ""
    default = "" if question.default is None else f" [{question.default}]"
    while True:
        try:
            text = input(f"{question.help}{choices}{default}? ").strip()
        except EOFError:
            raise ConfigError(f"the answers ended before {question.flag}; see fastlloyd choose --help") from None
        if not text and question.default is not None:
            return question.default
        try:
            return question.read(read_flag(question, text))
        except (argparse.ArgumentTypeError, ConfigError) as error:
            print(error)
