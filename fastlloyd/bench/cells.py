"""Partial results: each measured cell is kept at once, so that an interrupted benchmark goes on where it was.

A cell is a mapping of plain values that names what is measured. It is kept under its own parameters
together with version, machine and benchmark, so figures of another machine are never mixed in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.report.files import write_atomic

Cell = Mapping[str, Any]


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
        if not isinstance(cells, dict):
            raise ConfigError(f"{path}: expected partial results of a benchmark, got something else; remove the file")
        self._cells = cells

    def find(self, cell: Cell) -> Any:
        """Give what was measured for a cell, or None."""
        return self._cells.get(self._key(cell))

    def keep(self, cell: Cell, value: Any) -> None:
        """Write a cell down."""
        self._cells[self._key(cell)] = value
        write_atomic(self._path, json.dumps(self._cells, indent=0) + "\n")

    def remove(self) -> None:
        """Remove the file: the benchmark is complete, and the next one measures anew."""
        self._path.unlink(missing_ok=True)

    def _key(self, cell: Cell) -> str:
        return json.dumps({**self._context, **cell}, sort_keys=True)


def measure_cells(
    cells: Sequence[Cell], measure: Callable[[Cell], Any], store: CellStore, *, progress: bool = False
) -> list[Any]:
    """Measure the cells that are missing, in order, and give the values of all.

    Parameters
    ----------
    cells : sequence of mapping
    measure : callable
        Gives plain values for one cell.
    store : CellStore
    progress : bool
        Draw a bar on standard error.
    """
    from tqdm import tqdm

    missing = [cell for cell in cells if store.find(cell) is None]
    with tqdm(
        total=len(cells), initial=len(cells) - len(missing), unit="run", disable=not progress, file=sys.stderr
    ) as bar:
        for cell in missing:
            bar.set_postfix_str(str(cell.get("name", "")), refresh=True)
            store.keep(cell, measure(cell))
            bar.update()
    return [store.find(cell) for cell in cells]
