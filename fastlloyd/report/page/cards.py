"""The cards of described clusters, from profile.csv alone: who is in each, and where it differs from the rest.

Numbers stand with their wide ranges: noise and sampling. A sentence names the surest differences, with ranges that hold
for all differences of the page together. Nothing is drawn whose range says more than its number.

Source: docs/describe.md; docs/report.md, "report.html".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from fastlloyd.errors import ConfigError, format_count
from fastlloyd.report.display import csv_text
from fastlloyd.report.page.render import format_number, format_rounded, format_whole

PROFILE = "profile.csv"
_NEEDED = {
    *("cluster", "column", "measure", "value", "estimate", "wide_low", "wide_high", "shown"),
    *("rest", "difference_low", "difference_high", "differs"),
}
_NUMBERS = ("estimate", "wide_low", "wide_high", "rest", "difference_low", "difference_high")
_SAID = 3
_OPEN_COLUMNS, _OPEN_VALUES = 6, 8
"""How many columns of a card, and values of a column, are not folded away."""
_LEAST_MARGIN = 0.1
_MISSING = "missing"
_QUANTILES = ("median", "quartile 1", "quartile 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of profile.csv; numbers that are not there are None."""

    cluster: int
    column: str
    measure: str
    value: str
    shown: str
    differs: str
    estimate: float | None
    wide_low: float | None
    wide_high: float | None
    rest: float | None
    difference_low: float | None
    difference_high: float | None
    least: int = 0

    @property
    def is_share(self) -> bool:
        """Whether its number is a share, which people read in per cent."""
        return self.measure == "share"

    @property
    def words(self) -> str:
        """The number with its range, or the range alone where that says more."""
        if self.estimate is None or self.wide_low is None or self.wide_high is None:
            return f"below {self.least:,} records" if self.shown == "below" else "too few records for this budget"
        scale, unit = (100.0, " %") if self.is_share else (1.0, "")
        # A range that ends at 0 may be as short as one likes; nobody reads more than hundredths of a per cent.
        margin = max(scale * (self.wide_high - self.wide_low) / 2.0, _LEAST_MARGIN if self.is_share else 0.0)
        number, low, high = (_rounded(scale * one, margin) for one in (self.estimate, self.wide_low, self.wide_high))
        return f"{number}{unit} ({low} to {high})" if self.shown == "fine" else f"{low} to {high}{unit}"

    @property
    def bins(self) -> str:
        """The range alone, of a number that is known no better than by its bins."""
        if self.wide_low is None or self.wide_high is None:
            return self.words
        margin = self.wide_high - self.wide_low
        return " to ".join(_rounded(end, margin) for end in (self.wide_low, self.wide_high))

    @property
    def surety(self) -> float:
        """How far the difference is from 0, in half widths of its range."""
        if self.difference_low is None or self.difference_high is None:
            return 0.0
        half = (self.difference_high - self.difference_low) / 2.0
        return abs(self.difference_low + self.difference_high) / 2.0 / half if half > 0.0 else float("inf")

    @property
    def apart(self) -> str | None:
        """How far from the rest, where it differs: `by 8 to 15 points`."""
        if self.differs not in ("more", "less") or self.difference_low is None or self.difference_high is None:
            return None
        scale, unit = (100.0, " points") if self.is_share else (1.0, "")
        margin = scale * (self.difference_high - self.difference_low) / 2.0
        near, far = sorted(scale * abs(one) for one in (self.difference_low, self.difference_high))
        return f"by {_rounded(near, margin)} to {_rounded(far, margin)}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A bar: one value's share with its range and that of the rest, from 0 to 100 on the column's scale."""

    value: str
    words: str
    differs: str | None
    end: float
    low: float
    high: float
    rest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCard:
    """What a card says of one column.

    Attributes
    ----------
    name : str
    made_by : bool
        The column made the clusters.
    words : list of str
        Mean, median and quartiles of numbers; the missing ones.
    shares : list of Share
        Bars; empty unless they may be drawn.
    ends : tuple of str, or None
        The outer edges, where the bars are many bins of numbers and stand side by side.
    ranges : list of (value, words)
        Of categories whose range says more than their number.
    surety : float
        Of the surest difference; 0 without one.
    """

    name: str
    made_by: bool
    words: list[str]
    shares: list[Share]
    ends: tuple[str, str] | None
    ranges: list[tuple[str, str]]
    surety: float
    folded_from: int = _OPEN_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One cluster; of its sentence every second part is a name."""

    cluster: int
    size: str
    part: str
    sentence: list[str]
    columns: list[ColumnCard] = field(repr=False)

    @property
    def open_columns(self) -> list[ColumnCard]:
        """The columns that are not folded away."""
        return self.columns[:_OPEN_COLUMNS]

    @property
    def other_columns(self) -> list[ColumnCard]:
        """The columns that are folded away."""
        return self.columns[_OPEN_COLUMNS:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """All clusters of a description.

    Attributes
    ----------
    cards : list of Card
    made_by : list of str
        Described columns that made the clusters.
    compared : int
        How many numbers were compared with those of the rest.
    least : int
        Clusters and numbers of fewer records are left out; 0 for none.
    """

    cards: list[Card]
    made_by: list[str]
    compared: int
    least: int = 0


def show_cards(content: bytes | None, least: int = 0) -> Cards | None:
    """Return the cards of profile.csv; None without that file.

    Parameters
    ----------
    content : bytes or None
    least : int
        The `--min-size` of the description; 0 for none.

    Raises
    ------
    ConfigError
        It is another table.
    """
    if content is None:
        return None
    lines = _read(content, least)
    scales: dict[str, float] = {}
    for line in lines:
        if line.is_share and line.column and line.shown == "fine":
            scales[line.column] = max(scales.get(line.column, 0.0), line.wide_high or 0.0, line.rest or 0.0)
    return Cards(
        cards=[_card(cluster, list(own), scales) for cluster, own in groupby(lines, key=lambda line: line.cluster)],
        made_by=list(dict.fromkeys(line.column for line in lines if line.differs == "made by")),
        compared=sum(line.rest is not None for line in lines),
        least=least,
    )


def _read(content: bytes, least: int) -> list[Line]:
    """Return the lines of profile.csv."""
    try:
        table = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
        if _NEEDED - {*(table.fieldnames or ())}:
            raise ValueError("its columns are others")
        return [
            Line(
                cluster=int(row["cluster"]),
                column=csv_text(row["column"]),
                measure=row["measure"],
                value=csv_text(row["value"]),
                shown=row["shown"],
                differs=row["differs"],
                least=least,
                **{name: float(row[name]) if row[name] else None for name in _NUMBERS},
            )
            for row in table
        ]
    except (AttributeError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"{PROFILE}: expected the lines of a description, got another table ({error}); give the folder as the run "
            "wrote it"
        ) from error


def _card(cluster: int, lines: Sequence[Line], scales: Mapping[str, float]) -> Card:
    whole = {line.measure: line for line in lines if not line.column}
    if "size" not in whole or "share" not in whole:
        raise ConfigError(f"{PROFILE}: expected the size of cluster {cluster} and its share, got none")
    size, columns = whole["size"], [line for line in lines if line.column]
    shown = [
        _column(name, list(own), scales.get(name, 0.0)) for name, own in groupby(columns, lambda line: line.column)
    ]
    # Where it differs comes first, then what is not a feature; within each in the order of the file.
    shown.sort(key=lambda column: (column.made_by, -column.surety))
    return Card(
        cluster=cluster,
        size=f"{format_whole(size.estimate or 0.0)} records "
        f"({format_whole(size.wide_low or 0.0)} to {format_whole(size.wide_high or 0.0)})",
        part=f"{whole['share'].words} of all",
        sentence=_sentence(columns),
        columns=shown if any(line.shown != "nothing" for line in columns) else [],
    )


def _sentence(lines: Sequence[Line]) -> list[str]:
    """Return what a card says first: the surest differences, one for each column; every second part is a name."""
    kinds = {line.shown for line in lines}
    if kinds <= {"nothing", "below"} and "nothing" in kinds:
        return ["Too few records for this budget: only the size is shown."]
    compared = [line for line in lines if line.rest is not None]
    if not compared:
        if all(line.differs == "made by" for line in lines):
            return ["Described only by columns that made the clusters."]
        few = "Few records for this budget, so only ranges are shown" if "fine" not in kinds else ""
        return [f"{few or 'Too few records in the other clusters'}: not compared with the other clusters."]
    surest: dict[str, Line] = {}
    for line in sorted(compared, key=lambda line: (-line.surety, line.differs == "less")):
        if line.apart is not None:
            surest.setdefault(line.column, line)
    if not surest:
        return ["No difference from the other clusters is beyond noise and sampling."]
    said = ["Compared with all other clusters together: "]
    for place, line in enumerate(list(surest.values())[:_SAID]):
        first, *others = _difference(line)
        said = [*said[:-1], said[-1] + ("; " if place else "") + first, *others]
    more = len(surest) - _SAID
    rest = f"; {format_count(more, 'further column')} {'differs' if more == 1 else 'differ'}" if more > 0 else ""
    return [*said[:-1], f"{said[-1]}{rest}."]


def _difference(line: Line) -> list[str]:
    """Return one difference in words; every second part is a name."""
    if line.is_share and line.value != _MISSING:
        return ["", line.column, " \u201c", line.value, f"\u201d {_word(line)}, {line.apart}"]
    how = f" missing {_word(line)}" if line.is_share else f" {_word(line)} on average"
    return ["", line.column, f"{how}, {line.apart}"]


def _word(line: Line) -> str:
    words = ("more often", "less often") if line.is_share else ("higher", "lower")
    return words[line.differs == "less"]


def _column(name: str, lines: Sequence[Line], most: float) -> ColumnCard:
    shares = [line for line in lines if line.is_share]
    numbers = {line.measure: line for line in lines if not line.is_share}
    fine = any(line.shown == "fine" for line in shares)
    words = list(_number_words(numbers, whole=bool(shares) and " to " not in shares[0].value))
    drawn = shares
    if numbers and shares:  # the bins of numbers; the missing ones are said
        *drawn, missing = shares
        words.append(f"missing: {missing.words}" + (f", {_more(missing)}" if missing.apart else ""))
    bars = [_bar(line, most) for line in drawn] if fine else []
    beside = bool(numbers) and len(drawn) > _OPEN_VALUES
    if not numbers and len(bars) > _OPEN_VALUES:  # the others are folded away
        bars.sort(key=lambda bar: -bar.end)
    return ColumnCard(
        name=name,
        made_by=lines[0].differs == "made by",
        words=words,
        shares=bars,
        ends=(drawn[0].value.partition(" to ")[0], drawn[-1].value.rpartition(" to ")[2]) if beside else None,
        ranges=[(line.value, line.words) for line in shares] if not fine and not numbers else [],
        surety=max((line.surety for line in lines if line.apart is not None), default=0.0),
    )


def _number_words(numbers: Mapping[str, Line], *, whole: bool) -> Iterator[str]:
    """Yield what is said of a column of numbers; `whole`: each number has its own bin."""
    if not numbers:
        return
    mean = numbers["mean"]
    if mean.shown in ("nothing", "below"):
        yield "too few values for this budget" if mean.shown == "nothing" else mean.words
        return
    others = "" if mean.rest is None else f"; the others {_like(mean, mean.rest)}"
    yield f"mean {mean.words}{others}" + (f", {_more(mean)}" if mean.apart else "")
    # Where within its bin a quantile lies, nothing released tells: a guess reads as if it were known.
    median, first, last = (one.words if whole else one.bins for one in map(numbers.__getitem__, _QUANTILES))
    yield f"median {median}"
    if numbers["median"].shown == "fine":
        yield f"quartiles {first} and {last}"


def _like(line: Line, value: float) -> str:
    """Return a number with the digits of a line's own."""
    return _rounded(value, ((line.wide_high or 0.0) - (line.wide_low or 0.0)) / 2.0)


def _more(line: Line) -> str:
    return f"{_word(line)} {line.apart}"


def _bar(line: Line, most: float) -> Share:
    def place(share: float | None) -> float:
        return round(100.0 * (share or 0.0) / (most or 1.0), 1)

    return Share(
        value=line.value,
        words=line.words,
        differs=_more(line) if line.apart else None,
        end=place(line.estimate),
        low=place(line.wide_low),
        high=place(line.wide_high),
        rest=None if line.rest is None else place(line.rest),
    )


def _rounded(value: float, margin: float) -> str:
    return format_rounded(value, margin) if margin > 0.0 else format_number(value)
