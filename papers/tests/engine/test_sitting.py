"""All benchmarks one after the other: what is run, with which flags, and that an interrupted sitting goes on."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError, Interrupted
from fastlloyd_papers.command import main
from fastlloyd_papers.engine import sitting
from fastlloyd_papers.engine.origin import FILE, keep_origin, read_origins
from fastlloyd_papers.engine.registry import BENCHES, Options, describe_run, find_bench
from fastlloyd_papers.engine.sitting import run_all

NAMES = [bench.name for bench in BENCHES]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Options]]:
    """What was run; nothing is measured."""
    found: list[tuple[str, Options]] = []
    monkeypatch.setattr(sitting, "run_bench", lambda name, options: found.append((name, options)))
    return found


def test_all_run_in_order_each_with_the_flags_that_it_knows(tmp_path: Path, runs: list[tuple[str, Options]]) -> None:
    said: list[str] = []
    text = run_all(Options(output=tmp_path, noisy=True, jobs=2, quick=True), say=said.append)
    assert [name for name, _ in runs] == NAMES
    for name, options in runs:
        bench = find_bench(name)
        assert options.noisy == bench.timed
        assert options.jobs == (2 if "jobs" in bench.accepts else None)
        assert options.quick and options.only == ()
    assert text.startswith(f"{len(NAMES)} benchmarks are done")
    assert said[0] == f"1 of {len(NAMES)}: {NAMES[0]}"
    assert list(tmp_path.iterdir()) == []


def test_some_can_be_chosen_and_left_out(tmp_path: Path, runs: list[tuple[str, Options]]) -> None:
    run_all(Options(output=tmp_path, only=tuple(NAMES[2:5])), skip=(NAMES[3],), say=len)
    assert [name for name, _ in runs] == [NAMES[2], NAMES[4]]
    with pytest.raises(ConfigError, match="no benchmark 'nonsense'"):
        run_all(Options(output=tmp_path), skip=("nonsense",), say=len)
    assert len(runs) == 2


def test_a_failure_does_not_end_the_sitting_and_only_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def run(name: str, options: Options) -> str:
        tried.append(name)
        if name == NAMES[1] and tried.count(name) == 1:
            raise ConfigError("no data")
        if name == NAMES[4] and tried.count(name) == 1:
            raise Interrupted("stopped")
        return ""

    monkeypatch.setattr(sitting, "run_bench", run)
    chosen = Options(output=tmp_path, only=tuple(NAMES[:6]))
    with pytest.raises(Interrupted):
        run_all(chosen, say=len)
    assert tried == NAMES[:5]
    run_all(chosen, say=len)
    assert tried == [*NAMES[:5], NAMES[1], NAMES[4], NAMES[5]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"noisy": True}, {"shaped": True}, {"data_dir": "elsewhere"}, {"quick": True}])
def test_with_other_flags_all_is_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    tried: list[str] = []

    def run(name: str, options: Options) -> str:
        tried.append(name)
        if len(tried) == 2:
            raise Interrupted("stopped")
        return ""

    monkeypatch.setattr(sitting, "run_bench", run)
    chosen = Options(output=tmp_path, only=tuple(NAMES[:2]))
    with pytest.raises(Interrupted):
        run_all(chosen, say=len)
    run_all(replace(chosen, **change), say=len)
    assert tried == [*NAMES[:2], *NAMES[:2]]


def test_failures_are_told_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(name: str, options: Options) -> str:
        raise ConfigError("no data")

    monkeypatch.setattr(sitting, "run_bench", run)
    with pytest.raises(
        ConfigError, match=rf"2 of 2 benchmarks failed \({NAMES[0]}, {NAMES[1]}\), the first with: no data"
    ):
        run_all(Options(output=tmp_path, only=tuple(NAMES[:2])), say=len)


def test_the_command_runs_all(
    tmp_path: Path, runs: list[tuple[str, Options]], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["all", "--quiet", "--output", str(tmp_path), "--only", f"{NAMES[0]},{NAMES[1]}", "--skip", NAMES[0]]
    assert main(argv) == 0
    assert [name for name, _ in runs] == [NAMES[1]]
    assert "1 benchmarks are done" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--skip means nothing to"):
        main([NAMES[0], "--skip", NAMES[1]])


def test_the_origin_of_each_benchmark_is_kept(tmp_path: Path) -> None:
    first = describe_run(find_bench(NAMES[0]), Options(quick=True, noisy=True))
    untimed = describe_run(find_bench("fastlloyd-fig4"), Options())
    assert (first.size, first.noisy, untimed.noisy) == ("quick", "yes", "")
    assert first.command == f"fastlloyd bench {NAMES[0]} --quick --noisy"
    assert all(name in first.software for name in ("Python", "numpy", "scikit-learn"))
    keep_origin(tmp_path, first)
    keep_origin(tmp_path, untimed)
    again = replace(first, size="full", noisy="no")
    keep_origin(tmp_path, again)
    assert list(read_origins(tmp_path)) == sorted([NAMES[0], "fastlloyd-fig4"])
    assert read_origins(tmp_path)[NAMES[0]] == again
    rows = list(csv.DictReader((tmp_path / FILE).read_text().splitlines()))
    assert [row["size"] for row in rows] == ["full", "full"]
    (tmp_path / FILE).write_text("benchmark,size,commit,machine,version,noisy\nx,full,abc,m,0.1.0,no\n")
    assert read_origins(tmp_path)["x"].data == ""
    (tmp_path / FILE).write_text("a,b\n1,2\n")
    with pytest.raises(ConfigError, match="expected the columns benchmark"):
        read_origins(tmp_path)


def test_a_benchmark_whose_data_have_come_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def run(name: str, options: Options) -> str:
        tried.append(name)
        if name == "vertical-he-fig5" and tried.count(name) == 1:
            raise ConfigError("no s1")
        return ""

    monkeypatch.setattr(sitting, "run_bench", run)
    chosen = Options(output=tmp_path / "out", only=("fastlloyd-fig2", "vertical-he-fig5"), data_dir=str(tmp_path))
    for _ in range(2):
        with pytest.raises(ConfigError, match="no s1"):
            run_all(chosen, say=len)
        tried.remove("vertical-he-fig5")
    assert tried == ["fastlloyd-fig2"]
    (tmp_path / "s1.csv").write_text("x,y\n1,2\n")
    tried.append("vertical-he-fig5")
    run_all(chosen, say=len)
    assert tried[-2:] == ["fastlloyd-fig2", "vertical-he-fig5"]
