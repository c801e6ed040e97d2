"""Puts public data sets into a folder: fetched, checked, converted, and only then in place.

Source: papers/fastlloyd_papers/sets/origin.py for the addresses; the format is that of data/public/named.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from fastlloyd.data.public.named import load_named
from fastlloyd.errors import ConfigError, DataError, did_you_mean
from fastlloyd_papers.sets.fetch import fetch
from fastlloyd_papers.sets.origin import ORIGINS, Made, Origin, Remote, content_digest
from fastlloyd_papers.sets.store import csv_pieces, placing

Get = Callable[[Remote], bytes]

EMBEDDED = ("iris", "photo")


def get_file(remote: Remote) -> bytes:
    """Fetch a file over https, no longer than it should be.

    Raises
    ------
    DataError
        It cannot be had.
    """
    return fetch(remote.url, limit_bytes=remote.size)


def download(name: str, folder: Path, *, force: bool = False, get: Get = get_file) -> str:
    """Put one set into a folder, as NAME.csv.gz and, with classes, NAME.labels.csv.gz.

    Parameters
    ----------
    name : str
    folder : Path
        Made if it is not there.
    force : bool
        Replace what is there.
    get : callable
        Fetches one file; what it gives is checked here.

    Returns
    -------
    str
        What was done, in one sentence.

    Raises
    ------
    ConfigError
        The name is unknown, the folder is not writable, or something else is there already; nothing was changed.
    DataError
        A file cannot be had or is another one than expected; nothing was kept.
    """
    if name in EMBEDDED:
        return f"{name}: part of this package, nothing to fetch"
    if name not in ORIGINS:
        known = (*EMBEDDED, *ORIGINS)
        close = did_you_mean(name, known)
        raise ConfigError(f"no address is known for {name!r}{close}; known are {', '.join(known)}, and all")
    origin, path, beside = ORIGINS[name], folder / f"{name}.csv.gz", folder / f"{name}.labels.csv.gz"
    if not force and (path.exists() or beside.exists()):
        if _content(name, folder) != origin.sha256:
            raise ConfigError(
                f"{folder} has a set {name} of other content already; --force replaces it, or name another folder"
            )
        return f"{name}: there already, and as it should be"
    values, labels = _build(name, origin, [_checked(name, remote, get) for remote in origin.files])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with placing() as shelf:
            if labels is not None:
                shelf.write(beside, csv_pieces(["label"], labels[:, None]))
            # The records last: where they are, the set is whole.
            shelf.write(path, csv_pieces(origin.names, values))
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); check path, rights and room") from error
    return f"{name}: {len(values):,} rows, {values.shape[1]} features{'' if labels is None else ', with classes'}"


def _checked(name: str, remote: Remote, get: Get) -> bytes:
    """Fetch a file and refuse another one than expected."""
    data = get(remote)
    found = hashlib.sha256(data).hexdigest()
    if found != remote.sha256:
        raise DataError(
            f"{name}: {remote.url} gave {len(data):,} bytes with SHA-256 {found}, expected {remote.size:,} with "
            f"{remote.sha256}; nothing was kept; try again, or put {name}.csv.gz into the folder yourself"
        )
    return data


def _build(name: str, origin: Origin, files: list[bytes]) -> Made:
    """Convert the files and refuse a result of another content than expected."""
    values, labels = origin.build(files)
    found = content_digest(origin.names, values, labels)
    if found != origin.sha256:
        raise DataError(
            f"{name}: its files are as expected but were read as something else (SHA-256 of the content {found}, "
            f"expected {origin.sha256}); nothing was kept; report this"
        )
    return values, labels


def _content(name: str, folder: Path) -> str:
    """Return the digest of what stands in the folder; empty if it cannot be read."""
    try:
        there = load_named(name, folder)
    except (ConfigError, DataError):
        return ""
    return content_digest(there.names, there.values, there.labels)
