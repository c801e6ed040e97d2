"""Results are added, or replaced by such as are at least as complete; each says how it was made."""

from __future__ import annotations

import gzip
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.data.public.named import load_named
from fastlloyd.errors import ConfigError, Interrupted
from fastlloyd_papers.engine import publish as engine
from fastlloyd_papers.engine.cells import worker_pool
from fastlloyd_papers.engine.origin import Origin, read_origins, read_rows
from fastlloyd_papers.engine.publish import check_folder, check_replaceable, publish
from fastlloyd_papers.engine.registry import BENCHES, Options, default_output, list_benches, run_bench
from fastlloyd_papers.sets import present
from fastlloyd_papers.sets.origin import ORIGINS
from fastlloyd_papers.sets.present import find_sets
from fastlloyd_papers.vertical_dp import lemma5

NAME = "secfc-table3"
ORIGIN = Origin(
    benchmark=NAME, size="full", commit="abc", machine="m", version="1", noisy="", command="fastlloyd bench x",
    seed="seeded", date="2026-01-02", software="Python 3", data="mnist:70000:1234567890abcdef", measurements="8",
    runs="2",
)  # fmt: skip


def staged(folder: Path, rows: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{NAME}.csv").write_text("a,b\n" + "1,2\n" * rows)
    (folder / f"{NAME}.md").write_text("# Title\n\nWords.\n")
    return folder


def test_page_and_table_say_how_they_were_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    page = publish(staged(tmp_path / "new"), out, ORIGIN)
    assert page == (out / f"{NAME}.md").read_text()
    table = (out / f"{NAME}.csv").read_text()
    for text in (page, table):
        for said in ("fastlloyd bench x", "seeded", "at most 2 runs", "mnist (70000 records, SHA-256 1234567890abcdef",
                     "2026-01-02", "abc", "Python 3", "size: full"):  # fmt: skip
            assert said in text, said
    assert read_rows(out / f"{NAME}.csv") == [{"a": "1", "b": "2"}] * 3
    assert read_origins(out) == {NAME: ORIGIN}


def test_what_is_quick_says_so_everywhere(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    page = publish(staged(tmp_path / "new"), out, replace(ORIGIN, size="quick", noisy="yes"))
    assert page.startswith("# Title (quick)\n") and "QUICK" in page and "NOISY" in page
    assert "QUICK" in (out / f"{NAME}.csv").read_text()


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (ORIGIN, replace(ORIGIN, size="quick"), "full results of secfc-table3, which --quick would replace"),
        (ORIGIN, replace(ORIGIN, data=""), "results of secfc-table3 on mnist, which --data-dir lacks"),
        (replace(ORIGIN, noisy="no"), replace(ORIGIN, noisy="yes"), "undisturbed times"),
    ],
)
def test_less_complete_results_are_refused_before_anything_is_measured(
    tmp_path: Path, before: Origin, now: Origin, why: str
) -> None:
    publish(staged(tmp_path / "new"), tmp_path, before)
    with pytest.raises(ConfigError, match=why):
        check_replaceable(tmp_path, now, frozenset({"mnist"}))
    check_replaceable(tmp_path, before, frozenset({"mnist"}))
    check_replaceable(tmp_path / "elsewhere", now, frozenset({"mnist"}))


def test_what_is_quick_or_noisy_may_be_replaced(tmp_path: Path) -> None:
    publish(staged(tmp_path / "new"), tmp_path, replace(ORIGIN, size="quick", noisy="yes"))
    check_replaceable(tmp_path, replace(ORIGIN, noisy="no", data=""), frozenset())


def test_older_results_are_taken_to_have_all_sets_but_those_that_they_leave_out(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.csv").write_text("a\n1\n")
    none = replace(ORIGIN, data="")
    with pytest.raises(ConfigError, match="on mnist, which"):
        check_replaceable(tmp_path, none, frozenset({"mnist"}))
    (tmp_path / f"{NAME}.md").write_text("# T\n\n- mnist is left out: no mnist.csv.gz.\n")
    check_replaceable(tmp_path, none, frozenset({"mnist"}))
    (tmp_path / f"{NAME}.md").write_text("# T (quick)\n")
    check_replaceable(tmp_path, none, frozenset({"mnist"}))


def test_a_table_loses_no_rows_and_an_empty_one_is_not_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    publish(staged(tmp_path / "new", rows=5), out, ORIGIN)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ConfigError, match="has 5 rows and would have 4: nothing was replaced"):
        publish(staged(tmp_path / "new", rows=4), out, ORIGIN)
    with pytest.raises(ConfigError, match="no figure was measured"):
        publish(staged(tmp_path / "new", rows=0), out, ORIGIN)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_the_measured_table_stays_without_its_data(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{NAME}.csv").write_text("data\n" + "1\n" * 860)
    with pytest.raises(ConfigError, match="which --data-dir lacks: nothing was measured"):
        run_bench(NAME, Options(output=out, data_dir=str(tmp_path), progress=False))
    assert [path.name for path in out.iterdir()] == [f"{NAME}.csv"]
    with pytest.raises(ConfigError, match="no figure was measured, so nothing was written"):
        run_bench(NAME, Options(output=tmp_path / "empty", data_dir=str(tmp_path), progress=False, jobs=1))


def test_a_folder_that_cannot_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written .*; nothing was measured"):
        check_folder(tmp_path / "file" / "out")


def test_without_matplotlib_page_and_terminal_say_that_there_is_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "available", lambda: False)
    assert engine.NO_PICTURE in publish(staged(tmp_path / "new"), tmp_path, ORIGIN)
    assert engine.NO_PICTURE in capsys.readouterr().err


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lemma 5 with small sets: a whole benchmark in a moment."""
    monkeypatch.setattr(lemma5, "SIZES", (0, 20))
    monkeypatch.setattr(lemma5, "ROWS", 64)
    monkeypatch.setattr(lemma5, "_FULL", 3)


def measure(folder: Path) -> str:
    return run_bench(lemma5.NAME, Options(output=folder, jobs=1, progress=False))


def results(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "origins.csv"}


@pytest.mark.usefixtures("few")
def test_interrupted_killed_and_continued_it_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, often = tmp_path / "whole", tmp_path / "often"
    measure(whole)
    real, seen = lemma5.measure, list[Any]()

    def fails(cell: Any) -> Any:
        seen.append(cell)
        if len(seen) == 3:
            raise Interrupted("stopped")
        if len(seen) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(cell)

    monkeypatch.setattr(lemma5, "measure", fails)
    with pytest.raises(Interrupted):
        measure(often)
    assert [path.name for path in often.iterdir()] == [f"{lemma5.NAME}.partial.json"]
    child = os.fork()
    if not child:
        measure(often)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    seen[:] = seen[:1]
    monkeypatch.setattr(lemma5, "measure", lambda cell: seen.append(cell) or real(cell))
    measure(often)
    assert results(often) == results(whole)
    # Six cells: two of the first sitting, one of the second.
    assert len(seen) - 1 == 3
    assert read_origins(often)[lemma5.NAME].minutes == ""


def test_a_public_name_with_other_content_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "s1.csv.gz", "wt") as file:
        file.write("x,y\n" + "0.5,0.25\n" * 6)
    with pytest.raises(ConfigError, match=r"s1.csv.gz is not the public set s1: 6 records, SHA-256 .*, expected 9ad4"):
        run_bench("fastlloyd-fig2", Options(quick=True, output=tmp_path / "out", data_dir=str(tmp_path)))
    with gzip.open(tmp_path / "taxi.csv.gz", "wt") as file:
        file.write("a\n1\n2\n")
    (first,) = find_sets(["taxi", "loan"], str(tmp_path))
    assert (first.name, first.records) == ("taxi", 2)
    with gzip.open(tmp_path / "taxi.csv.gz", "wt") as file:
        file.write("a\n1\n3\n")
    assert find_sets(["taxi"], str(tmp_path))[0].sha256 != first.sha256
    assert find_sets(["iris"], None)[0].records == 150


def test_a_public_set_with_its_own_content_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "lsun.csv.gz", "wt") as file:
        file.write("x,y\n" + "0.5,0.25\n" * 6)
    there = load_named("lsun", tmp_path)
    digest = present.content_digest(there.names, there.values, there.labels)
    monkeypatch.setitem(ORIGINS, "lsun", replace(ORIGINS["lsun"], sha256=digest))
    assert find_sets(["lsun"], str(tmp_path))[0].word == f"lsun:6:{digest[:16]}"


def _sleep(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    signal.pause()


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    child = os.fork()
    if not child:
        with worker_pool(1) as pool:
            pool.submit(_sleep, str(mark)).result()
        os._exit(0)
    while not (mark.exists() and mark.read_text()):
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    stat = Path(f"/proc/{mark.read_text()}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
        pass


def test_the_list_says_data_and_duration(tmp_path: Path) -> None:
    publish(staged(tmp_path / "new"), tmp_path, replace(ORIGIN, minutes="12.5"))
    lines = {line.split()[0]: line for line in list_benches(tmp_path).splitlines()}
    assert len(lines) == len(BENCHES)
    assert "data: mnist; full: 12.5 minutes on m" in lines[NAME]
    assert "data: made here; full: time not recorded" in lines["fastlloyd-fig4"]


def test_quick_results_go_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {str(default_output(quick=quick)) for quick in (False, True)} == {"bench-results", "bench-quick"}
    committed = tmp_path / "papers" / "benchmarks" / "results"
    committed.mkdir(parents=True)
    assert default_output(quick=False).resolve() == committed
    assert default_output(quick=True) == Path("bench-quick")
