"""The estimator's parameters: types, ranges and bounds.

`FastLloyd` stores its arguments; everything is checked here, when `fit` is called. Bounds come in several forms: names
(of a mapping, a Series, a DataFrame or a `Bounds`) are matched to the columns, and ambiguous forms are refused.

Source: docs/estimator.md, "Parameters".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.missing import MISSING_RULES
from fastlloyd.errors import did_you_mean
from fastlloyd.estimator.words import PARAMETERS, ParameterError, in_own_words
from fastlloyd.protocols.registry import names
from fastlloyd.run.config import OPTIONS
from fastlloyd.run.run_file import read_k
from fastlloyd.wire.decode import show

_SIDES = ("lo", "hi")
_OPTIONS = (
    "protocol",
    "k",
    "epsilon",
    "delta",
    "accept_large_delta",
    "n_total",
    "rounds",
    "seed",
    "ring_bits",
    "min_size",
    "quality",
)
"""Options of a run that are parameters, most under the same name."""


def check_parameters(model: Any) -> None:
    """Check types and ranges of what `FastLloyd` stores; checks against X and the protocol follow later."""
    if model.bounds is None:
        raise ParameterError(
            "bounds: expected (lo, hi), the lowest and highest value that each feature may have, got None; they are "
            "never taken from X, for its extremes are the values of single records: state what is known beforehand, "
            "such as bounds=(0, 120) for an age; values outside count as the bound"
        )
    if model.protocol not in names():
        raise _wrong(model, "protocol", f"one of {', '.join(map(repr, names()))}")
    if read_parameters(model)["rounds"] == 0:
        given = "rounds" if model.max_iter is None else "max_iter"
        raise _wrong(model, given, "'auto' or a whole number from 1 to 1000")
    if model.missing not in MISSING_RULES:
        raise _wrong(model, "missing", f"one of {', '.join(map(repr, MISSING_RULES))}")
    if model.missing == "midpoint" and isinstance(model.bounds, str):
        raise ParameterError(
            f"missing: expected 'refuse' or 'drop', since bounds={model.bounds!r} gives no middle beforehand, got "
            "'midpoint'"
        )
    try:
        codes = np.asarray(model.na, dtype=np.float64)
    except (TypeError, ValueError):
        codes = np.zeros((0, 0))
    if codes.ndim != 1 or isinstance(model.na, str):
        raise _wrong(model, "na", "a list of numbers that mean missing, such as [-999, 9999]")
    if not isinstance(model.settings, Mapping | None):
        raise _wrong(model, "settings", "None or a mapping")


@in_own_words()
def read_parameters(model: Any) -> dict[str, Any]:
    """Return the parameters that are options of a run, as plain values by the options' names.

    Raises
    ------
    ParameterError
        A value of another type or out of range.
    """
    values = {name: plain_value(getattr(model, PARAMETERS.get(name, name))) for name in _OPTIONS}
    if values["seed"] is None:
        values["seed"] = int.from_bytes(os.urandom(8), "little") >> 1
    elif isinstance(values["seed"], np.random.RandomState):
        values["seed"] = int(values["seed"].randint(1 << 63, dtype=np.int64))
    if model.max_iter is not None:
        if values["rounds"] != "auto":
            raise ParameterError("max_iter: it is another name for rounds, and both are given; give one of them")
        values["rounds"] = plain_value(model.max_iter)
    for name, value in values.items():
        if value is None and name != "n_total":
            raise _wrong(model, PARAMETERS.get(name, name), OPTIONS[name].expected)
        if name == "k":
            if read_k(value)["least_k"]:
                raise _wrong(
                    model,
                    "n_clusters",
                    "a whole number or 'auto:KMAX' (silhouettes of several come from `fastlloyd run`)",
                )
        else:
            OPTIONS[name].read(value)
    return values


def refuse_weights(given: Mapping[str, object]) -> None:
    """Refuse arguments of `fit` that it does not have.

    Raises
    ------
    TypeError
        There is one.
    """
    if "sample_weight" in given:
        raise TypeError(
            "sample_weight: expected none, since epsilon counts each record once: one of weight w moves every sum w "
            "times as far, and epsilon would not hold for it; leave it out, or repeat a row that stands for several "
            "people (np.repeat), each of whom is then one record"
        )
    if given:
        raise TypeError(f"fit: expected X alone, got {next(iter(given))} as well; leave it out")


def _wrong(model: Any, name: str, expected: str) -> ParameterError:
    return ParameterError(f"{name}: expected {expected}, got {show(getattr(model, name))}")


def plain_value(value: Any) -> Any:
    """Return a value of numpy as Python's."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def feature_names(d: int, columns: NDArray[Any] | None) -> list[str]:
    """Return the names of d features: those of the columns, else x1, x2, and so on."""
    return [f"x{i + 1}" for i in range(d)] if columns is None else [str(name) for name in columns]


def match_bounds(bounds: Any, d: int, columns: NDArray[Any] | None) -> Bounds:
    """Return named bounds for each of the d features.

    Parameters
    ----------
    bounds : object
        As the caller gave it.
    d : int
    columns : array of str, shape (d,), or None
        The names of the columns, where X has names; else they are called x1, x2, and so on.

    Raises
    ------
    ParameterError
        No form fits, two do, or the names are not those of the columns.
    ConfigError
        From `Bounds`: a number is not finite, or lo >= hi.
    """
    names = feature_names(d, columns)
    if isinstance(bounds, Bounds):
        if columns is None and bounds.names is not None and len(bounds) == d:
            return bounds
        matched: Bounds = bounds.match(names)
        return matched
    table = _by_name(bounds)
    said = table is not None and set(table) == set(_SIDES) and not set(_SIDES) <= set(names)
    if table is None or said:
        pairs = [bounds if table is None else [table[side] for side in _SIDES]]
    else:
        pairs = _in_order(table, names)
    try:
        pairs = [(lo, hi) for lo, hi in pairs]
    except (TypeError, ValueError) as error:
        raise _unfit(bounds, d) from error
    if table is not None and not said:
        lo, hi = (_numbers([pair[side] for pair in pairs], bounds, d) for side in (0, 1))
    else:
        lo, hi = _read_sides(pairs[0], bounds, names, said=said)
    try:
        return Bounds(np.broadcast_to(lo, (d,)), np.broadcast_to(hi, (d,)), tuple(names))
    except ValueError as error:
        raise _unfit(bounds, d) from error


def _read_sides(
    pair: Sequence[Any], bounds: Any, names: Sequence[str], *, said: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read the lowest values of all features, and the highest; `said`: the caller has named these two so."""
    tables = [_by_name(side) for side in pair]
    sides = []
    for side, table in zip(pair, tables, strict=True):
        values = _numbers(side if table is None else _in_order(table, names), bounds, len(names))
        if values.ndim and table is None and any(tables):
            raise ParameterError(
                f"bounds: expected names on both sides or on none, got one with names and one in the order of {names}; "
                "give both with names"
            )
        sides.append(values)
    if not said and not any(tables):
        _refuse_two_readings(sides[0], sides[1], names)
    return sides[0], sides[1]


def _refuse_two_readings(lo: NDArray[np.float64], hi: NDArray[np.float64], names: Sequence[str]) -> None:
    """Refuse two pairs for two features where they may be (lo, hi) of each feature, or lo of both and hi of both."""
    if not lo.shape == hi.shape == (len(names),) == (2,):
        return
    by_side, by_feature = np.column_stack([lo, hi]), np.stack([lo, hi])
    fits = [bool((pairs[:, 0] < pairs[:, 1]).all()) for pairs in (by_side, by_feature)]
    if not fits[1] or (fits[0] and (by_side == by_feature).all()):
        return
    first, second = (_spelled(pairs, names) for pairs in (by_side, by_feature))
    if fits[0]:
        raise ParameterError(
            f"bounds: two pairs for two features can be read in two ways: (lo, hi) of all features is bounds={first}, "
            f"a pair for each feature is bounds={second}; give the one that is meant"
        )
    raise ParameterError(
        f"bounds: expected (lo, hi), first the lowest value of every feature and then the highest, got what reads as a "
        f"pair for each feature: for that give bounds={second}"
    )


def _spelled(pairs: NDArray[np.float64], names: Sequence[str]) -> str:
    """Format bounds as a mapping."""
    return "{" + ", ".join(f"{name!r}: ({lo:g}, {hi:g})" for name, (lo, hi) in zip(names, pairs, strict=True)) + "}"


def _by_name(value: Any) -> dict[str, Any] | None:
    """Return the entries by name; None if they have only an order."""
    if hasattr(value, "columns"):
        return _read_frame(value)
    if isinstance(value, Mapping) or (hasattr(value, "index") and hasattr(value, "items")):
        names, entries = [*map(str, value.keys())], [entry for _, entry in value.items()]
        if not isinstance(value, Mapping) and names == [*map(str, range(len(names)))]:  # the index that pandas gives
            return None
        if len(set(names)) < len(names):
            raise ParameterError(f"bounds: expected each name once, got {', '.join(names)}")
        return dict(zip(names, entries, strict=True))
    return None


def _read_frame(frame: Any) -> dict[str, Any]:
    """Read a DataFrame: a row for each feature, or the rows lo and hi."""
    given = [*map(str, frame.columns)]
    index = [*map(str, getattr(frame, "index", ()))]
    if {*_SIDES, "feature"} <= set(given):
        return {str(name): pair for name, *pair in zip(*(frame[key] for key in ("feature", *_SIDES)), strict=True)}
    if set(given) == set(_SIDES):
        sides = {side: np.asarray(frame[side]) for side in _SIDES}
        if index and index != [*map(str, range(len(index)))]:
            return dict(zip(index, zip(*sides.values(), strict=True), strict=True))
        return sides
    if sorted(index) == sorted(_SIDES):
        return {name: [frame[key].loc[side] for side in _SIDES] for key, name in zip(frame.columns, given, strict=True)}
    raise ParameterError(
        "bounds: expected a DataFrame with the columns feature, lo and hi, with lo and hi and the features as its "
        f"index, or with the rows lo and hi, got the columns {', '.join(given)}"
    )


def _in_order(table: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """Return the entries in the order of the columns; every name must be that of a column, and every column there."""
    lacking = [name for name in names if name not in table]
    known = set(names)
    unknown = [name for name in table if name not in known]
    if lacking or unknown:
        culprit = unknown[0] if unknown else ""
        raise ParameterError(
            f"bounds: expected an entry for each column and no other: the columns are {', '.join(names)}, got "
            f"{', '.join(table)}{did_you_mean(culprit, names)}; where X has no names its columns are x1, x2, .."
        )
    return [table[name] for name in names]


def _numbers(values: Any, bounds: Any, d: int) -> NDArray[np.float64]:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _unfit(bounds, d) from error


def _unfit(bounds: Any, d: int) -> ParameterError:
    return ParameterError(
        f"bounds: expected (lo, hi), two numbers or two arrays of shape ({d},), a mapping from each column to its "
        f"(lo, hi), or a Bounds, got {bounds!r}"
    )
