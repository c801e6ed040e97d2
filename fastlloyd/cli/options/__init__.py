"""The flags of a run, the same for `fastlloyd run` and `python -m fastlloyd.client`, and what commands share."""

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
from types import ModuleType
from typing import Any, NoReturn

from fastlloyd.data.form import DATA_DIR_VARIABLE, Form
from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.party.option import Option
from fastlloyd.protocols.registry import names
from fastlloyd.run.config import OPTIONS, READ_AT, TASK, VERTICAL, RunConfig
from fastlloyd.run.run_file import has_table, load_config, refuse_own_keys, with_values
from fastlloyd.wire.decode import Within

_ABOUT = "about"
"""Attribute of a flag of a run: its help where all flags are shown."""
EXIT_CODES = "Exit codes: 0 done, 2 bad input or configuration, 3 a peer failed, 4 budget exceeded, 70 a bug."
BETWEEN_SITES = ("roster", "key")
"""Options that a site needs in addition to those that most people need."""
FORM = ("delimiter", "decimal", "thousands", "encoding", "na", "header", "rename")
"""Options that say how a file of records is written."""
GROUP = "fastlloyd.commands"
"""Entry points of this group name the modules of commands that other distributions add."""
_SAME = (
    ("--n-total", "--n"),
    ("--clients", "--parties", "-n"),
    ("--output", "--out"),
    ("--k", "--clusters", "--n-clusters"),
    ("--d", "--features", "--dimensions"),
)
"""Flags with the same meaning, as different commands or people name it."""
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `ConfigError`, leaves the printing to its caller, and takes whole flags only.

    A shortened flag could stand for another one than was meant, and for yet another one in the next version.
    """

    _words: Sequence[str] = ()

    def __init__(self, **declaration: Any) -> None:
        super().__init__(**declaration, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and keep what was typed for the error; bounds and codes may begin with a minus sign."""
        known = [flag for flag in self._option_string_actions if flag in ("--bounds", "--na")]
        self._words = join_negative_values(sys.argv[1:] if args is None else args, known)
        return super().parse_known_args(self._words, namespace)

    def error(self, message: str) -> Any:
        """Raise instead of printing."""
        raise ConfigError(f"{message}{self._meant(message)}; see {self.prog} --help")

    def add_rare(self, flag: str, **declaration: Any) -> None:
        """Add a flag that only the long help shows."""
        show_in_long_help(self.add_argument(flag, **declaration))

    def _meant(self, message: str) -> str:
        """Return the flag or choice that the first wrong word was probably meant to be."""
        choice = _CHOICE.search(message)
        if choice:
            return did_you_mean(choice[1], (word.strip("'") for word in choice[2].split(", ")))
        known = self._flags()
        typed = (word.partition("=")[0] for word in self._words if re.match("--?[a-z]", word))
        whole = (flag if flag.startswith("--") else flag[:2] for flag in typed)  # -n3 is -n 3
        strange = next((flag for flag in whole if flag not in known), None)
        if strange is None:
            return ""
        whole_one = min((flag for flag in known if flag.startswith(strange)), key=len, default="")
        close = _like(strange, known) or (f" (did you mean {whole_one!r}?)" if whole_one else self._of_a_run(strange))
        close = close or did_you_mean(strange, known)
        return close if strange in re.split("[ ,:=]+", message) else f"; {strange} is none of its flags{close}"

    def _of_a_run(self, flag: str) -> str:
        """Return a remark if a flag, perhaps shortened, belongs to a run and not to this command; else ''."""
        meant = [option.flag for option in OPTIONS.values() if option.flag.startswith(flag) and not option.hidden]
        exact = [flag] if flag in meant else meant
        return f" ({exact[0]} is a flag of a run, and {self.prog} does not take it)" if len(exact) == 1 else ""

    def _flags(self) -> list[str]:
        """Return all flags, those of actions such as `add` too."""
        own = list(self._option_string_actions)
        inner = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        return [*own, *(flag for parsers in inner for parser in parsers.values() for flag in parser._flags())]


def _like(flag: str, known: Collection[str]) -> str:
    """Return a remark that names this command's flag of the same meaning; '' if it has none."""
    for same in _SAME:
        for name in same if flag in same else ():
            if name in known:
                more = ", with one more for the server" if name == "-n" else ""
                return f" (did you mean {name!r}{more}?)"
    return ""


class _HelpAll(argparse.Action):
    """Print the help of all flags."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        show_all(parser)
        parser.print_help()
        parser.exit()


def show_in_long_help(action: argparse.Action) -> None:
    """Keep a flag out of the short help, because few people need it."""
    setattr(action, _ABOUT, action.help)
    action.help = argparse.SUPPRESS


def show_all(parser: argparse.ArgumentParser) -> None:
    """Make a parser's help show every flag that its command uses."""
    for action in parser._actions:
        action.help = getattr(action, _ABOUT, action.help)


def add_run_options(
    parser: argparse.ArgumentParser, *, unused: Collection[str] = (), needed: Collection[str] = ()
) -> None:
    """Add every flag of a run as `RunConfig` declares it; the value of a flag that is not given is None.

    Parameters
    ----------
    unused : collection of str
        Options that a command accepts without using them, because run files have them; no help shows them.
    needed : collection of str
        Options that a command's short help shows in addition to those that most people need.
    """
    parser.add_argument("--help-all", action=_HelpAll, help="show all flags, not only those that most people need")
    parser.add_argument("--config", metavar="FILE.toml", help="run file with values of any flags; flags override it")
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
    """Add the flag of one option, hidden from the help at first."""
    quiet: dict[str, Any] = {"help": argparse.SUPPRESS}
    if option.kind is bool:
        kind = argparse.BooleanOptionalAction if option.optional else "store_true"
        return group.add_argument(option.flag, action=kind, default=None, **quiet)
    read = functools.partial(read_flag, option)
    if option.bare is not None:
        quiet |= {"nargs": "?", "const": option.bare}
    return group.add_argument(option.flag, type=read, choices=option.choices or None, metavar=option.metavar, **quiet)


def add_options(parser: argparse.ArgumentParser, *wanted: str) -> None:
    """Add the flags of some options, as a run has them."""
    for name in wanted:
        add_flag(parser, OPTIONS[name]).help = OPTIONS[name].help


def add_ledger_options(parser: argparse.ArgumentParser) -> None:
    """Add what names the ledgers of a state directory."""
    parser.add_argument("folder", metavar="DIR", help="a --state-dir, or one party's folder in it")
    parser.add_argument(
        "--delta", type=float, help=f"at which epsilon is read (default: the budget's, or {READ_AT:g} without one)"
    )


def add_site_option(parser: argparse.ArgumentParser) -> argparse.Action:
    """Add the flag of the file with a party's own values."""
    return parser.add_argument("--site", metavar="FILE.toml", help="this party's own values: files, state, output, ..")


def add_planned_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the flags of commands that plan a run from its run file and open no records."""
    parser.add_argument("--config", required=True, metavar="FILE.toml", help="the run file that all parties share")
    add_site_option(parser)
    parser.add_argument("--roster", metavar="FILE", help="the parties (default: from the run file)")
    parser.add_argument("--d", type=int, help="number of features, if neither bounds nor columns name them")
    parser.add_argument(
        "--state-dir", metavar="DIR", help="this site's, for its lifetime budget (default: from --site)"
    )
    parser.add_argument("--budget", metavar="E", type=float, help="lifetime limit that this site will run with")


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a run that flags of such a command give."""
    own = ("roster", "key", "passphrase_file", "state_dir", "budget")
    return {name: value for name in own if (value := getattr(arguments, name, None)) is not None}


def read_form(arguments: argparse.Namespace, config: RunConfig | None) -> Form:
    """Return the format of the file of records, from the flags or else from the run file."""
    config = config or RunConfig()
    given = {name: value for name in FORM if (value := getattr(arguments, name)) is not None}
    return Form(**{name: given.get(name, getattr(config, name)) for name in FORM})


def parse_run_options(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    *,
    links: bool = True,
    foreign: bool = False,
    without: Collection[str] = (),
) -> tuple[RunConfig, argparse.Namespace]:
    """Parse flags and run file into one configuration.

    Parameters
    ----------
    links, without
        As for `load_config`.
    foreign : bool
        Whether another party wrote the run file (`refuse_own_keys`).

    Raises
    ------
    ConfigError
        Any flag, key or value that does not fit.
    """
    arguments = parser.parse_args(argv)
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
        config = load_config(arguments.config, given, links=links, site=arguments.site, without=without)
    for owner in tables:
        if owner not in (config.protocol, VERTICAL):
            raise ConfigError(
                f"--set {owner}: this run is one of {config.protocol}; add --protocol {owner}, or leave it out"
            )
    if config.data_dir is None and DATA_DIR_VARIABLE in os.environ:
        config = with_values(config, {"data_dir": os.environ[DATA_DIR_VARIABLE]})
    return config, arguments


def join_negative_values(argv: Sequence[str], options: Collection[str]) -> list[str]:
    """Write `--bounds -1,1` as `--bounds=-1,1`, because argparse takes `-1,1` for a flag.

    Parameters
    ----------
    argv : sequence of str
    options : collection of str
        Flags whose value may begin with a minus sign.

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
        if value is not None and re.match(r"-[\d.]", value):
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
    """Read the value of a flag in the form that run files have; words such as 'auto' and '2..8' stay unchanged."""
    words = tuple(word.partition(":")[0] for word in option.words)
    if text.startswith(words) or (".." in text and any(".." in word for word in words)):
        return text
    try:
        return _READERS[option.kind](text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {option.expected}, got {text!r}") from None


def number(kind: type, least: float, most: float = math.inf) -> Callable[[str], Any]:
    """Return a function that reads a number within limits, for `add_argument(type=)`."""
    option = Option(about="", kind=kind, within=Within(least, most))

    def read(text: str) -> Any:
        value = read_flag(option, text)
        if value not in option.within:
            raise argparse.ArgumentTypeError(f"expected {option.expected}, got {text!r}")
        return value

    return read


_READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    tuple[int, ...]: lambda text: [int(part) for part in text.split(",")],
    tuple[str, ...]: name_list,
}


def decision_parser(prog: str, description: str, verb: str) -> Parser:
    """Return the parser of the flags that `release` and `discard` share."""
    parser = Parser(prog=prog, description=description, epilog=f"Exit codes: 0 {verb}, 2 not {verb}, or bad input.")
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="the --state-dir of the run, or one party's folder in it"
    )
    parser.add_argument("--run", metavar="ID", default="", help="first digits of the run's id, if several results wait")
    parser.add_argument("--key", metavar="FILE", type=Path, help="this site's own key (default: the one of the run)")
    parser.add_argument("--note", metavar="TEXT", default="", help="kept with the decision: who decided, and why")
    parser.add_argument("--yes", action="store_true", help="do not ask; for scripts")
    return parser


def ask(question: str, refused: str) -> None:
    """Ask the person at the terminal to type yes.

    Raises
    ------
    ConfigError
        There is no terminal, or the answer is not yes: `refused`.
    """
    if not sys.stdin.isatty():
        raise ConfigError("nobody to ask: standard input is no terminal; add --yes if a person has decided already")
    print(question, end=" ", flush=True)
    if sys.stdin.readline().strip().lower() != "yes":
        raise ConfigError(refused)


def load_command(name: str) -> ModuleType:
    """Import the module of a command that another distribution adds.

    Parameters
    ----------
    name : str
        The command, as typed after `fastlloyd`.

    Raises
    ------
    ConfigError
        No distribution adds it, or its module cannot be imported.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        try:
            module: ModuleType = point.load()
        except ImportError as error:
            raise ConfigError(f"{point.value}, the module of `fastlloyd {name}`: {error}; install it again") from error
        return module
    raise ConfigError(
        f"`fastlloyd {name}` of the papers' tables and data sets needs the distribution fastlloyd-papers: "
        "pip install ./papers in a checkout of fastlloyd"
    )
