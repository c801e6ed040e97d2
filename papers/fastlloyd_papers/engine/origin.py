"""Records where a benchmark's files come from: commit, machine, version, full or quick; one CSV for a whole folder."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import fastlloyd
from fastlloyd.errors import ConfigError
from fastlloyd.report.files import write_atomic
from fastlloyd.version import __version__
from fastlloyd_papers.engine.machine import describe_commit, describe_machine
from fastlloyd_papers.engine.tables import csv_table

FILE = "origins.csv"
_PACKAGE = Path(fastlloyd.__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the files of one benchmark come from.

    Attributes
    ----------
    commit : str
        A plus follows where the code differed from it; several, one after the other with spaces between, where an
        interrupted benchmark went on at another commit; empty if it did not run from a checkout.
    noisy : {'yes', 'no', ''}
        Whether times were taken with `--noisy`; empty for a benchmark that measures no time.
    """

    benchmark: str
    size: Literal["full", "quick"]
    commit: str
    machine: str
    version: str
    noisy: Literal["yes", "no", ""]


def describe_origin(benchmark: str, *, quick: bool, noisy: bool | None, earlier: Sequence[str] = ()) -> Origin:
    """Describe this code on this machine.

    Parameters
    ----------
    benchmark : str
    quick : bool
    noisy : bool or None
        None for a benchmark that measures no time.
    earlier : sequence of str
        Commits at which the benchmark was interrupted.
    """
    commit = describe_commit(_PACKAGE, "version.py") or ""
    return Origin(
        benchmark=benchmark,
        size="quick" if quick else "full",
        commit=" ".join(filter(None, dict.fromkeys([*earlier, commit]))),
        machine=describe_machine(),
        version=__version__,
        noisy="" if noisy is None else "yes" if noisy else "no",
    )


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
        return {row["benchmark"]: Origin(**{name: row[name] for name in _header()}) for row in rows}  # type: ignore[arg-type]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path}: expected the columns {', '.join(_header())}; remove the file") from error


def _header() -> list[str]:
    return [each.name for each in fields(Origin)]
