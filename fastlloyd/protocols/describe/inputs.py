"""A client's own inputs of a description: the finished run's folder, and its own records by clusters and bins.

Source: docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import scale
from fastlloyd.data.records import OwnRecords
from fastlloyd.data.source import open_source
from fastlloyd.data.table import read_table
from fastlloyd.describe.coding import CodedRecords, Placed, code
from fastlloyd.describe.columns import DescribedColumn, columns_from_json
from fastlloyd.describe.quality import middle_of
from fastlloyd.dossier.verify import verify
from fastlloyd.errors import ConfigError
from fastlloyd.privacy.record_digest import keyed_digest
from fastlloyd.protocols.describe.rounds import LabelledRecords
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.display import csv_text
from fastlloyd.report.document import load
from fastlloyd.report.files import output_folder
from fastlloyd.report.labelling import grid_of, label_scaled
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.own_records import load_own
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import read_regular_bytes

_FLAG = "--described"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedRecords(OwnRecords):
    """A client's own records, with their clusters and the bins of the columns.

    Attributes
    ----------
    labelled : LabelledRecords
    """

    labelled: LabelledRecords = field(repr=False)

    def digest(self, key: bytes) -> str:
        """Return a keyed digest of everything that a resumed run must find unchanged; never sent."""
        coded = self.labelled.coded
        parts = (self.labelled.raw_labels, coded.raw_bins, coded.raw_scaled)
        return keyed_digest(key, np.column_stack([self.raw_points, *parts]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """The clusters of a finished run, as the folder of one party has them.

    Attributes
    ----------
    names : tuple of str
        Features.
    centroids : float64 array, shape (k, d)
        Original units.
    sizes : float64 array, shape (k,), or None
        Released; None where the run shows none.
    run : str
        Its id.
    fraction_bits : int or None
        Of the grid on which the run compared records with centres, if it had one.
    digest : bytes
        Of its centroids and bounds; only for those who have the result.
    """

    names: tuple[str, ...]
    centroids: NDArray[np.float64] = field(repr=False)
    sizes: NDArray[np.float64] | None = field(repr=False)
    run: str
    fraction_bits: int | None
    digest: bytes = field(repr=False)


def read_finished(folder: Path, roster: Path | None = None, flag: str = _FLAG) -> FinishedRun:
    """Read the folder of a finished run, and compare it with what its parties signed.

    Parameters
    ----------
    folder : Path
    roster : Path, optional
        The run's, to check the signatures.
    flag : str
        What named the folder, for the error.

    Raises
    ------
    ConfigError
        It is no such folder, has no centroids, or differs from what was signed; names the file.
    """
    try:
        verify(folder, roster)
    except ConfigError as error:
        raise ConfigError(f"{flag} {folder}: {error}") from error
    report = load(folder / "report.json")
    path = folder / "centroids.csv"
    if path.name not in report["output"]:
        raise ConfigError(f"{flag} {folder}: its run released no centroids, so it has no clusters to describe")
    with open_source(str(path)) as source:
        names, centroids = tuple(map(csv_text, source.names)), read_table(source, columns=source.names).values
    content = b"".join(hashlib.sha256(read_regular_bytes(folder / name)).digest() for name in (path.name, "bounds.csv"))
    sizes = report["result"]["noisy_sizes"]
    return FinishedRun(
        names=names,
        centroids=centroids,
        sizes=None if sizes is None else np.array(sizes, dtype=np.float64),
        run=report["run"],
        fraction_bits=grid_of(report["parameters"]),
        digest=hashlib.sha256(bytes.fromhex(report["run"]) + content).digest(),
    )


def load_described(
    config: RunConfig, inputs: PublicInputs, me: PartyId, columns: Sequence[DescribedColumn], run: str
) -> DescribedRecords:
    """Load a client's own records, label them by the released centres, and put them into bins.

    Raises
    ------
    ConfigError
        The folder of the finished run is missing, is of another run, or does not fit the public parameters.
    DataError
        A cell of the columns does not fit.
    """
    if config.described is None:
        raise ConfigError(f"{_FLAG}: expected this party's folder of the run whose clusters are described, got none")
    folder = output_folder(config.described, me)
    finished = read_finished(folder, None if config.roster is None else Path(config.roster))
    if finished.run != run:
        raise ConfigError(
            f"{_FLAG} {folder} is the folder of run {finished.run[:16]}.., expected that of run {run[:16]}.., whose "
            "clusters the parties describe"
        )
    if len(finished.centroids) != inputs.public.k:
        raise ConfigError(
            f"{_FLAG} {folder} has {len(finished.centroids)} clusters, expected {inputs.public.k} as --k says"
        )
    own = load_own(config, inputs, me, beside=tuple(column.name for column in columns))
    if own.names != finished.names:
        raise ConfigError(
            f"{_FLAG} {folder} has centroids of {', '.join(finished.names)}, expected {', '.join(own.names)}, the "
            "features of this run; use the run file of the finished run"
        )
    if not columns:
        coded = CodedRecords.of_no_columns(len(own.raw_points))
    elif own.raw_texts == {}:
        coded = _from_dataset(inputs, me, columns)
    else:
        coded = _from_texts(config, me, own, columns)
    return put_together(own, finished, coded)


def put_together(own: OwnRecords, finished: FinishedRun, coded: CodedRecords) -> DescribedRecords:
    """Label a client's own records by the released centres, beside the bins of their columns."""
    centers = scale(finished.centroids, own.bounds)
    labelled = LabelledRecords(
        raw_labels=label_scaled(own.raw_points, finished.centroids, own.bounds, finished.fraction_bits),
        raw_points=own.raw_points,
        centers=centers,
        middle=middle_of(centers, finished.sizes),
        coded=coded,
    )
    values = {name: getattr(own, name) for name in OwnRecords.__dataclass_fields__}
    values["shared"] = finished.digest
    return DescribedRecords(**values, labelled=labelled)


def described_columns(config: RunConfig) -> tuple[DescribedColumn, ...]:
    """Return the columns that a run describes clusters by; none for a run of another kind."""
    values = config.own_settings.get("columns")
    if config.row not in FOLLOWING or not isinstance(values, str) or not values:
        return ()
    return columns_from_json(json.loads(values), "--set describe.columns")


def _from_dataset(inputs: PublicInputs, me: PartyId, columns: Sequence[DescribedColumn]) -> CodedRecords:
    """Place the values of a public set."""
    if inputs.dataset is None or inputs.splits is None:
        raise ConfigError("the columns that describe clusters need a file of records with names, or a public data set")
    known = inputs.dataset.names
    for column in columns:
        if column.name not in known or not column.is_number:
            raise ConfigError(
                f"column {column.name!r}: expected a column of numbers of the data set {inputs.dataset.name}, which "
                f"has {', '.join(known)}"
            )
    raw_values = inputs.dataset.values[inputs.splits[me.rank - 1]]
    return code(columns, [column.place(raw_values[:, known.index(column.name)]) for column in columns])


def _from_texts(config: RunConfig, me: PartyId, own: OwnRecords, columns: Sequence[DescribedColumn]) -> CodedRecords:
    """Place the cells of a party's own file; the rows of a person become one record."""
    place = config.own_file(me.rank)
    records, n = own.raw_rows.raw_records, len(own.raw_points)
    mean = config.unit is not None and config.per_unit == "mean"
    placed: list[Placed] = []
    for column in columns:
        texts = own.raw_texts[column.name]
        if column.is_number:
            raw_values = column.read_numbers(texts, source=str(place), form=place.cell_form, row=place.row)
            placed.append(column.place(_merge(raw_values, records, n, mean=mean)))
        else:
            raw_bins = column.read_categories(texts, source=str(place), row=place.row)
            codes = np.where(raw_bins == column.width - 1, np.nan, raw_bins)
            merged = _merge(codes, records, n, mean=False)
            missing = np.isnan(merged)
            placed.append((np.where(missing, column.width - 1, merged).astype(np.int64), np.zeros(n)))
    return code(columns, placed)


def _merge(
    raw_values: NDArray[np.float64], records: NDArray[np.int64] | None, n: int, *, mean: bool
) -> NDArray[np.float64]:
    """Return one value for each record: the mean of its rows' values, or the first of them; NaN where all are missing.

    Parameters
    ----------
    raw_values : float64 array, shape (rows,)
        NaN where missing.
    records : int64 array, shape (rows,), or None
        The record of each row, -1 for a row that was dropped; None: row i is record i.
    n : int
    mean : bool
    """
    if records is None:
        return raw_values
    used = (records >= 0) & ~np.isnan(raw_values)
    of, values = records[used], raw_values[used]
    merged = np.full(n, np.nan)
    if mean:
        counts = np.bincount(of, minlength=n)
        sums = np.bincount(of, weights=values, minlength=n)
        there = counts > 0
        merged[there] = sums[there] / counts[there]
    else:
        merged[of[::-1]] = values[::-1]  # of several rows the first is written last
    return merged
