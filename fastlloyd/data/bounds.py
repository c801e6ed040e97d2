"""Public bounds of the features, and the map between original units and [-1, 1].

Bounds come from the configuration, never from private records: `auto_public` is for public data
sets only. Values outside are clipped; their number is counted locally and stays with the owner.

Source: docs/protocol.md, "Bounds and scaling".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.form import listed, read_rows
from fastlloyd.data.missing import row_blocks
from fastlloyd.errors import ConfigError, DataError, did_you_mean, format_count

AUTO_PUBLIC = "auto-public"
PRIVATE = "private"

_MOST = 1e100
"""The largest bound, and one over the least width: products of some widths and counts stay finite."""
_BLOCK_VALUES = 1 << 17  # stay in the processor's cache
_NAMED = 8
_FORMS = "expected --bounds LO,HI (two numbers for all features) or a CSV file with the columns feature,lo,hi"


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Lowest and highest value of each feature.

    Parameters
    ----------
    lo, hi : float64 array, shape (d,)
        lo < hi, both finite. Shape (1,) without names stands for all features, see `match`.
    names : tuple of str or None
        Names of the features, in the order of `lo`; None where only the order counts.
    about : tuple of str
        The comments of the file that they were read from: who found them, and what that spent.

    Raises
    ------
    ConfigError
        Wrong shapes, values that are not finite, lo >= hi, or a name that stands twice.
    """

    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    names: tuple[str, ...] | None = None
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lo, hi = (np.array(side, dtype=np.float64) for side in (self.lo, self.hi))
        if lo.ndim != 1 or lo.shape != hi.shape or not lo.size:
            raise ConfigError(
                f"bounds need one lo and one hi per feature, got shapes {lo.shape} and {hi.shape}; {_FORMS}"
            )
        if self.names is not None:
            _check_names(self.names, lo.size)
        for index in range(lo.size):
            _check_pair(float(lo[index]), float(hi[index]), self.label(index))
        lo.flags.writeable = hi.flags.writeable = False
        object.__setattr__(self, "lo", lo)
        object.__setattr__(self, "hi", hi)

    def __len__(self) -> int:
        return self.lo.size

    def label(self, index: int) -> str:
        """Name a feature for a message."""
        if self.names is not None:
            return f"feature {self.names[index]!r}"
        return f"feature {index + 1}" if np.size(self.lo) > 1 else "all features"

    @property
    def middle(self) -> NDArray[np.float64]:
        """Midpoints, float64 array, shape (d,)."""
        return self.lo / 2 + self.hi / 2

    @property
    def half_width(self) -> NDArray[np.float64]:
        """Half the distance from lo to hi, float64 array, shape (d,)."""
        return self.hi / 2 - self.lo / 2

    def match(self, names: Sequence[str]) -> Self:
        """Return the bounds of exactly these features, in this order.

        Named bounds are looked up by name, one pair without names holds for every feature, and d pairs
        without names are taken in order.

        Raises
        ------
        ConfigError
            A feature has no bounds, or the numbers of features differ.
        """
        names = tuple(names)
        if self.names is not None:
            index = {name: i for i, name in enumerate(self.names)}
            lacking = [name for name in names if name not in index]
            if lacking:
                close = did_you_mean(lacking[0], self.names)
                raise ConfigError(
                    f"the bounds name no feature {listed(lacking, _NAMED)}{close}: they hold "
                    f"{listed(self.names, _NAMED)}; add a row 'feature,lo,hi' to the bounds file or leave the feature "
                    "out with --columns"
                )
            order = [index[name] for name in names]
            return type(self)(self.lo[order], self.hi[order], names)
        if len(self) == 1:
            return type(self)(np.repeat(self.lo, len(names)), np.repeat(self.hi, len(names)), names)
        if len(self) != len(names):
            raise ConfigError(
                f"the bounds hold {format_count(len(self), 'feature')} but the data have {len(names)} "
                f"({listed(names, _NAMED)}); give one pair LO,HI for all, or a file with one row per feature"
            )
        return type(self)(self.lo, self.hi, names)


def parse_bounds(text: str) -> Bounds:
    """Read bounds as typed: `LO,HI`, or the path of a CSV file with the columns feature,lo,hi.

    Returns
    -------
    Bounds
        Shape (1,) without names for `LO,HI` (use `Bounds.match`), else one named pair per row.

    Raises
    ------
    ConfigError
        Neither form fits, a number is not finite, or lo >= hi.
    """
    pair = _numbers(text.split(","))
    if pair is not None and len(pair) == 2:
        return Bounds(np.array(pair[:1]), np.array(pair[1:]))
    if text.strip() == AUTO_PUBLIC:
        raise ConfigError(
            f"--bounds auto-public takes the bounds from the values, so it is for a public --dataset only; {_FORMS}"
        )
    path = Path(text)
    try:
        found = path.is_file()
    except OSError:  # a name that is too long
        found = False
    if not found and text.strip().partition(":")[0] == PRIVATE:
        raise ConfigError(
            f"--bounds {text}: expected bounds, for a run cannot find its own: `fastlloyd bounds --share SHARE` finds "
            "them, writes the file for --bounds, and says which --epsilon is left for this run (on one host `fastlloyd "
            "run` does both)"
        )
    if not found:
        raise ConfigError(f"--bounds {text}: neither two numbers nor an existing file; {_FORMS}")
    return _read_bounds(path)


def auto_public(values: NDArray[np.float64], names: Sequence[str] | None = None) -> Bounds:
    """Take each feature's smallest and largest value; for public data sets only.

    A constant feature c gets c - 0.5 and c + 0.5 (wider where c is too large for that to differ from c).

    Parameters
    ----------
    values : float64 array, shape (n, d), n >= 1, finite
    names : sequence of str, length d, optional

    Privacy
    -------
    None: the result is a function of single records. Never call it on private records.
    """
    lo = values.min(axis=0).astype(np.float64)
    hi = values.max(axis=0).astype(np.float64)
    constant = lo == hi
    room = np.maximum(0.5, 4 * np.spacing(np.abs(lo)))
    lo, hi = np.where(constant, lo - room, lo), np.where(constant, hi + room, hi)
    return Bounds(lo, hi, None if names is None else tuple(names))


def scale(
    values: NDArray[np.float64], bounds: Bounds, *, out: NDArray[np.float64] | None = None, gaps: bool = False
) -> NDArray[np.float64]:
    """Map records from original units to [-1, 1] per feature; values outside are clipped.

    Parameters
    ----------
    values : float64 array, shape (n, d)
    bounds : Bounds of d features, or of one pair for all
    out : float64 array, shape (n, d), optional
        Where to write; `values` itself scales in place.
    gaps : bool
        Whether a value may be missing (NaN), and stays so.

    Returns
    -------
    float64 array, shape (n, d)

    Raises
    ------
    DataError
        A value is NaN, and none may be.
    ConfigError
        The bounds are for another number of features.
    """
    _check_width(values, bounds)
    result = np.empty(values.shape, dtype=np.float64) if out is None else out
    middle, half = bounds.middle, bounds.half_width
    for rows in row_blocks(values, _BLOCK_VALUES):
        block = np.clip(values[rows], bounds.lo, bounds.hi, out=result[rows])
        np.subtract(block, middle, out=block)
        np.divide(block, half, out=block)
        # Rounding may leave a value an ulp outside, and everything downstream relies on [-1, 1].
        np.clip(block, -1.0, 1.0, out=block)
        if not gaps and np.isnan(block).any():
            row = rows.start + int(np.argmax(np.isnan(block).any(axis=1)))
            raise DataError(f"row {row + 1} holds a NaN; remove it or choose a rule with --missing")
    return result


def unscale(points: NDArray[np.float64], bounds: Bounds) -> NDArray[np.float64]:
    """Map points from [-1, 1] back to original units.

    Parameters
    ----------
    points : float64 array, shape (k, d)
    bounds : Bounds of d features, or of one pair for all

    Returns
    -------
    float64 array, shape (k, d)

    Raises
    ------
    ConfigError
        The bounds are for another number of features.
    """
    _check_width(points, bounds)
    return np.asarray(points * bounds.half_width + bounds.middle, dtype=np.float64)


def count_outside(values: NDArray[np.float64], bounds: Bounds) -> NDArray[np.int64]:
    """Count per feature how many values `scale` would clip.

    Parameters
    ----------
    values : float64 array, shape (n, d)
    bounds : Bounds of d features, or of one pair for all

    Returns
    -------
    int64 array, shape (d,)

    Sees
    ----
    The owner of the records, on its own terminal; the counts are never sent.
    """
    _check_width(values, bounds)
    counts = np.zeros(values.shape[1], dtype=np.int64)
    for rows in row_blocks(values, _BLOCK_VALUES):
        block = values[rows]
        counts += np.count_nonzero((block < bounds.lo) | (block > bounds.hi), axis=0)
    return counts


def _check_width(values: NDArray[np.float64], bounds: Bounds) -> None:
    if values.ndim != 2 or (len(bounds) != 1 and len(bounds) != values.shape[1]):
        raise ConfigError(
            f"the bounds are for {format_count(len(bounds), 'feature')}, the values have shape {values.shape}; "
            "match the bounds to the columns first"
        )


def _check_names(names: tuple[str, ...], count: int) -> None:
    if len(names) != count:
        raise ConfigError(
            f"bounds for {format_count(count, 'feature')} come with {format_count(len(names), 'name')}; give one "
            "name per feature"
        )
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ConfigError(f"the bounds name {listed(twice, _NAMED)} more than once; keep one row per feature")


def _check_pair(lo: float, hi: float, feature: str) -> None:
    if not (np.isfinite(lo) and np.isfinite(hi)):
        raise ConfigError(f"bounds of {feature}: expected finite numbers, got {lo:g},{hi:g}")
    if max(abs(lo), abs(hi)) > _MOST:
        raise ConfigError(
            f"bounds of {feature}: expected numbers from -{_MOST:g} to {_MOST:g}, got {lo:g},{hi:g}; use another unit"
        )
    if not lo < hi:
        raise ConfigError(f"bounds of {feature}: expected LO < HI, got {lo:g},{hi:g}; exchange or widen them")
    if hi - lo < 1 / _MOST:
        raise ConfigError(f"bounds of {feature}: {lo:g} and {hi:g} are too close to scale by; widen them")


def _read_bounds(path: Path) -> Bounds:
    """Read a CSV file feature,lo,hi; the columns may come in any order, and comments (#) above them."""
    every = list(read_rows(path, "bounds file", _FORMS))
    rows = list(dropwhile(lambda row: row[1][0].startswith("#"), every))
    about = tuple(",".join(cells).lstrip("# ") for _, cells in every[: len(every) - len(rows)])
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    if sorted(header) != ["feature", "hi", "lo"]:
        raise ConfigError(
            f"{path}: a bounds file begins with the row feature,lo,hi; got {listed(header, _NAMED) or 'nothing'}"
        )
    if len(rows) == 1:
        raise ConfigError(f"{path}: the bounds file holds no feature; add one row 'feature,lo,hi' for each")
    at = [header.index(name) for name in ("feature", "lo", "hi")]
    names, los, his = [], [], []
    for number, row in rows[1:]:
        pair = _numbers([row[at[1]], row[at[2]]]) if len(row) == 3 else None
        if pair is None:
            raise ConfigError(f"{path}, row {number}: expected a name and two numbers as in 'age,0,120'")
        names.append(row[at[0]])
        los.append(pair[0])
        his.append(pair[1])
    try:
        return Bounds(np.array(los), np.array(his), tuple(names), about)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _numbers(cells: Sequence[str]) -> list[float] | None:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return None
