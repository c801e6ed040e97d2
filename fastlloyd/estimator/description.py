"""The clusters of a fitted model, described by columns: a further release, counted with the model's fits.

Source: docs/estimator.md, "Describe the clusters"; docs/privacy.md, "Descriptions of clusters".
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import scale
from fastlloyd.data.form import MISSING, number_text
from fastlloyd.data.records import OwnRecords
from fastlloyd.describe.coding import CodedRecords, Placed, code
from fastlloyd.describe.columns import DescribedColumn, columns_from_tables, read_columns
from fastlloyd.errors import ConfigError
from fastlloyd.estimator.account import Spending
from fastlloyd.estimator.inputs import common_terms, is_vertical
from fastlloyd.estimator.words import ParameterError, in_own_words
from fastlloyd.protocols.describe.inputs import FinishedRun, put_together
from fastlloyd.protocols.describe.plan_lines import epsilon_within
from fastlloyd.protocols.describe.protocol import PROTOCOL, settle
from fastlloyd.protocols.registry import FOLLOWING
from fastlloyd.report.display import csv_text
from fastlloyd.run.config import OPTIONS, RunConfig
from fastlloyd.run.run_file import with_values
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import PartyId

_CLIENT = PartyId(1)
_TEXTS = ("column", "measure", "value", "shown", "differs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `FastLloyd.describe` released.

    Attributes
    ----------
    rows : tuple of dict
        The lines of profile.csv (docs/describe.md): a number, or None where there are too few records for this budget.
        Empty where only the quality was asked for.
    quality : tuple of dict
        The lines of quality.csv; empty where it was not asked for.
    epsilon, delta : float
        Of this release alone.
    neighbours : str
        What it protects.
    epsilon_spent : float
        Of everything in the model's ledger, for these neighbours.
    """

    rows: tuple[dict[str, Any], ...]
    quality: tuple[dict[str, Any], ...]
    epsilon: float
    delta: float
    neighbours: str
    epsilon_spent: float

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame.

        Raises
        ------
        ConfigError
            pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise ConfigError("to_frame needs pandas: run pip install pandas, or use rows") from error
        return pandas.DataFrame(list(self.rows))


def describe_clusters(
    model: Any,
    raw_values: NDArray[np.float64],
    columns: Any,
    values: Any,
    *,
    epsilon: float | None,
    total: float | None,
    quality: float,
) -> Description:
    """Describe the clusters of a fitted model; `FastLloyd.describe` says how, and stores what was spent.

    Parameters
    ----------
    model : FastLloyd
        Fitted, with all centres.
    raw_values : float64 array, shape (n, d)
        The features, in the units of X.
    columns, values : object
        As the caller gave them.
    epsilon, total : float or None
    quality : float
    """
    if (epsilon is None) == (total is None):
        raise ParameterError(
            "describe: expected either epsilon, of the description alone, or total, of it and all that the ledger "
            "holds; give one of them"
        )
    if columns is not None and not 0.0 <= quality < 1.0:
        raise ParameterError(f"quality: expected a share from 0 to below 1 beside columns, got {quality!r}")
    if is_vertical(model):
        raise ParameterError(
            f"describe: expected owners of whole records, those of {model.protocol!r} hold columns of the same records"
        )
    if not np.isfinite(model.cluster_centers_).all():
        raise ParameterError("describe: expected centres of all clusters, got a fit that shows only some of them")
    with in_own_words():
        wanted = _columns(columns)
        spending = Spending(model)
        config, public = _prepare(model, wanted, len(raw_values), 1.0 if epsilon is None else epsilon, quality)
        if total is not None:
            own = _within(model, spending, public, float(total))
            config, public = _prepare(model, wanted, len(raw_values), own, quality)
        layout = PROTOCOL.chosen(config.own_settings, config.protocol).layout
        settled = () if layout is None else layout.columns
        coded = _code(settled, _cells(settled, values, model, raw_values), len(raw_values))
        names = tuple(model.bounds_.names)
        points = scale(raw_values.copy(), model.bounds_)
        own_records = OwnRecords(raw_points=points, names=names, bounds=model.bounds_)
        records = put_together(own_records, _finished(model), coded)
        ended = run_together(config, 1, inputs=public, owned={_CLIENT: records}, afford=spending.afford)
        spending.check(ended.ledgers.values())
    result = ended.outcomes[_CLIENT].result
    files = {} if result is None else result.files
    limit = spending.limit
    model.ledger_, model.budget_ = spending.ledger, limit or model.budget_
    delta = max(model.delta_, spending.delta) if limit is None else limit.delta
    model.epsilon_spent_ = spending.ledger.epsilon(delta, spending.neighbours)
    return Description(
        rows=tuple(read_lines(files.get("profile.csv", ""))),
        quality=tuple(read_lines(files.get("quality.csv", ""))),
        epsilon=spending.epsilon,
        delta=spending.delta,
        neighbours=spending.neighbours,
        epsilon_spent=model.epsilon_spent_,
    )


def _columns(columns: Any) -> tuple[DescribedColumn, ...]:
    """Return the columns of a file, or of a mapping from names to what stands in its tables; none for None."""
    if columns is None:
        return ()
    if isinstance(columns, str | Path):
        return read_columns(columns)
    if not isinstance(columns, Mapping) or not all(isinstance(table, Mapping) for table in columns.values()):
        raise ParameterError(
            "columns: expected a TOML file, or a mapping from each column to what its table in one holds, such as "
            "{'age': {'lo': 0, 'hi': 100}, 'sex': {'categories': ['f', 'm']}}"
        )
    return columns_from_tables({str(name): table for name, table in columns.items()}, "columns")


def _cells(
    columns: Sequence[DescribedColumn], values: Any, model: Any, raw_values: NDArray[np.float64]
) -> Iterator[Sequence[Any]]:
    """Yield the cells of each column: those of `values`, else those of the feature of this name."""
    given = {} if values is None else {str(name): values[name] for name in getattr(values, "columns", values)}
    features = model.bounds_.names
    for column in columns:
        if column.name in given:
            cells = list(given[column.name])
        elif column.name in features:
            cells = raw_values[:, features.index(column.name)].tolist()
        else:
            raise ParameterError(
                f"values: expected a value of {column.name!r} for each record, got none; its columns are "
                f"{', '.join(given) or 'none'}, the features {', '.join(features)}"
            )
        if len(cells) != len(raw_values):
            raise ParameterError(
                f"values: expected {len(raw_values)} values of {column.name!r}, one for each record, got {len(cells)}"
            )
        yield cells


def _code(columns: Sequence[DescribedColumn], cells: Iterator[Sequence[Any]], n: int) -> CodedRecords:
    """Put cells into bins, by the rule for cells of a file."""
    placed: list[Placed] = []
    for column, own in zip(columns, cells, strict=True):
        texts = [_text(cell) for cell in own]
        if column.is_number:
            placed.append(column.place(column.read_numbers(texts, source="values")))
        else:
            placed.append((column.read_categories(texts, source="values"), np.zeros(n)))
    return code(columns, placed) if columns else CodedRecords.of_no_columns(n)


def _text(cell: Any) -> str:
    """Return a cell as a file has it: whole numbers without a fraction, empty where missing."""
    if cell is None or str(cell).lower() in MISSING or str(cell) == "<NA>":
        return ""
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell)).lower()
    return number_text(float(cell)) if isinstance(cell, int | float | np.number) else str(cell).strip()


def _prepare(
    model: Any, columns: Sequence[DescribedColumn], n: int, epsilon: float, quality: float
) -> tuple[RunConfig, Any]:
    """Return configuration and public inputs of the description."""
    name = FOLLOWING[0].name
    share = quality if columns else 1.0
    given = {
        **common_terms(model, n),
        "protocol": name,
        "k": len(model.cluster_centers_),
        "rounds": "auto",
        "min_size": 0,
        "quality": 0.0,
        "epsilon": epsilon,
    }
    config = with_values(RunConfig(), {**given, name: {"columns": "", "quality": 1.0, "run": "00"}})
    settings = {"run": model._run, "quality": share}
    if columns:
        public = PROTOCOL.public_parameters(config, 1, config.n_total or n, given["k"])
        settings["columns"] = settle(tuple(columns), public, share=1.0 - share)
    config = replace(config, settings={name: settings}, client_caps=(n,))
    config, inputs = PROTOCOL.gather(config, 1)
    return config, replace(inputs, bounds=model.bounds_)


def _within(model: Any, spending: Spending, inputs: Any, total: float) -> float:
    """Return the epsilon with which everything in the ledger spends at most `total`."""
    before, names = spending.so_far(), tuple(model.bounds_.names)

    def after(own: float) -> float:
        plan = PROTOCOL.make_plan(replace(inputs.public, epsilon=own), names)
        return spending.together(before, plan.all_releases(), spending.delta_of_all(plan.delta))

    if after(OPTIONS["epsilon"].within.ends[0]) > total:
        raise ParameterError(
            f"total: expected more than the ledger holds already, got {total:g}; epsilon_spent_ is "
            f"{model.epsilon_spent_:.6g}"
        )
    return epsilon_within(after, total)


def _finished(model: Any) -> FinishedRun:
    """Return the clusters of the model as a description reads them; distances as in `predict`."""
    run = model._run
    return FinishedRun(
        names=tuple(model.bounds_.names),
        centroids=np.asarray(model.cluster_centers_, dtype=np.float64),
        sizes=model.noisy_counts_,
        run=run,
        fraction_bits=None,
        digest=hashlib.sha256(run.encode() + np.asarray(model.cluster_centers_, dtype="<f8").tobytes()).digest(),
    )


def read_lines(text: str) -> Iterator[dict[str, Any]]:
    """Return the lines of profile.csv or quality.csv as values; None for an empty cell."""
    for line in csv.DictReader(io.StringIO(text)):
        yield {name: csv_text(cell) if name in _TEXTS else _number(cell) for name, cell in line.items()}


def _number(cell: str) -> float | int | None:
    if not cell:
        return None
    return int(cell) if cell.isdecimal() else float(cell)
