"""`fastlloyd label`: label new records with the number of their nearest centroid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fastlloyd.cli.options import FORM, Parser, add_options, read_form
from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.data.database import find_place
from fastlloyd.data.form import DATA_DIR_VARIABLE
from fastlloyd.data.missing import MISSING_RULES
from fastlloyd.data.public.named import dataset_bounds
from fastlloyd.data.records import RawRows
from fastlloyd.data.source import open_source
from fastlloyd.data.table import read_table
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.report.display import csv_text
from fastlloyd.report.files import PRIVATE_MODE, labels_csv, write_atomic
from fastlloyd.report.labelling import check_centroids, keep_columns, label_records, match_bounds, read_stored
from fastlloyd.report.names import ClusterNames
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import public_dataset
from fastlloyd.run.run_file import load_config, refuse_own_keys


def main(argv: Sequence[str]) -> int:
    """Label the records of one file and return 0.

    Raises
    ------
    DataError, ConfigError
        A file has the wrong content; nothing is written.

    Sees
    ----
    Nobody but the owner: the labels are written with mode 0600 and not printed.
    """
    options = parser().parse_args(argv)
    config = None if options.config is None else load_config(options.config, links=False)
    if config is not None and config.roster is not None:
        refuse_own_keys(options.config)
    form = read_form(options, config)
    file = find_place(options.data, form, query=options.query, table=options.table, key=options.id)
    check_centroids(Path(options.centroids))
    stored = read_stored(Path(options.centroids))
    given = _bounds(options.bounds, config)
    bounds = stored.bounds if given is None else stored.categories.bounds(given)
    with open_source(options.centroids) as source:
        header, centroids = source.names, read_table(source, columns=source.names).values
    names = tuple(map(csv_text, header))
    chosen = None if options.names is None else ClusterNames.read(options.names, len(centroids))
    missing = options.missing or ("refuse" if config is None else config.missing)
    with open_source(file) as source:
        if options.own_columns:
            names, centroids = keep_columns(names, centroids, source.names)
        matched = match_bounds(bounds, names, Path(options.centroids), given is not None)
        unit = stored.unit
        if unit is not None and unit.column not in source.names:
            print(f"each row is labelled as a separate person, because {file} has no column {unit.column!r}")
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
            f"{options.centroids}: expected centroids of the features {', '.join(table.names)}, by the categories of "
            f"report.json beside them, got {', '.join(names)}; give the folder as the run wrote it"
        )
    raw_ids = None if column is None else table.raw_texts[column]
    labels = label_records(table.values, centroids, matched, stored.fraction_bits)
    text = labels_csv(labels, RawRows(raw_records=table.raw_records, raw_ids=raw_ids), chosen)
    write_atomic(Path(options.out), text, mode=PRIVATE_MODE, flag="--out")
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
    add_options(parser, "query", "table", *FORM)
    parser.add_argument("--missing", choices=MISSING_RULES, help="rule for missing values (default refuse)")
    parser.add_argument(
        "--id", metavar="COLUMN", help="column of the data that names its rows, written beside the label"
    )
    parser.add_argument(
        "--own-columns",
        action="store_true",
        help="label by the features that the file has, if a vertical run had more",
    )
    parser.add_argument("--names", metavar="FILE.toml", help="names of clusters by number, written beside the label")
    parser.add_argument("--out", required=True, metavar="FILE", help="where to write the labels")
    return parser


def _bounds(text: str | None, config: RunConfig | None) -> Bounds | None:
    """Return the bounds of the run; None if they are not known."""
    if text is not None:
        return parse_bounds(text)
    if config is None:
        return None
    if config.dataset is not None:
        data_dir = config.data_dir or os.environ.get(DATA_DIR_VARIABLE) or None
        _, dataset = public_dataset(replace(config, data_dir=data_dir))
        return None if dataset is None else dataset_bounds(dataset, config.bounds)
    return None if config.bounds is None else parse_bounds(config.bounds)
