"""Warnings of a fit about practices that spend privacy outside of its account; it detects some, not all.

Source: docs/estimator.md, "What the ledger does not see".
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.findings import find
from fastlloyd.estimator.account import budget_of
from fastlloyd.estimator.inputs import is_vertical
from fastlloyd.estimator.words import in_python
from fastlloyd.privacy.calibration import large_delta

_SEARCHES = "sklearn.model_selection"
_EXACT = 1e-8
_ROUNDED = 1e-12


class PrivacyWarning(UserWarning):
    """Information about the records leaves, or may leave, that epsilon does not cover."""


def warn_beforehand(model: Any, raw_parts: Sequence[NDArray[np.float64]]) -> None:
    """Warn of uncounted spending and clipped values, before anything is spent: an error stops the fit."""
    names = model.bounds_.names or tuple(f"x{at + 1}" for at in range(len(model.bounds_)))
    for sentence in find(raw_parts, model.bounds_, names, python=True).warnings:
        warnings.warn(sentence, UserWarning, stacklevel=4)
    stated = None if is_vertical(model) or model.n_total is None else int(model.n_total)
    for caution in cautions(raw_parts, model.bounds_, ledger=budget_of(model).ledger is not None, stated=stated):
        warnings.warn(caution, PrivacyWarning, stacklevel=4)


def warn_of_result(model: Any) -> None:
    """Warn of a large delta and of a doubtful result; the fit has taken effect."""
    from sklearn.exceptions import ConvergenceWarning

    n_total = getattr(model.plan_, "n_total", model.n_total)
    if n_total is not None and (note := large_delta(model.delta_, n_total)) is not None:
        warnings.warn(in_python(note), UserWarning, stacklevel=3)
    if model.quality_.warnings:
        warnings.warn("; ".join(model.quality_.warnings), ConvergenceWarning, stacklevel=3)


def cautions(
    raw_parts: Sequence[NDArray[np.float64]], bounds: Bounds, *, ledger: bool, stated: int | None = None
) -> Iterator[str]:
    """Yield a sentence about each practice.

    Parameters
    ----------
    raw_parts : float64 arrays, shapes (n_i, d)
        The records of each owner.
    bounds : Bounds
        Of the d features.
    ledger : bool
        Whether the fits are counted in a file.
    stated : int or None
        The stated N; None where there is none, or where neighbours have the same number of records.

    Sees
    ----
    The owner of the records, in whose process they are raised: they depend on the records.
    """
    if _is_searched():
        counted = "their sum stands in the ledger file" if ledger else "processes do not see each other's: set ledger="
        yield (
            "scikit-learn fits this estimator several times on overlapping records, and each fit spends its epsilon; "
            f"{counted}. A choice by their scores on private records is a release without noise, which no ledger counts"
        )
    raw_values = np.concatenate(raw_parts)
    if stated == len(raw_values):
        yield (
            "n_total is exactly the number of these records: if it was counted from them, as len(X) is, one record "
            "less would have meant another N and another noise, and adding or removing a record is not protected, "
            "whatever neighbours_ says. Leave n_total out, which makes the number public and states what then holds; "
            "or give a round upper bound. If this N was public beforehand, neighbours_ is right"
        )
    if len(raw_values) < 3:
        return
    if _is_centred(raw_values):
        yield (
            "each feature has middle 0 and spread 1 to the last digits, as a scaler leaves them that was fitted on "
            "these records: what it has learnt of them has no noise, and epsilon does not cover it. Scale by public "
            "numbers: bounds= does"
        )
    elif _is_bounded_by_itself(raw_values, bounds):
        yield (
            "the bounds are the smallest and largest values of these records to the last digits: if they were read off "
            "them, or a scaler was fitted on them, single records have been published without noise, and epsilon does "
            "not cover it. Take bounds from public knowledge"
        )


def _is_searched() -> bool:
    """Whether a search or cross-validation of scikit-learn is among the callers."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__", "")).startswith(_SEARCHES):
            return True
    return False


def _is_centred(raw_values: NDArray[np.float64]) -> bool:
    """Whether mean and standard deviation, or median and middle half, are those that a scaler gives its own records."""
    with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest that a float holds
        spread = raw_values.std(axis=0)
    varied = spread > _EXACT
    if not varied.any():
        return False
    low, median, high = np.percentile(raw_values, (25, 50, 75), axis=0)
    for middle, width in ((raw_values.mean(axis=0), spread), (median, high - low)):
        if np.all(np.abs(middle) < _EXACT) and np.all(np.abs(width[varied] - 1.0) < _EXACT):
            return True
    return False


def _is_bounded_by_itself(raw_values: NDArray[np.float64], bounds: Bounds) -> bool:
    """Whether all features reach their bounds; whole numbers, and two values alone, do so by nature."""
    lo, hi = raw_values.min(axis=0), raw_values.max(axis=0)
    varied = ((raw_values > lo) & (raw_values < hi)).any(axis=0)
    fractions = np.mod(raw_values, 1.0).any(axis=0)
    informative = varied & fractions
    off = np.maximum(np.abs(lo - bounds.lo), np.abs(hi - bounds.hi)) / (bounds.hi - bounds.lo)
    return bool(informative.any() and np.all(off[informative] < _ROUNDED))
