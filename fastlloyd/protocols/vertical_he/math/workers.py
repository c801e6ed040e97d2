"""What the computing party computes with, in this process or in workers, and what a round costs it.

A party is a coroutine without processes or files, so it is handed an engine. An engine takes in encrypted blocks and
adds them up, round by round; it holds the computing party's own columns. The library that computes on ciphertexts holds
Python's lock, so several processors need several processes.

Each worker is a fresh interpreter that runs this module, started with a bare environment: it sees no variable of a
launcher and never imports mpi4py. Over a pipe it gets the plan and the computing party's columns, keeps every n-th
encrypted block (the linear schemes divide the remaining ones by clusters), and answers. It ends when the pipe ends.

::

    message of `multiprocessing.connection`: kind u8 | body         little endian
    SETUP     plan, number of records, place among the workers: JSON, its length u32 before it; then columns as float64
    KEYS      byte strings, each behind its length (u32)
    BEGIN     round u32 | centres as float64
    LOAD      owner u32 | block u32 | byte strings
    ADD_UP    centres as float64
    DONE / PROGRESS fraction f64 / SUMS constants and vectors as int64 / REFUSED text / FAILED text

A worker sees ciphertexts and the computing party's own columns, as that party does; never the key.

Source: Vertical HE, §3, steps (1) to (3) of Figure 1, and §3.1; costs are measured, docs/vertical-he.md, "How long",
and papers/benchmarks/vertical_he_cost.py.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, FastLloydError, InternalError
from fastlloyd.protocols.vertical_he.he.lattice import Sample
from fastlloyd.protocols.vertical_he.math.computer import Computer, Engine, Work
from fastlloyd.protocols.vertical_he.math.cost import Shape
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine
from fastlloyd.protocols.vertical_he.math.pairwise import PairwiseEngine
from fastlloyd.protocols.vertical_he.math.renewed import RenewedEngine
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, RENEWED, TWO_PARTY
from fastlloyd.protocols.vertical_he.plan import Plan

_Pipe: TypeAlias = "Connection[Any, Any]"
_NUMBER = struct.Struct("<I")
_PLACE = struct.Struct("<II")
_FRACTION = struct.Struct("<d")
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
MOST_WORKERS = 256
# Processor seconds of all rounds below which one process is as fast as several.
_START_SECONDS = 2.0


class _Kind(IntEnum):
    """The kinds of frames."""

    SETUP = 1
    KEYS = 2
    LOAD = 3
    ADD_UP = 4
    DONE = 5
    PROGRESS = 6
    SUMS = 7
    REFUSED = 8
    FAILED = 9
    BEGIN = 10


class WorkerEngine(Engine):
    """An engine that spreads the blocks over worker processes.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's columns, scaled to [-1, 1].
    workers : int

    Raises
    ------
    ConfigError
        Not a sensible number of workers.
    """

    def __init__(self, plan: Plan, raw_columns: NDArray[np.float64], workers: int) -> None:
        if not 1 <= workers <= MOST_WORKERS:
            raise ConfigError(f"--workers: expected 1 to {MOST_WORKERS}, got {workers}")
        self._plan = plan
        self._finisher = make_engine(plan, raw_columns[:, :0])
        self._workers: list[subprocess.Popen[bytes]] = []
        self._pipes: list[_Pipe] = []
        columns = np.ascontiguousarray(raw_columns, "<f8").tobytes()
        n = raw_columns.shape[1]
        self.blocks = plan.blocks_of(n)
        count = count_engines(plan, workers, n)
        self._shared = shared_blocks(plan, count, self.blocks)
        self._left = self._loads = self.blocks * len(plan.encrypting)
        self._busy: set[int] = set()
        try:
            for _ in range(count):
                worker, pipe = _start()
                self._workers.append(worker)
                self._pipes.append(pipe)
            for number in range(count):
                values = {"plan": plan.to_json(), "n": n, "number": number, "engines": count}
                described = json.dumps(values).encode()
                self._write(number, _Kind.SETUP, _NUMBER.pack(len(described)) + described + columns)
                self._busy.add(number)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._workers, self._pipes = [], []

    def keys(self, parts: Sequence[bytes]) -> None:
        """Take the key holder's public keys."""
        self._finisher.keys(parts)
        self._command(range(len(self._workers)), _Kind.KEYS, _join(parts))
        self._settle()

    def begin(self, t: int, centers: NDArray[np.float64]) -> None:
        """Send the centres of round t before its blocks."""
        body = _NUMBER.pack(t) + np.ascontiguousarray(centers, "<f8").tobytes()
        self._command(range(len(self._workers)), _Kind.BEGIN, body)

    def load(self, owner: int, block: int, parts: Sequence[bytes]) -> None:
        """Hand one encrypted block to its worker.

        With one owner, a worker loads the block while the next one arrives, and reports a refusal at its next block,
        or at the last of all. With several owners it reports at once, because the refusal names the sender.
        """
        body = _PLACE.pack(owner, block) + _join(parts)
        everybody = range(len(self._workers))
        self._command(everybody if block in self._shared else (block % len(self._workers),), _Kind.LOAD, body)
        last = self._left == 1
        self._left = self._loads if last else self._left - 1
        if last or len(self._plan.encrypting) > 1:
            self._settle()

    def evaluate(self, centers: NDArray[np.float64]) -> Work:
        """Add up one round on all workers at once."""
        body = np.ascontiguousarray(centers, "<f8").tobytes()
        numbers = {pipe: number for number, pipe in enumerate(self._pipes)}
        for number in numbers.values():
            self._write(number, _Kind.ADD_UP, body)
        fractions = dict.fromkeys(numbers.values(), 0.0)
        total = np.zeros((self._plan.outputs, self._plan.scales.ring + 1), dtype=np.int64)
        while numbers:
            ready = wait(list(numbers))
            for pipe in [each for each in numbers if each in ready]:
                kind, content = self._read(numbers[pipe])
                if kind is _Kind.PROGRESS:
                    (fractions[numbers[pipe]],) = _FRACTION.unpack(content)
                    yield sum(fractions.values()) / len(fractions)
                else:
                    total = (total + np.frombuffer(content, "<i8").reshape(total.shape)) % self._finisher.modulus
                    del numbers[pipe]
        return self._finisher.finish(Sample(total[:, 0], total[:, 1:]))

    def _command(self, numbers: Iterable[int], kind: _Kind, body: bytes) -> None:
        """Send a command to some workers, once they have carried out the last one."""
        for number in numbers:
            self._settle((number,))
            self._write(number, kind, body)
            self._busy.add(number)

    def _settle(self, numbers: Iterable[int] | None = None) -> None:
        """Wait until workers, or all of them, have carried out their last command."""
        for number in sorted(self._busy if numbers is None else self._busy.intersection(numbers)):
            self._busy.remove(number)
            self._read(number)

    def _write(self, number: int, kind: _Kind, body: bytes) -> None:
        try:
            _send(self._pipes[number], kind, body)
        except OSError as error:
            code = self._workers[number].poll()
            raise InternalError(f"a worker process ended (code {code}); give fewer --workers") from error

    def _read(self, number: int) -> tuple[_Kind, bytes]:
        try:
            kind, body = _receive(self._pipes[number])
        except (EOFError, OSError) as error:
            code = self._workers[number].wait()
            raise InternalError(
                f"a worker process ended (code {code}); give fewer --workers, or check memory"
            ) from error
        if kind is _Kind.REFUSED:
            raise ValueError(body.decode())
        if kind is _Kind.FAILED:
            raise InternalError(f"a worker process failed: {body.decode()}")
        return kind, body


def shared_blocks(plan: Plan, engines: int, blocks: int) -> range:
    """Return the blocks that several engines divide by clusters: those that do not divide evenly."""
    return range(blocks - blocks % engines if plan.scheme != PAIRWISE else blocks, blocks)


def make_engine(plan: Plan, raw_columns: NDArray[np.float64], *, number: int = 0, engines: int = 1) -> Computer:
    """Make an engine that computes in this process.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's own columns, scaled to [-1, 1]; d_own is 0 for a party without data.
    number, engines : int
        This engine's number among all: of `shared_blocks` it computes only every n-th cluster, n the number of engines.
    """
    if plan.scheme == PAIRWISE:
        return PairwiseEngine(plan, raw_columns)
    shared = shared_blocks(plan, engines, plan.blocks_of(raw_columns.shape[1]))
    kind = RenewedEngine if plan.scheme in RENEWED else LinearEngine
    return kind(plan, raw_columns, turns=dict.fromkeys(shared, (number, engines)))


def round_seconds(plan: Plan, workers: int, n: int | None = None) -> float:
    """Estimate the seconds of one round, to compare with its deadline.

    Parameters
    ----------
    plan : Plan
    workers : int
        Processes of the computing party, each on its own processor.
    n : int, optional
        Records; by default the largest possible number.
    """
    shape = shape_of(plan, n)
    count, blocks = count_engines(plan, workers, shape.n), shape.blocks
    if plan.scheme == PAIRWISE:
        share = math.ceil(blocks / count) / blocks
    else:
        whole, left = blocks // count, blocks % count
        share = (whole + left * math.ceil(plan.k / count) / plan.k) / blocks
    return shape.round - (1.0 - share) * shape.adding


def shape_of(plan: Plan, n: int | None = None) -> Shape:
    """Return what the cost of a plan depends on, for n records; by default for the largest possible number."""
    own = len(plan.columns(plan.computing))
    return Shape(
        scheme=plan.scheme,
        n=plan.n_total if n is None else n,
        k=plan.k,
        ring=plan.scales.ring,
        corners=0 if plan.scheme == PAIRWISE else plan.corners,
        own=own,
        encrypted=plan.d - own,
        seeded=plan.mode == TWO_PARTY,
    )


def count_engines(plan: Plan, workers: int, n: int) -> int:
    """Return how many of the computing party's workers n records keep busy.

    The linear schemes also divide the remaining blocks by clusters.
    """
    blocks = plan.blocks_of(n)
    return min(workers, blocks if plan.scheme == PAIRWISE else max(plan.k, blocks))


def worthwhile_engines(plan: Plan, workers: int, n: int) -> int:
    """Return the number of processes for the work: one, where starting others takes longer than they save."""
    return count_engines(plan, workers, n) if plan.rounds * round_seconds(plan, 1, n) > _START_SECONDS else 1


@contextlib.contextmanager
def open_engine(plan: Plan, raw_columns: NDArray[np.float64], workers: int) -> Iterator[Engine]:
    """Open the computing party's engine: worker processes where they save time, else this process.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's columns, scaled to [-1, 1].
    workers : int
        The most processes.
    """
    if worthwhile_engines(plan, workers, raw_columns.shape[1]) == 1:
        yield make_engine(plan, raw_columns)
        return
    with WorkerEngine(plan, raw_columns, workers) as engine:
        yield engine


def _start() -> tuple[subprocess.Popen[bytes], _Pipe]:
    """Start one worker, with a bare environment and one thread for linear algebra; return it, and the pipe to it."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    ours, theirs = Pipe()
    with theirs:
        words = [sys.executable, "-m", "fastlloyd.protocols.vertical_he.math.workers", str(theirs.fileno())]
        worker = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env={**kept, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
    return worker, ours


def _send(pipe: _Pipe, kind: _Kind, body: bytes = b"") -> None:
    pipe.send_bytes(bytes([kind]) + body)


def _receive(pipe: _Pipe) -> tuple[_Kind, bytes]:
    """Read one message; raise EOFError at the end of the pipe."""
    content = pipe.recv_bytes()
    return _Kind(content[0]), content[1:]


def _join(parts: Sequence[bytes]) -> bytes:
    return b"".join(piece for part in parts for piece in (_NUMBER.pack(len(part)), part))


def _split(content: bytes) -> list[bytes]:
    parts, start = [], 0
    while start < len(content):
        (length,) = _NUMBER.unpack_from(content, start)
        start += _NUMBER.size
        parts.append(content[start : start + length])
        start += length
    return parts


def _centers(plan: Plan, body: bytes) -> NDArray[np.float64]:
    return np.frombuffer(body, "<f8").reshape(plan.k, plan.d)


class _Worker:
    """The worker's side: carries out the frames."""

    def __init__(self, pipe: _Pipe) -> None:
        self._out = pipe
        self._engine: Computer | None = None

    def obey(self, kind: _Kind, body: bytes) -> None:
        """Carry out one command and answer."""
        if kind is _Kind.SETUP:
            (length,) = _NUMBER.unpack_from(body)
            described = json.loads(body[_NUMBER.size : _NUMBER.size + length])
            plan = Plan.from_json(described["plan"])
            columns = np.frombuffer(body[_NUMBER.size + length :], "<f8").reshape(-1, described["n"])
            self._engine = make_engine(plan, columns, number=described["number"], engines=described["engines"])
            return _send(self._out, _Kind.DONE)
        if self._engine is None:
            raise InternalError("a worker got work before its plan")
        if kind is _Kind.ADD_UP:
            return self._add_up(self._engine, body)
        if kind is _Kind.KEYS:
            self._engine.keys(_split(body))
        elif kind is _Kind.BEGIN:
            (t,) = _NUMBER.unpack_from(body)
            self._engine.begin(t, _centers(self._engine.plan, body[_NUMBER.size :]))
        else:
            owner, block = _PLACE.unpack_from(body)
            self._engine.load(owner, block, _split(body[_PLACE.size :]))
        return _send(self._out, _Kind.DONE)

    def _add_up(self, engine: Computer, body: bytes) -> None:
        work = engine.add_up(_centers(engine.plan, body))
        while True:
            try:
                _send(self._out, _Kind.PROGRESS, _FRACTION.pack(next(work)))
            except StopIteration as end:
                sums: Sample = end.value
                table = np.column_stack((sums.constants, sums.vectors)).astype("<i8")
                return _send(self._out, _Kind.SUMS, table.tobytes())


def main() -> None:
    """Serve the party at the other end of the pipe until it ends."""
    # A party that was killed leaves a broken pipe: there is nobody to report to.
    with Connection(int(sys.argv[1])) as pipe, contextlib.suppress(EOFError, OSError):
        worker = _Worker(pipe)
        while True:
            _serve(worker, pipe, _receive(pipe))


def _serve(worker: _Worker, out: _Pipe, frame: tuple[_Kind, bytes]) -> None:
    """Carry out one command; answer with its error if it fails."""
    try:
        worker.obey(*frame)
    except ValueError as error:
        _send(out, _Kind.REFUSED, str(error).encode())
    except MemoryError:
        _send(out, _Kind.FAILED, b"out of memory; give fewer --workers")
    # The library that computes on ciphertexts reports its own refusals as RuntimeError.
    except (FastLloydError, RuntimeError) as error:
        _send(out, _Kind.FAILED, str(error).encode())


if __name__ == "__main__":
    main()
