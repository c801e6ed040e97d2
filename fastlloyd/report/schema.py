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


def _rule(
    kind: str, words: str, fits: Callable[[Any, Any], bool], shown: Callable[[Any], object] | None = None
) -> Callable[..., Iterator[str]]:
    """Make the check of a value by itself, if it is of a kind ('' for any); `words` say what was expected."""

    def check(value: Any, rule: Any, _: Mapping[str, Any], where: str) -> Iterator[str]:
        if (not kind or _TYPES[kind](value)) and not fits(value, rule):
            yield f"{where}: expected {words.format(rule)}, got {(shown or _shown)(value)}"

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
    "const": _rule("", "{!r}", lambda value, rule: value == rule and isinstance(value, bool) == isinstance(rule, bool)),
    "enum": _rule("", "one of {}", lambda value, rule: value in rule),
    "pattern": _rule("string", "text like {}", lambda value, rule: re.search(rule, value) is not None),
    "minLength": _rule("string", "at least {} characters", lambda value, rule: len(value) >= rule),
    "minItems": _rule("array", "at least {} entries", lambda value, rule: len(value) >= rule, len),
    "minimum": _rule("number", "at least {}", lambda value, rule: value >= rule),
    "maximum": _rule("number", "at most {}", lambda value, rule: value <= rule),
    "exclusiveMaximum": _rule("number", "below {}", lambda value, rule: value < rule),
}


def _shown(value: Any) -> str:
    """Show a value in a message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
