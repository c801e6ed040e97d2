"""Finds out which sets are in --data-dir, with records and digests; a known name with other content is refused."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastlloyd.data.public.named import load_named
from fastlloyd.errors import ConfigError
from fastlloyd_papers.sets.download import EMBEDDED
from fastlloyd_papers.sets.origin import ORIGINS, content_digest
from fastlloyd_papers.sets.store import content_sha256

_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Present:
    """A set that is there: its name, its records (None where they were not counted), the SHA-256 of its content."""

    name: str
    records: int | None
    sha256: str

    @property
    def word(self) -> str:
        """How results record it."""
        return f"{self.name}:{'' if self.records is None else self.records}:{self.sha256[:_DIGITS]}"


def find_sets(names: Sequence[str], data_dir: str | None) -> list[Present]:
    """Return those sets that are there.

    Raises
    ------
    ConfigError
        A file has the name of a public set whose digest is known, and other content.
    DataError
        A file is unreadable.
    """
    found = [_look(name, None if data_dir is None else Path(data_dir)) for name in names]
    return [one for one in found if one is not None]


def _look(name: str, folder: Path | None) -> Present | None:
    if name in EMBEDDED:
        there = load_named(name)
        return Present(name, len(there.values), content_digest(there.names, there.values, there.labels))
    files = [] if folder is None or not folder.is_dir() else _files(name, folder)
    if not any(path.name.startswith(f"{name}.") and ".labels." not in path.name for path in files):
        return None
    stats = tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in files)
    return _read(name, stats)


def _files(name: str, folder: Path) -> list[Path]:
    """Return the files of a set: records, classes, and the server's."""
    form = re.compile(re.escape(name) + r"(-server)?(\.labels)?\.(csv|csv\.gz|parquet)")
    return sorted(path for path in folder.iterdir() if form.fullmatch(path.name))


@lru_cache(maxsize=64)
def _read(name: str, stats: tuple[tuple[str, int, int], ...]) -> Present:
    """Read a set; times and lengths are there so that a changed file is read again."""
    files = [Path(path) for path, _, _ in stats]
    folder = files[0].parent
    if name in ORIGINS and (folder / f"{name}.csv.gz").is_file():
        there = load_named(name, folder)
        sha256, expected = content_digest(there.names, there.values, there.labels), ORIGINS[name].sha256
        if sha256 != expected:
            raise ConfigError(
                f"{folder / f'{name}.csv.gz'} is not the public set {name}: {len(there.values):,} records, SHA-256 of "
                f"the content {sha256[:_DIGITS]}.., expected {expected[:_DIGITS]}..; fetch it by `fastlloyd datasets "
                f"download {name} --force`, or measure own data by `fastlloyd compare --data FILE`"
            )
        return Present(name, len(there.values), sha256)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name.removesuffix('.gz')} {content_sha256(path)}\n".encode())
    return Present(name, _records(files), digest.hexdigest())


def _records(files: Sequence[Path]) -> int | None:
    """Count the rows of the records' own file, but for its header; None for Parquet."""
    own = next(path for path in files if "-server" not in path.name and ".labels." not in path.name)
    if own.suffix == ".parquet":
        return None
    with gzip.open(own) if own.suffix == ".gz" else own.open("rb") as file:
        return sum(1 for _ in file) - 1
