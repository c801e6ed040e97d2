"""Partial results: each measured cell is kept at once, so that an interrupted benchmark goes on where it was.

A cell is a mapping of plain values that names what is measured. It is kept under its own parameters
together with benchmark, machine, versions, commit and the digests of the data, so figures of another machine, of other
code or of other data are never mixed in.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd.randomness.secret import KeyedRandom
from fastlloyd.report.files import write_atomic
from fastlloyd.version import __version__
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.publish import Desk
from fastlloyd_papers.engine.quiet import Watch
from fastlloyd_papers.engine.registry import Options

Cell = Mapping[str, Any]

_PR_SET_PDEATHSIG = 1
# Of a cell that others disturbed.
_ATTEMPTS = 2


class CellStore:
    """Measured cells in one JSON file.

    Parameters
    ----------
    path : Path
        In the output folder; it need not exist.
    context : mapping
        What all cells have in common: benchmark, version, machine.
    desk : Desk, optional
        Of a run that keeps the cells until its files are in place; it counts what was measured.

    Raises
    ------
    ConfigError
        The file is there and is not a file of cells, or the folder cannot be made.
    """

    def __init__(self, path: Path, context: Mapping[str, Any], desk: Desk | None = None) -> None:
        self._path = path
        # As it will be read: lists, no tuples.
        self._context = json.loads(json.dumps(dict(context)))
        self._desk = desk
        self._cells: dict[str, Any] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text(encoding="utf-8") if path.exists() else "{}"
        except OSError as error:
            raise ConfigError(f"--output {path.parent}: cannot be used ({error.strerror}); check the path") from error
        try:
            cells = json.loads(text)
        except ValueError:
            cells = None
        if not isinstance(cells, dict):
            raise ConfigError(f"{path}: expected partial results of a benchmark, got something else; remove the file")
        self._cells = cells
        if desk is not None:
            desk.resumed |= any(self._is_own(key) for key in cells)
            desk.drops.append(self._drop)

    def find(self, cell: Cell) -> Any:
        """Return what was measured for a cell, or None."""
        return self._cells.get(self._key(cell))

    def keep(self, cell: Cell, value: Any) -> None:
        """Write a cell down."""
        self.keep_all([(cell, value)])

    def keep_all(self, found: Sequence[tuple[Cell, Any]]) -> None:
        """Write several cells down at once."""
        for cell, value in found:
            self._cells[self._key(cell)] = value
        write_atomic(self._path, json.dumps(self._cells, indent=0) + "\n")

    def count(self, cells: Sequence[Cell]) -> None:
        """Tell the run how many cells it has, and how often what differs in its run alone was measured."""
        if self._desk is not None:
            self._desk.cells += len(cells)
            alone = {cell[key] for key in ("run", "seed") for cell in cells if key in cell}
            self._desk.runs = max(self._desk.runs, len(alone), *(cell.get("runs", 1) for cell in cells), 0)

    def remove(self) -> None:
        """Remove the file: the benchmark is complete, and the next one measures anew; a run does so at its end."""
        if self._desk is None:
            self._path.unlink(missing_ok=True)

    def _drop(self) -> None:
        """Remove this run's cells, and the file where no others are left."""
        self._cells = {key: value for key, value in self._cells.items() if not self._is_own(key)}
        if self._cells:
            write_atomic(self._path, json.dumps(self._cells, indent=0) + "\n")
        else:
            self._path.unlink(missing_ok=True)

    def _is_own(self, key: str) -> bool:
        """Whether a cell is of this data, code and machine."""
        parts = json.loads(key)
        return isinstance(parts, list) and parts[0] == self._context

    def _key(self, cell: Cell) -> str:
        return json.dumps([self._context, dict(cell)], sort_keys=True)


def open_cells(options: Options, name: str, **context: Any) -> CellStore:
    """Open the partial results of a benchmark, kept apart from those of other data, code or machines.

    Parameters
    ----------
    options : Options
    name : str
    context : plain values
        What else all cells have in common.

    Raises
    ------
    ConfigError
        As `CellStore`.
    """
    desk = options.desk
    folder, key = (options.output, {}) if desk is None else (desk.folder, desk.key)
    common = {"bench": name, "machine": describe_machine(), "software": f"fastlloyd {__version__}"}
    return CellStore(folder / f"{name}.partial.json", {**common, **context, **key}, desk)


def seed_of(cell: Cell) -> int:
    """Return the seed of a cell's noise, from its contents."""
    text = json.dumps(dict(cell), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def stream_of(cell: Cell, use: str = "") -> KeyedRandom:
    """Return a stream of a cell's noise or keys that is the same each time: for measurements only, never for a run."""
    text = json.dumps({**cell, "use": use}, sort_keys=True).encode()
    return KeyedRandom(hashlib.sha256(b"noise" + text).digest(), hashlib.sha256(b"further" + text).digest())


def measure_cells(
    cells: Sequence[Cell],
    measure: Callable[[Cell], Any],
    store: CellStore,
    *,
    progress: bool = False,
    together: Sequence[str] = (),
    jobs: int | None = 1,
    watch: Watch | None = None,
) -> list[Any]:
    """Measure the cells that are missing and give the values of all.

    Parameters
    ----------
    cells : sequence of mapping
        In an order in which what is compared takes turns, for a machine drifts.
    measure : callable
        Gives plain values for one cell. Picklable, if there is more than one process.
    store : CellStore
    progress : bool
        Draw a bar on standard error.
    together : sequence of str
        Cells that are equal in these fields are measured by the same process, which makes their
        records once.
    jobs : int, optional
        Processes; None for one per core. With one, all are measured here, in order: what times things
        needs that.
    watch : Watch, optional
        Of times: waits for a quiet machine. Cells that others disturbed are measured once more at the end.

    Raises
    ------
    ConfigError
        The machine was not quiet.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    from tqdm import tqdm

    wrapped = measure if watch is None else watch.around(measure)
    for attempt in range(1 if watch is None else _ATTEMPTS):
        missing = [cell for cell in cells if _lacks(store.find(cell), watch)]
        if attempt and not missing:
            break
        # Threads of linear algebra are of no use to errors, on small records; what is timed keeps its own.
        threads = threadpool_limits(1) if watch is None else nullcontext()
        with (
            threads,
            tqdm(
                total=len(cells), initial=len(cells) - len(missing), unit="run", disable=not progress, file=sys.stderr
            ) as bar,
        ):
            for cell, value in _measured(missing, wrapped, together, jobs or cores()):
                store.keep(cell, value)
                bar.set_postfix_str(str(cell.get("name", "")), refresh=True)
                bar.update()
    values = [store.find(cell) for cell in cells]
    store.count(cells)
    if watch is not None:
        watch.check(values)
    return values


def _lacks(kept: Any, watch: Watch | None) -> bool:
    """Whether a cell must be measured, given what is kept of it."""
    return kept is None or (watch is not None and watch.rejects(kept))


def _measured(
    cells: Sequence[Cell], measure: Callable[[Cell], Any], together: Sequence[str], jobs: int
) -> Iterator[tuple[Cell, Any]]:
    """Measure cells, as they become ready."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[name] for name in together), []).append(cell)
    workers = min(jobs, len(groups))
    if workers <= 1:
        yield from ((cell, measure(cell)) for cell in cells)
        return
    with worker_pool(workers) as pool:
        waiting = {pool.submit(_measure_group, measure, group): group for group in groups.values()}
        for done in as_completed(waiting):
            yield from zip(waiting[done], done.result(), strict=True)


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Open processes that measure; they end with this one, however it ends."""
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent, initargs=(os.getpid(),)
    )
    try:
        yield pool
    except BaseException:
        for child in multiprocessing.active_children():
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent(parent: int) -> None:
    """Let the kernel end this process with its parent, also where that was killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _measure_group(measure: Callable[[Cell], Any], cells: Sequence[Cell]) -> list[Any]:
    """Measure cells in a worker process, with one thread of linear algebra: the processes share the cores."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return [measure(cell) for cell in cells]
