"""`fastlloyd choose`: name the protocol and setting that fit, why, and what to expect, from public numbers alone.

The rules are those of docs/guide.md, "The protocol"; the noise is that of the plans themselves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import join
from typing import Any

from fastlloyd.cli.options import Parser, add_flag, read_flag
from fastlloyd.dossier.choice import Answers, choose, expected, expected_or_why, run_flags, set_flags
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.party.option import Option, options_of


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
    ranks, d, flags = str(chosen.ranks), str(answers.d), run_flags(chosen, answers)
    print(f"plan:     {join(['fastlloyd', 'plan', '-n', ranks, '--d', d, *flags])}")
    print(f"next:     {join(['fastlloyd', 'init', 'DIR', '--clients', str(chosen.ranks - 1), *flags])}")
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


def _in_words(question: Option) -> Option:
    """Return a question whose answer is true or false as one that people answer by yes or no."""
    return replace(question, kind=str, choices=_YES, default="yes" if question.default else "no")


_QUESTIONS = tuple(_in_words(one) if one.kind is bool else one for one in options_of(Answers).values())


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
    return Answers(**{name: value == "yes" if value in _YES else value for name, value in values.items()})


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
