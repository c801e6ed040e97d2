"""Everything public that a run's parties agree on, as plain values under names that people know.

The links of a run are confirmed with a digest of the same facts (`run.inputs.Common.facts`), so a run whose links are
up is a run of these values at every party.

Source: docs/protocol.md, "Approval".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from fastlloyd.crypto.link.roster import Roster
from fastlloyd.errors import printable
from fastlloyd.protocols.registry import find
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import Common
from fastlloyd.version import __version__

_SHOWN_CHARACTERS = 100
_ABSENT = object()


def public_values(config: RunConfig, common: Common, roster: Roster | None) -> dict[str, Any]:
    """Return the public values of a run.

    Parameters
    ----------
    config : RunConfig
        As the protocol's `gather` returned it.
    common : Common
    roster : Roster or None

    Returns
    -------
    dict
        Plain JSON values. `settled` holds what follows from the configuration, defaults filled in.
    """
    facts = common.facts(config, b"" if roster is None else roster.digest())
    del facts["resume"]  # an interrupted run goes on under the approval that it began with
    settled, version, split = facts.pop("public"), facts.pop("version"), facts.pop("split")
    lo, hi, names = facts.pop("bounds")
    own_columns = find(config.protocol).partition == "vertical" and split is None
    values = {
        **facts,
        "settled": settled,
        "protocol_version": version,
        "fastlloyd": __version__,
        # With tables split by columns each party states the bounds of its own columns in the run itself.
        "bounds": None if own_columns else _bounds(lo, hi, names),
        "public_data_set": split,
        "parties": {
            str(entry.party): {"name": entry.name, "fingerprint": entry.fingerprint}
            for entry in (() if roster is None else roster.entries)
        },
    }
    plain: dict[str, Any] = json.loads(canonical(values))
    return plain


def canonical(values: Any) -> bytes:
    """Return the one text of plain values: UTF-8 JSON with sorted keys, without spaces and without NaN."""
    return json.dumps(
        values, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=list
    ).encode()


def digest(values: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of the canonical text, 32 bytes."""
    return hashlib.sha256(canonical(values)).digest()


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value with its name; names of nested values are joined by dots."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differences(approved: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Name each value that differs, with both values.

    Parameters
    ----------
    approved, actual : mapping
        As `public_values` returns them.

    Returns
    -------
    list of str
        Empty if nothing differs.

    Examples
    --------
    >>> differences({"epsilon": 1.0, "k": 3}, {"epsilon": 2.0, "k": 3})
    ['epsilon: approved 1, this run has 2']
    """
    before, now = dict(flatten(approved)), dict(flatten(actual))
    changed = [name for name in (*now, *(n for n in before if n not in now)) if not _same(before, now, name)]
    # Where the digest of the roster differs a party does, and a settled value follows from what was set.
    hidden = {"roster", *(f"settled.{name}" for name in changed)}
    told = [name for name in changed if name not in hidden]
    return [
        f"{printable(name)}: approved {_cut(show_value(before.get(name, _ABSENT)))}, this run has "
        f"{_cut(show_value(now.get(name, _ABSENT)))}"
        for name in told or changed
    ]


def show_value(value: Any) -> str:
    """Write a plain value as people do: 1 for 1.0, whole, without control characters."""
    if value is _ABSENT:
        return "nothing"
    if value is None:
        return "not set"
    if value in ([], {}):
        return "none"
    if isinstance(value, str):
        text = value
    elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        text = str(int(value))
    elif isinstance(value, list) and not any(isinstance(entry, list | dict) for entry in value):
        text = ", ".join(map(show_value, value))
    else:
        text = json.dumps(value, ensure_ascii=False)
    return printable(text)


def _cut(text: str) -> str:
    """Cut a text for an error."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 2]}.."


def _bounds(lo: list[float], hi: list[float], names: tuple[str, ...] | None) -> dict[str, Any]:
    """Name the bounds by feature; one pair without names holds for every feature."""
    if names is None:
        names = ("every feature",) if len(lo) == 1 else tuple(f"feature {i + 1}" for i in range(len(lo)))
    return {name: [low, high] for name, low, high in zip(names, lo, hi, strict=True)}


def _same(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> bool:
    """Whether a value is there in both, of the same type and equal."""
    return name in before and name in now and canonical(before[name]) == canonical(now[name])
