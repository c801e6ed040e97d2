"""`fastlloyd label`: gives new records the number of their nearest centroid."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.cli.arguments import join_negative_values
from fastlloyd.cli.options import Parser
from fastlloyd.data.bounds import Bounds, parse_bounds, scale
from fastlloyd.data.public.folder import DATA_DIR_VARIABLE
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.data.table import column_names, read_table
from fastlloyd.errors import EXIT_OK, ConfigError
from fastlloyd.report.display import csv_text
from fastlloyd.report.unit import format_count
from fastlloyd.run.config import RunConfig, load_config

_BLOCK_VALUES = 1 << 18


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
    bounds = _bounds(options.bounds, config)
    header = column_names(options.centroids)
    centroids = read_table(options.centroids, columns=header).values
    names = tuple(map(csv_text, header))
    matched = None if bounds is None else bounds.match(names)
    missing = options.missing or ("midpoint" if config is not None and config.missing == "midpoint" else "refuse")
    records = read_table(options.data, columns=names, missing=missing, bounds=matched).values
    if matched is not None:
        centroids, records = scale(centroids, matched), scale(records, matched, out=records)
    write_labels(Path(options.out), nearest(records, centroids))
    space = "in original units, since no bounds were given" if matched is None else "scaled by the bounds"
    print(
        f"labelled {format_count(len(records), 'record')} by {format_count(len(centroids), 'centroid')} ({space}): "
        f"{options.out}"
    )
    return EXIT_OK


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


def write_labels(path: Path, labels: NDArray[np.int64]) -> None:
    """Write one label per row under a header, mode 0600; the file appears whole, by rename.

    Parameters
    ----------
    path : Path
    labels : int64 array, shape (n,)

    Raises
    ------
    ConfigError
        The file cannot be written.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write("label\n")
                file.writelines(f"{label}\n" for label in labels.tolist())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot write it ({error.strerror}); choose another place") from error


def parser() -> Parser:
    """Return the parser of the flags."""
    parser = Parser(
        prog="fastlloyd label",
        description="Label records by the nearest centroid of a finished run. Columns are matched by name.",
        allow_abbrev=False,
    )
    parser.add_argument("--centroids", required=True, metavar="FILE", help="centroids.csv of a run")
    parser.add_argument("--data", required=True, metavar="FILE", help="records to label")
    known = parser.add_mutually_exclusive_group()
    known.add_argument("--bounds", metavar="LO,HI|FILE", help="the bounds of the run, to scale as it did")
    known.add_argument("--config", metavar="FILE.toml", help="the run file, for its bounds")
    parser.add_argument("--missing", choices=("refuse", "midpoint"), help="rule for missing values")
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
