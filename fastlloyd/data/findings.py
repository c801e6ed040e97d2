"""What a site should hear about its records before anything is spent: the one place that makes these sentences.

`fastlloyd check`, each command that takes part in a run, and a fit say them. They depend on single records: they are
for the owner alone, and no message and no shared file holds them.

Source: docs/guide.md, "What a site hears about its records".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, count_outside
from fastlloyd.data.form import listed
from fastlloyd.data.missing import find_codes, missing_words
from fastlloyd.errors import format_count

_SHOWN = 8
_MUCH, _MOST = 0.05, 0.5
_LEAST_NUMBERED, _LEAST_CODES, _CODE_SHARE = 100, 5, 0.01
_LOOKED_AT = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What became of a table's columns and rows while it was read.

    Attributes
    ----------
    left_out : tuple of (str, str)
        The columns that are no features, and why.
    unread : str
        The warning about those that nobody named and that hold text; '' for none.
    doubt : str
        The warning about a first row that may name the columns; '' for none.
    rows : int
        Of the file.
    missing_rows : int
        Records that lacked a value.
    missing : str
        The rule for them.
    missing_in : mapping of str to int
        Missing values of each feature that lacks any.
    """

    left_out: tuple[tuple[str, str], ...] = ()
    unread: str = ""
    doubt: str = ""
    rows: int = field(default=0, repr=False)
    missing_rows: int = field(default=0, repr=False)
    missing: str = "refuse"
    missing_in: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The sentences about a party's own records.

    Attributes
    ----------
    facts : tuple of str
        What was left out, dropped, filled in and clipped.
    warnings : tuple of str
        What is perhaps not meant.
    unfit : str
        The warning about columns of which most values lie outside the bounds; '' for none.
    """

    facts: tuple[str, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = field(default=(), repr=False)
    unfit: str = field(default="", repr=False)

    @property
    def said(self) -> tuple[str, ...]:
        """What is said on the owner's terminal, sentence by sentence."""
        return (*(("of these records, " + "; ".join(self.facts),) if self.facts else ()), *self.warnings)

    @property
    def text(self) -> str:
        """What is kept in the owner's file."""
        return "".join(f"{line}\n" for line in (*self.facts, *self.warnings)) or "all columns and values are used\n"


NOTHING = Findings()


def find(
    blocks: Iterable[NDArray[np.float64]],
    bounds: Bounds | None,
    names: Sequence[str],
    intake: Intake = Intake(),
    *,
    python: bool = False,
) -> Findings:
    """Say what is noteworthy about records.

    Parameters
    ----------
    blocks : iterable of float64 arrays, shapes (n_i, d)
        All records, in original units; NaN where a value is missing.
    bounds : Bounds or None
        Of the d features.
    names : sequence of str, length d
    intake : Intake
    python : bool
        Whether the caller is Python code, which has no flags.

    Returns
    -------
    Findings

    Notes
    -----
    Codes and numbered records are looked for in the first block, in at most 131,072 rows of it.
    """
    rest = iter(blocks)
    first = next(rest)
    looked, limits = first[:_LOOKED_AT], None if python else bounds
    own = _without_filled_in(looked, bounds, names, intake)
    doubts = [*_codes(own, limits, names, python), _numbered(looked, names, python)]
    rows, outside = 0, np.zeros(len(names), dtype=np.int64)
    for block in chain([first], rest):
        rows += len(block)
        if bounds is not None:
            outside += count_outside(block, bounds)
    unfit, clipped = clipping_words(outside, rows, names)
    warnings = [intake.unread, intake.doubt, unfit, clipped, *doubts]
    facts = [*_intake_words(intake), _outside_words(outside, rows, names)]
    return Findings(facts=tuple(filter(None, facts)), warnings=tuple(filter(None, warnings)), unfit=unfit)


def too_many(outside: int, rows: int) -> bool:
    """Whether so large a part of a column lies outside its bounds that these are perhaps not meant."""
    return outside > _MUCH * rows


def clipping_words(outside: NDArray[np.int64], rows: int, names: Sequence[str]) -> tuple[str, str]:
    """Name the features whose bounds are perhaps wrong: many of their values lie outside.

    Parameters
    ----------
    outside : int64 array, shape (d,)
        As `count_outside` gives it.
    rows : int
    names : sequence of str, length d

    Returns
    -------
    most, much : str
        Of the features with more than half outside, and of the others with more than 5 %; '' for none.

    Examples
    --------
    >>> clipping_words(np.array([6, 5, 0]), 10, ["age", "cost", "bmi"])[0]
    'more than half of the values of age would be clipped: check units and bounds'
    >>> clipping_words(np.array([6, 5, 0]), 10, ["age", "cost", "bmi"])[1]
    'more than 5 % of the values of cost (50 %) would be clipped: check units and bounds'
    """
    pairs = list(zip(names, outside.tolist(), strict=True))
    most = [name for name, count in pairs if count > _MOST * rows]
    much = [
        f"{name} ({100 * count / rows:.0f} %)"
        for name, count in pairs
        if too_many(count, rows) and count <= _MOST * rows
    ]
    return _clipped("half", most), _clipped("5 %", much)


def _clipped(share: str, found: Sequence[str]) -> str:
    """Write the sentence about features with more than this share of their values outside."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    shown = ", ".join(found[:_SHOWN]) + more
    return f"more than {share} of the values of {shown} would be clipped: check units and bounds" if found else ""


def _intake_words(intake: Intake) -> Iterable[str]:
    """Say which columns are not used, and what became of rows without a value."""
    if intake.left_out:
        shown = ", ".join(f"{name!r} ({why})" for name, why in intake.left_out[:_SHOWN])
        more = len(intake.left_out) - _SHOWN
        count = format_count(len(intake.left_out), "column")
        yield f"{count} not used: {shown}{f' and {more} more' if more > 0 else ''}"
    if intake.missing_rows:
        done = {"drop": "dropped", "midpoint": "filled with the middle of the bounds"}.get(intake.missing, "kept")
        lack = missing_words(intake.missing_in, _SHOWN)
        yield f"{format_count(intake.missing_rows, 'record')} without a value {done} (missing: {lack})"


def _outside_words(outside: NDArray[np.int64], rows: int, names: Sequence[str]) -> str:
    """Say how many values count as a bound."""
    total = int(outside.sum())
    if not total:
        return ""
    most = [at for at in np.argsort(-outside, kind="stable")[:_SHOWN].tolist() if outside[at]]
    shown = ", ".join(f"{int(outside[at]):,} in {names[at]!r}" for at in most)
    more = int(np.count_nonzero(outside)) - len(most)
    return f"{format_count(total, 'value')} outside the bounds, of {rows * len(names):,}: {shown}" + (
        f" and more in {format_count(more, 'other column')}" if more else ""
    )


def _codes(values: NDArray[np.float64], bounds: Bounds | None, names: Sequence[str], python: bool) -> Iterable[str]:
    """Warn of values that may stand for a missing one: far from all others, or frequent outside the bounds."""
    found: list[str] = []
    for at, name in enumerate(names):
        column = values[:, at]
        codes = find_codes(column)
        if not codes and bounds is not None:  # far from those inside
            codes = _frequent_outside(column, float(bounds.lo[at % len(bounds)]), float(bounds.hi[at % len(bounds)]))
        if codes:
            said = " and ".join(f"{value:g} in {format_count(count, 'row')}" for value, count in codes)
            flag = ",".join(f"{value:.15g}" for value, _ in codes)
            fix = f"give na=[{flag}]" if python else f"add --na {flag}"
            found.append(f"column {name!r}: {said}, far from all others: if that means missing, {fix}")
    yield from found[:_SHOWN]
    if len(found) > _SHOWN:
        yield f"there are such values in {format_count(len(found) - _SHOWN, 'more column')}"


def _without_filled_in(
    values: NDArray[np.float64], bounds: Bounds | None, names: Sequence[str], intake: Intake
) -> NDArray[np.float64]:
    """Return the values with NaN where `--missing midpoint` may have filled in the middle: it stands in no file."""
    if intake.missing != "midpoint" or not intake.missing_in or bounds is None:
        return values
    lacking = np.array([name in intake.missing_in for name in names])
    return np.where(lacking & (values == bounds.middle), np.nan, values)


def _frequent_outside(column: NDArray[np.float64], lo: float, hi: float) -> list[tuple[float, int]]:
    """Return the value that makes up most of those outside the bounds, if it is frequent."""
    outside = column[(column < lo) | (column > hi)]
    if len(outside) < _LEAST_CODES:
        return []
    values, counts = np.unique(outside, return_counts=True)
    at = int(np.argmax(counts))
    often = counts[at] >= max(_LEAST_CODES, _CODE_SHARE * len(column)) and 2 * counts[at] > len(outside)
    return [(float(values[at]), int(counts[at]))] if often else []


def _numbered(values: NDArray[np.float64], names: Sequence[str], python: bool) -> str:
    """Warn of features whose values are all distinct and whole, as numbers of records are."""
    if len(values) < _LEAST_NUMBERED:
        return ""
    found = []
    for name, column in zip(names, values.T, strict=True):
        whole = not np.isnan(column).any() and not np.mod(column[:_LEAST_NUMBERED], 1).any()
        if whole and not np.mod(column, 1).any() and len(np.unique(column)) == len(column):
            found.append(name)
    if not found:
        return ""
    rest = "" if python else " (--columns names what is used)"
    are = "is a feature" if len(found) == 1 else "are features"
    return (
        f"{listed(found, _SHOWN)} {are} although all values are distinct whole numbers, as where they number records: "
        f"leave out what means nothing{rest}"
    )
