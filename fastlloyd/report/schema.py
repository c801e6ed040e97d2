"""Check a document against the JSON Schema of the package, without a further package.

It knows the keywords of `schema.json` and refuses a schema with others, so that no rule is skipped silently. A test
compares it with the `jsonschema` package.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from fastlloyd.errors import ConfigError

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
_PASSIVE = {"$schema", "$id", "$defs", "title", "description", "then", "else"}


@cache
def schema() -> dict[str, Any]:
    """Return the schema of report.json as shipped; `$defs/server` is that of server.json."""
    content: dict[str, Any] = json.loads(resources.files("fastlloyd.report").joinpath("schema.json").read_text("utf-8"))
    return content


def validate(document: Any, definition: str = "report") -> None:
    """Check a whole document.

    Parameters
    ----------
    document : decoded JSON
    definition : {'report', 'server'}
        Which file it is of.

    Raises
    ------
    ConfigError
        Names the first wrong place, what was expected and what was found.
    """
    problem = next(_problems(document, schema()["$defs"][definition], definition), None)
    if problem is not None:
        raise ConfigError(
            f"not a {definition} of schema {max(schema()['$defs']['report']['properties']['schema']['enum'])}: "
            f"{problem}; write it again with this version of fastlloyd"
        )


def _problems(value: Any, rules: Mapping[str, Any], where: str) -> Iterator[str]:
    """Return the errors, outermost first."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: expected a finite number, got {value}"
        return
    for keyword, rule in rules.items():
        if keyword in _PASSIVE:
            continue
        if keyword not in _CHECKS:
            raise ConfigError(f"the schema uses {keyword!r}, which this check does not know: install fastlloyd again")
        yield from _CHECKS[keyword](value, rule, rules, where)


def _reference(value: Any, rule: str, _: Mapping[str, Any], where: str) -> Iterator[str]:
    yield from _problems(value, schema()["$defs"][rule.removeprefix("#/$defs/")], where)


def _type(value: Any, rule: str | list[str], _: Mapping[str, Any], where: str) -> Iterator[str]:
    names = [rule] if isinstance(rule, str) else rule
    if not any(_TYPES[name](value) for name in names):
        yield f"{where}: expected {' or '.join(names)}, got {_shown(value)}"


def _required(value: Any, rule: list[str], _: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"{where}: {name!r} is missing" for name in rule if name not in value)


def _properties(value: Any, rule: Mapping[str, Any], _: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, rules in rule.items():
            if name in value:
                yield from _problems(value[name], rules, f"{where}.{name}")


def _additional(value: Any, rule: Any, rules: Mapping[str, Any], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for name in value:
        if name in rules.get("properties", {}):
            continue
        if rule is False:
            yield f"{where}: {name!r} does not belong here"
        elif isinstance(rule, dict):
            yield from _problems(value[name], rule, f"{where}.{name}")


def _items(value: Any, rule: Mapping[str, Any], _: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, rule, f"{where}[{index}]")


def _condition(value: Any, rule: Mapping[str, Any], rules: Mapping[str, Any], where: str) -> Iterator[str]:
    met = next(_problems(value, rule, where), None) is None
    yield from _problems(value, rules.get("then" if met else "else", {}), where)


def _all(value: Any, rule: list[Mapping[str, Any]], _: Mapping[str, Any], where: str) -> Iterator[str]:
    for rules in rule:
        yield from _problems(value, rules, where)


def _constant(value: Any, rule: Any, _: Mapping[str, Any], where: str) -> Iterator[str]:
    if value != rule or isinstance(value, bool) != isinstance(rule, bool):
        yield f"{where}: expected {rule!r}, got {_shown(value)}"


def _choice(value: Any, rule: list[Any], _: Mapping[str, Any], where: str) -> Iterator[str]:
    if value not in rule:
        yield f"{where}: expected one of {rule}, got {_shown(value)}"


def _pattern(value: Any, rule: str, _: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, str) and not re.search(rule, value):
        yield f"{where}: expected text like {rule}, got {_shown(value)}"


def _length(value: Any, rule: int, _: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, str) and len(value) < rule:
        yield f"{where}: expected at least {rule} characters, got {_shown(value)}"


def _entries(value: Any, rule: int, _: Mapping[str, Any], where: str) -> Iterator[str]:
    if isinstance(value, list) and len(value) < rule:
        yield f"{where}: expected at least {rule} entries, got {len(value)}"


def _limit(words: str, fits: Callable[[float, float], bool]) -> Callable[..., Iterator[str]]:
    """Make the check of a limit on numbers."""

    def check(value: Any, rule: float, _: Mapping[str, Any], where: str) -> Iterator[str]:
        if _TYPES["number"](value) and not fits(value, rule):
            yield f"{where}: expected {words} {rule}, got {_shown(value)}"

    return check


_CHECKS: dict[str, Callable[..., Iterator[str]]] = {
    "$ref": _reference,
    "type": _type,
    "required": _required,
    "properties": _properties,
    "additionalProperties": _additional,
    "items": _items,
    "if": _condition,
    "allOf": _all,
    "const": _constant,
    "enum": _choice,
    "pattern": _pattern,
    "minLength": _length,
    "minItems": _entries,
    "minimum": _limit("at least", lambda value, limit: value >= limit),
    "maximum": _limit("at most", lambda value, limit: value <= limit),
    "exclusiveMaximum": _limit("below", lambda value, limit: value < limit),
}


def _shown(value: Any) -> str:
    """Show a value in a message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
