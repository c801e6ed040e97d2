from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tenseal")

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.math import workers
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine, encrypt_block
from fastlloyd.protocols.vertical_he.math.workers import WorkerEngine, open_engine, worthwhile_engines
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.run.config import RunConfig
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import PartyId
from tests.protocols.vertical_he.support import blobs, columns_of, linear_plan, lloyd, loss, names, parameters, simulate


def test_workers_give_what_one_process_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    points, start = blobs(5000, 3, 2)
    plan = linear_plan(5000, 3, noise="flooding", degree=30)
    with WorkerEngine(plan, columns_of(plan, points, plan.computing), 2) as engine:
        for worker in engine._workers:
            environment = Path(f"/proc/{worker.pid}/environ").read_bytes()
            assert b"PMI_RANK" not in environment and b"OMPI_" not in environment
            assert b"mpi" not in Path(f"/proc/{worker.pid}/maps").read_bytes().lower()
        results, simulation = simulate(plan, points, start, engine=engine)
        pids = [worker.pid for worker in engine._workers]
    assert loss(points, results[PartyId(0)].centers) <= 1.01 * loss(points, lloyd(points, start, 2))
    fractions = [event.values["fraction"] for _, event in simulation.published if event.event == "progress"]
    assert fractions and all(0 < fraction <= 1 for fraction in fractions)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


class Hired:
    """A worker in a thread of this process, in the place of one in another: so its side is seen, too."""

    def __init__(self, pipe: Connection) -> None:
        self._thread = threading.Thread(target=self._work, args=(pipe,))
        self._thread.start()

    def _work(self, pipe: Connection) -> None:
        with pipe, contextlib.suppress(EOFError):
            worker = workers._Worker(pipe)
            while True:
                workers._serve(worker, pipe, workers._receive(pipe))

    def kill(self) -> None:
        """Nothing: it ends when its orders end."""

    def wait(self) -> int:
        self._thread.join()
        return 0


def hire() -> tuple[Hired, Connection]:
    ours, theirs = Pipe()
    return Hired(theirs), ours


def test_what_workers_add_up_is_what_one_engine_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_start", hire)
    points, start = blobs(5000, 3, 2)
    plan = linear_plan(5000, 3, degree=30)
    alone, _ = simulate(plan, points, start, quiet=True)
    with WorkerEngine(plan, columns_of(plan, points, plan.computing), 2) as engine:
        assert len(engine._workers) == 2
        results, _ = simulate(plan, points, start, engine=engine, quiet=True)
    assert results[PartyId(0)].centers == pytest.approx(alone[PartyId(0)].centers, abs=1e-3)


def test_work_before_the_plan_and_too_much_for_the_memory_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = linear_plan(100, 1, degree=8)
    worker, pipe = hire()
    with pipe:
        workers._send(pipe, workers._Kind.KEYS)
        assert workers._receive(pipe) == (workers._Kind.FAILED, b"a worker got work before its plan")
    worker.wait()

    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(workers, "_start", hire)
    with WorkerEngine(plan, np.zeros((1, 100)), 1) as engine:
        engine._settle()
        monkeypatch.setattr(workers, "_split", full)
        with pytest.raises(InternalError, match="out of memory; give fewer --workers"):
            engine.load(1, 0, [b""])


def test_a_refused_ciphertext_and_a_dead_worker_are_named() -> None:
    points, _ = blobs(100, 2, 2)
    plan = linear_plan(100, 1, degree=8)
    with WorkerEngine(plan, columns_of(plan, points, plan.computing), 4) as engine:
        assert len(engine._workers) == 1  # there is one block with one step only
        with pytest.raises(ValueError, match="ciphertext"):
            engine.load(1, 0, [b"nonsense"] * plan.parts(1))
        engine._workers[0].kill()
        engine._workers[0].wait()
        with pytest.raises(InternalError, match="worker process ended"):
            engine.load(1, 0, [b"nonsense"] * plan.parts(1))
    with pytest.raises(ConfigError, match="--workers"):
        WorkerEngine(plan, np.zeros((1, 100)), 0)


def test_a_worker_s_late_refusal_comes_with_the_last_block() -> None:
    points, _ = blobs(6000, 2, 2)
    plan = linear_plan(6000, 2, degree=8)
    context = Context(plan.encryption)
    holder = KeyHolder(context)
    blocks = [encrypt_block(plan, context, holder, columns_of(plan, points, 1), block) for block in range(plan.blocks)]
    assert plan.blocks == 3
    with WorkerEngine(plan, columns_of(plan, points, plan.computing), 2) as engine:
        engine.keys((holder.public_key(),))
        engine.load(1, 0, [b"nonsense"] * plan.parts(1))
        engine.load(1, 1, blocks[1])
        with pytest.raises(ValueError, match="ciphertext"):
            engine.load(1, 2, blocks[2])


def test_processes_are_started_only_where_they_save_time() -> None:
    small, large = (make_plan(parameters(n, 5, rounds=10), names(1, 1)) for n in (10_000, 100_000))
    assert [worthwhile_engines(small, workers, 10_000) for workers in (1, 2, 8)] == [1, 1, 1]
    assert [worthwhile_engines(large, workers, 100_000) for workers in (1, 2, 8)] == [1, 2, 8]
    circuit = make_plan(parameters(20_000, 3), names(2, 2))
    assert worthwhile_engines(circuit, 8, 20_000) == circuit.blocks == 3


def test_a_small_job_starts_no_processes() -> None:
    plan = linear_plan(3000, 2)
    with open_engine(plan, np.zeros((1, 3000)), 2) as engine:
        assert isinstance(engine, LinearEngine)
    circuit = make_plan(parameters(20_000, 4, scheme="pairwise"), names(2, 2))
    with open_engine(circuit, np.zeros((2, 20_000)), 2) as engine:
        assert isinstance(engine, WorkerEngine) and len(engine._workers) == 2


def test_the_library_s_refusal_is_told_without_a_wrong_advice() -> None:
    class Refusing:
        def obey(self, kind: object, body: bytes) -> None:
            raise RuntimeError("result ciphertext is transparent")

    source, out = Pipe()
    with source, out:
        workers._serve(Refusing(), out, (workers._Kind.ADD_UP, b""))  # type: ignore[arg-type]
        kind, body = workers._receive(source)
    assert kind is workers._Kind.FAILED and body == b"result ciphertext is transparent"


def test_a_worker_whose_party_was_killed_ends_in_silence() -> None:
    ours, theirs = Pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "fastlloyd.protocols.vertical_he.math.workers", str(theirs.fileno())],
        pass_fds=(theirs.fileno(),),
        stderr=subprocess.PIPE,
    ) as worker:
        theirs.close()
        workers._send(ours, workers._Kind.KEYS)
        ours.close()  # nobody reads its answers any more
        assert worker.stderr and worker.stderr.read() == b""
        assert worker.wait() == 0


def test_a_whole_life_with_workers_ends_as_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is drawn anew in the second, so both are held to what is in the data."""
    monkeypatch.setattr(workers, "_start", hire)
    hired = []
    monkeypatch.setattr(workers, "worthwhile_engines", lambda plan, most, n: hired.append(most) or 2)
    chosen = RunConfig(
        protocol="vertical-he", dataset="iris", bounds="0,10", k=2, rounds=1, epsilon=100.0, workers=2,
        settings={"vertical-he": {"scheme": "linear"}},
    )  # fmt: skip
    ended = run_together(chosen, 1).outcomes
    assert hired == [2]
    for outcome in ended.values():
        assert outcome.result is not None and sum(outcome.result.noisy_sizes) == pytest.approx(150, abs=5)
