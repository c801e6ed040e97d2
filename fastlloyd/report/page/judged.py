"""What the page says of the quality of the clusters, from quality.csv and silhouettes.csv alone.

Source: docs/describe.md, "How good the clusters are".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.report.page.chart import Bar, size_bars
from fastlloyd.report.page.render import format_rounded, format_whole

FIGURES, CURVE = "quality.csv", "silhouettes.csv"
_NAMES = {
    "records": ("records", "in the release, counted with noise"),
    "silhouette": ("silhouette", "from 0, between two centres, to 1, on a centre"),
    "nicv": (
        "mean squared distance",
        "to the nearest centre, up to a public bound, features on [-1, 1]; less is tighter",
    ),
    "far": ("share of far records", "beyond that bound"),
    "explained": ("share explained", "of the spread of all records"),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its range; None where the noise is too large to show it."""

    name: str
    about: str
    estimate: float | None
    low: float | None
    high: float | None

    @property
    def whole(self) -> bool:
        """Whether it counts records."""
        return self.name == _NAMES["records"][0]

    @property
    def words(self) -> str:
        """The number with its range."""
        if self.estimate is None or self.low is None or self.high is None:
            return "too few records for this budget"
        margin = max((self.high - self.low) / 2.0, 1e-12)
        numbers = (self.estimate, self.low, self.high)
        number, low, high = (format_whole(one) if self.whole else format_rounded(one, margin) for one in numbers)
        return f"{number} ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Curve:
    """The silhouettes of several numbers of clusters.

    Attributes
    ----------
    rows : list of (int, Figure, Bar or None)
        Number of clusters; a bar where the figure is shown.
    chosen : int
    sentence : str
        What they support; never which number is right.
    """

    rows: list[tuple[int, Figure, Bar | None]]
    chosen: int
    sentence: str


def show_quality(files: Mapping[str, bytes]) -> dict[str, Any] | None:
    """Return what the page shows of the quality of the clusters; None if nothing on it was released.

    Parameters
    ----------
    files : mapping from name to bytes

    Raises
    ------
    ConfigError
        A file is not as a run writes it.
    """
    figures = [_figure(row, *_NAMES[row["measure"]]) for row in _rows(files.get(FIGURES), FIGURES)]
    rows = [(int(row["k"]), row["chosen"] == "1", _figure(row, row["k"], "")) for row in _rows(files.get(CURVE), CURVE)]
    if not figures and not rows:
        return None
    return {"figures": figures, "curve": _curve(rows) if rows else None}


def tell_apart(ranges: Mapping[int, tuple[float, float]], chosen: int) -> str:
    """Say in a sentence what the silhouettes of several numbers of clusters support.

    Two numbers count as different where their 95 % ranges do not meet: by noise alone that happens in less than 5 % of
    comparisons, for two such ranges together are wider than the range of the difference.

    Parameters
    ----------
    ranges : mapping from int to (float, float)
        By number of clusters, without those that are not shown.
    chosen : int
        The number that the run chose.
    """
    caution = "This does not say which number is right: the largest silhouette often belongs to too few clusters."
    if chosen not in ranges:
        return f"The noise is too large to compare {chosen} clusters with other numbers. {caution}"
    low, high = ranges[chosen]
    higher = [k for k, (least, _) in ranges.items() if least > high]
    lower = [k for k, (_, most) in ranges.items() if most < low]
    same = [k for k in ranges if k not in (chosen, *higher, *lower)]
    said = [
        f"{words} with {_listed(found)}"
        for words, found in (("higher", higher), ("lower", lower), ("not told apart from it by this release", same))
        if found
    ]
    beside = f"; it is {', '.join(said)}" if said else ""
    return f"The silhouette of the {chosen} clusters that the run chose is {low:.2f} to {high:.2f}{beside}. {caution}"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last


def _curve(rows: Sequence[tuple[int, bool, Figure]]) -> Curve:
    """Return the curve: bars on one scale from 0, and its sentence."""
    shown = {k: one for k, _, one in rows if one.estimate is not None}
    ranges = {k: (one.low, one.high) for k, one in shown.items() if one.low is not None and one.high is not None}
    bars = dict(zip(ranges, size_bars([shown[k].estimate or 0.0 for k in ranges], list(ranges.values())), strict=True))
    chosen = next((k for k, own, _ in rows if own), 0)
    return Curve([(k, one, bars.get(k)) for k, _, one in rows], chosen, tell_apart(ranges, chosen))


def _figure(row: Mapping[str, str], name: str, about: str) -> Figure:
    numbers = (None if row[key] == "" else float(row[key]) for key in ("estimate", "low", "high"))
    return Figure(name, about, *numbers)


def _rows(content: bytes | None, name: str) -> list[dict[str, str]]:
    """Return the lines of a file, checked; none without it."""
    if content is None:
        return []
    first = {FIGURES: ("measure",), CURVE: ("k", "chosen")}[name]
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
        for row in rows:
            _figure(row, "", "")
            if not all(row[key] for key in first) or (name == FIGURES and row["measure"] not in _NAMES):
                raise ValueError("a line without its name")
            int(row.get("k", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{name}: expected the figures of a run, got another table ({error}); give the folder as the run wrote it"
        ) from error
    return rows
