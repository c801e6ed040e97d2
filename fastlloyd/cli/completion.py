"""`fastlloyd completion SHELL`: print the script that lets a shell complete commands, flags and file names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from fastlloyd.cli import COMMANDS
from fastlloyd.cli.options import Parser, show_all
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.protocols.registry import names

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "DIR", "TEMPLATE")


def main(argv: Sequence[str]) -> int:
    """Print the script and return 0.

    Raises
    ------
    ConfigError
        shtab, which writes the script, is not installed.
    """
    shell = parser().parse_args(argv).shell
    try:
        import shtab
    except ImportError:
        raise ConfigError("completion: expected the package shtab; pip install 'fastlloyd[completion]'") from None
    whole = argparse.ArgumentParser(prog="fastlloyd")
    commands = whole.add_subparsers()
    for name, about in COMMANDS.items():
        one: Parser = import_module(f"fastlloyd.cli.{name.replace('-', '_')}").parser()
        show_all(one)
        for action in one._actions:
            if any(word in str(action.metavar) for word in _FILES):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.dest == "protocol":
                action.choices = names()
        commands.add_parser(name, help=about, parents=[one], add_help=False)
    sys.stdout.write(shtab.complete(whole, shell) + "\n")
    return EXIT_OK


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd completion",
        description="Print the script that lets a shell complete fastlloyd's commands and flags.",
        epilog='bash: eval "$(fastlloyd completion bash)" in ~/.bashrc; zsh: fastlloyd completion zsh > a file '
        "_fastlloyd in a folder of $fpath; fish: fastlloyd completion fish > "
        "~/.config/fish/completions/fastlloyd.fish",
    )
    parser.add_argument("shell", choices=SHELLS)
    return parser
