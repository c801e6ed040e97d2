"""`fastlloyd label`: gives new records the number of their nearest centroid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.cli.arguments import join_negative_values
from fastlloyd.cli.options import Parser, add_form_options, read_form
from fastlloyd.data.bounds import Bounds, parse_bounds, scale
from fastlloyd.data.categories import Categories
from fastlloyd.data.database import find_place
from fastlloyd.data.form import DATA_DIR_VARIABLE
from fastlloyd.data.merge import Unit
from fastlloyd.data.missing import MISSING_RULES
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.data.records import RawRows
from fastlloyd.data.source import open_source
from fastlloyd.data.table import read_table
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import quantise, round_centers
from fastlloyd.report.display import csv_text
from fastlloyd.report.document import load as load_report
from fastlloyd.report.files import PRIVATE_MODE, labels_csv
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config, refuse_own_keys
from fastlloyd.wire.regular import replace_file

_BLOCK_VALUES = 1 << 18
_MOST_BITS = 24


def main(argv: Sequence[str]) -> int:
    """Label the records of one file.

    Returns
    -------
    int
        0 when the labels are written.

    Raises
    ------
    DataError, ConfigError
        A file does not fit; nothing is written.

    Sees
    ----
    Nobody but the owner: the labels are written with mode 0600 and not printed.
    """
    options = parser().parse_args(join_negative_values(argv, ("--bounds",)))
    config = None if options.config is None else load_config(options.config, links=False)
    if config is not None and config.roster is not None:
        refuse_own_keys(options.config)
    form = read_form(options, config)
    file = find_place(options.data, form, query=options.query, table=options.table, key=options.id)
    _check_centroids(Path(options.centroids))
    stored = _read_stored(Path(options.centroids))
    given = _bounds(options.bounds, config)
    bounds = stored.bounds if given is None else stored.categories.bounds(given)
    with open_source(options.centroids) as source:
        header, centroids = source.names, read_table(source, columns=source.names).values
    names = tuple(map(csv_text, header))
    missing = options.missing or ("refuse" if config is None else config.missing)
    with open_source(file) as source:
        if options.own_columns:
            names, centroids = _own_columns(names, centroids, source.names)
        matched = _matched(bounds, names, Path(options.centroids), given is not None)
        unit = stored.unit
        if unit is not None and unit.column not in source.names:
            print(f"each row is labelled as a separate person, for {file} has no column {unit.column!r}")
            unit = None
        column = options.id or (None if unit is None else unit.column)
        table = read_table(
            source,
            columns=names,
            missing=missing,
            bounds=matched,
            unit=unit,
            categories=stored.categories,
            texts=() if column is None else (column,),
        )
    if table.names != names:
        raise ConfigError(
            f"{options.centroids}: expected centroids of the features {', '.join(table.names)}, as report.json beside "
            f"them says of categories, got {', '.join(names)}; give the folder as the run wrote it"
        )
    raw_ids = None if column is None else table.raw_texts[column]
    labels = _label(table.values, centroids, matched, stored.fraction_bits)
    write_labels(Path(options.out), labels, RawRows(raw_records=table.raw_records, raw_ids=raw_ids))
    space = "in original units, since no bounds are known" if matched is None else "scaled by the bounds"
    part = f", by {len(names)} of {len(header)} features alone" if len(names) < len(header) else ""
    print(
        f"labelled {format_count(len(table.values), 'record')} by {format_count(len(centroids), 'centroid')} "
        f"({space}{part}): {options.out}"
    )
    if table.missing_rows:
        outcome = "left without a label" if missing == "drop" else "filled with the middle of the bounds"
        print(f"{format_count(table.missing_rows, 'record', 'lack')} a value: {outcome} (--missing {missing})")
    return EXIT_OK


def _matched(bounds: Bounds | None, names: tuple[str, ...], centroids: Path, given: bool) -> Bounds | None:
    """Return the bounds of the features that records are labelled by."""
    try:
        return None if bounds is None else bounds.match(names)
    except ConfigError as error:
        if given:
            raise
        raise ConfigError(
            f"{centroids.with_name('bounds.csv')} is of another run than the centroids beside it: give the bounds of "
            "theirs with --bounds"
        ) from error


def _check_centroids(path: Path) -> None:
    """Refuse what cannot be the centroids of a run, by the name of their own flag."""
    if path.is_dir():
        raise ConfigError(f"--centroids {path} is a folder: name the file in it, {path / 'centroids.csv'}")
    if not path.exists():
        raise ConfigError(f"--centroids {path}: no such file; expected centroids.csv in the --output folder of a run")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """What stands beside the centroids: how the run looked at records."""

    bounds: Bounds | None = None
    categories: Categories = field(default_factory=Categories)
    unit: Unit | None = None
    fraction_bits: int | None = None


def _read_stored(centroids: Path) -> _Stored:
    """Read what the run has left beside its centroids; nothing where they stand alone, or were left by version 0.1."""
    path = centroids.with_name("bounds.csv")
    if not path.is_file():
        return _Stored()
    read = parse_bounds(str(path))
    bounds = Bounds(read.lo, read.hi, None if read.names is None else tuple(map(csv_text, read.names)))
    path = centroids.with_name("report.json")
    if not path.is_file():
        return _Stored(bounds=bounds)
    parameters = load_report(path)["parameters"]
    if ("unit" in parameters) != ("per_unit" in parameters):
        raise ConfigError(f"{path}: expected unit and per_unit together; give the folder as the run wrote it")
    fraction_bits = parameters.get("fraction_bits")
    return _Stored(
        bounds=bounds,
        categories=Categories.from_json(parameters.get("categories", {})),
        unit=Unit(parameters["unit"], parameters["per_unit"]) if "unit" in parameters else None,
        fraction_bits=fraction_bits if fraction_bits in range(1, _MOST_BITS + 1) else None,
    )


def _own_columns(
    names: tuple[str, ...], centroids: NDArray[np.float64], columns: Sequence[str]
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Keep the features that the file has."""
    kept = [at for at, name in enumerate(names) if name in columns]
    if not kept:
        raise ConfigError("--own-columns: the file has none of the centroids' features; check --data")
    return tuple(names[at] for at in kept), centroids[:, kept]


def _label(
    points: NDArray[np.float64], centers: NDArray[np.float64], bounds: Bounds | None, fraction_bits: int | None
) -> NDArray[np.int64]:
    """Label points as the run did where its grid is known, else by floating-point numbers; overwrites `points`."""
    if bounds is None:
        return nearest(points, centers)
    points, centers = scale(points, bounds, out=points), scale(centers, bounds)
    if fraction_bits is None:
        return nearest(points, centers)
    # Back from original units a centre halfway between two places of the grid may lie a last digit beside it.
    settled = np.round(centers * 2.0**fraction_bits, 6) / 2.0**fraction_bits
    return assign(quantise(points, fraction_bits), round_centers(settled, fraction_bits))


def nearest(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Label each point with its nearest centre; ties go to the lowest index.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    centers : float64 array, shape (k, d)

    Returns
    -------
    int64 array, shape (n,)
    """
    # Original units may lie far from zero, where |c|^2 - 2 x.c would cancel: move the origin first.
    origin = centers.mean(axis=0)
    moved = centers - origin
    norms = np.einsum("kd,kd->k", moved, moved)
    labels = np.empty(len(points), dtype=np.int64)
    step = max(1, _BLOCK_VALUES // max(centers.shape))
    for start in range(0, len(points), step):
        scores = norms - 2.0 * ((points[start : start + step] - origin) @ moved.T)
        labels[start : start + step] = np.argmin(scores, axis=1)
    return labels


def write_labels(path: Path, raw_labels: NDArray[np.int64], raw_rows: RawRows | None = None) -> None:
    """Write the label of each row, mode 0600; the file appears whole, by rename.

    Parameters
    ----------
    path : Path
    raw_labels : int64 array, shape (n,)
        Of the records.
    raw_rows : RawRows, optional
        The rows behind them.

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    try:
        replace_file(path, map(str.encode, labels_csv(raw_labels, raw_rows)), mode=PRIVATE_MODE)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot write it ({error.strerror}); choose another place") from error


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd label",
        description="Label records by the nearest centroid of a finished run. Columns are matched by name.",
    )
    parser.add_argument("--centroids", required=True, metavar="FILE", help="centroids.csv of a run")
    parser.add_argument("--data", required=True, metavar="FILE", help="records to label, or their database")
    known = parser.add_mutually_exclusive_group()
    known.add_argument(
        "--bounds", metavar="LO,HI|FILE", help="the bounds of the run (default: bounds.csv beside the centroids)"
    )
    known.add_argument("--config", metavar="FILE.toml", help="the run file, for its bounds")
    add_form_options(parser, "query", "table")
    parser.add_argument("--missing", choices=MISSING_RULES, help="rule for missing values (default refuse)")
    parser.add_argument(
        "--id", metavar="COLUMN", help="column of the data that names its rows: stands beside the label"
    )
    parser.add_argument(
        "--own-columns",
        action="store_true",
        help="label by the features that the file has, where a vertical run had more",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="where to write the labels")
    return parser


def _bounds(text: str | None, config: RunConfig | None) -> Bounds | None:
    """Find the bounds of the run, if they are known."""
    if text is not None:
        return parse_bounds(text)
    if config is None:
        return None
    if config.dataset is not None:
        data_dir = config.data_dir or os.environ.get(DATA_DIR_VARIABLE) or None
        missing = "refuse" if config.missing == "midpoint" else config.missing
        dataset = load_named(config.dataset, data_dir, columns=config.columns, missing=missing)
        return dataset_bounds(dataset, config.bounds)
    return None if config.bounds is None else parse_bounds(config.bounds)
