"""The scoreboard is what the committed results say, and says why where they say nothing."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from fastlloyd_papers.command import main
from fastlloyd_papers.engine.origin import FILE, Origin, keep_origin, read_origins
from fastlloyd_papers.engine.registry import BENCHES, RESULTS, find_bench
from fastlloyd_papers.scoreboard.board import Line, Results, compared, held
from fastlloyd_papers.scoreboard.page import PAPERS, make_page, write_page

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "papers" / "benchmarks" / "results"


@pytest.fixture(scope="module")
def page() -> str:
    return make_page(COMMITTED)


def test_the_committed_page_is_that_of_the_committed_results(page: str) -> None:
    # The page is made, never edited: after a change of results run `fastlloyd bench scoreboard`.
    assert (ROOT / "docs" / "scoreboard.md").read_text(encoding="utf-8") == page


def test_the_committed_origins_are_as_they_are_written(tmp_path: Path) -> None:
    shutil.copy(COMMITTED / FILE, tmp_path)
    some = next(iter(read_origins(tmp_path).values()))
    keep_origin(tmp_path, some)
    assert (tmp_path / FILE).read_text() == (COMMITTED / FILE).read_text()


def test_every_line_has_a_result_or_a_reason(page: str) -> None:
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 400
    for row in rows:
        assert len(row) in {4, 5} and row[-1].strip(), row
    results = Results(COMMITTED)
    for title, parts in PAPERS:
        for part in parts(results):
            assert part.lines, (title, part.place)
            assert not part.bench or find_bench(part.bench)
            for line in part.lines:
                assert line.published and line.verdict, (part.place, line)
                if not line.ours:
                    assert line.verdict.startswith(("no result: ", "not run yet: ", "quoted ", "no figure ")), line


def test_every_benchmark_of_a_paper_is_on_the_board() -> None:
    results = Results(COMMITTED)
    shown = {part.bench for _, parts in PAPERS for part in parts(results)}
    ours = {"fastlloyd-scaling", "fastlloyd-plus", "fastlloyd-plus-generated", "utility-league", "secfc-attacks"}
    assert {bench.name for bench in BENCHES} - shown == {*ours, "vertical-dp-sketch", "vertical-he-weighing"}


def test_without_any_result_every_line_says_why(tmp_path: Path) -> None:
    text = make_page(tmp_path)
    assert text.count("no result.") >= 20
    results = Results(tmp_path)
    assert not any(line.ours for _, parts in PAPERS for part in parts(results) for line in part.lines)


def test_the_command_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / RESULTS).mkdir(parents=True)
    assert main(["scoreboard"]) == 0
    written = (tmp_path / "docs" / "scoreboard.md").read_text()
    assert written == capsys.readouterr().out == make_page(tmp_path / "nothing")
    # Of other results beside them: the committed page stays.
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "secfc-table1.md").write_text("# T\n")
    assert main(["scoreboard", "--output", "mine"]) == 0
    assert "(./secfc-table1.md)" in (tmp_path / "mine" / "scoreboard.md").read_text()
    assert (tmp_path / "docs" / "scoreboard.md").read_text() == written
    assert write_page(tmp_path / "nothing", tmp_path / "other.md") == (tmp_path / "other.md").read_text()


def test_published_numbers_of_the_papers() -> None:
    """Some numbers, typed from the papers once more."""
    results = Results(COMMITTED)
    told = {
        (part.place.partition(":")[0], line.what): line.published
        for _, parts in PAPERS
        for part in parts(results)
        for line in part.lines
    }
    assert told["Table 3", "S1, N = 5,000, k = 15, d = 2: time, 32-bit ring"] == "5.81 ms"
    mohlloyd = "TimeSynth, N = 100,000, k = 5, d = 2: MohLloyd's time over ours, 32-bit ring"
    assert told["Table 3", mohlloyd] == "15,748 times"
    assert told["Table 3", "Stack Overflow (plotting, cookies): eps3G (sums)"] == "0.47"
    assert told["Table 4", "US Census (Self-Employed): 0 steps"] == "0.92"
    assert told["Table 1", "Gaussian mixture, 100 clients"] == "10.57"
    assert told["Table 1", "US census, federal employees"] == "2.65"
    assert told["Table 2", "k = 16, k' = 4: k-FED"] == "41.7 ± 1.2"
    assert told["Table 3", "digit 2, k' = 2: k-FED"] == "90.3 ± 10.4"
    assert told["Table 1", "k' = 8, 2PEst as published (M = 4096): time, S = 4"] == "101.14 s"
    assert told["Table 3 (b)", "ccWAN50, n = 1,000,000, k = 8: time"] == "4,212 s"
    assert told["Table 3 (b)", "regWAN250, n = 100,000, k = 5: time"] == "157.2 s"
    assert told["Table 3 (b)", "n = 1,000,000, k = 5: sent"] == "563 MB"
    assert told["Table 4", "har, 10 parties: loss of vertical DP"] == "0.1558"
    assert told["Table 4", "har, 10 parties: time of vertical DP"] == "475.8 s"
    # The paper prints its factors over Mohassel, Rosulek and Trieu as well.
    assert told["Table 3 (a)", "LAN10000, n = 1,000, k = 2: their time over ours"] == "0.304 times"  # 0.30x
    assert told["Table 3 (a)", "ccWAN50, n = 1,000,000, k = 8: their time over ours"] == "2,562 times"  # 2557x
    assert told["Table 3 (a)", "n = 100,000, k = 5: what they send over what we send"] == "1,233 times"  # 1233x


def write(folder: Path, name: str, rows: list[dict[str, object]]) -> None:
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def test_times_of_a_contended_machine_have_no_ratio(tmp_path: Path) -> None:
    name = "fastlloyd-scaling"
    write(tmp_path, name, [{"ms": 2.0, "usable": "yes"}, {"ms": 4.0, "usable": "no"}])
    results = Results(tmp_path)
    usable, all_of_them = results.entries(name)[:1], results.entries(name)
    line = compared(results, name, "a", 4.0, usable, column="ms", unit=" ms", timed=True)
    assert line == Line("a", "4 ms", "2 ms", "0.5 times")
    assert compared(results, name, "a", 4.0, all_of_them, column="ms", timed=True).verdict.startswith(
        "unusable: others"
    )
    assert compared(results, name, "a", 4.0, all_of_them, column="ms").verdict == "0.75 times"


@pytest.mark.parametrize(("load", "verdict"), [("1.9", "0.5 times"), ("2.0", "unusable: load 2.0 on 2 cores")])
def test_times_from_before_the_watch_are_judged_by_the_load_that_their_page_tells(
    tmp_path: Path, load: str, verdict: str
) -> None:
    name = "fastlloyd-scaling"
    write(tmp_path, name, [{"ms": 2.0}])
    (tmp_path / f"{name}.md").write_text(
        f"# T (quick)\n\nCPU, 2 cores, 8 GiB, Linux; more. Load before the first run: {load}.\n"
    )
    results = Results(tmp_path)
    where = results.provenance(name)
    assert (where.size, where.commit, where.machine) == ("quick", "not recorded", "CPU, 2 cores, 8 GiB, Linux")
    line = compared(results, name, "a", 4.0, results.entries(name), column="ms", timed=True)
    assert line.verdict.startswith(verdict)


def test_what_the_origins_say_is_shown(tmp_path: Path) -> None:
    name = "fastlloyd-fig2"
    for end in ("csv", "md"):
        shutil.copy(COMMITTED / f"{name}.{end}", tmp_path)
    origin = Origin(benchmark=name, size="quick", commit="abc+", machine="a machine", version="9", noisy="")
    keep_origin(tmp_path, origin)
    about = f"[`{name}`](../papers/benchmarks/results/{name}.md): **quick**, 100 runs; commit abc+; a machine."
    assert about in make_page(tmp_path)


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [("runs", (3, 3), "3 runs"), ("runs", (1, 10), "1 to 10 runs"), ("run", (0, 0), "1 run"), ("ms", (1, 2), "")],
)
def test_the_number_of_runs_is_read_off_the_file(
    tmp_path: Path, column: str, values: tuple[int, ...], told: str
) -> None:
    write(tmp_path, "fastlloyd-scaling", [{column: value} for value in values])
    assert Results(tmp_path).repetitions("fastlloyd-scaling") == told


def test_a_claim_holds_in_all_cases_in_part_or_not_at_all() -> None:
    name = "fastlloyd-fig2"
    assert held(name, "a", "b", [True, True]) == Line("a", "b", "in 2 of 2", "holds")
    assert held(name, "a", "b", [True, False]).verdict == "holds in part"
    assert held(name, "a", "b", [False]).verdict == "does not hold"
    within = held(name, "a", "b", [True, False], [True, True])
    assert (within.ours, within.verdict) == ("in 1 of 2, within the intervals in 2", "holds")
    assert held(name, "a", "b", []).verdict == "not run yet: `fastlloyd bench fastlloyd-fig2`"
