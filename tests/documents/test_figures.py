"""Every measured figure that a document quotes stands in a committed result that the document names.

A figure is a number with a unit, with decimals or with an error, outside code. A block (a paragraph, a list, a table)
that quotes figures links to files of papers/benchmarks/results, or a comment in the line before names them:

    <!-- figures: fastlloyd-plus.md, fastlloyd-plus.csv -->

Each figure of the block must be the rounded form of a number in one of these files, where a per cent may be a share
there, and times and bytes may have another unit. What is not to be found there (a constant, a formula, what a command
prints) says why, for single numbers of the block or for all of it:

    <!-- no source (25, 0.5): the delays that the links are given -->
    <!-- no source: what plan prints; a test below makes it again -->

With an empty line after it, such a comment is about the whole section under its heading.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "papers" / "benchmarks" / "results"
# Made by programs, with tests of their own: from the results, and from the code's defaults.
GENERATED = {"docs/scoreboard.md", "docs/run-file.md"}
PAGES = sorted({"README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))} - GENERATED)

_UNITS = {"%": "share", "ns": "time", "us": "time", "ms": "time", "s": "time", "times": "ratio"}
_UNITS |= dict.fromkeys(("second", "seconds", "minute", "minutes", "hour", "hours"), "time")
_UNITS |= dict.fromkeys(("byte", "bytes", *(f"{prefix}{end}" for prefix in "kKMGT" for end in ("B", "iB"))), "bytes")
_SCALES: dict[str, tuple[Decimal, ...]] = {
    "share": (Decimal(100),),
    "time": (Decimal(1000), Decimal("0.001")),
    "bytes": tuple(Decimal(base) ** power for base in (1000, 1024) for power in (-3, -2, -1, 1, 2, 3)),
}
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_FIGURE = re.compile(
    rf"(?<![\w.^*/-])(?P<number>{_NUMBER})(?!\.?\d)"
    # A unit may stand behind the last number of several.
    rf"(?=(?:(?: to | and | or |, | / )(?:{_NUMBER}))*[ \u00a0]?(?P<unit>{_UNIT})(?!\w)|(?P<error> (?:±|\+-|\+/-) )|)"
)
_NOTE = re.compile(r"<!-- (?P<kind>figures|no source)(?: \((?P<only>[^)]*)\))?: (?P<text>.+?) -->")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
# Code, and numbers that name something: a version, a place in a paper, a setting.
_NAMES = re.compile(
    r"`[^`]*`|<[^>]+>|95 % (?:ranges?|intervals?)|§[\d.]+"
    r"|\b(?:Python|TLS|arXiv|scikit-learn|App\.|Appendix|Apache-|Attribution|Figures?|Tables?|Theorem|Algorithms?)"
    r" ?[A-Z]?[\d.]+(?: (?:to|and) [\d.]+)?"
    r"|\b(?:epsilon|alpha)(?: of| =)? [\d.]+\d(?:(?:,| and|, and| or| to| /) [\d.]+\d(?! ?%))*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A figure of a page: where it stands, and where its source may be."""

    line: int
    number: str
    unit: str
    sources: frozenset[str]
    reason: str | None


@dataclass(slots=True)
class Notes:
    """What the comments before a block, or under a heading, say."""

    sources: set[str] = field(default_factory=set)
    reasons: dict[str | None, str] = field(default_factory=dict)

    def add(self, note: re.Match[str]) -> None:
        """Take a comment."""
        if note["kind"] == "figures":
            self.sources |= {name.strip() for name in note["text"].split(",")}
        else:
            for number in (note["only"] or "").split(", ") if note["only"] else (None,):
                self.reasons[number] = note["text"]

    def joined(self, other: Notes) -> Notes:
        """Return both together."""
        return Notes(self.sources | other.sources, {**self.reasons, **other.reasons})


def quoted(text: str) -> Iterator[Quoted]:
    """Find the figures of a page."""
    sections: list[tuple[int, Notes]] = [(0, Notes())]
    block: list[tuple[int, str]] = []
    notes, fenced = Notes(), False
    for place, line in enumerate([*text.splitlines(), ""], start=1):
        fence = line.lstrip().startswith("```")
        if fenced or fence:
            fenced ^= fence
            continue
        if heading := re.match(r"(#+) ", line):
            sections = [one for one in sections if one[0] < len(heading[1])]
            sections.append((len(heading[1]), Notes()))
            continue
        if not block and (note := _NOTE.fullmatch(line.strip())):
            notes.add(note)
        elif line.strip():
            block.append((place, line))
        elif block:
            around = functools.reduce(Notes.joined, (own for _, own in sections))
            yield from _of_block(block, around.joined(notes))
            block, notes = [], Notes()
        else:
            sections[-1] = (sections[-1][0], sections[-1][1].joined(notes))
            notes = Notes()


def _of_block(block: list[tuple[int, str]], notes: Notes) -> Iterator[Quoted]:
    whole = "\n".join(line for _, line in block)
    named = {Path(link["target"]) for link in _LINK.finditer(whole) if "papers/benchmarks/results/" in link["target"]}
    sources = frozenset(notes.sources | {path.name for path in named})
    for place, line in block:
        bare = _NAMES.sub("", _LINK.sub("]", line))
        for found in _FIGURE.finditer(bare):
            if found["unit"] or found["error"] or "." in found["number"]:
                reason = notes.reasons.get(found["number"], notes.reasons.get(None))
                yield Quoted(
                    line=place, number=found["number"], unit=found["unit"] or "", sources=sources, reason=reason
                )


@functools.cache
def numbers_of(name: str) -> frozenset[Decimal]:
    """Return all numbers in a result."""
    text = (RESULTS / name).read_text("utf-8")
    return frozenset(Decimal(number.replace(",", "")) for number in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text))


def stands_in(number: str, unit: str, names: frozenset[str]) -> bool:
    """Whether a number is the rounded form of one in these results."""
    value = Decimal(number.replace(",", ""))
    half = Decimal(1).scaleb(int(value.as_tuple().exponent)) / 2
    scales = (Decimal(1), *_SCALES.get(_UNITS.get(unit, ""), ()))
    return any(abs(there * scale - value) <= half for name in names for there in numbers_of(name) for scale in scales)


def missing(text: str) -> list[str]:
    """Say which figures of a page have no source."""
    return [
        f"line {one.line}: {one.number} {one.unit}".rstrip()
        + (f" is not in {', '.join(sorted(one.sources))}" if one.sources else " has no source")
        for one in quoted(text)
        if one.reason is None and not (one.sources and stands_in(one.number, one.unit, one.sources))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_has_a_committed_source(page: str) -> None:
    assert missing((ROOT / page).read_text("utf-8")) == [], f"{page}; how to name a source: {Path(__file__).name}"


# Still to be measured again on a quiet machine.
_BUSY = {"many_clients", "out_of_core"}


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.md")), ids=lambda file: file.stem)
def test_no_committed_times_come_from_a_busy_machine(file: Path) -> None:
    # A load of one or more for each core; benchmarks that watch the machine mark single rows instead.
    head = file.read_text(encoding="utf-8")[:1500]
    loads, cores = re.findall(r"[Ll]oad before the first run:? (\d+\.\d+)", head), re.search(r"(\d+) cores", head)
    quiet = not loads or (cores is not None and all(float(load) < int(cores[1]) for load in loads))
    assert quiet != (file.stem in _BUSY)


def test_the_pages_left_out_are_there() -> None:
    assert all((ROOT / page).exists() for page in GENERATED)


PAGE = """# A page

Reading takes 1.28 s from disk and 0.79 times that ([here](../papers/benchmarks/results/out_of_core.md)), in 252 MiB.

<!-- figures: out_of_core.md -->
| part | took |
|---|---:|
| labels | 1,120 ms |

## Constants

<!-- no source: they are chosen -->

A value takes 8 bytes, `0.5` is code, and §3.2 is a section.

### Below

So much: 0.35.

## Again

<!-- no source (25): given -->
A delay of 25 ms, and python 3 times.
"""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("1.28 s", "1.31 s"), "line 3: 1.31 s is not in out_of_core.md"),
        (("252", "251"), "line 3: 251 MiB is not in out_of_core.md"),
        (("1,120 ms", "1,130 ms"), "line 8: 1,130 ms is not in out_of_core.md"),
        (("<!-- figures: out_of_core.md -->\n", ""), "line 7: 1,120 ms has no source"),
        (("<!-- no source: they are chosen -->", ""), "line 14: 8 bytes has no source"),
        (("25 ms", "26 ms"), "line 23: 26 ms has no source"),
    ],
)
def test_a_figure_that_is_wrong_or_has_no_source_is_found(change: tuple[str, str], complaint: str) -> None:
    expected = ["line 23: 3 times has no source"]
    assert missing(PAGE) == expected
    assert complaint in missing(PAGE.replace(*change))


def test_rounding_and_units() -> None:
    names = frozenset({"out_of_core.md"})
    for number, unit in (("1.3", "s"), ("79", "%"), ("0.25", "GiB"), ("117,000", "ms"), ("1.15", "")):
        assert stands_in(number, unit, names), number
    for number, unit in (("1.4", "s"), ("78", "%"), ("0.79", "GiB"), ("118,000", "ms"), ("1.16", ""), ("117,000", "")):
        assert not stands_in(number, unit, names) or unit == "GiB", number
