"""A configuration read from a run file and from flags, and written as a run file.

One TOML file is the whole truth of a run; flags override it. A relative path in it begins at its own folder.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastlloyd.data.database import move_address
from fastlloyd.data.form import names_file
from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.party.option import AUTO, Option
from fastlloyd.protocols.registry import knows, names
from fastlloyd.run.config import AUTO_K, OPTIONS, VERTICAL, RunConfig
from fastlloyd.wire.toml import read_toml

_AUTO_NUMBER = re.compile(r"(?:auto:|([0-9]{1,9})\.\.)([0-9]{1,9})")


def load_config(
    path: str | Path | None,
    flags: Mapping[str, Any] | None = None,
    *,
    links: bool = True,
    site: str | Path | None = None,
    without: Collection[str] = (),
) -> RunConfig:
    """Read a run file, and a site's own beside it; a relative path in them begins at their own folder.

    Parameters
    ----------
    path : str, Path or None
        None: only what `site` and `flags` say.
    flags : mapping, optional
        As for `with_values`; they win, and what belongs together is checked only then: a run file for all parties
        may name the roster, and each party adds its own key.
    links : bool
        Whether other parties will be met, and `RunConfig.check_links` must hold; plans and checks need no key.
    site : str or Path, optional
        The file with what is this party's own; it wins over the run file.
    without : collection of str
        Options that the files may set, and that are left out: what they say is of another run.

    Raises
    ------
    ConfigError
        Missing or unreadable file, an unknown key, a value of the wrong type or range.
    """
    shared = values = {} if path is None else _read_file("--config", path)
    if site is not None:
        own = _read_file("--site", site)
        for key in own:
            entry = find_option(key)
            if entry.public if entry is not None else has_table(key):
                raise ConfigError(
                    f"--site {site}: all parties must have the same {key}: remove it, it belongs in the run file "
                    "(--config)"
                )
        values = shared | own
    values = {key: value for key, value in values.items() if key.replace("-", "_") not in without}
    merged = dict(values)
    for key, value in (flags or {}).items():
        table = values.get(key)
        merged[key] = {**table, **value} if isinstance(table, dict) and has_table(key) else value
    try:
        config = with_values(RunConfig(), merged)
        if links:
            config.check_links()
    except ConfigError as error:
        if flags and _is_fine(values):
            raise
        culprit = path if site is None or not _is_fine(shared, links=False) else site
        raise ConfigError(f"{culprit}: {error}") from error
    return config


def refuse_own_keys(path: str | Path) -> None:
    """Refuse a run file that comes from somebody else and sets what is this party's own.

    Between sites one party writes the run file and sends it to the others. It may hold what must be the same at all
    parties, and what its options declare as `shared`; it may not name this party's files, nor say what this party
    keeps, shows or does with its own machine.

    Raises
    ------
    ConfigError
        Names each such key, and where it belongs.
    """
    keys = {}
    for key, value in _read_file("--config", path).items():
        entry = find_option(key)
        # Of what may be a name of a public set or a rule, a file is no other party's business.
        if entry is not None and (entry.own or (entry.path is names_file and entry.path(str(value)))):
            keys[key] = entry.flag
    if keys:
        flags = " ".join(keys.values())
        raise ConfigError(
            f"--config {path}: {', '.join(keys)}: each site's own, and this file is for all parties: take "
            f"{'it' if len(keys) == 1 else 'them'} out; a site sets what it wants in its own file (--site FILE) or by "
            f"flags ({flags})"
        )


def _read_file(flag: str, path: str | Path) -> dict[str, Any]:
    """Return what a run file says, each relative path as seen from here."""
    values, folder = read_toml(Path(path), f"{flag} {path}"), Path(path).parent
    return {key: moved(key, value, lambda text: os.path.normpath(folder / text)) for key, value in values.items()}


def moved(key: str, value: Any, move: Callable[[str], str]) -> Any:
    """Return a value of a run file, a relative path as `move` writes it for another folder.

    Parameters
    ----------
    key : str
    value : object
        An address of a database stays as it is, but for the path of its file.
    move : callable
        Takes the path, as text.
    """
    entry = find_option(key)
    if entry is None or not isinstance(value, str) or not value or not entry.names_path(value):
        return value
    start, path = move_address(value) if entry.name == "data" else ("", value)
    return value if path is None or Path(path).is_absolute() else start + move(path)


def find_option(key: str) -> Option | None:
    """Return the option of a key, which a run file may write with dashes."""
    return OPTIONS.get(key.replace("-", "_"))


def _is_fine(values: Mapping[str, Any], *, links: bool = True) -> bool:
    """Whether a run file is right by itself, so that a mistake is one of the flags, or of a site's own file."""
    try:
        config = with_values(RunConfig(), values)
        if links:
            config.check_links()
    except ConfigError:
        return False
    return True


def with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Override fields of a configuration, with types checked.

    Parameters
    ----------
    values : mapping
        Field names (dashes count as underscores) to values; a table named like a protocol holds that
        protocol's settings, which count only if that protocol runs.

    Raises
    ------
    ConfigError
        An unknown key or a value of the wrong type or range.
    """
    chosen: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for raw_key, value in values.items():
        key = raw_key.replace("-", "_")
        if isinstance(value, dict) and has_table(raw_key):
            tables[raw_key] = value
        elif key not in OPTIONS:
            known = ", ".join(sorted(OPTIONS))
            close = did_you_mean(key, (*OPTIONS, *names()))
            raise ConfigError(f"unknown key {raw_key!r}{close}; known are {known}, and one table per protocol")
        elif key == "k":
            chosen |= read_k(value)
        elif key == "data" and not isinstance(value, str | None):
            raise OPTIONS[key].wrong(type(value).__name__)  # never the value: an address may have a password
        elif key == "bounds" and isinstance(value, list):
            chosen[key] = ",".join(map(str, value))
        else:
            chosen[key] = read_option(key, value)
    merged = {name: {**config.settings.get(name, {}), **tables.get(name, {})} for name in {**config.settings, **tables}}
    chosen["settings"] = {name: table for name, table in merged.items() if table}
    return replace(config, **chosen)


def read_option(key: str, value: Any) -> Any:
    """Return the value of an option as a file or flag has it; codes of missing values may be numbers in a file.

    Raises
    ------
    ConfigError
        The value is of another kind, not a choice or out of range.
    """
    if key == "na" and isinstance(value, list):
        value = [str(code) if type(code) in (int, float) else code for code in value]
    return OPTIONS[key].read(value)


def has_table(name: str) -> bool:
    """Whether a run file may have a table of this name: a protocol's, or that of the vertical ones."""
    return name == VERTICAL or knows(name)


def read_k(value: Any) -> dict[str, Any]:
    """Return `k`, `choose_k` and `least_k`: from a whole number, 'auto:KMAX' for at most KMAX, or '2..KMAX'.

    Raises
    ------
    ConfigError
        Neither.
    """
    match = _AUTO_NUMBER.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str) and match is None:
        raise OPTIONS["k"].wrong(value)
    k, least = (value, 0) if match is None else (int(match[2]), int(match[1] or 0))
    if match is not None and match[1] is not None and not 2 <= least < k:
        raise OPTIONS["k"].wrong(value, "a range of numbers of clusters from 2 on, such as 2..8")
    return {"k": OPTIONS["k"].read(k), "choose_k": match is not None, "least_k": least}


def to_toml(config: RunConfig, folder: str | Path | None = None, *, only: Collection[str] = OPTIONS.keys()) -> str:
    """Write a configuration as a run file.

    Parameters
    ----------
    config : RunConfig
    folder : str or Path, optional
        Where it is to stand, so that `load_config` finds the same files from there; None: paths stay as they are.
    only : collection of str
        The options to write.
    """
    lines = []
    for name, entry in OPTIONS.items():
        if name not in only:
            continue
        value = getattr(config, name)
        if folder is not None:
            value = moved(name, value, lambda text: os.path.relpath(text, folder))
        if value is None and AUTO not in entry.words:
            continue
        if name == "k" and config.choose_k:
            value = f"{config.least_k}..{value}" if config.least_k else f"{AUTO_K}{value}"
        lines.append(f"{name} = {toml_value(AUTO if value is None else value)}")
    for protocol, table in sorted(config.settings.items()):
        lines += ["", f"[{protocol}]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in sorted(table.items())]
    return "\n".join(lines) + "\n"


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """Return a configuration that finds the same files from anywhere."""
    return replace(config, **{name: moved(name, getattr(config, name), os.path.abspath) for name in OPTIONS})


def toml_value(value: Any) -> str:
    """Write one TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(entry) for entry in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def without_records(config: RunConfig) -> RunConfig:
    """Expect records at the clients, if the flags speak of any; the server itself opens no file."""
    speaks = config.bounds is not None or config.n_total is not None or bool(config.client_caps)
    if config.data is None and config.dataset is None and speaks:
        return replace(config, data="(at the clients)")
    return config
