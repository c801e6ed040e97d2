"""The inputs of a permanent client: its own `site.toml`, and run files that others offer, which are hostile.

An offer is a file, or comes from the server (`serve --offer NAME`) as one JSON text of the run file and the files that
it names (`Offered`). Offers of the server are stored beside the others, and never replace one.

Source: docs/sites.md, "A permanent service at a site".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from datetime import time as clock_time
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from fastlloyd.data.database import refuse_standard_input
from fastlloyd.errors import ConfigError, PeerError, did_you_mean
from fastlloyd.net.tcp.address import parse_address
from fastlloyd.net.tcp.route import MOST_OFFER_BYTES
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.earlier import find_earlier
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import has_table, load_config, moved, read_option, to_toml, with_values
from fastlloyd.wire.decode import Within, decode, load_json, show
from fastlloyd.wire.header import SERVER
from fastlloyd.wire.regular import read_regular, read_regular_bytes, replace_file
from fastlloyd.wire.toml import read_toml

SUFFIX = ".toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Names of offers."""
_HOURS = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]")
MOST_OFFERS = 1000
MOST_WAITING = 16
"""Most offers that wait for consent before none without approval is taken from the server."""
_MODE = 0o644
_Text = Annotated[str, Within(0, MOST_OFFER_BYTES)]
_Pause = Annotated[float, Within(1, 86_400)]
# Keys that a site sets itself although a shared run file may have them; an offer may have the rest.
_PINNED = frozenset({"roster", "dataset", "split"})
_OFFERED = frozenset(name for name, option in OPTIONS.items() if option.shared) - _PINNED
_NAMES_A_FILE = ("bounds", "categories")
_SET_HERE = ("state_dir", "new_state", "output", "resume", "print_result", "log_file")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """The content of `site.toml`.

    Attributes
    ----------
    folder : Path
        DIR.
    server : str
        HOST:PORT of `fastlloyd serve`.
    offers : Path
        Folder of the run files.
    every_s : float
        Pause between two looks.
    patience_s : float
        How long to try to reach the server of a run before the next look.
    hours : tuple of two times or None
        The hours in which runs are joined; None: at any time.
    zone : ZoneInfo or None
        The time zone of the hours; None: that of this machine.
    ask : bool
        Whether the server is asked for its offer.
    repeat : bool
        Whether an offer that has ended is joined again under its approval, if the server offers it anew.
    metrics : Path or None
        File of the service's metrics.
    own : mapping
        This site's own keys of a run file.
    """

    folder: Path
    server: str
    offers: Path
    every_s: float
    patience_s: float
    ask: bool
    repeat: bool
    metrics: Path | None
    hours: tuple[clock_time, clock_time] | None
    zone: ZoneInfo | None
    own: Mapping[str, Any]

    def brings(self, offer: Path) -> dict[str, Any]:
        """Return this site's own keys of an offer, as its approval covers them and its run reads them.

        An offer that goes on from a finished run gets the folder of that run's result here, unless `site.toml` names
        one.

        Raises
        ------
        ConfigError
            There is none, or the offer cannot be read.
        """
        own = {**self.own, "state_dir": str(self.folder / "state")}
        config = load_config(offer, links=False)
        if config.row not in FOLLOWING or "run" not in config.own_settings or "described" in own:
            return own
        run = str(config.own_settings["run"])
        for folder in sorted(self.folder.joinpath("results").glob("*")):
            if find_earlier(folder).runs.get("report.json") == run:
                return {**own, "described": str(folder)}
        raise ConfigError(
            f"{offer}: it goes on from run {run[:16]}, whose result is not in {self.folder / 'results'}: this site was "
            "not in that run, or the result waits for `fastlloyd release`; described = DIR in site.toml names another "
            "folder"
        )

    @property
    def links(self) -> dict[str, Any]:
        """The keys of a run file that are about the links of this site."""
        return {name: self.own[name] for name in ("roster", "key", "passphrase_file") if name in self.own}

    def open_at(self, now: datetime) -> bool:
        """Whether runs are joined at this time, which has a time zone; hours may pass midnight."""
        if self.hours is None:
            return True
        (start, end), time = self.hours, now.astimezone(self.zone).time()
        return start <= time < end if start < end else time >= start or time < end

    def describe_hours(self, now: datetime) -> str:
        """Name the hours and their time zone."""
        start, end = (f"{time:%H:%M}" for time in self.hours or ())
        return f"{start}-{end}, {self.zone or f'the clock of this machine ({now.astimezone().tzname()})'}"

    def place(self, kind: str, name: str, suffix: str = "") -> Path:
        """Return the path of a file of an offer."""
        return self.folder / kind / f"{name}{suffix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The keys of `site.toml` beside those of a run file."""

    server: str = ""
    offers: str = "offers"
    every: _Pause = 60.0
    patience: _Pause = 60.0
    hours: str | None = None
    zone: str | None = None
    ask: bool = False
    repeat: bool = False
    service_metrics: str | None = None


def read_settings(folder: Path) -> SiteSettings:
    """Read `site.toml`.

    Raises
    ------
    ConfigError
        It is missing, or has invalid content.
    """
    path = folder / "site.toml"
    if not path.exists():
        raise ConfigError(
            f"{path}: there is no such file; `fastlloyd site DIR` expects its folder: docs/sites.md, 'A "
            "permanent service at a site', shows one"
        )
    values = {key.replace("-", "_"): value for key, value in read_toml(path, str(path)).items()}
    mine = {entry.name: values.pop(entry.name) for entry in fields(_Written) if entry.name in values}
    try:
        written = decode(_Written, mine, "")
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    parse_address(written.server, f"{path}: server")
    for key, value in values.items():
        if key not in OPTIONS:
            known = (*(entry.name for entry in fields(_Written)), *OPTIONS)
            raise ConfigError(f"{path}: unknown key {key!r}{did_you_mean(key, known)}")
        if OPTIONS[key].public or key in _SET_HERE or key in _OFFERED:
            why = "is kept below this folder" if key in _SET_HERE else "is for the run files in offers"
            raise ConfigError(f"{path}: {key} {why}; take it out")
        try:
            values[key] = read_option(key, value)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error
    for key in ("key", "roster", "data"):
        if not isinstance(values.get(key), str):
            raise ConfigError(f"{path}: expected {key} = a path, got {values.get(key)!r}; write it as text")
    refuse_standard_input(values["data"], "a service joins many runs, and has none")
    values = {key: moved(key, value, lambda text: os.path.normpath(folder / text)) for key, value in values.items()}
    if written.repeat and (not written.ask or "budget" not in values):
        raise ConfigError(
            f"{path}: repeat: expected ask = true and a budget beside it, which says how often the server may repeat a "
            "run; add them, or take repeat out"
        )
    return SiteSettings(
        folder=folder,
        server=written.server,
        offers=folder / written.offers,
        every_s=written.every,
        patience_s=written.patience,
        ask=written.ask,
        repeat=written.repeat,
        metrics=None if written.service_metrics is None else folder / written.service_metrics,
        hours=_hours(path, written.hours),
        zone=_zone(path, written.zone),
        own=values,
    )


def check_offer(path: Path) -> None:
    """Refuse a run file that sets private keys of this site.

    Raises
    ------
    ConfigError
        It is not a run file, has keys that are not public, names a file outside of its folder or is a link to one, or
        is for tables that are split by columns.
    """
    _refuse_link(path, path.name)
    for raw, value in read_toml(path, str(path)).items():
        key = raw.replace("-", "_")
        # Whether there is such a protocol is asked of few keys: to look takes long, and `load_config` does.
        if key in OPTIONS and (OPTIONS[key].own or key in _PINNED) and not (isinstance(value, dict) and has_table(raw)):
            raise ConfigError(f"{path}: {key} is each site's own; an offer has only public values")
        beside = isinstance(value, str) and Path(value).name == value and value.isprintable()
        if key in _NAMES_A_FILE and isinstance(value, str) and (not beside or value.startswith(".")):
            raise ConfigError(f"{path}: {key}: expected a file beside the offer, got {value!r}")
        if key in _NAMES_A_FILE and isinstance(value, str):
            _refuse_link(path, value)
    _refuse_vertical(path, load_config(path, links=False))


def _refuse_link(path: Path, name: str) -> None:
    """Refuse a file of an offer that is a link to elsewhere: of a file of this site, nothing may be shown or sent."""
    file, folder = path.with_name(name), path.parent.resolve()
    try:
        leaves = file.is_symlink() and not file.resolve().is_relative_to(folder)
    except OSError as error:  # a name that no file can have
        raise ConfigError(f"{show(name)}: cannot be read ({error.strerror}); check the name") from error
    if leaves:
        raise ConfigError(f"{file}: expected a file in the folder of the offer, it is a link to another; copy it there")


def _refuse_vertical(path: Path, config: RunConfig) -> None:
    """Refuse tables that are split by columns: their columns and bounds are in no approval."""
    if config.row.partition == "vertical":
        raise ConfigError(
            f"{path}: protocol: an approval does not cover the columns that a site brings to {config.protocol}; join "
            "it manually, with `fastlloyd join`"
        )


def take_offer(path: Path, own: Mapping[str, Any]) -> RunConfig:
    """Read a run file with this site's own keys; it may have changed since it was checked.

    Parameters
    ----------
    path : Path
    own : mapping
        The keys that no offer sets; missing ones have their default.

    Raises
    ------
    ConfigError
        As for `check_offer`.
    """
    _refuse_link(path, path.name)
    config = load_config(path, own)
    for name, option in OPTIONS.items():
        if (option.own or name in _PINNED) and getattr(config, name) != own.get(name, option.default):
            raise ConfigError(f"{path}: {name} is each site's own; an offer has only public values")
    here = (Path(), Path(os.path.normpath(path.parent)))
    for name in _NAMES_A_FILE:
        value = getattr(config, name)
        if value is not None and (Path(value).parent not in here or not Path(value).name.isprintable()):
            raise ConfigError(f"{path}: {name}: expected a file beside the offer, got {value!r}")
        if value is not None:
            _refuse_link(path, Path(value).name)
    _refuse_vertical(path, config)
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A run in the server's offer.

    Attributes
    ----------
    offer : int
        Version of this format.
    name : str
    instance : str
        When `serve` was started: two runs under one name have two.
    resume : bool
        Whether the server goes on with the run that broke off, or begins another.
    run : str
        The run file; it names the files below as `NAME.bounds.csv` and `NAME.categories.csv`.
    bounds, categories : str or None
        Their content.
    """

    offer: Literal[1]
    name: Annotated[str, Within(1, 64)]
    instance: Annotated[str, Within(1, 64)]
    resume: bool
    run: _Text
    bounds: _Text | None
    categories: _Text | None


def write_offer(config: RunConfig, name: str) -> bytes:
    """Return the offer of a run that `serve --offer NAME` sends to sites.

    Raises
    ------
    ConfigError
        The name is invalid, or a file cannot be read, is each party's own, or is too long.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"--offer: expected a name of letters, digits, dashes and underscores, got {name!r}")
    if config.row.partition == "vertical":
        raise ConfigError(f"--offer: sites join {config.protocol} manually: no approval covers their columns")
    texts: dict[str, str | None] = dict.fromkeys(_NAMES_A_FILE)
    for key in _NAMES_A_FILE:
        path = getattr(config, key)
        if path is not None and OPTIONS[key].names_path(path):
            if "{client}" in path:
                raise ConfigError(f"--offer: {key} {path} is another file at each party: send the run file manually")
            try:
                texts[key] = read_regular(Path(path))
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "expected UTF-8 text"
                raise ConfigError(f"--offer: {key} {path}: cannot be read ({why})") from error
            config = with_values(config, {key: _beside(name, key)})
    config = replace(config, settings={config.protocol: config.own_settings} if config.own_settings else {})
    public = {key for key, entry in OPTIONS.items() if entry.public}
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    run = to_toml(config, only=public | _OFFERED)
    offered = Offered(offer=1, name=name, instance=now, resume=config.resume, run=run, **texts)
    content = json.dumps(asdict(offered), ensure_ascii=False).encode()
    if len(content) > MOST_OFFER_BYTES:
        raise ConfigError(
            f"--offer: run file, bounds and categories have {len(content)} bytes, expected at most {MOST_OFFER_BYTES}: "
            "send them manually"
        )
    return content


def keep_offer(settings: SiteSettings, content: bytes) -> Offered:
    """Store the server's offer beside the other offers, unless it exists; return it.

    Raises
    ------
    PeerError
        It is not an offer, `check_offer` refuses it, or another one has its name.
    ConfigError
        It is not approved and too many wait for consent, or it cannot be written.
    """
    try:
        offered = decode(Offered, load_json(content, most_bytes=MOST_OFFER_BYTES), "the offer")
        if not NAME.fullmatch(offered.name):
            raise ValueError("expected a name of letters, digits, dashes and underscores")
    except ValueError as error:
        raise PeerError(f"the server's offer cannot be read: {error}", rank=SERVER.rank) from error
    name = offered.name
    # The run file last: the files that it names exist by then.
    texts = {_beside(name, "bounds"): offered.bounds, _beside(name, "categories"): offered.categories}
    offer_files = {settings.offers / file: text.encode() for file, text in texts.items() if text is not None}
    offer_files[settings.offers / f"{name}{SUFFIX}"] = offered.run.encode()
    try:
        missing = [path for path, text in offer_files.items() if not _is_kept(path, text, name)]
        approved = settings.place("approvals", name, ".json").exists()
        if missing and not approved and _count_waiting(settings) >= MOST_WAITING:
            raise ConfigError(
                f"{settings.offers}: {MOST_WAITING} offers wait for consent, so none is taken from the server: agree "
                "to them, or decline them"
            )
        for path in missing:
            try:
                replace_file(path, [offer_files[path]], mode=_MODE, fresh=True)
            except FileExistsError:  # created meanwhile
                _is_kept(path, offer_files[path], name)
        if missing:
            _check_new(settings.offers / f"{name}{SUFFIX}", missing)
    except OSError as error:
        raise ConfigError(
            f"{settings.offers}: the offer {name} cannot be kept there ({error.strerror}); make room, or fix the "
            "folder's permissions"
        ) from error
    return offered


def _check_new(path: Path, files: Iterable[Path]) -> None:
    """Remove an offer of the server that no site can join: the server may correct it under its name."""
    try:
        check_offer(path)
    except ConfigError as error:
        for file in files:
            file.unlink(missing_ok=True)
        why = f"the server's offer {path.stem} is refused, and not kept: {error}"
        raise PeerError(why, rank=SERVER.rank) from error


def _is_kept(path: Path, text: bytes, name: str) -> bool:
    """Whether a file of an offer exists already; refuse an offer that differs from it."""
    if not os.path.lexists(path):
        return False
    if read_regular_bytes(path, len(text) + 1) != text:
        raise PeerError(
            f"the server offers another {name} than the one in {path}: it needs another name, or remove the old one",
            rank=SERVER.rank,
        )
    return True


def _count_waiting(settings: SiteSettings) -> int:
    """Count the offers that wait for consent, up to `MOST_WAITING`; files that are no offers wait for nothing."""
    count = 0
    paths = sorted(path for path in settings.offers.iterdir() if path.suffix == SUFFIX)
    for path in [path for path in paths if not _is_decided(settings, path.stem)][:MOST_OFFERS]:
        with suppress(ConfigError):
            check_offer(path)
            count += 1
        if count == MOST_WAITING:
            break
    return count


def _is_decided(settings: SiteSettings, name: str) -> bool:
    """Whether an offer has an approval, refusal or outcome."""
    return any(settings.place(kind, name, ".json").exists() for kind in ("approvals", "declined", "outcomes"))


def _beside(name: str, key: str) -> str:
    """Return the name of a file of an offer."""
    return f"{name}.{key}.csv"


def offer_path(settings: SiteSettings, name: str) -> Path:
    """Return the path of an offer's run file.

    Raises
    ------
    ConfigError
        There is none.
    """
    path = settings.offers / f"{name}{SUFFIX}"
    if not NAME.fullmatch(name) or not path.exists():
        raise ConfigError(f"{settings.offers}: there is no offer {name!r}; `fastlloyd site DIR --once` lists them")
    return path


def _hours(path: Path, text: str | None) -> tuple[clock_time, clock_time] | None:
    if text is None:
        return None
    if not _HOURS.fullmatch(text) or text[:5] == text[6:]:
        raise ConfigError(f'{path}: hours: expected two times as "20:00-06:00", got {text!r}')
    start, end = text.split("-")
    return clock_time.fromisoformat(start), clock_time.fromisoformat(end)


def _zone(path: Path, name: str | None) -> ZoneInfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            f'{path}: zone: expected a time zone that this machine knows, as "Europe/Berlin" or "UTC", got {name!r}; '
            "correct it, or install the system's tzdata"
        ) from error
