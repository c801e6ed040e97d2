"""Which benchmarks there are, and how the command finds them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd_papers.command import main
from fastlloyd_papers.engine.origin import read_origins
from fastlloyd_papers.engine.registry import BENCHES, Options, find_bench, run_bench


def test_every_benchmark_can_be_imported_and_run() -> None:
    assert len({bench.name for bench in BENCHES}) == len(BENCHES) >= 2
    for bench in BENCHES:
        assert callable(importlib.import_module(bench.module).run)
        assert find_bench(bench.name) is bench


def test_list_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [bench.name for bench in BENCHES]


@pytest.mark.parametrize("argv", [["fastlloyd-table4"], []])
def test_an_unknown_or_missing_name_lists_the_known(argv: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        main(argv)
    assert all(bench.name in str(caught.value) for bench in BENCHES)
    assert caught.value.exit_code == 2


def test_flags_that_mean_nothing_to_a_benchmark_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--peer means nothing to fastlloyd-scaling; it is for fastlloyd-table3"):
        run_bench("fastlloyd-scaling", Options(output=tmp_path, peer=tmp_path))
    with pytest.raises(ConfigError, match="--shaped means nothing"):
        run_bench("fastlloyd-scaling", Options(output=tmp_path, shaped=True))
    with pytest.raises(ConfigError, match="--jobs means nothing to fastlloyd-table3"):
        run_bench("fastlloyd-table3", Options(output=tmp_path, jobs=2))
    with pytest.raises(ConfigError, match="--noisy means nothing to fastlloyd-fig3; it is for fastlloyd-table3"):
        run_bench("fastlloyd-fig3", Options(output=tmp_path, noisy=True))
    with pytest.raises(ConfigError, match="at least 1 process, got 0"):
        run_bench("fastlloyd-fig3", Options(output=tmp_path, jobs=0))
    with pytest.raises(ConfigError, match="--peer-python needs --peer"):
        main(["fastlloyd-table3", "--peer-python", "python3"])
    assert list(tmp_path.iterdir()) == []


def test_the_flags_reach_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Options] = []
    monkeypatch.setattr("fastlloyd_papers.fastlloyd.table3.run", lambda options: seen.append(options) or "the table\n")
    monkeypatch.setenv("FASTLLOYD_DATA", "where")
    assert main(["fastlloyd-table3", "--quick", "--output", str(tmp_path), "--quiet", "--peer", "there"]) == 0
    assert capsys.readouterr().out == "the table\n"
    assert seen[0].quick
    assert seen[0].desk is not None and seen[0].output != tmp_path
    assert (seen[0].desk.folder, seen[0].data_dir, seen[0].peer) == (tmp_path, "where", Path("there"))
    assert not seen[0].progress
    assert not seen[0].shaped
    assert seen[0].jobs is None
    assert seen[0].watch is not None and not seen[0].watch.noisy
    origin = read_origins(tmp_path)["fastlloyd-table3"]
    assert (origin.size, origin.noisy) == ("quick", "no")


def test_the_number_of_processes_reaches_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int | None] = []
    monkeypatch.setattr("fastlloyd_papers.fastlloyd.fig3.run", lambda options: seen.append(options.jobs) or "text")
    assert main(["fastlloyd-fig3", "--jobs", "7", "--output", str(tmp_path), "--quiet"]) == 0
    assert seen == [7]


def test_errors_are_measured_on_any_machine_and_times_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Options] = []
    monkeypatch.setattr("fastlloyd_papers.fastlloyd.fig3.run", lambda options: seen.append(options) or "text")
    monkeypatch.setattr("fastlloyd_papers.fastlloyd.scaling.run", lambda options: seen.append(options) or "text")
    assert main(["fastlloyd-fig3", "--output", str(tmp_path), "--quiet"]) == 0
    assert main(["fastlloyd-scaling", "--output", str(tmp_path), "--quiet", "--noisy"]) == 0
    assert seen[0].watch is None
    assert seen[1].watch is not None and seen[1].watch.noisy
    assert [origin.noisy for origin in read_origins(tmp_path).values()] == ["", "yes"]
