"""`fastlloyd compare`: protocols and other methods side by side on one's own tables, by the distribution in `papers/`.

Source: docs/compare.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastlloyd.cli.options import Parser, load_command
from fastlloyd.errors import ConfigError


def main(argv: Sequence[str]) -> int:
    """Compare and return 0.

    Raises
    ------
    ConfigError
        fastlloyd-papers is not installed; otherwise what its command raises.
    """
    code: int = load_command("compare").main(argv)
    return code


def parser() -> Parser:
    """Return the parser of the flags, or one without flags if fastlloyd-papers is not installed."""
    try:
        made: Parser = load_command("compare").parser()
    except ConfigError:
        return Parser(prog="fastlloyd compare", description="Needs the distribution fastlloyd-papers.")
    return made
