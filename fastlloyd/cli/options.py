"""The flags of a run, alike for `fastlloyd run` and `python -m fastlloyd.client`."""

from __future__ import annotations

import argparse
import functools
import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fastlloyd.cli.arguments import join_negative_values, name_list
from fastlloyd.data.form import DATA_DIR_VARIABLE, Form
from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.party.option import Option
from fastlloyd.protocols.registry import names
from fastlloyd.run.config import OPTIONS, TASK, VERTICAL, RunConfig
from fastlloyd.run.run_file import has_table, load_config, refuse_own_keys, with_values
from fastlloyd.wire.decode import Within

_ABOUT = "about"
"""Attribute of a flag of a run: its help where all flags are shown."""


EXIT_CODES = "Exit codes: 0 done, 2 bad input or configuration, 3 a peer failed, 4 budget exceeded, 70 a bug."
BETWEEN_SITES = ("roster", "key")
"""Options that a site needs beside those that most people need."""
_FORM = ("delimiter", "decimal", "encoding")


_ALIKE = (
    ("--n-total", "--n"),
    ("--clients", "--parties", "-n"),
    ("--output", "--out"),
    ("--k", "--clusters", "--n-clusters"),
    ("--d", "--features", "--dimensions"),
)
"""Flags of one meaning: commands call it differently, or people do."""
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ConfigErrors: the caller decides who prints them."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and remember what was typed for the error's sake."""
        self._words = sys.argv[1:] if args is None else args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> Any:
        """Raise instead of printing."""
        raise ConfigError(f"{message}{self._meant(message)}; see {self.prog} --help")

    def _meant(self, message: str) -> str:
        """Return what the first word that does not fit was probably meant to be: a flag, or one of its choices."""
        choice = _CHOICE.search(message)
        if choice:
            return did_you_mean(choice[1], (word.strip("'") for word in choice[2].split(", ")))
        known = self._flags()
        typed = (word.partition("=")[0] for word in self._words if re.match("--?[a-z]", word))
        # -n3 is -n 3, and --eps stands for --epsilon.
        whole = (flag if flag.startswith("--") else flag[:2] for flag in typed)
        strange = next((flag for flag in whole if not any(name.startswith(flag) for name in known)), None)
        if strange is None:
            return ""
        close = _like(strange, known) or self._of_a_run(strange) or did_you_mean(strange, known)
        return close if strange in message else f"; {strange} is none of its flags{close}"

    def _of_a_run(self, flag: str) -> str:
        """Return that a flag, perhaps shortened, is one of a run which this command does not have; '' if it is none."""
        meant = [option.flag for option in OPTIONS.values() if option.flag.startswith(flag) and not option.hidden]
        exact = [flag] if flag in meant else meant
        return f" ({exact[0]} is a flag of a run, and {self.prog} does not take it)" if len(exact) == 1 else ""

    def _flags(self) -> list[str]:
        """Return all flags, those of actions such as `add` too."""
        own = list(self._option_string_actions)
        inner = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return [*own, *(flag for parsers in inner for parser in parsers.values() for flag in parser._flags())]


def _like(flag: str, known: Collection[str]) -> str:
    """Return the flag that this command has for what another name means, as a remark; '' for none."""
    for alike in _ALIKE:
        for name in alike if flag in alike else ():
            if name in known:
                more = ", with one more for the server" if name == "-n" else ""
                return f" (did you mean {name!r}{more}?)"
    return ""


class _HelpAll(argparse.Action):
    """Print the help of all flags, not only of those that most people need."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        show_all(parser)
        parser.print_help()
        parser.exit()


def show_in_long_help(action: argparse.Action) -> None:
    """Keep a flag out of the short help: few people need it."""
    setattr(action, _ABOUT, action.help)
    action.help = argparse.SUPPRESS


def show_all(parser: argparse.ArgumentParser) -> None:
    """Let a parser's help show every flag that its command uses."""
    for action in parser._actions:
        action.help = getattr(action, _ABOUT, action.help)


def add_run_options(
    parser: argparse.ArgumentParser, *, unused: Collection[str] = (), needed: Collection[str] = ()
) -> None:
    """Add every flag of a run, as `RunConfig` declares it; a flag that is not given is None.

    Parameters
    ----------
    unused : collection of str
        Options that a command takes and does not use, for it reads the run file of a command that does; no help shows
        them.
    needed : collection of str
        Options that a command's short help shows beside those that most people need.
    """
    parser.add_argument("--help-all", action=_HelpAll, help="show all flags, not only those that most people need")
    parser.add_argument("--config", metavar="FILE.toml", help="run file: any flag of a run may stand in it; flags win")
    show_in_long_help(add_site_option(parser))
    parser.add_argument("--events", action="store_true", help=argparse.SUPPRESS)
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for option in OPTIONS.values():
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        action = add_flag(groups[option.group], option)
        if not option.hidden and option.name not in unused:
            setattr(action, _ABOUT, option.help)
            action.help = option.help if option.common or option.name in needed else argparse.SUPPRESS
    about, metavar = "a setting of one protocol (repeatable)", "PROTOCOL.KEY=VALUE"
    show_in_long_help(groups[TASK].add_argument("--set", action="append", metavar=metavar, dest="set_", help=about))


def add_flag(group: argparse._ActionsContainer, option: Option) -> argparse.Action:
    """Add the flag of one option, which no help shows yet."""
    quiet: dict[str, Any] = {"help": argparse.SUPPRESS}
    if option.kind is bool:
        kind = argparse.BooleanOptionalAction if option.optional else "store_true"
        return group.add_argument(option.flag, action=kind, default=None, **quiet)
    read = functools.partial(read_flag, option)
    return group.add_argument(option.flag, type=read, choices=option.choices or None, metavar=option.metavar, **quiet)


def add_options(parser: argparse.ArgumentParser, *wanted: str) -> None:
    """Add the flags of some options, as a run has them."""
    for name in wanted:
        add_flag(parser, OPTIONS[name]).help = OPTIONS[name].help


def add_site_option(parser: argparse.ArgumentParser) -> argparse.Action:
    """Add the flag of the file with what is a party's own."""
    return parser.add_argument("--site", metavar="FILE.toml", help="what is this party's own: files, state, output, ..")


def add_form_options(parser: argparse.ArgumentParser, *others: str) -> None:
    """Add the flags that say how a file of records is written, and those of `others`, as a run has them."""
    add_options(parser, *others, *_FORM)


def read_form(arguments: argparse.Namespace, config: RunConfig | None) -> Form:
    """Return how the file of records is written: as the flags say, or else the run file."""
    config = config or RunConfig()
    return Form(**{name: getattr(arguments, name) or getattr(config, name) for name in _FORM})


def parse_run_options(
    parser: argparse.ArgumentParser, argv: Sequence[str], *, links: bool = True, foreign: bool = False
) -> tuple[RunConfig, argparse.Namespace]:
    """Parse flags and run file into one configuration.

    Parameters
    ----------
    links : bool
        As for `load_config`.
    foreign : bool
        Whether the run file comes from somebody else (`refuse_own_keys`).

    Raises
    ------
    ConfigError
        Any flag, key or value that does not fit.
    """
    arguments = parser.parse_args(join_negative_values(list(argv), ("--bounds",)))
    given = {key: value for key, value in vars(arguments).items() if key in OPTIONS and value is not None}
    tables = read_tables(arguments.set_ or (), given.get("protocol", RunConfig().protocol))
    given.update(tables)
    if foreign and arguments.config is not None:
        refuse_own_keys(arguments.config)
    if arguments.config is None and arguments.site is None:
        config = with_values(RunConfig(), given)
        if links:
            config.check_links()
    else:
        config = load_config(arguments.config, given, links=links, site=arguments.site)
    for owner in tables:
        if owner not in (config.protocol, VERTICAL):
            raise ConfigError(
                f"--set {owner}: this run is one of {config.protocol}; add --protocol {owner}, or leave it out"
            )
    if config.data_dir is None and DATA_DIR_VARIABLE in os.environ:
        config = with_values(config, {"data_dir": os.environ[DATA_DIR_VARIABLE]})
    return config, arguments


def read_tables(pairs: Sequence[str], protocol: str) -> dict[str, dict[str, Any]]:
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
        except (ValueError, RecursionError):
            value = text
        tables.setdefault(owner, {})[key] = value
    return tables


def read_flag(option: Option, text: str) -> Any:
    """Read the value of a flag as the run file would have it; words such as 'auto' stay as they are."""
    if text.startswith(tuple(word.partition(":")[0] for word in option.words)):
        return text
    try:
        return _READERS[option.kind](text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {option.expected}, got {text!r}") from None


def number(kind: type, least: float, most: float = math.inf) -> Callable[[str], Any]:
    """Make what reads the number of a flag that only some commands have."""
    option = Option(about="", kind=kind, within=Within(least, most))

    def read(text: str) -> Any:
        value = read_flag(option, text)
        if value not in option.within:
            raise argparse.ArgumentTypeError(f"expected {option.expected}, got {text!r}")
        return value

    return read


def _wholes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    tuple[int, ...]: _wholes,
    tuple[str, ...]: name_list,
}


def decision_parser(prog: str, description: str, verb: str) -> Parser:
    """Return the flags that both decisions take."""
    parser = Parser(prog=prog, description=description, epilog=f"Exit codes: 0 {verb}, 2 not {verb}, or bad input.")
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="the --state-dir of the run, or one party's folder in it"
    )
    parser.add_argument("--run", metavar="ID", default="", help="how the run's id begins, where several results wait")
    parser.add_argument("--key", metavar="FILE", type=Path, help="this site's own key (default: the one of the run)")
    parser.add_argument("--note", metavar="TEXT", default="", help="kept with the decision: who decided, and why")
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    return parser
