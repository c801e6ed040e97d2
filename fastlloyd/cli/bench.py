"""`fastlloyd bench NAME`: make a paper's table or figure again, by the distribution in `papers/`.

Source: papers/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastlloyd.cli.options import Parser, load_command
from fastlloyd.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    """Run one benchmark and return 0.

    Raises
    ------
    ConfigError
        fastlloyd-papers is not installed; otherwise what its command raises.
    """
    code: int = load_command("bench").main(argv)
    return code


def parser() -> Parser:
    """Return the parser of the flags, or one without flags if fastlloyd-papers is not installed."""
    try:
        made: Parser = load_command("bench").parser()
    except ConfigError:
        return Parser(prog="fastlloyd bench", description="Needs the distribution fastlloyd-papers.")
    return made
