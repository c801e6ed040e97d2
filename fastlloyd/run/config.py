"""The configuration of a run: one TOML file is the whole truth, flags override it.

`RunConfig` holds what a user may set, checked; `protocol` settings live with their protocol and arrive
here as plain `set` pairs. Secrets never stand in it.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.registry import find, knows
from fastlloyd.wire.regular import read_regular

VERTICAL = "vertical"
"""The table of a run file that the vertical protocols have in common; there is one per protocol besides."""
TRANSPORTS = ("shm", "tcp")
MASKINGS = ("common", "pairwise")
PAPER_DELTA = "paper"
LOG_LEVELS = ("debug", "info", "warning", "error")
MISSING_RULES = ("refuse", "drop", "midpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything a user may set for one run, with its default.

    Attributes
    ----------
    protocol : str
        A name of `protocols.registry`.
    data : str or None
        Template of a party's own file; '{client}' becomes the rank.
    dataset : str or None
        Name or file of one public data set that is split among the clients (demonstration).
    settings : dict
        Per protocol, its own settings; only those of `protocol` count.
    data_dir : str or None
        Folder of NAME.csv.gz files for `dataset`.
    columns : tuple of str
        Feature columns to use, by name; empty for all numeric ones.
    missing : str
        What to do with missing values: 'refuse', 'drop' the row, or fill with the 'midpoint' of the bounds.
    k : int or None
        Number of clusters; None only where a default data set brings its own. Set to 'auto:KMAX', it is KMAX and
        `choose_k` is true.
    choose_k : bool
        The protocol chooses the number of clusters, at most `k` (feddp); set by 'auto:KMAX' alone.
    server_data : str or None
        File of the server's own records (feddp); read by the server only, and shown to the clients.
    epsilon : float
    delta : float or None
        None means 'auto': 1 / (100 N) with the public N; 'paper' is what the protocol's own paper takes.
    accept_large_delta : bool
        Take a delta above 1 / N.
    rounds : int or None
        None means 'auto': the protocol's public formula.
    bounds : str or None
        'LO,HI', a CSV file `feature,lo,hi`, or 'auto-public'.
    n_total : int or None
        Public upper bound N on the number of records of all clients together.
    client_caps : tuple of int
        Public caps on each client's records; they sum to at most N. Empty: N // M each.
    budget : float or None
        Lifetime limit on epsilon; needs `state_dir`.
    seed : int
        Public randomness only: start, splits, generators.
    masking : str
        'common' masks that the server cannot take off, or 'pairwise' masks that cancel in its sum.
    known_shares : int
        With pairwise masking, t: of how many clients an observer may know the shares of noise.
    workers : int or None
        Processes for the heavy part of vertical-he at the party that computes; None: one per core.
    network : str or None
        Profile of the shaped network that `fastlloyd run` made.
    shaping : str or None
        Who shapes it, 'netem' or 'emulator'; set by `fastlloyd run`.
    deadline : float
        Seconds per round; `setup_deadline` covers everything before round 0.
    """

    protocol: str = "fastlloyd"
    data: str | None = None
    dataset: str | None = None
    data_dir: str | None = None
    split: str = "iid"
    columns: tuple[str, ...] = ()
    missing: str = "refuse"
    k: int | None = None
    choose_k: bool = False
    server_data: str | None = None
    epsilon: float = 1.0
    delta: float | str | None = None
    accept_large_delta: bool = False
    rounds: int | None = None
    bounds: str | None = None
    n_total: int | None = None
    client_caps: tuple[int, ...] = ()
    budget: float | None = None
    seed: int = 0
    masking: str = "common"
    known_shares: int = 1
    ring_bits: int = 32
    min_clients: int | None = None
    roster: str | None = None
    key: str | None = None
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    workers: int | None = None
    transport: str = "shm"
    network: str | None = None
    shaping: str | None = None
    delay: float = 0.0
    deadline: float = 60.0
    setup_deadline: float = 300.0
    state_dir: str | None = None
    resume: bool = False
    output: str = "fastlloyd-run"
    evaluate: bool = False
    print_result: bool | None = None
    quiet: bool = False
    log_level: str = "warning"
    log_file: str | None = None

    def __post_init__(self) -> None:
        find(self.protocol)
        for name, options in _CHOICES.items():
            if getattr(self, name) not in options:
                raise _wrong(name, f"one of {', '.join(map(str, options))}", getattr(self, name))
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value not in (None, PAPER_DELTA) and not (math.isfinite(value) and low <= value <= high):
                raise _wrong(name, f"a number from {low:g} to {high:g}", value)
        if self.data is not None and self.dataset is not None:
            raise ConfigError("--data and --dataset exclude each other: own files, or one public set that is split")
        if self.data is not None:
            self._check_own_data()
        if self.budget is not None and self.state_dir is None:
            raise ConfigError("--budget is a limit over all runs and needs --state-dir, where the ledger is kept")
        if self.resume and self.state_dir is None:
            raise ConfigError("--resume needs the --state-dir of the interrupted run")
        if any(cap < 0 for cap in self.client_caps):
            raise _wrong("client_caps", "numbers of records, 0 or more", self.client_caps)

    def check_links(self) -> None:
        """Refuse a roster without a key, or a key without a roster: a run would otherwise prove nobody's name.

        Raises
        ------
        ConfigError
            One of them is missing.
        """
        if (self.roster is None) != (self.key is None):
            raise ConfigError("--roster and --key belong together: pinned certificates, and this party's own key")

    @property
    def own_settings(self) -> dict[str, Any]:
        """The settings of the protocol that runs."""
        return self.settings.get(self.protocol, {})

    def _check_own_data(self) -> None:
        """Refuse what only fits a public data set."""
        if self.evaluate:
            raise ConfigError("--evaluate compares with the true records and is for a public --dataset only")
        if self.bounds is None:
            raise ConfigError("--data needs --bounds: 'LO,HI' for all features, or a CSV file feature,lo,hi")
        if self.bounds == "auto-public":
            raise ConfigError(
                "--bounds auto-public reads the bounds off a public --dataset; with --data that would leak: give "
                "'LO,HI' or a file"
            )
        if self.n_total is None:
            raise ConfigError("--data needs --n-total: a public upper bound on the records of all clients together")
        if self.k is None:
            raise ConfigError("--data needs --k, the number of clusters")


_CHOICES: dict[str, tuple[Any, ...]] = {
    "transport": TRANSPORTS,
    "masking": MASKINGS,
    "log_level": LOG_LEVELS,
    "missing": MISSING_RULES,
    "ring_bits": (32, 64),
}
_RANGES: dict[str, tuple[float, float]] = {
    "epsilon": (1e-3, 100.0),
    "delta": (1e-11, 0.5),
    "k": (1, 10_000),
    "rounds": (0, 1000),
    "n_total": (3, 1e12),
    "budget": (0.0, 1e6),
    "min_clients": (1, 100_000),
    "known_shares": (1, 100_000),
    "workers": (1, 256),
    "delay": (0.0, 60.0),
    "deadline": (0.5, 86_400.0),
    "setup_deadline": (0.5, 86_400.0),
    "seed": (0, 2.0**63),
}
_AUTOMATIC = ("delta", "rounds")
_OTHERWISE = {"delta": ", 'auto' or 'paper'", "rounds": " or 'auto'"}
_DERIVED = frozenset({"settings", "choose_k"})
_AUTO_K = "auto:"
# What all parties must have alike; the rest is each party's own business.
_PUBLIC = (
    "protocol",
    "columns",
    "k",
    "choose_k",
    "epsilon",
    "delta",
    "rounds",
    "n_total",
    "client_caps",
    "seed",
    "masking",
    "known_shares",
    "ring_bits",
    "min_clients",
)


def _wrong(name: str, expected: str, value: object) -> ConfigError:
    flag = "--" + name.replace("_", "-")
    return ConfigError(f"{flag}: expected {expected}, got {value!r}")


def load_config(path: str | Path, flags: Mapping[str, Any] | None = None, *, links: bool = True) -> RunConfig:
    """Read a run file.

    Parameters
    ----------
    path : str or Path
    flags : mapping, optional
        As for `with_values`; they win, and what belongs together is checked only then: a run file for all parties
        may name the roster, and each party adds its own key.
    links : bool
        Whether other parties will be met, and `RunConfig.check_links` must hold; plans and checks need no key.

    Raises
    ------
    ConfigError
        Missing or unreadable file, an unknown key, a value of the wrong type or range.
    """
    try:
        text = read_regular(Path(path))
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {path}: expected UTF-8 text") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--config {path}: not valid TOML: {error}") from error
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
        raise ConfigError(f"{path}: {error}") from error
    return config


def _is_fine(values: Mapping[str, Any]) -> bool:
    """Whether a run file is right by itself, so that a mistake is one of the flags."""
    try:
        with_values(RunConfig(), values).check_links()
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
    kinds = {entry.name: entry.type for entry in fields(RunConfig)}
    chosen: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {}
    for raw_key, value in values.items():
        key = raw_key.replace("-", "_")
        if isinstance(value, dict) and has_table(raw_key):
            tables[raw_key] = value
        elif key not in kinds or key in _DERIVED:
            known = ", ".join(sorted(set(kinds) - _DERIVED))
            raise ConfigError(f"unknown key {raw_key!r}; known are {known}, and one table per protocol")
        elif key == "k":
            chosen |= _number_of_clusters(value)
        else:
            chosen[key] = _convert(key, value, str(kinds[key]))
    merged = {name: {**config.settings.get(name, {}), **tables.get(name, {})} for name in {**config.settings, **tables}}
    chosen["settings"] = {name: table for name, table in merged.items() if table}
    return replace(config, **chosen)


def has_table(name: str) -> bool:
    """Whether a run file may have a table of this name: a protocol's, or that of the vertical ones."""
    return name == VERTICAL or knows(name)


def _number_of_clusters(value: Any) -> dict[str, Any]:
    """Read k: a whole number, or 'auto:KMAX' for at most KMAX."""
    if isinstance(value, str) and value.startswith(_AUTO_K) and value.removeprefix(_AUTO_K).isdecimal():
        return {"k": int(value.removeprefix(_AUTO_K)), "choose_k": True}
    if type(value) is not int and value is not None:
        raise _wrong("k", "a whole number, or 'auto:KMAX' where the protocol can choose", value)
    return {"k": value, "choose_k": False}


def _convert(key: str, value: Any, kind: str) -> Any:
    """Check a value against a field's annotation; 'auto' stands for None where that is allowed."""
    if key in _AUTOMATIC and value == "auto":
        return None
    if key == "delta" and value == PAPER_DELTA:
        return value
    if kind.startswith("tuple"):
        item = int if "int" in kind else str
        if not isinstance(value, list | tuple) or not all(type(entry) is item for entry in value):
            raise _wrong(key, f"a list of {'whole numbers' if item is int else 'names'}", value)
        return tuple(value)
    if key == "bounds" and isinstance(value, list):
        value = ",".join(str(entry) for entry in value)
    if value is None and "None" in kind:
        return None
    base = {"str": str, "int": int, "float": float, "bool": bool}[kind.partition(" ")[0]]
    if base is float and type(value) is int:
        value = float(value)
    if type(value) is not base:
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise _wrong(key, words[base] + _OTHERWISE.get(key, ""), value)
    return value


def public_part(config: RunConfig) -> dict[str, Any]:
    """Give what all parties must have alike, as plain values."""
    return {**{name: getattr(config, name) for name in _PUBLIC}, "settings": config.own_settings}


def to_toml(config: RunConfig) -> str:
    """Write a configuration as a run file; `load_config` reads it back."""
    lines = []
    for entry in fields(RunConfig):
        value = getattr(config, entry.name)
        if entry.name in _DERIVED or (value is None and entry.name not in _AUTOMATIC):
            continue
        if entry.name == "k" and config.choose_k:
            value = f"{_AUTO_K}{value}"
        lines.append(f"{entry.name} = {_toml('auto' if value is None else value)}")
    for protocol, table in sorted(config.settings.items()):
        lines += ["", f"[{protocol}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in sorted(table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Write one TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
