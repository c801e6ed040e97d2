"""What several subcommands need to read their flags as they are typed."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from types import ModuleType

from fastlloyd.errors import ConfigError

GROUP = "fastlloyd.commands"
"""Entry points of this group lead to the module that carries out the command of that name."""


def join_negative_values(argv: Sequence[str], options: Collection[str]) -> list[str]:
    """Write `--bounds -1,1` as `--bounds=-1,1`, which argparse would otherwise take for a flag.

    Parameters
    ----------
    argv : sequence of str
    options : collection of str
        Flags whose value may begin with a minus sign.

    Returns
    -------
    list of str

    Examples
    --------
    >>> join_negative_values(["--bounds", "-1,1", "--k", "3"], ("--bounds",))
    ['--bounds=-1,1', '--k', '3']
    """
    joined: list[str] = []
    rest = iter(argv)
    for word in rest:
        if word == "--":
            return [*joined, word, *rest]
        if word not in options:
            joined.append(word)
            continue
        value = next(rest, None)
        if value is not None and _is_negative(value):
            joined.append(f"{word}={value}")
        else:
            joined.extend([word] if value is None else [word, value])
    return joined


def name_list(text: str) -> tuple[str, ...]:
    """Read names separated by commas.

    Examples
    --------
    >>> name_list("age, dose")
    ('age', 'dose')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def ask(question: str, refused: str) -> None:
    """Ask the person at the terminal to type yes.

    Raises
    ------
    ConfigError
        There is no terminal, or the answer is not yes: `refused`.
    """
    if not sys.stdin.isatty():
        raise ConfigError("nobody to ask: standard input is no terminal; add --yes where a person has decided already")
    print(question, end=" ", flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise ConfigError(refused)


def _is_negative(value: str) -> bool:
    """Tell a value such as -1,1 or -.5 from a flag."""
    return len(value) > 1 and value[0] == "-" and (value[1].isdigit() or value[1] == ".")


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
