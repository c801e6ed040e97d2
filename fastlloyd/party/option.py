"""An option of a run or a setting of a protocol, declared once: its key, its check, its flag and its help follow.

A dataclass declares each of its fields with `option`. `RunConfig` has the options of a run::

    epsilon: float = option(1.0, "total epsilon (default %(default)g)", "privacy", least=1e-3, most=100, public=True)

The flag of `n_total` is `--n-total`; a run file may write it with dashes too. A protocol has settings, which
`--set OWNER.NAME=VALUE` and the table [OWNER] of a run file set::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings:
        start: str = option("random", "'random' clustering, or 'separated' groups", choices=("random", "separated"))
        local_k: int | None = option(None, "clusters of each client; 'auto': k", least=1, most=10_000, auto=True)
        rho: float = option(0.225, "expected norm of the centres", above=0, most=1, of=("glloyd", "sulloyd"))

    settings = read_settings(Settings(), "glloyd", {"rho": 0.3})

Fields are `bool`, `int`, `float`, `str`, `tuple[int, ...]` or `tuple[str, ...]`, or one of them or None. What two of
them must be together is a check of the class: its `__post_init__`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.wire.decode import ANY, Misfit, Within, choice, one_of, reader, show

T = TypeVar("T")
AUTO = "auto"
_OPTION = "option"
_NAMES: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple[str, ...]: "a list of names",
    tuple[int, ...]: "a list of whole numbers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What is declared about one option or setting.

    Attributes
    ----------
    about : str
        One line of help; `%(default)s` is replaced by the default of an option.
    group : str
        The heading under which the help lists the flag; empty: the first one.
    metavar : str or None
        How the help writes the value; None: as argparse does. The texts of `words` follow after bars.
    choices : tuple
        All allowed values; empty: any in the range.
    renamed : tuple of pairs of str
        Choices of older versions, and what each is called now.
    within : Within
        The range of a number.
    words : tuple of str
        Texts that are accepted in place of a number. 'auto' means the default.
    of : tuple of str
        The protocols that have this setting; empty: all protocols of the class.
    public : bool
        Whether all parties must have the same value.
    shared : bool
        Whether a run file from somebody else may contain it although the parties' values may differ.
    common : bool
        Whether most people need it: a short help shows only these flags.
    path : bool or callable
        Whether a text is the path of a file or folder, or a function that decides it. In a run file a path is relative
        to that file.
    bare : object
        The value of the flag alone, without one; None: it needs a value.
    hidden : bool
        Whether no help shows it, because only a command sets it.
    name : str
        The field's name.
    owner : str
        The protocol or table of a setting; empty: an option of a run.
    kind : type
        The field's type without None.
    optional : bool
        Whether it may be None.
    default : object
    """

    about: str
    group: str = ""
    metavar: str | None = None
    choices: tuple[object, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    within: Within = ANY
    words: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    public: bool = False
    shared: bool = False
    common: bool = False
    path: bool | Callable[[str], bool] = False
    bare: object = None
    hidden: bool = False
    name: str = ""
    owner: str = ""
    kind: Any = str
    optional: bool = False
    default: object = None

    @property
    def flag(self) -> str:
        """The flag of the command line."""
        return f"--set {self.owner}.{self.name}" if self.owner else "--" + self.name.replace("_", "-")

    @property
    def own(self) -> bool:
        """Whether only the party itself may set it, such as its files and its display."""
        return not (self.public or self.shared)

    def names_path(self, text: str) -> bool:
        """Whether a value is the path of a file or folder."""
        return self.path(text) if callable(self.path) else self.path and text != ""

    @property
    def help(self) -> str:
        """The line of help, with the default in it."""
        return self.about % {"default": self.default}

    @property
    def expected(self) -> str:
        """The accepted values in words: special texts, and the choices, or the kind with its range."""
        known = map(repr, (*self.words, *self.choices))
        return one_of(known if self.choices else [*known, self.within.of(_NAMES[self.kind])])

    def wrong(self, value: object, expected: str = "") -> ConfigError:
        """Return the error that names the flag, what was expected and what came."""
        close = ""
        if isinstance(value, str):
            now = dict(self.renamed).get(value)
            close = f"; it is called {now!r} now" if now else did_you_mean(value, map(str, self.choices))
        return ConfigError(f"{self.flag}: expected {expected or self.expected}, got {show(value)}{close}")

    def read(self, value: Any) -> Any:
        """Convert a plain value to the declared kind; a list may become a tuple, an integer a float.

        Raises
        ------
        ConfigError
            The value is of another kind, not a choice or out of range.
        """
        if AUTO in self.words and (value is None or (isinstance(value, str) and value == AUTO)):
            return self.default
        if (value is None and self.optional) or (isinstance(value, str) and value in self.words):
            return value
        if self.kind is str and type(value) is str and not self.choices:
            return value  # of any length, perhaps a path that is not Unicode
        try:
            return (choice(self.choices) if self.choices else reader(self.kind, self.within))(value)
        except Misfit:
            raise self.wrong(value) from None


def option(
    default: T,
    about: str,
    group: str = "",
    metavar: str | None = None,
    *,
    least: float = ANY.least,
    most: float = ANY.most,
    above: float = ANY.above,
    below: float = ANY.below,
    auto: bool = False,
    words: tuple[str, ...] = (),
    **rest: Any,
) -> T:
    """Declare one option or setting, as the value of a dataclass's field.

    Parameters
    ----------
    default : bool, int, float, str, tuple or None
    least, most, above, below : float
        Ends of the range of a number, as `Within` has them.
    auto : bool
        Whether 'auto' means the default.
    about, group, metavar, words, **rest
        As `Option` has them.
    """
    words = (AUTO, *words) if auto else words
    within = Within(least, most, above, below)
    metavar = metavar and "|".join((metavar, *words))
    rule = Option(about=about, group=group, metavar=metavar, within=within, words=words, **rest)
    return dataclasses.field(default=default, metadata={_OPTION: rule})


@cache
def options_of(config: Any, owner: str = "") -> dict[str, Option]:
    """Return the declared options by name, in their order; other fields are left out.

    Parameters
    ----------
    config : dataclass or one of its values
        A value has defaults that may differ from those of its class.
    owner : str
        The protocol or table of the settings; empty: options of a run.
    """
    kind = config if isinstance(config, type) else type(config)
    hints = get_type_hints(kind)
    options = {}
    for entry in dataclasses.fields(kind):
        rule: Option | None = entry.metadata.get(_OPTION)
        if rule is not None and (not rule.of or owner in rule.of):
            hint = hints[entry.name]
            several = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
            default = entry.default if config is kind else getattr(config, entry.name)
            own = {"name": entry.name, "kind": several[0], "optional": type(None) in several, "default": default}
            options[entry.name] = dataclasses.replace(rule, owner=owner, **own)
    return options


def read_settings(defaults: T, owner: str, values: Mapping[str, object]) -> T:
    """Read `--set OWNER.NAME=VALUE` pairs, or the table [OWNER] of a run file.

    Parameters
    ----------
    defaults : dataclass
        Values of the settings that `values` does not name.
    owner : str
        The protocol, as people write it.
    values : mapping
        Names to plain values.

    Returns
    -------
    dataclass
        Of the type of `defaults`.

    Raises
    ------
    ConfigError
        An unknown name, a value of another type or out of range, or what the class itself refuses.
    """
    options = options_of(cast(Any, defaults), owner)
    for name in values:
        if name not in options:
            close = did_you_mean(name, options)
            raise ConfigError(f"{owner} has no setting {show(name)}{close}; it has {', '.join(sorted(options))}")
    chosen = {name: options[name].read(value) for name, value in values.items()}
    return cast(T, dataclasses.replace(cast(Any, defaults), **chosen))


def describe_settings(kind: type, owner: str) -> dict[str, str]:
    """Return 'OWNER.NAME' and the line of help of each setting that a protocol has, as declared in `kind`."""
    return {f"{owner}.{name}": entry.about for name, entry in options_of(kind, owner).items()}
