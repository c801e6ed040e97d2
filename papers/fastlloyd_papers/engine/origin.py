"""Says where a benchmark's files come from, on each of them and in one CSV for a whole folder."""

from __future__ import annotations

import csv
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fastlloyd.errors import ConfigError
from fastlloyd.report.files import write_atomic
from fastlloyd_papers.engine.tables import csv_table

FILE = "origins.csv"
FULL, QUICK = "full", "quick"
SEEDED = "public seeds from 0, noise and keys from each measurement's name: the same command gives the same figures"
UNSEEDED = "public seeds from 0; noise and keys from the operating system: figures differ from run to run"
_LIBRARIES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the files of one benchmark come from; what an older version did not record is empty.

    Attributes
    ----------
    size : {'full', 'quick'}
    commit : str
        A plus and a digest of the changes follow where the code differed from it; empty outside a checkout.
    noisy : {'yes', 'no', ''}
        Whether times were taken with `--noisy`; empty for a benchmark that measures no time.
    command : str
        Without the paths of this machine.
    data : str
        NAME:RECORDS:SHA-256 of each set that was there (the first 16 digits), with spaces between.
    measurements, runs : str
        Cells, and the most repetitions of one.
    minutes : str
        How long it took; empty if it was interrupted.
    """

    benchmark: str
    size: str
    commit: str
    machine: str
    version: str
    noisy: str
    command: str = ""
    seed: str = ""
    date: str = ""
    software: str = ""
    data: str = ""
    measurements: str = ""
    runs: str = ""
    minutes: str = ""

    @property
    def sets(self) -> frozenset[str]:
        """Names of the sets that were there."""
        return frozenset(part.partition(":")[0] for part in self.data.split())

    def _counted(self) -> str:
        """Say how much was measured."""
        if not self.measurements:
            return "not counted: each figure is of one run"
        return f"{self.measurements}, at most {self.runs} runs of each"

    def words(self) -> list[tuple[str, str]]:
        """Say all but what changes from one run to the next, for pages and tables."""
        cut = "; QUICK: cut down, not the benchmark's figures" if self.size == QUICK else ""
        noisy = "; NOISY: others used the machine" if self.noisy == "yes" else ""
        sets = [part.split(":") for part in self.data.split()]
        data = ", ".join(f"{name} ({count or '?'} records, SHA-256 {digest}..)" for name, count, digest in sets)
        return [
            ("command", self.command),
            ("size", f"{self.size}{cut}{noisy}"),
            ("measurements", self._counted()),
            ("seed", self.seed),
            ("data", data or "made by the benchmark"),
            ("date", self.date),
            ("commit", self.commit or "not a checkout"),
            ("machine", self.machine),
            ("software", self.software),
        ]


def describe_software() -> str:
    """Name Python, this package and the libraries that figures depend on."""
    found = [f"Python {platform.python_version()}"]
    for name in ("fastlloyd", *_LIBRARIES):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def stamp_page(text: str, origin: Origin) -> str:
    """Add to a page how it was made, and to its title that it is cut down."""
    title, _, rest = text.partition("\n")
    if origin.size == QUICK and title.startswith("# ") and not title.endswith("(quick)"):
        title += " (quick)"
    lines = "\n".join(f"- {name}: {f'`{said}`' if name == 'command' else said}" for name, said in origin.words())
    return f"{title}\n{rest.rstrip()}\n\n## How this was made\n\n{lines}\n"


def stamp_table(text: str, origin: Origin) -> str:
    """Put how it was made above a CSV, in lines that begin with #."""
    return "".join(f"# {name}: {said}\n" for name, said in origin.words()) + text


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a table of results by its header; lines that begin with # say how it was made.

    Raises
    ------
    OSError, ValueError
        It cannot be read, or is no UTF-8.
    """
    return list(csv.DictReader(plain_lines(path.read_text(encoding="utf-8"))))


def plain_lines(text: str) -> list[str]:
    """Return the lines of a CSV but those that say how it was made."""
    return [line for line in text.splitlines() if not line.startswith("# ")]


def keep_origin(folder: Path, origin: Origin) -> None:
    """Write the origin of one benchmark's files, in place of an earlier one.

    Raises
    ------
    ConfigError
        The file is not one of origins, or the folder cannot be written.
    """
    known = {**read_origins(folder), origin.benchmark: origin}
    lines = [list(asdict(known[name]).values()) for name in sorted(known)]
    write_atomic(folder / FILE, csv_table(_header(), lines))


def read_origins(folder: Path) -> dict[str, Origin]:
    """Read all origins of a folder, by benchmark; none where there is no file.

    Raises
    ------
    ConfigError
        The file is not one of origins.
    """
    path = folder / FILE
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        return {row["benchmark"]: _read(row) for row in rows}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: expected the columns {', '.join(_header())}; remove the file") from error


def _read(row: dict[str, str]) -> Origin:
    return Origin(**{name: row[name] for name in _header() if name in row})


def _header() -> Sequence[str]:
    return [each.name for each in fields(Origin)]
