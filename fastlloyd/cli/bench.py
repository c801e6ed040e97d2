"""`fastlloyd bench NAME`: a paper's table or figure made again. Another distribution, `papers/`, carries it out.

Source: papers/README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from fastlloyd.cli.options import Parser
from fastlloyd.errors import ConfigError

GROUP = "fastlloyd.commands"
"""Entry points of this group lead to the module that carries out the command of that name."""


def load_command(name: str) -> ModuleType:
    """Import the module that carries out a command.

    Parameters
    ----------
    name : str
        The command, as typed after `fastlloyd`.

    Raises
    ------
    ConfigError
        No distribution adds it, or what one adds cannot be imported.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        try:
            module: ModuleType = point.load()
        except ImportError as error:
            raise ConfigError(
                f"{point.value}, which carries out `fastlloyd {name}`: {error}; install it again"
            ) from error
        return module
    raise ConfigError(
        f"`fastlloyd {name}` of the papers' tables and data sets needs the distribution fastlloyd-papers: "
        "pip install ./papers in a checkout of fastlloyd"
    )


def main(argv: Sequence[str]) -> int:
    """Run one benchmark and return 0.

    Raises
    ------
    ConfigError
        fastlloyd-papers is not installed; else what its command raises.
    """
    code: int = load_command("bench").main(argv)
    return code


def parser() -> Parser:
    """Return the parser of the flags; one without flags where fastlloyd-papers is not installed."""
    try:
        made: Parser = load_command("bench").parser()
    except ConfigError:
        return Parser(prog="fastlloyd bench", description="Needs the distribution fastlloyd-papers.")
    return made
