"""What `X` may be: an array, a DataFrame, a mapping from columns to values, or the path of a file.

Names of columns are kept; what cannot be a feature (dates, text, missing values) is refused with its column.

Sees: the owner of the records, in whose process they are read and errors are raised.

Source: docs/estimator.md, "X".
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, validate_data

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.form import listed
from fastlloyd.data.missing import GAPS
from fastlloyd.data.table import read_table
from fastlloyd.estimator.words import ParameterError, in_own_words, in_python

_DATES = ("date", "time", "duration", "period")  # beginnings of the types of dates and durations, of several libraries
_SIDES = {"lo", "hi"}
_NAMED = 8
_ARRAYS = ("__array__", "__array_interface__", "__dataframe__", "shape", "columns")
# What an error of scikit-learn or numpy shows of the values, and a notebook would keep.
_VALUES = re.compile(
    r":\s*\narray=.*?(?=\.\nReshape)|(?<=Complex data not supported).*|(?<=string to float): .*", re.DOTALL
)


def read_records(model: Any, X: Any, *, reset: bool, missing: str | None = None) -> NDArray[np.float64]:
    """Read records, and note or compare their columns as scikit-learn does.

    Parameters
    ----------
    model : FastLloyd
    X : array, DataFrame, mapping or path
        As for `FastLloyd.fit`.
    reset : bool
        Whether the model takes the columns of X, or compares them with its own.
    missing : str, optional
        The rule, by default the model's.

    Returns
    -------
    float64 array, shape (n, d), C-contiguous
        Finite, but NaN where a value is missing and the rule does not refuse that.

    Raises
    ------
    ParameterError, ValueError, TypeError
        X does not fit; the error names the column.
    """
    X, keeps_gaps = _as_read(X), (missing or model.missing) != "refuse"
    if isinstance(X, str | Path) or (isinstance(X, Mapping) and not hasattr(X, "shape")):  # a sparse array may be one
        known = None if reset else _known(model)
        names, raw_values = (
            _read_file(model, X, known, keeps_gaps) if isinstance(X, str | Path) else _read_mapping(X, known)
        )
        if reset:
            values = _validate(model, raw_values, reset=True)
            model.feature_names_in_ = np.array(names, dtype=object)
        else:  # selected by the model's own names
            values = check_array(raw_values, dtype=np.float64, order="C", ensure_all_finite=False, estimator=model)
    else:
        _refuse_other_types(X)
        names, values = [], _validate(model, X, reset=reset)
    if len(model.na):
        values = np.where(np.isin(values, _codes(model.na)), np.nan, values)
    _refuse_gaps(values, names or [*getattr(model, "feature_names_in_", ())], keeps_gaps)
    return values


def _codes(given: Sequence[float]) -> NDArray[np.float64]:
    """Return numbers that mean missing, also as narrow columns hold them."""
    codes = np.asarray(given, dtype=np.float64)
    with np.errstate(over="ignore"):
        held = [codes.astype(kind).astype(np.float64) for kind in (np.float16, np.float32)]
    return np.concatenate([codes, *(narrow[np.isfinite(narrow)] for narrow in held)])


def _as_read(X: Any) -> Any:
    """Return X in a form that scikit-learn reads: masked values are missing, named fields are columns.

    Raises
    ------
    ParameterError
        It holds no values.
    """
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    if (fields := getattr(getattr(X, "dtype", None), "names", None)) is not None:
        return {name: X[name] for name in fields}
    if hasattr(X, "iloc") and any(str(kind).startswith("Sparse") for kind in getattr(X, "dtypes", ())):
        return X.apply(np.asarray)
    if hasattr(X, "collect_schema") and not hasattr(X, "__array__"):
        raise ParameterError("X: expected values, got a query that was not run yet; give what its collect() returns")
    if not isinstance(X, str | Path | Sequence | Mapping) and not any(hasattr(X, name) for name in _ARRAYS):
        raise ParameterError(
            f"X: expected an array, a DataFrame, a mapping from columns to values or a path, got {type(X).__name__}"
        )
    return X


def _validate(model: Any, X: Any, *, reset: bool) -> NDArray[np.float64]:
    try:
        checked: NDArray[np.float64] = validate_data(
            model, X, reset=reset, dtype=np.float64, order="C", ensure_all_finite=False
        )
    except ValueError as error:
        text = _VALUES.sub("", str(error))
        if text == str(error):
            raise
        cells = np.asarray(X, dtype=object)
        if cells.ndim == 2 and "string to float" in text:
            for at, column in enumerate(cells.T):
                _numbers(at, column)
        raise ParameterError(f"X: {' '.join(text.split())}") from None
    return checked


def _known(model: Any) -> list[str]:
    """Return the names of a fitted model's columns."""
    named = getattr(model, "feature_names_in_", None)
    return [f"x{i + 1}" for i in range(model.n_features_in_)] if named is None else [*map(str, named)]


def _read_file(
    model: Any, path: str | Path, known: Sequence[str] | None, keeps_gaps: bool
) -> tuple[list[str], NDArray[np.float64]]:
    """Read a file as a run reads it: the columns that the model or its bounds name, else all of numbers."""
    columns = known
    if columns is None:
        bounds = model.bounds
        given = bounds.names if isinstance(bounds, Bounds) else bounds if isinstance(bounds, Mapping) else None
        columns = () if given is None or set(given) == _SIDES else [*map(str, given)]
    with in_own_words():
        table = read_table(Path(path), columns=columns, missing=GAPS if keeps_gaps else "refuse")
    if table.intake.unread:
        warnings.warn(in_python(table.intake.unread), UserWarning, stacklevel=5)
    return [*table.names], table.values


def _read_mapping(columns: Mapping[Any, Any], known: Sequence[str] | None) -> tuple[list[str], NDArray[np.float64]]:
    """Read a value for each record of each column; of those that a model knows, in its order."""
    given = {str(name): values for name, values in columns.items()}
    names = [*given] if known is None else [*known]
    if not names or {*names} != {*given}:
        raise ParameterError(
            f"X: expected the columns {listed(names, _NAMED) if names else '(at least one)'}, got "
            f"{listed([*given], _NAMED) or 'none'}"
        )
    read = [_numbers(name, given[name]) for name in names]
    lengths = [*map(len, read)]
    if len(set(lengths)) > 1:
        raise ParameterError(
            f"X: expected as many values in each column, got {lengths[0]} in {names[0]!r} and "
            f"{next(n for n in lengths if n != lengths[0])} in another"
        )
    return names, np.column_stack(read)


def _refuse_other_types(X: Any) -> None:
    """Refuse dates and text in a DataFrame, by the column's name, and arrays of dates, which numpy reads as numbers."""
    dtype = getattr(X, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        raise _no_dates("")
    if hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "column_names")):
        columns = list(_columns(X))
        twice = [name for name, count in Counter(name for name, _ in columns).items() if count > 1]
        if twice:
            raise ParameterError(f"X: expected columns with different names, got several called {twice[0]!r}")
        for name, column in columns:
            if getattr(getattr(column, "dtype", None), "kind", "O") not in "iufb":
                _numbers(name, column)


def _columns(frame: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a DataFrame, or of a table of Arrow, also where two have one name."""
    if hasattr(frame, "column_names"):  # Arrow: its columns are values
        yield from zip(map(str, frame.column_names), frame.columns, strict=True)
        return
    at = getattr(frame, "iloc", None)
    for index, name in enumerate(frame.columns):
        yield str(name), frame[name] if at is None else at[:, index]


def _numbers(name: str | int, column: Any) -> NDArray[np.float64]:
    """Return the values of one column."""
    kind = str(getattr(column, "dtype", "")).lower()
    values = np.asarray(column)
    if kind.startswith(_DATES) or values.dtype.kind in "mM" or _holds_dates(values):
        raise _no_dates(f" in the column {name!r}")
    if values.ndim != 1:
        raise ParameterError(f"X: expected one value for each record in the column {name!r}, got {values.ndim} axes")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        pass
    try:  # a missing value of a library's own, such as NA, becomes NaN
        return np.array([np.nan if str(value) in ("<NA>", "None") else float(value) for value in values.tolist()])
    except (TypeError, ValueError):
        raise ParameterError(
            f"X: expected numbers, got others in the column {name!r}; leave it out, or make columns of 0 and 1 of its "
            "categories, with bounds that are public"
        ) from None


def _holds_dates(values: NDArray[Any]) -> bool:
    first = values.flat[0] if values.dtype == object and values.size else None
    return type(first).__name__ in ("Timestamp", "datetime", "date", "timedelta", "Timedelta", "Period")


def _no_dates(where: str) -> ParameterError:
    return ParameterError(
        f"X: expected numbers, got dates or durations{where}; give a number of a stated unit, such as the days since a "
        "public day, and its bounds"
    )


def _refuse_gaps(values: NDArray[np.float64], names: Sequence[object], keeps_gaps: bool) -> None:
    """Refuse values that are infinite, and missing ones where they are not kept."""
    wrong = np.isinf(values) if keeps_gaps else ~np.isfinite(values)
    if not wrong.any():
        return
    row, column = (int(at) for at in np.argwhere(wrong)[0])
    where = f"row {row} of column {str(names[column]) if names else column!r}"
    if np.isnan(values[row, column]):
        raise ParameterError(
            f"X: expected a number everywhere, got NaN in {where}, and in {int(wrong.any(axis=1).sum())} of "
            f"{len(values)} rows such a value; give missing='drop' (the row) or missing='midpoint' (of the bounds). A "
            "number learnt from these records, such as a mean, is a release without noise, which no ledger counts"
        )
    raise ParameterError(f"X: expected finite numbers, got infinity in {where}; leave the row out or correct it")
