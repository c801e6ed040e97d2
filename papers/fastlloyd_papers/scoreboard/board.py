"""What a line of the scoreboard is, and how it is read off the files of results: nothing is measured here."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastlloyd_papers.engine.origin import read_origins, read_rows
from fastlloyd_papers.engine.registry import why_absent

Entry = Mapping[str, str]

UNKNOWN = "not recorded"
_LOAD = re.compile(r"Load before the first run: (\d+(?:\.\d+)?)|; (\d+(?:\.\d+)?) processes wanted a core")
# Of the cases; with fewer a claim does not hold.
_IN_PART = 0.5
_CORES = re.compile(r"(\d+) cores?\b")
_MACHINE = re.compile(r"^(.*?Linux)\b")


@dataclass(frozen=True, slots=True)
class Line:
    """One published value or claim, ours, and what follows: a ratio, a verdict, or why there is none."""

    what: str
    published: str
    ours: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Part:
    """A table or figure of a paper.

    Attributes
    ----------
    bench : str
        The benchmark whose files are read; empty where there is none.
    """

    place: str
    bench: str
    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a benchmark's files come from, as far as they say."""

    size: str
    commit: str
    machine: str
    load: str


class Results:
    """The files of a folder of results.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._origins = read_origins(folder)
        self.entries = cache(self._entries)

    def _entries(self, name: str) -> tuple[Entry, ...]:
        """Return the lines of a CSV; none where it is not there."""
        path = self.folder / f"{name}.csv"
        if not path.is_file():
            return ()
        return tuple(read_rows(path))

    def pick(self, name: str, **wanted: object) -> list[Entry]:
        """Return the lines of a CSV that have these values."""
        return [one for one in self.entries(name) if all(one.get(key) == str(wish) for key, wish in wanted.items())]

    def repetitions(self, bench: str) -> str:
        """Say how many runs the lines of a benchmark's CSV are of; nothing where it does not tell."""
        entries = self.entries(bench)
        counts = {int(one["runs"]) for one in entries if one.get("runs", "0") not in ("", "0")}
        if alone := {one["run"] for one in entries if one.get("run")}:
            counts.add(len(alone))
        if not counts:
            return ""
        least, most = min(counts), max(counts)
        return f"{least} run{'s' * (least != 1)}" if least == most else f"{least} to {most} runs"

    def worst_shares(self, bench: str) -> str:
        """Say what others took of the cores while cells were measured, at most; nothing where nobody watched."""
        files = sorted([*self.folder.glob(f"{bench}.csv"), *self.folder.glob(f"{bench}-*.csv")])
        watched = [one for file in files for one in self.entries(file.stem) if one.get("steal_share")]
        if not watched:
            return ""
        stolen, used = (max(float(one[name]) for one in watched) for name in ("steal_share", "others_share"))
        return f"; at most {stolen:.1%} of the cores' time stolen, {used:.1%} used by others"

    def provenance(self, bench: str) -> Provenance:
        """Return where a benchmark's files come from; its page tells what `origins.csv` does not."""
        page = self._page(bench)
        told = _LOAD.search(page)
        load = next(filter(None, told.groups())) if told else UNKNOWN
        if bench in self._origins:
            one = self._origins[bench]
            return Provenance(one.size, one.commit or UNKNOWN, one.machine, load)
        title, _, rest = page.partition("\n")
        machine = _MACHINE.search(rest.strip())
        size = "quick" if title.endswith("(quick)") else "full" if title else UNKNOWN
        return Provenance(size, UNKNOWN, machine[1] if machine else UNKNOWN, load)

    def distrust(self, bench: str, entries: Iterable[Entry]) -> str:
        """Say why times of these lines are not to be used; empty if nothing speaks against them."""
        told = {one.get("usable", "") for one in entries}
        if "no" in told:
            return "unusable: others used the machine"
        where = self.provenance(bench)
        cores = _CORES.search(where.machine)
        if "yes" in told or where.load == UNKNOWN or cores is None or float(where.load) < int(cores[1]):
            return ""
        return f"unusable: load {where.load} on {cores[0]} before the first run"

    def _page(self, bench: str) -> str:
        path = self.folder / f"{bench}.md"
        return path.read_text(encoding="utf-8").removeprefix("# ") if path.is_file() else ""


def absent(bench: str, what: str, published: str, data: str = "") -> Line:
    """Return a line without a result, with the reason."""
    return Line(what, published, "", why_absent(bench, data))


def compared(
    results: Results,
    bench: str,
    what: str,
    published: float,
    entries: Sequence[Entry],
    *,
    column: str,
    unit: str = "",
    timed: bool = False,
    data: str = "",
) -> Line:
    """Return a published number beside the mean of ours, and the ratio; none of times on a contended machine."""
    told = f"{published:,.6g}{unit}"
    values = [float(one[column]) for one in entries if one.get(column)]
    if not values:
        return absent(bench, what, told, data)
    ours = statistics.fmean(values)
    doubt = results.distrust(bench, entries) if timed else ""
    return Line(what, told, f"{number(ours)}{unit}", doubt or f"{number(ours / published)} times")


def over(
    results: Results,
    bench: str,
    what: str,
    entries: Sequence[Entry],
    *,
    theirs: float,
    published: float,
    column: str,
    timed: bool = False,
) -> Line:
    """Return by what factor a third system's published figure is above the paper's, and above ours.

    The ratio of the two factors is the paper's figure over ours.
    """
    told, values = f"{number(theirs / published)} times", [float(one[column]) for one in entries if one.get(column)]
    if not values:
        return absent(bench, what, told)
    ours = statistics.fmean(values)
    doubt = results.distrust(bench, entries) if timed else ""
    return Line(what, told, f"{number(theirs / ours)} times", doubt or f"{number(published / ours)} times")


def held(
    bench: str, what: str, claim: str, cases: Sequence[bool], within: Sequence[bool] = (), *, data: str = ""
) -> Line:
    """Return a claim with the number of cases in which it holds, and in how many within the intervals."""
    if not cases:
        return absent(bench, what, claim, data)
    told = f"in {sum(cases)} of {len(cases)}"
    if within:
        told += f", within the intervals in {sum(within)}"
    share = sum(within or cases) / len(cases)
    verdict = "holds" if share == 1.0 else "does not hold" if share < _IN_PART else "holds in part"
    return Line(what, claim, told, verdict)


def number(value: float) -> str:
    """Write a number with three digits, or all of a whole one."""
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
