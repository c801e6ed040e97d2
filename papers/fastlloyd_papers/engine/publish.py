"""The one writer of results: what a benchmark made goes into the folder of results, and nothing better goes lost.

A benchmark writes into a folder aside. When it is complete its files get the statement of how they were made and are
put in place. Results are added, or replaced by such as are at least as complete.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fastlloyd.errors import ConfigError
from fastlloyd.report.files import write_atomic
from fastlloyd.report.plot import available
from fastlloyd_papers.engine.origin import (
    FULL,
    QUICK,
    Origin,
    keep_origin,
    plain_lines,
    read_origins,
    stamp_page,
    stamp_table,
)

NO_PICTURE = "No picture: matplotlib is not installed; `pip install ./papers` brings it, and the same command draws it."


@dataclass(slots=True)
class Desk:
    """Where a benchmark under way keeps its cells, and what it has measured so far.

    Attributes
    ----------
    folder : Path
        Of results: the partial ones stand there, too.
    key : mapping
        What all cells of this run have in common: data, commit, versions, size.
    cells, runs : int
        Measurements so far, and the most repetitions of one.
    resumed : bool
        Whether cells of an earlier sitting were used.
    drops : list of callable
        Remove the partial results of this run, when its files are in place.
    """

    folder: Path
    key: dict[str, object] = field(default_factory=dict)
    cells: int = 0
    runs: int = 0
    resumed: bool = False
    drops: list[Callable[[], None]] = field(default_factory=list)


def check_folder(folder: Path) -> None:
    """Make the folder and write into it, before hours of work.

    Raises
    ------
    ConfigError
        It cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".fastlloyd-"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--output {folder}: cannot be written ({error.strerror}); nothing was measured; check path and rights"
        ) from error


def check_replaceable(folder: Path, origin: Origin, needed: frozenset[str]) -> None:
    """Refuse to replace results by less complete ones, before anything is measured.

    Parameters
    ----------
    folder : Path
    origin : Origin
        Of what is to be measured.
    needed : frozenset of str
        Sets that the benchmark reads: what stands there is taken to have all, where it does not say.

    Raises
    ------
    ConfigError
        What is there is full and this is quick, it has sets that are missing now, or its times were undisturbed.
    """
    name = origin.benchmark
    if not any((folder / f"{name}{end}").exists() for end in (".csv", ".md")):
        return
    before = read_origins(folder).get(name)
    size = before.size if before else _size_of(folder / f"{name}.md")
    instead = "nothing was measured, and what is there stays; name another folder by --output"
    if size != FULL:
        return
    if origin.size == QUICK:
        raise ConfigError(f"{folder} has full results of {name}, which --quick would replace: {instead}")
    lost = sorted((before.sets if before and before.date else _taken(folder / f"{name}.md", needed)) - origin.sets)
    if lost:
        raise ConfigError(
            f"{folder} has results of {name} on {', '.join(lost)}, which --data-dir lacks: {instead}, or fetch the "
            f"data (`fastlloyd datasets download`)"
        )
    if before and before.noisy == "no" and origin.noisy == "yes":
        raise ConfigError(f"{folder} has undisturbed times of {name}, which --noisy would replace: {instead}")


def publish(staged: Path, folder: Path, origin: Origin) -> str:
    """Put a benchmark's files in place and give its page.

    Raises
    ------
    ConfigError
        Nothing was measured, a table would lose rows, or the folder cannot be written; what was there stays.
    """
    files = sorted(path for path in staged.iterdir() if path.is_file())
    before = read_origins(folder).get(origin.benchmark)
    for path in files:
        if path.suffix == ".csv":
            _check_rows(path, folder / path.name, same=before is None or before.size == origin.size)
    page = ""
    # The page last: where it is new, all is.
    for path in sorted(files, key=lambda one: (one.suffix == ".md", one.suffix == ".csv")):
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            if not available():
                print(NO_PICTURE, file=sys.stderr)
                text = f"{text.rstrip()}\n\n{NO_PICTURE}\n"
            page = stamp_page(text, origin)
            write_atomic(folder / path.name, page)
        elif path.suffix == ".csv":
            write_atomic(folder / path.name, stamp_table(path.read_text(encoding="utf-8"), origin))
        else:
            write_atomic(folder / path.name, path.read_bytes())
    keep_origin(folder, origin)
    return page


def _check_rows(new: Path, old: Path, *, same: bool) -> None:
    """Refuse an empty table, and one with fewer rows than that of the same size which it would replace."""
    rows = len(plain_lines(new.read_text(encoding="utf-8"))) - 1
    there = len(plain_lines(old.read_text(encoding="utf-8"))) - 1 if old.exists() else 0
    if rows < 1:
        raise ConfigError(f"{new.name}: no figure was measured, so nothing was written; give --data-dir with the data")
    if same and rows < there:
        raise ConfigError(
            f"{old} has {there:,} rows and would have {rows:,}: nothing was replaced, and what was measured is kept; "
            "move the old files away, and the same command writes the new ones"
        )


def _size_of(page: Path) -> str:
    """Tell the size of results of before `origins.csv` from their page's title."""
    if not page.is_file():
        return FULL
    return QUICK if page.read_text(encoding="utf-8").partition("\n")[0].endswith("(quick)") else FULL


def _taken(page: Path, needed: frozenset[str]) -> frozenset[str]:
    """Return the sets that an older page does not say to be left out."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.is_file() else []
    absent = " ".join(line for line in lines if " is left out" in line)
    return frozenset(name for name in needed if not re.search(rf"\b{re.escape(name)}\b", absent))
