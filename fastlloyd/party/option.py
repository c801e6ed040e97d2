"""An option of a run, declared once: the key of a run file, its check, its flag and its help follow from that.

`RunConfig` declares each of its fields with `option`::

    epsilon: float = option(1.0, "total epsilon (default %(default)g)", "privacy", within=(1e-3, 100), public=True)

The flag of `n_total` is `--n-total`; a run file may write it with dashes too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from fastlloyd.errors import ConfigError, did_you_mean

T = TypeVar("T")
AUTO = "auto"
_OPTION = "option"
_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "tuple[str, ...]": "a list of names",
    "tuple[int, ...]": "a list of whole numbers",
}
_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What is declared about one option.

    Attributes
    ----------
    about : str
        One line of help; `%(default)s` stands for the default.
    group : str
        The heading under which the help lists the flag; empty: with the first ones.
    metavar : str or None
        How the help writes the value; None: as argparse does. Texts that stand for a number as well follow after bars.
    choices : tuple
        All values that there are; empty: any in the range.
    within : tuple of float or None
        Least and largest number.
    public : bool
        Whether all parties must have it alike; otherwise it is each party's own business.
    shared : bool
        Whether it may stand in a run file that comes from somebody else although it need not be alike.
    common : bool
        Whether most people need it: a short help shows these flags alone.
    path : bool
        Whether a text is the path of a file or folder; in a run file it is relative to that file.
    hidden : bool
        Whether no help shows it, because a command sets it and no person does.
    name : str
        The field's name.
    kind : str
        The field's annotation as far as None: `str`, `int`, `float` or `bool`, or a tuple of `str` or `int`.
    optional : bool
        Whether it may be None.
    default : object
    """

    about: str
    group: str = ""
    metavar: str | None = None
    choices: tuple[object, ...] = ()
    within: tuple[float, float] | None = None
    public: bool = False
    shared: bool = False
    common: bool = False
    path: bool = False
    hidden: bool = False
    name: str = ""
    kind: str = ""
    optional: bool = False
    default: object = None

    @property
    def flag(self) -> str:
        """The flag of the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def own(self) -> bool:
        """Whether only the party itself may set it: its files, what it keeps and shows, how it works."""
        return not (self.public or self.shared)

    @property
    def words(self) -> tuple[str, ...]:
        """The texts that stand for a number as well."""
        return () if self.within is None or self.metavar is None else tuple(self.metavar.split("|")[1:])

    @property
    def automatic(self) -> bool:
        """Whether 'auto' stands for None."""
        return AUTO in self.words

    @property
    def help(self) -> str:
        """The line of help, with the default in it."""
        return self.about % {"default": self.default}

    @property
    def expected(self) -> str:
        """What fits, in words: the kind, and the texts that stand for a value as well."""
        words = [_NAMES[self.kind], *map(repr, self.words)]
        return " or ".join([", ".join(words[:-1]), words[-1]]) if words[1:] else words[0]

    def wrong(self, expected: str, value: object) -> ConfigError:
        """Return the error that names the flag, what was expected and what came."""
        return ConfigError(f"{self.flag}: expected {expected}, got {value!r}")

    def read(self, value: Any) -> Any:
        """Return a plain value in the declared kind; a list may stand for a tuple, an integer for a float.

        Raises
        ------
        ConfigError
            It is of another kind.
        """
        if (value is None and self.optional) or (self.automatic and value == AUTO):
            return None
        if isinstance(value, str) and value in self.words:
            return value
        if self.kind.startswith("tuple"):
            item = int if "int" in self.kind else str
            if not isinstance(value, list | tuple) or not all(type(entry) is item for entry in value):
                raise self.wrong(self.expected, value)
            return tuple(value)
        if self.kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not _TYPES[self.kind]:
            raise self.wrong(self.expected, value)
        return value

    def check(self, value: Any) -> None:
        """Refuse a value of the right kind that is no choice or out of range.

        Raises
        ------
        ConfigError
        """
        if self.choices and value not in self.choices:
            known = [*map(str, self.choices)]
            error = self.wrong(f"one of {', '.join(known)}", value)
            raise ConfigError(f"{error}{did_you_mean(str(value), known)}")
        if self.within is None or value is None or value in self.words:
            return
        least, most = self.within
        if not least <= value <= most:
            raise self.wrong(f"a number from {least:g} to {most:g}", value)


def option(default: T, about: str, group: str = "", metavar: str | None = None, **rest: Any) -> T:
    """Declare one option, as the value of a dataclass's field; `rest` is as `Option` has it."""
    rule = Option(about=about, group=group, metavar=metavar, **rest)
    return dataclasses.field(default=default, metadata={_OPTION: rule})


@cache
def options_of(config: Any) -> dict[str, Option]:
    """Return the declared options of a dataclass by name, in their order; other fields are left out."""
    options = {}
    for entry in dataclasses.fields(config):
        if rule := entry.metadata.get(_OPTION):
            kind, *other = str(entry.type).split(" | ")
            own = {"name": entry.name, "kind": kind, "optional": "None" in other, "default": entry.default}
            options[entry.name] = dataclasses.replace(rule, **own)
    return options
