"""The league: every private k-means at hand on the same records, with the same bounds, delta and number of records.

`--only METHOD,...` measures these methods anew and takes the figures of the others from the CSV of the last time.

Source: docs/results.md, "The league".
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fastlloyd.errors import ConfigError, did_you_mean
from fastlloyd_papers.baselines.packages import find_problem
from fastlloyd_papers.baselines.table import OPTIMUM_NAME
from fastlloyd_papers.engine.origin import plain_lines
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.engine.tables import csv_table
from fastlloyd_papers.utility.data import REAL, Source, real_source, unequal_sources
from fastlloyd_papers.utility.design import EPSILONS, FASTLLOYD, GLLOYD, LLOYD, PLUS, SULLOYD, Method, list_cells
from fastlloyd_papers.utility.league_report import LEAGUE_EPSILONS, League, league_chart, league_parts
from fastlloyd_papers.utility.measure import Job, Measured, measure_jobs, present
from fastlloyd_papers.utility.report import can_draw, write_with_charts

NAME = "utility-league"
OPTIMUM = Method(OPTIMUM_NAME, OPTIMUM_NAME)
EUGKM, PE_MEANS, DIFFPRIVLIB, GOOGLE_LSH = (
    Method(name, name) for name in ("eugkm", "pe-means", "diffprivlib", "google-lsh")
)
METHODS = (OPTIMUM, LLOYD, SULLOYD, GLLOYD, FASTLLOYD, PLUS, EUGKM, PE_MEANS, DIFFPRIVLIB, GOOGLE_LSH)

_REAL = (*REAL, "letter")
_QUICK_REAL = ("iris", "lsun")
_HEADER = ["dataset", "method", "epsilon", "nicv"]
_LEFT_OUT = {("mnist", "eugkm"): "eugkm is left out on mnist: its grid has at least 2^784 cells."}
_SMALL = ("iris", "lsun", "house", "s1", "wine", "breast", "yeast")
_SMALL_RUNS, _RUNS, _QUICK_RUNS = 30, 20, 3
# Where a run takes more than some seconds.
_FEWER_RUNS = {
    **{("mnist", method.name): 3 for method in METHODS},
    **{(name, "google-lsh"): 5 for name in _REAL},
    ("letter", "eugkm"): 3,
    ("letter", "pe-means"): 5,
    ("adult", "eugkm"): 5,
    ("adult", "pe-means"): 3,
}


def run(options: Options) -> str:
    """Measure, write Markdown, CSV and PNG, and give the Markdown.

    Raises
    ------
    ConfigError
        `options.only` names a method that there is not or that is not installed, or the CSV is not of this benchmark.
    """
    chosen = _choose(options.only)
    earlier = (
        read_results((options.desk.folder if options.desk else options.output) / f"{NAME}.csv") if options.only else {}
    )
    wanted = [real_source(name) for name in (_QUICK_REAL if options.quick else _REAL)]
    real, notes = present(wanted, options.data_dir)
    sources = [*real, *(unequal_sources()[:1] if options.quick else unequal_sources())]
    usable = [method for method in chosen if not find_problem(method.name)]
    notes += [f"{m.name} is left out: {find_problem(m.name)}." for m in chosen if m not in usable]
    jobs = [job for source in sources for method in usable for job in _jobs(source, method, quick=options.quick)]
    notes += [note for (name, _), note in _LEFT_OUT.items() if name in {source.name for source in sources}]
    measured, done = measure_jobs(NAME, jobs, options)
    names = {method.name for method in usable}
    measured = _join({key: value for key, value in earlier.items() if key[1] not in names}, measured)
    shown = [method for method in METHODS if method.name in {cell["method"] for cell in measured.cells}]
    league = League(real=real, unequal=sources[len(real) :], methods=shown, measured=measured)
    parts = league_parts(league, quick=options.quick)
    parts += ["\n".join(f"- {note}" for note in notes)] if notes else []
    charts = {"": league_chart(league)} if can_draw(sources) else {}
    text = write_with_charts(options, NAME, parts, _raw_csv(measured), charts)
    done()
    return text


def read_results(path: Path) -> dict[tuple[str, str, float | None], list[float]]:
    """Read the runs of an earlier measurement, by set, method and epsilon.

    Raises
    ------
    ConfigError
        The file is not there, or it is not a CSV of this benchmark.
    """
    try:
        rows = list(csv.reader(plain_lines(path.read_text(encoding="utf-8"))))
        if not rows or rows[0] != _HEADER:
            raise ValueError
        return {
            (name, method, float(epsilon) if epsilon else None): [float(value) for value in values.split()]
            for name, method, epsilon, values in rows[1:]
        }
    except OSError as error:
        raise ConfigError(
            f"--only takes the other methods' figures from {path}: {error.strerror}; measure all methods, without "
            "--only"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: expected the CSV of {NAME}; measure all methods, without --only") from error


def _choose(only: Sequence[str]) -> list[Method]:
    """Return the methods to measure."""
    known = {method.name: method for method in METHODS}
    for name in only:
        if name not in known:
            raise ConfigError(f"--only: no method {name!r}{did_you_mean(name, known)}; known are {', '.join(known)}")
        if problem := find_problem(name):
            raise ConfigError(f"--only: {name} cannot be used: {problem}")
    return [method for method in METHODS if not only or method.name in only]


def _jobs(source: Source, method: Method, *, quick: bool) -> list[Job]:
    """List what is measured of a method on a set; the two of the area ratio at all epsilons of FastLloyd's figures."""
    if (source.name, method.name) in _LEFT_OUT:
        return []
    if method == OPTIMUM:
        runs = 1
    elif quick:
        runs = _QUICK_RUNS
    else:
        usual = _SMALL_RUNS if source.name in _SMALL else _RUNS
        runs = _FEWER_RUNS.get((source.name, method.name), usual)
    epsilons = EPSILONS if method in (FASTLLOYD, PLUS) else LEAGUE_EPSILONS
    return [(source, cell) for cell in list_cells(source, [method], epsilons, runs)]


def _join(earlier: Mapping[tuple[str, str, float | None], list[float]], measured: Measured) -> Measured:
    """Add the figures of an earlier measurement."""
    cells = [{"name": name, "method": method, "epsilon": epsilon} for name, method, epsilon in earlier]
    values: list[Mapping[str, list[float | None]]] = [{"nicv": [*found]} for found in earlier.values()]
    return replace(measured, cells=[*cells, *measured.cells], values=[*values, *measured.values])


def _raw_csv(measured: Measured) -> str:
    """Write all runs of a cell in one row, with six digits."""
    order = [method.name for method in METHODS]
    rows: list[list[object]] = [
        [cell["name"], cell["method"], cell["epsilon"], " ".join(f"{v:.6g}" for v in value["nicv"] if v is not None)]
        for cell, value in zip(measured.cells, measured.values, strict=True)
    ]
    rows.sort(key=lambda row: (str(row[0]), order.index(str(row[1])), row[2] or 0.0))
    return csv_table(_HEADER, rows)
