"""Writes docs/scoreboard.md from the committed results, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fastlloyd.report.files import write_atomic
from fastlloyd_papers.engine.registry import RESULTS
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.scoreboard import fastlloyd, feddp, secfc, vertical_dp, vertical_he
from fastlloyd_papers.scoreboard.board import Part, Results

NAME = "scoreboard"
PAGE = Path("docs") / "scoreboard.md"
_RESULTS = "../papers/benchmarks/results"
PAPERS: tuple[tuple[str, Callable[[Results], list[Part]]], ...] = (
    ("FastLloyd (Diaa, Humphries, Kerschbaum, 2025)", fastlloyd.parts),
    ("FedDP-KMeans (Scott, Lampert, Saulpic, 2025)", feddp.parts),
    ("SecFC (Li et al., 2022)", secfc.parts),
    ("Vertical DP (Li, Wang, Li, 2023)", vertical_dp.parts),
    ("Vertical HE (Mazzone et al., 2025)", vertical_he.parts),
)
_WORDS = (
    "# Scoreboard: the papers' figures beside ours\n\n"
    "`fastlloyd bench scoreboard` writes this page from the files of "
    "[papers/benchmarks/results](../papers/benchmarks/results/README.md), and a test compares it with them. Published "
    "numbers are those of the papers' tables and texts; where a figure prints curves alone, what the text claims of it "
    'is counted over our points. "Holds" means in all cases, or in all within their intervals where these are known; '
    '"holds in part", in half of them or more; "does not hold", in fewer. A ratio is '
    "ours over the published one. The papers measured times on other machines. A benchmark of times begins when at "
    "most a quarter of a process wants each core. While a cell is measured, our own processes count in the load, so "
    "the cell is judged by what others took: if they used more than 10 % of the cores' time, or a hypervisor took more "
    "than 2 %, there is no ratio. Older files tell only the load before the run: there is no ratio if that was one or "
    "more for each core. Size, commit and machine are those that the results record. What a paper leaves open, and "
    "what we do otherwise, is on the page of each benchmark."
)


def write_page(folder: Path, page: Path | None = None) -> str:
    """Write the page of a folder of results, and return it; of the committed ones into docs, of others beside them.

    Raises
    ------
    ConfigError
        The page cannot be written, or the folder's origins cannot be read.
    """
    committed = folder.resolve() == RESULTS.resolve()
    text = make_page(folder, _RESULTS if committed or page is not None else ".")
    write_atomic(page or (PAGE if committed else folder / PAGE.name), text)
    return text


def make_page(folder: Path, link: str = _RESULTS) -> str:
    """Return the page of a folder of results; `link` leads from the page to them."""
    results = Results(folder)
    found = [(title, parts(results)) for title, parts in PAPERS]
    sections = [_WORDS, _overview(found)]
    for title, own in found:
        sections.append(f"## {title}")
        for part in own:
            sections += [f"### {part.place}", *_about(results, part, link), _table(part)]
    return "\n\n".join(sections) + "\n"


def _overview(found: Sequence[tuple[str, Sequence[Part]]]) -> str:
    """Count the lines of each paper, and those that have a result."""
    rows = []
    for title, parts in found:
        lines = [line for part in parts for line in part.lines]
        with_result = sum(bool(line.ours) for line in lines)
        unusable = sum(line.verdict.startswith("unusable") for line in lines)
        rows.append([title, str(len(lines)), str(with_result), str(unusable), str(len(lines) - with_result)])
    totals = [str(sum(int(row[place]) for row in rows)) for place in range(1, 5)]
    header = ["paper", "lines", "with a result", "of these unusable as times", "without"]
    return markdown_table(header, [*rows, ["all", *totals]])


def _about(results: Results, part: Part, link: str) -> list[str]:
    """Say where the figures of a part come from."""
    if not part.bench:
        return []
    if not (results.folder / f"{part.bench}.md").is_file():
        return [f"`{part.bench}`: no result."]
    where = results.provenance(part.bench)
    size = where.size if where.size != "quick" else "**quick**"
    size += f", {runs}" if (runs := results.repetitions(part.bench)) else ""
    load = "" if where.load == "not recorded" else f"; load before the first run {where.load}"
    load += results.worst_shares(part.bench)
    return [f"[`{part.bench}`]({link}/{part.bench}.md): {size}; commit {where.commit}; {where.machine}{load}."]


def _table(part: Part) -> str:
    rows = [[line.what, line.published, line.ours, line.verdict] for line in part.lines]
    return markdown_table(["line", "published", "ours", "ratio or verdict"], rows)
