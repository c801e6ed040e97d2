"""What asking a database is, whatever its kind: its answer, its refusals, and the one SELECT that is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastlloyd.data.kinds import ColumnKind
from fastlloyd.errors import DataError, SourceError

Row = tuple[Any, ...]
CONNECT_TIMEOUT_S = 30
ONE_SELECT = "expected one SELECT, which is all that --query may be, for the database is only read"
_BATCH_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRows:
    """What a query gives.

    Attributes
    ----------
    names : tuple of str
    kinds : tuple of ColumnKind
        What each column holds; a column that no role may ask for needs no values.
    batches : iterator over sequences of rows
        Some rows at a time.
    indices : frozenset of str
        Columns that the source itself calls row labels.
    """

    names: tuple[str, ...]
    kinds: tuple[ColumnKind, ...]
    batches: Iterator[Sequence[Row]]
    indices: frozenset[str] = frozenset()


def refused(shown: str, error: Exception, fix: str = "") -> DataError:
    """Return the error of a database that refuses, with the first line of what it says."""
    words = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return DataError(f"{shown}: the database says: {words[:300]}{fix or '; correct --query or --table'}")


def away(shown: str, error: Exception) -> SourceError:
    """Return the error of a database that does not answer now."""
    words = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return SourceError(
        f"{shown}: the database does not answer, or broke off: {words[:300]}; see that it runs and has the time, and "
        "start again (nothing was spent)"
    )


def named(description: Any, shown: str) -> tuple[str, ...]:
    """Return the names of the columns of a result."""
    if not description:
        raise DataError(f"{shown}: the statement gives no table; {ONE_SELECT}")
    return tuple(str(column[0]) for column in description)


def batches(fetch: Callable[[int], Iterable[Row]]) -> Iterator[Sequence[Row]]:
    """Fetch some rows at a time."""
    return iter(lambda: list(fetch(_BATCH_ROWS)), [])
