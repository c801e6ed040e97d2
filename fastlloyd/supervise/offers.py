"""What a site that stays reads: its own `site.toml`, and run files that others offer, which are hostile.

Source: docs/sites.md, "A site that stays".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time as clock_time
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd.net.tcp.address import parse_address
from fastlloyd.protocols.registry import find
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import has_table, load_config
from fastlloyd.wire.regular import read_regular_bytes
from fastlloyd.wire.toml import MOST_BYTES, parse_toml

SUFFIX = ".toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Of an offer."""
_HOURS = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]")
_LEAST_S, _MOST_S = 1, 86_400
# What an offer may hold beside the values that all parties must have alike, and what of these is this site's own.
_OFFERED = frozenset({"bounds", "categories", "deadline", "setup_deadline"})
_OWN = frozenset({"roster", "key"})
_NAMES_A_FILE = ("bounds", "categories")
_SET_HERE = ("state_dir", "output", "resume", "print_result", "log_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """What `site.toml` says.

    Attributes
    ----------
    folder : Path
        DIR.
    server : str
        HOST:PORT of `fastlloyd serve`.
    offers : Path
        Where run files are put.
    every_s : float
        Pause between two looks.
    hours : tuple of two times or None
        From when to when, by this host's clock, runs are joined; None: at any time.
    own : mapping
        Keys of a run file that are this site's.
    """

    folder: Path
    server: str
    offers: Path
    every_s: float
    hours: tuple[clock_time, clock_time] | None
    own: Mapping[str, Any]

    def open_at(self, now: clock_time) -> bool:
        """Whether runs are joined at this time; hours may pass midnight."""
        if self.hours is None:
            return True
        start, end = self.hours
        return start <= now < end if start < end else now >= start or now < end

    def place(self, kind: str, name: str, suffix: str = "") -> Path:
        """Return where something of an offer is kept."""
        return self.folder / kind / f"{name}{suffix}"


def read_settings(folder: Path) -> SiteSettings:
    """Read `site.toml`.

    Raises
    ------
    ConfigError
        It is missing, or holds what it may not.
    """
    path = folder / "site.toml"
    values = {key.replace("-", "_"): value for key, value in _toml(path).items()}
    server, every, hours = values.pop("server", None), values.pop("every", 60), values.pop("hours", None)
    offers = values.pop("offers", "offers")
    if not isinstance(server, str):
        raise ConfigError(f'{path}: expected server = "HOST:PORT", where `fastlloyd serve` listens')
    parse_address(server, f"{path}: server")
    if isinstance(every, bool) or not isinstance(every, int | float) or not _LEAST_S <= every <= _MOST_S:
        raise ConfigError(f"{path}: every: expected seconds from {_LEAST_S} to {_MOST_S}, got {every!r}")
    if not isinstance(offers, str):
        raise ConfigError(f"{path}: offers: expected a folder, got {offers!r}")
    for key, value in values.items():
        if key not in OPTIONS:
            raise ConfigError(f"{path}: unknown key {key!r}{did_you_mean(key, OPTIONS)}")
        if (OPTIONS[key].public and key not in _OWN) or key in _SET_HERE or key in _OFFERED:
            why = "is kept below this folder" if key in _SET_HERE else "is for the run files in offers"
            raise ConfigError(f"{path}: {key} {why}; take it out")
        values[key] = OPTIONS[key].read(value)
    for key in ("key", "roster", "data"):
        if not isinstance(values.get(key), str):
            raise ConfigError(f"{path}: expected {key} = a path")
        values[key] = os.path.normpath(folder / values[key])
    return SiteSettings(
        folder=folder,
        server=server,
        offers=folder / offers,
        every_s=float(every),
        hours=_hours(path, hours),
        own=values,
    )


def check_offer(path: Path) -> None:
    """Refuse a run file that reaches for what is this site's.

    Raises
    ------
    ConfigError
        It is no run file, holds another key than public ones, names a file outside of its folder, or is for tables that
        are split by columns.
    """
    for raw, value in _toml(path).items():
        key = raw.replace("-", "_")
        if isinstance(value, dict) and has_table(raw):
            continue
        if key in OPTIONS and key not in _OFFERED and (not OPTIONS[key].public or key == "key"):
            raise ConfigError(f"{path}: {key} is each site's own; an offer holds public values alone")
        if key in _NAMES_A_FILE and isinstance(value, str) and (Path(value).name != value or value.startswith(".")):
            raise ConfigError(f"{path}: {key}: expected a file beside the offer, got {value!r}")
    _refuse_vertical(path, load_config(path, links=False))


def _refuse_vertical(path: Path, config: RunConfig) -> None:
    """Refuse tables that are split by columns: columns and bounds are each party's own there, in no approval."""
    if find(config.protocol).partition == "vertical":
        raise ConfigError(
            f"{path}: protocol: an approval says nothing of the columns that a site brings to {config.protocol}; join "
            "it by hand, with `fastlloyd join`"
        )


def take_offer(path: Path, own: Mapping[str, Any]) -> RunConfig:
    """Read a run file with what is this site's own; it may have changed since it was checked.

    Parameters
    ----------
    path : Path
    own : mapping
        The keys of a run file that no offer sets; what is missing has its default.

    Raises
    ------
    ConfigError
        As for `check_offer`.
    """
    config = load_config(path, own)
    for name, option in OPTIONS.items():
        if not option.public and name not in _OFFERED and getattr(config, name) != own.get(name, option.default):
            raise ConfigError(f"{path}: {name} is each site's own; an offer holds public values alone")
    here = (Path(), Path(os.path.normpath(path.parent)))
    for name in _NAMES_A_FILE:
        value = getattr(config, name)
        if value is not None and Path(value).parent not in here:
            raise ConfigError(f"{path}: {name}: expected a file beside the offer, got {value!r}")
    _refuse_vertical(path, config)
    return config


def offer_path(settings: SiteSettings, name: str) -> Path:
    """Return the run file of a name that a person typed.

    Raises
    ------
    ConfigError
        There is none.
    """
    path = settings.offers / f"{name}{SUFFIX}"
    if not NAME.fullmatch(name) or not path.exists():
        raise ConfigError(f"{settings.offers}: there is no offer {name!r}; `fastlloyd site DIR --once` lists them")
    return path


def _toml(path: Path) -> dict[str, Any]:
    """Read a small TOML file."""
    try:
        return parse_toml(read_regular_bytes(path, MOST_BYTES + 1))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _hours(path: Path, text: object) -> tuple[clock_time, clock_time] | None:
    if text is None:
        return None
    if not isinstance(text, str) or not _HOURS.fullmatch(text) or text[:5] == text[6:]:
        raise ConfigError(f'{path}: hours: expected two times as "20:00-06:00", got {text!r}')
    start, end = text.split("-")
    return clock_time.fromisoformat(start), clock_time.fromisoformat(end)
