"""Makes the papers' sets out of public files that their owners do not let others hand on, or that are too large to.

The user fetches the files (`NEEDS` says which, and where they lie) and names their folder. Nobody here has had them,
so no checksum of theirs is known: a maker checks their structure strictly, and the record NAME.made.json beside the
set holds the SHA-256 of each file that was read and of each table that came out. Two results can then be compared by
their records.

Source: FedDP-KMeans, App. G.1; Vertical DP, §6 "Datasets".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError, DataError, did_you_mean
from fastlloyd.version import __version__
from fastlloyd_papers.sets import census, kaggle, posts
from fastlloyd_papers.sets.source import Made
from fastlloyd_papers.sets.store import content_sha256, csv_pieces, placing

RECORD = ".made.json"


@dataclass(frozen=True, slots=True)
class Maker:
    """How some sets are made of files that the user has.

    Attributes
    ----------
    sets : tuple of str
        What comes out: each a table NAME.csv.gz, some with NAME-server.csv.gz.
    needs : str
        Which files, and where they lie.
    make : callable
        From the folder of the files to the tables.
    """

    sets: tuple[str, ...]
    needs: str
    make: Callable[[Path], Made]


MAKERS: Mapping[str, Maker] = {
    "census": Maker(tuple(census.WORKERS), census.NEEDS, census.make_census),
    "stackoverflow": Maker(tuple(posts.TOPICS), posts.NEEDS, posts.make_posts),
    "taxi": Maker(("taxi",), kaggle.TAXI_NEEDS, kaggle.make_taxi),
    "loan": Maker(("loan",), kaggle.LOAN_NEEDS, kaggle.make_loan),
}


def make_sets(name: str, source: Path, folder: Path, *, force: bool = False) -> list[str]:
    """Make the sets of one maker, with their records.

    Parameters
    ----------
    name : str
        One of `MAKERS`.
    source : Path
        Where the user's files lie.
    folder : Path
        Where the sets go; made if it is not there.
    force : bool
        Replace what is there.

    Returns
    -------
    list of str
        What was read, with its checksums, and what was made.

    Raises
    ------
    ConfigError
        The name is unknown, a file is missing, the folder is not writable, or the sets are there; nothing was changed.
    DataError
        A file is not what it should be; nothing was kept.
    """
    if name not in MAKERS:
        raise ConfigError(f"nothing is known of how to make {name!r}{did_you_mean(name, MAKERS)}; known: {_known()}")
    maker = MAKERS[name]
    there = [one for one in maker.sets if (folder / f"{one}.csv.gz").exists()]
    if there and not force:
        raise ConfigError(f"{folder} has {', '.join(there)} already; --force makes the sets again")
    if not source.is_dir():
        raise ConfigError(f"--from {source}: no such folder; expected {maker.needs}")
    made = maker.make(source)
    try:
        return [*_read_lines(made), *_place(name, made, folder)]
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); check path, rights and room") from error


def _known() -> str:
    return ", ".join(MAKERS)


def _read_lines(made: Made) -> list[str]:
    return [f"{read.name}: {read.size:,} bytes, SHA-256 {read.sha256}" for read in made.sources]


def _place(name: str, made: Made, folder: Path) -> list[str]:
    """Write tables and records; the clients' or only table of each set last: where it is, the set is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [{"name": read.name, "bytes": read.size, "sha256": read.sha256} for read in made.sources]
    lines = []
    with placing() as shelf:
        for one in made.sets:
            tables = {}
            for table in reversed(one.tables):
                path = folder / f"{table.name}.csv.gz"
                tables[path.name] = shelf.write(path, csv_pieces(table.names, table.values))
                lines.append(f"{table.name}: {len(table.values):,} rows, {len(table.names)} columns")
            record = {"made_by": f"fastlloyd {__version__} datasets make {name}", "files": files, "tables": tables}
            text = json.dumps({**record, "notes": list(one.notes)}, indent=1) + "\n"
            shelf.write(folder / f"{one.tables[0].name}{RECORD}", [text.encode()])
            lines += one.notes
        # Renamed in the order of writing: records and server's tables before what they belong to.
        for one in made.sets:
            path = folder / f"{one.tables[0].name}.csv.gz"
            shelf.aside[path] = shelf.aside.pop(path)
    return lines


def describe_made(name: str, folder: str | Path | None) -> str:
    """Say what a set in a folder was made of, as far as its record tells; for pages of results.

    Raises
    ------
    DataError
        The record is there and is not one.
    """
    if folder is None or not (path := Path(folder) / f"{name}{RECORD}").is_file():
        return f"{name}: given by the user; nothing tells what it was made of"
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
        files = [(str(file["sha256"]), str(file["name"])) for file in record["files"]]
        tables = {str(key): str(value) for key, value in record["tables"].items()}
        made_by = str(record["made_by"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: expected a record of `fastlloyd datasets make`; make the set again") from error
    for table, expected in tables.items():
        own = path.with_name(Path(table).name)
        if not own.is_file() or content_sha256(own) != expected:
            return f"{name}: given by the user; its record is that of another {table}"
    if len(files) == 1:
        told = f"{files[0][1]} (SHA-256 {files[0][0]})"
    else:
        listed = "".join(f"{digest}  {file}\n" for digest, file in files)
        told = f"{len(files)} files (SHA-256 of their list, as sha256sum prints it: {_sha256(listed)})"
    return f"{name}: made by {made_by} of {told}; SHA-256 of the table {tables.get(f'{name}.csv.gz', 'unknown')}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
