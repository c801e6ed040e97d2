"""Find the files that an earlier run left in an output folder, so that two results are never mixed.

A run checks before it starts, and refuses. With `--overwrite` its new files replace the old ones at the end, and the
rest of the other run is removed: server.json, and beside a report.json the files that only a run writes. Anybody may
have written a report, so a name in it is never a reason to remove a file. A run that fails changes nothing.

Source: docs/operations.md, "What a run writes".
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError, Reason, name_some
from fastlloyd.wire.decode import load_json
from fastlloyd.wire.header import SERVER
from fastlloyd.wire.regular import read_regular

_RESULT = "report.json"
_REPORTS = (_RESULT, "server.json")
_WRITTEN = re.compile(
    r"(report|server)\.json|report\.html|config\.toml|ledger\.jsonl|(centroids|clusters|bounds|sizes|elbow|profile|quality|silhouettes|(labels|inertia)_[1-9]\d*)\.csv"
    r"|(centroids|profiles|plane|elbow)\.(png|svg|pdf)|palette\.png"
)
_OWN = re.compile(r"[a-z]+_([1-9]\d*)\.csv")
_RUN = re.compile("[0-9a-f]{32}")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Earlier:
    """The files of runs in a folder.

    Attributes
    ----------
    folder : Path
    runs : mapping of str to str
        From the names of reports in it to the ids of their runs.
    files : tuple of str
        Names of regular files that a run writes or that the reports name; the reports last.
    """

    folder: Path
    runs: Mapping[str, str]
    files: tuple[str, ...]

    def is_of(self, run: str) -> bool:
        """Whether no report there is of another run."""
        return set(self.runs.values()) <= {run}

    def refuse(self, own: str | None) -> None:
        """Refuse to write into the folder if it holds more than files of the run `own`.

        Raises
        ------
        ConfigError
            Files of another or an unknown run would be replaced or stay among the new ones.
        """
        if not self.files or (own is not None and self.is_of(own)):
            return
        named = "files of another run" if self.runs else "files named like those of a run"
        raise ConfigError(
            f"--output {self.folder}: expected a new or an empty folder, got one with {named} "
            f"({name_some(self.files, _SHOWN)}); name another folder, or add --overwrite, which replaces them"
        )

    def clear(self, chosen: Callable[[int | None], bool], kept: Container[str]) -> None:
        """Remove reports and, beside a report.json, files with names that only runs write; all others stay.

        Parameters
        ----------
        chosen : callable
            From the rank of a file's party, None for a file of all, to whether to remove it.
        kept : container of str
            Names that stay.

        Raises
        ------
        ConfigError
            A file cannot be removed.
        """
        ours = _WRITTEN if _RESULT in self.runs else re.compile("|".join(map(re.escape, self.runs)))
        for name in self.files:
            if name in kept or not ours.fullmatch(name) or not chosen(_owner(name)):
                continue
            try:
                (self.folder / name).unlink(missing_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"--overwrite: {self.folder / name} cannot be removed ({error.strerror}); check its permissions",
                    reason=Reason.OUTPUT,
                ) from error


def _owner(name: str) -> int | None:
    """Return the rank of the only party that writes a file; None if it is the same at all parties."""
    if name == "server.json":
        return SERVER.rank
    own = _OWN.fullmatch(name)
    return int(own[1]) if own else None


def find_earlier(folder: Path) -> Earlier:
    """Return the files of runs in a folder, which may be missing."""
    named: set[str] = set()
    runs: dict[str, str] = {}
    for name in _REPORTS:
        report = _read(folder / name)
        if report is not None:
            runs[name] = report["run"]
            named |= {each for each in report.get("output", ()) if isinstance(each, str) and Path(each).name == each}
    with contextlib.suppress(OSError):
        named |= {path.name for path in folder.iterdir() if _WRITTEN.fullmatch(path.name)}
    files = sorted(_regular(folder, named), key=lambda name: (name in _REPORTS, name))
    return Earlier(folder, runs, tuple(files))


def _read(path: Path) -> dict[str, Any] | None:
    """Return a report of any schema, with the entries used here checked; None if there is none."""
    try:
        report = load_json(read_regular(path).encode())
    except (OSError, ValueError):
        return None
    if not isinstance(report, dict) or not isinstance(report.get("output", []), list):
        return None
    ours = type(report.get("schema")) is int and isinstance(report.get("run"), str) and _RUN.fullmatch(report["run"])
    return report if ours else None


def _regular(folder: Path, names: set[str]) -> Iterator[str]:
    """Yield the names of regular files: no folder, link or device."""
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # a report may hold impossible file names
            if stat.S_ISREG((folder / name).lstat().st_mode):
                yield name
