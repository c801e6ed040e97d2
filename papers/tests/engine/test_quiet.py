"""A benchmark of times waits for a quiet machine, records what it was like, and refuses what others disturbed."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd_papers.engine import quiet
from fastlloyd_papers.engine.cells import CellStore, measure_cells
from fastlloyd_papers.engine.quiet import Clock, Conditions, Watch, between, read_clock
from fastlloyd_papers.engine.registry import BENCHES, Options

QUIET = Conditions(load=0.1, steal=0.0, others=0.01)
LOADED = Conditions(load=1.5, steal=0.0, others=0.01)
BUSY = Conditions(load=0.1, steal=0.001, others=0.4)
STOLEN = Conditions(load=0.1, steal=0.05, others=0.0)


class Scene:
    """A machine that looks one way after the other, and what a watch did meanwhile."""

    def __init__(self, *looks: Conditions) -> None:
        self.looks: Iterator[Conditions] = iter(looks)
        self.waited = 0.0
        self.said: list[str] = []

    def watch(self, *, limit_s: float = 20.0, noisy: bool = False) -> Watch:
        return Watch(
            noisy=noisy, limit_s=limit_s, look=lambda: next(self.looks), pause=self._pause, say=self.said.append
        )

    def _pause(self, seconds: float) -> None:
        self.waited += seconds


def kept(value: Any, conditions: Conditions) -> dict[str, Any]:
    return {**value, "conditions": {"load": conditions.load, "steal": conditions.steal, "others": conditions.others}}


def test_the_first_cell_waits_for_the_load_and_all_for_the_cores() -> None:
    scene = Scene(LOADED, BUSY, STOLEN, QUIET, LOADED, BUSY, QUIET)
    watch = scene.watch()
    watch.await_quiet()
    assert scene.waited == 15.0
    # Of later cells the load is our own.
    watch.await_quiet()
    assert scene.waited == 15.0
    watch.await_quiet()
    assert scene.waited == 20.0
    assert len(scene.said) == 2
    assert scene.said[0].startswith(
        "waiting at most 20 s for a quiet machine: load 1.50 a core, 0.0% of the cores' time"
    )


def test_a_machine_that_stays_busy_is_refused_in_a_sentence() -> None:
    scene = Scene(*[BUSY] * 9)
    with pytest.raises(ConfigError, match=r"not quiet within 20 s .*40.0% used by others.*end what else runs.*--noisy"):
        scene.watch().await_quiet()
    assert scene.waited == 20.0


def test_noisy_neither_looks_nor_waits() -> None:
    scene = Scene()
    scene.watch(noisy=True).await_quiet()
    assert (scene.waited, scene.said) == (0.0, [])


def test_own_work_is_not_that_of_others() -> None:
    before = Clock(wall=10.0, busy=100.0, stolen=1.0, own=50.0)
    after = Clock(wall=20.0, busy=100.0 + 0.5 * 10 * cores(), stolen=1.0 + 0.1 * 10 * cores(), own=50.0 + 4 * cores())
    seen = between(before, after, 0.7)
    assert (seen.load, seen.steal, seen.others) == (0.7, pytest.approx(0.1), pytest.approx(0.1, abs=0.002))


@pytest.mark.parametrize(("seconds", "contended"), [(0.02, False), (0.1, True)])
def test_a_tick_of_each_core_says_nothing_of_others(seconds: float, contended: bool) -> None:
    before = Clock(wall=0.0, busy=0.0, stolen=0.0, own=0.0)
    share = 0.01 if seconds < 0.05 else 0.04
    seen = between(before, Clock(wall=seconds, busy=share * cores(), stolen=0.0, own=0.0), 0.0)
    assert seen.contended is contended


def test_the_clocks_of_this_machine_go_forward() -> None:
    before = read_clock()
    # Of this process's own time: on a busy machine it may have none of a twentieth of a second of the wall's.
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    after = read_clock()
    assert after.wall > before.wall and after.own > before.own
    assert after.busy >= before.busy > 0.0 and after.stolen >= before.stolen >= 0.0


@pytest.mark.parametrize("text", ["", "cpu0 1 2 3\n", "cpu0 a b\n", "cpu 1 2 3 4 5 6 7 8\n"])
def test_a_kernel_that_does_not_tell_is_refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    (tmp_path / "stat").write_text(text)
    with pytest.raises(ConfigError, match="expected how this process's cores were used"):
        read_clock(tmp_path / "stat")


def test_only_own_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 2})
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    lines = ["cpu 9 9 9 9 9 9 9 9 0 0", *(f"cpu{core} {core}00 0 0 0 0 0 0 {core}0 0 0" for core in range(4)), "intr 1"]
    (tmp_path / "stat").write_text("\n".join(lines))
    clock = read_clock(tmp_path / "stat")
    assert (clock.busy, clock.stolen) == (3.0, pytest.approx(0.3))


CELLS = [{"name": name} for name in ("a", "b", "c")]


def disturb(monkeypatch: pytest.MonkeyPatch, conditions: list[Conditions]) -> None:
    """Let the cells be measured under these conditions, in this order."""
    found = iter(conditions)
    monkeypatch.setattr(quiet, "between", lambda *_: next(found))


def test_a_disturbed_cell_is_measured_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, [QUIET, BUSY, QUIET, QUIET])
    measured: list[str] = []
    watch, store = Scene(*[QUIET] * 9).watch(), CellStore(tmp_path / "x.json", {})
    values = measure_cells(CELLS, lambda cell: measured.append(cell["name"]) or {"seconds": 1.0}, store, watch=watch)
    assert measured == ["a", "b", "c", "b"]
    assert values == [kept({"seconds": 1.0}, QUIET)] * 3


def test_no_result_of_a_disturbed_cell_and_the_next_time_it_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disturb(monkeypatch, [QUIET, BUSY, QUIET, STOLEN, QUIET])
    measured: list[str] = []
    store, scene = CellStore(tmp_path / "x.json", {}), Scene(*[QUIET] * 9)

    def measure(cell: Any) -> dict[str, float]:
        measured.append(cell["name"])
        return {"seconds": 1.0}

    with pytest.raises(ConfigError, match=r"others used the machine while 1 of 3 cells .* no result is written"):
        measure_cells(CELLS, measure, store, watch=scene.watch())
    assert measure_cells(CELLS, measure, CellStore(tmp_path / "x.json", {}), watch=scene.watch())
    assert measured == ["a", "b", "c", "b", "b"]


def test_noisy_keeps_disturbed_cells_and_marks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disturb(monkeypatch, [QUIET, BUSY, STOLEN])
    store = CellStore(tmp_path / "x.json", {})
    values = measure_cells(CELLS, lambda cell: {"seconds": 1.0}, store, watch=Watch(noisy=True))
    assert [quiet.contended([value]) for value in values] == [False, True, True]
    assert quiet.marked("1.00", values[:1]) == "1.00" and quiet.marked("1.00", values) == "1.00 (contended)"
    assert quiet.marked("", values) == ""
    assert quiet.ratio(0.5, 2, values[:1]) == "0.50" and quiet.ratio(0.5, 2, values) == "unusable"
    assert quiet.entries(values) == [0.1, 0.05, 0.4, "no"] and quiet.entries(values[:1]) == [0.1, 0.0, 0.01, "yes"]
    assert "Others used the machine during 2 of 3 cells" in quiet.words(values)
    assert quiet.entries([{"seconds": 1.0}]) == [None] * len(quiet.COLUMNS)


TIMED = [bench for bench in BENCHES if bench.timed]


@pytest.mark.parametrize("bench", TIMED, ids=lambda bench: bench.name)
def test_every_benchmark_of_times_is_watched(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Watch | None] = []

    class Asked(Exception):
        pass

    def measure(*_: Any, watch: Watch | None = None, **__: Any) -> Any:
        seen.append(watch)
        raise Asked

    module = importlib.import_module(bench.module)
    owner = (
        module if hasattr(module, "measure_cells") else importlib.import_module("fastlloyd_papers.vertical_he.common")
    )
    monkeypatch.setattr(owner, "measure_cells", measure)
    watch = Watch()
    with pytest.raises(Asked):
        module.run(Options(quick=True, output=tmp_path, progress=False, watch=watch))
    assert seen == [watch]
