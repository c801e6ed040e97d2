"""A protocol's own settings: each is declared once, and its parser, its checks and its help follow from that.

A protocol declares a frozen dataclass::

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Settings:
        start: str = setting("random", "'random' clustering, or 'separated' groups", choices=("random", "separated"))
        local_k: int | None = setting(None, "clusters of each client; 'auto': k", least=1, most=10_000, auto=True)
        rho: float = setting(0.225, "expected norm of the centres", above=0, most=1, of=("glloyd", "sulloyd"))

    settings = read_settings(Settings(), "glloyd", {"rho": 0.3})

Fields are `bool`, `int`, `float` or `str`, or one of them or None. What two settings must be together is a check of
the class: its `__post_init__`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.wire.decode import show

T = TypeVar("T")
AUTO = "auto"
_RULE = "setting"
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_EXACT_FLOAT = 2**53


@dataclass(frozen=True, slots=True)
class _Rule:
    """What `setting` declares."""

    about: str
    of: tuple[str, ...]
    choices: tuple[object, ...]
    least: float
    above: float
    most: float
    below: float
    auto: bool

    def read(self, kind: type, value: object) -> object:
        """Return the value as `kind`; an integer may stand for a float.

        Raises
        ------
        ValueError
            The value does not fit: says what was expected.
        """
        if kind is float and type(value) is int and abs(value) <= _EXACT_FLOAT:
            value = float(value)
        if type(value) is not kind or not self._fits(value):
            raise ValueError(self._expected(kind))
        return value

    def _fits(self, value: Any) -> bool:
        """Whether a value of the right type is a choice or in the range; NaN and infinities are in no range."""
        if self.choices:
            return value in self.choices
        return isinstance(value, bool | str) or (self.least <= value <= self.most and self.above < value < self.below)

    def _expected(self, kind: type) -> str:
        """Name what fits: 'auto', the choices, or the kind with its range."""
        words = [repr(choice) for choice in self.choices] or [_NAMES[kind] + self._range()]
        words = [*([repr(AUTO)] if self.auto else []), *words]
        return " or ".join([", ".join(words[:-1]), words[-1]]) if words[1:] else words[0]

    def _range(self) -> str:
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f" from {self.least:.12g} to {self.most:.12g}"
        ends = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        known = [f"{word} {end:.12g}" for word, end in ends.items() if math.isfinite(end)]
        return ", " + " and ".join(known) if known else ""


def setting(
    default: T,
    about: str,
    *,
    of: tuple[str, ...] = (),
    choices: tuple[object, ...] = (),
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    auto: bool = False,
) -> T:
    """Declare one setting, as the value of a dataclass's field.

    Parameters
    ----------
    default : bool, int, float, str or None
    about : str
        One line of help.
    of : tuple of str
        The protocols that have this setting; empty: all that the class is for.
    choices : tuple
        All values that there are; empty: any in the range.
    least, most : float
        Ends of the range of a number; they belong to it.
    above, below : float
        Ends that do not belong to it.
    auto : bool
        Whether 'auto' or None stands for the default.
    """
    rule = _Rule(about, of, choices, least, above, most, below, auto)
    return dataclasses.field(default=default, metadata={_RULE: rule})


def read_settings(defaults: T, owner: str, values: Mapping[str, object]) -> T:
    """Read `--set OWNER.NAME=VALUE` pairs, or the table [OWNER] of a run file.

    Parameters
    ----------
    defaults : dataclass
        What holds where `values` says nothing.
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
    rules = _rules(cast(Any, type(defaults)), owner)
    chosen: dict[str, object] = {}
    for name, value in values.items():
        if name not in rules:
            close = did_you_mean(name, rules)
            raise ConfigError(f"{owner} has no setting {show(name)}{close}; it has {', '.join(sorted(rules))}")
        kind, rule = rules[name]
        if rule.auto and (value is None or value == AUTO):
            chosen[name] = getattr(defaults, name)
            continue
        try:
            chosen[name] = rule.read(kind, value)
        except ValueError as error:
            close = did_you_mean(value, map(str, rule.choices)) if isinstance(value, str) else ""
            raise ConfigError(f"--set {owner}.{name}: expected {error}, got {show(value)}{close}") from None
    return cast(T, dataclasses.replace(cast(Any, defaults), **chosen))


def describe_settings(kind: type, owner: str) -> dict[str, str]:
    """Return 'OWNER.NAME' and the line of help of each setting that a protocol has, as declared in `kind`."""
    return {f"{owner}.{name}": rule.about for name, (_, rule) in _rules(kind, owner).items()}


@cache
def _rules(kind: Any, owner: str) -> dict[str, tuple[type, _Rule]]:
    """Return the type and rule of each setting of a protocol, in the order of declaration."""
    hints = get_type_hints(kind)
    declared = {entry.name: cast(_Rule, entry.metadata[_RULE]) for entry in dataclasses.fields(kind)}
    return {
        name: ((get_args(hints[name]) or (hints[name],))[0], rule)
        for name, rule in declared.items()
        if not rule.of or owner in rule.of
    }
