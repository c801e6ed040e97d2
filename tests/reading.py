"""What tests read of tables, and how often others do."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastlloyd.data.database import Place
from fastlloyd.data.source import open_source

_counted: Counter[str] | None = None


def column_names(path: str | Path | Place) -> tuple[str, ...]:
    """Return the names of all columns."""
    with open_source(path) as source:
        return source.names


def texts_of(path: str | Path | Place, column: str) -> tuple[str, ...]:
    """Return what a column holds as text, row by row."""
    with open_source(path) as source:
        chunks = list(source.chunks((), (source.index(column),), None))
    return tuple(text for cells in chunks for text in cells.texts[0])


@contextlib.contextmanager
def opens() -> Iterator[Counter[str]]:
    """Count how often this process opens each file, by its name without the folder."""
    global _counted
    _counted = counted = Counter()
    if not _hooked:
        sys.addaudithook(_note)  # for good: Python takes no hook out again
        _hooked.append(True)
    try:
        yield counted
    finally:
        _counted = None


_hooked: list[bool] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _counted is not None and event == "open" and isinstance(arguments[0], str | bytes):
        _counted[Path(os.fsdecode(arguments[0])).name] += 1
