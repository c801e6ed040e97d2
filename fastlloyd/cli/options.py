"""The flags of a run, alike for `fastlloyd run` and `python -m fastlloyd.client`."""

from __future__ import annotations

import argparse
import functools
import os
import tomllib
from collections.abc import Callable, Sequence
from typing import Any

from fastlloyd.cli.arguments import join_negative_values, name_list
from fastlloyd.data.public.folder import DATA_DIR_VARIABLE
from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.protocols.registry import PROTOCOLS, names
from fastlloyd.run.config import OPTIONS, TASK, VERTICAL, RunConfig, has_table, load_config, with_values
from fastlloyd.run.option import Option


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ConfigErrors: the caller decides who prints them."""

    def error(self, message: str) -> Any:
        """Raise instead of printing."""
        raise ConfigError(f"{message}{self._meant(message)}; see {self.prog} --help")

    def _meant(self, message: str) -> str:
        """Return what the first unknown flag was probably meant to be."""
        _, found, words = message.partition("unrecognized arguments: ")
        flags = [word.partition("=")[0] for word in words.split() if word.startswith("-")]
        return did_you_mean(flags[0], self._option_string_actions) if found and flags else ""


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add every flag of a run, as `RunConfig` declares it; a flag that is not given is None."""
    parser.add_argument("--config", metavar="FILE.toml", help="any flag below may stand in it; flags win")
    parser.add_argument("--events", action="store_true", help=argparse.SUPPRESS)
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for option in OPTIONS.values():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        _add_flag(groups[option.group], option)
    groups[TASK].add_argument(
        "--set",
        action="append",
        metavar="PROTOCOL.KEY=VALUE",
        dest="set_",
        help="a setting of one protocol (repeatable)",
    )


def _add_flag(group: argparse._ActionsContainer, option: Option) -> None:
    """Add the flag of one option."""
    about = argparse.SUPPRESS if option.hidden else option.help
    if option.kind == "bool":
        action = argparse.BooleanOptionalAction if option.optional else "store_true"
        group.add_argument(option.flag, action=action, default=None, help=about)
    else:
        read = functools.partial(_read_flag, option)
        group.add_argument(option.flag, type=read, choices=option.choices or None, metavar=option.metavar, help=about)


def parse_run_options(
    parser: argparse.ArgumentParser, argv: Sequence[str], *, links: bool = True
) -> tuple[RunConfig, argparse.Namespace]:
    """Parse flags and run file into one configuration.

    Parameters
    ----------
    links : bool
        As for `load_config`.

    Raises
    ------
    ConfigError
        Any flag, key or value that does not fit.
    """
    arguments = parser.parse_args(join_negative_values(list(argv), ("--bounds",)))
    given = {key: value for key, value in vars(arguments).items() if key in OPTIONS and value is not None}
    given.update(_tables(arguments.set_ or (), given.get("protocol", PROTOCOLS[0])))
    if arguments.config is None:
        config = with_values(RunConfig(), given)
        if links:
            config.check_links()
    else:
        config = load_config(arguments.config, given, links=links)
    if config.data_dir is None and DATA_DIR_VARIABLE in os.environ:
        config = with_values(config, {"data_dir": os.environ[DATA_DIR_VARIABLE]})
    return config, arguments


def _tables(pairs: Sequence[str], protocol: str) -> dict[str, dict[str, Any]]:
    """Turn 'protocol.key=value' pairs into tables."""
    tables: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        owner, dot, key = path.partition(".")
        if not equals or not dot or not key or not owner:
            raise ConfigError(f"--set: expected PROTOCOL.KEY=VALUE, got {pair!r}, as in --set {protocol}.alpha=0.8")
        if not has_table(owner):
            known = (*names(), VERTICAL)
            raise ConfigError(
                f"--set: unknown protocol {owner!r}{did_you_mean(owner, known)}; known are {', '.join(known)}"
            )
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        tables.setdefault(owner, {})[key] = value
    return tables


def _read_flag(option: Option, text: str) -> Any:
    """Read the value of a flag as the run file would have it; words such as 'auto' stay as they are."""
    if text.startswith(tuple(word.partition(":")[0] for word in option.words)):
        return text
    try:
        return _READERS[option.kind](text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {option.expected}, got {text!r}") from None


def _wholes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


_READERS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "tuple[int, ...]": _wholes,
    "tuple[str, ...]": name_list,
}
