"""Partial results: each measured cell is kept at once, so that an interrupted benchmark goes on where it was.

A cell is a mapping of plain values that names what is measured. It is kept under its own parameters
together with version, machine and benchmark, so figures of another machine are never mixed in. The file also names the
commits at which cells were measured.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fastlloyd
from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd.report.files import write_atomic
from fastlloyd_papers.engine.machine import describe_commit
from fastlloyd_papers.engine.quiet import Watch

Cell = Mapping[str, Any]

_COMMITS = "commits"
_PACKAGE = Path(fastlloyd.__file__).resolve().parent
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

    Raises
    ------
    ConfigError
        The file is there and is not a file of cells, or the folder cannot be made.
    """

    def __init__(self, path: Path, context: Mapping[str, Any]) -> None:
        self._path = path
        self._context = dict(context)
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
        commits = cells.pop(_COMMITS, []) if isinstance(cells, dict) else None
        if not isinstance(commits, list):
            raise ConfigError(f"{path}: expected partial results of a benchmark, got something else; remove the file")
        self._cells = cells
        if cells and not commits:
            commits = ["?"]  # of a version that did not name them
        # A dictionary keeps the order, and each commit once.
        self._commits = list(dict.fromkeys([*commits, describe_commit(_PACKAGE, "version.py") or ""]))

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
        write_atomic(self._path, json.dumps({_COMMITS: self._commits, **self._cells}, indent=0) + "\n")

    def remove(self) -> None:
        """Remove the file: the benchmark is complete, and the next one measures anew."""
        self._path.unlink(missing_ok=True)

    def _key(self, cell: Cell) -> str:
        return json.dumps({**self._context, **cell}, sort_keys=True)


def earlier_commits(path: Path) -> list[str]:
    """Return the commits at which the cells of a file were measured; none where there is no such file."""
    try:
        return list(map(str, json.loads(path.read_text(encoding="utf-8"))[_COMMITS]))
    except (OSError, ValueError, LookupError, TypeError):
        return []


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
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        waiting = {pool.submit(_measure_group, measure, group): group for group in groups.values()}
        for done in as_completed(waiting):
            yield from zip(waiting[done], done.result(), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _measure_group(measure: Callable[[Cell], Any], cells: Sequence[Cell]) -> list[Any]:
    """Measure cells in a worker process, with one thread of linear algebra: the processes share the cores."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return [measure(cell) for cell in cells]
