"""Puts tables into a folder as NAME.csv.gz: written aside, and renamed into place when all are whole."""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

_MODE = 0o644
_ROWS = 1 << 10


class Shelf:
    """Files that are being written aside."""

    def __init__(self) -> None:
        self.aside: dict[Path, Path] = {}

    def write(self, path: Path, pieces: Iterable[bytes]) -> str:
        """Write a file aside, compressed if its name says so; return the SHA-256 of the content before compression."""
        digest = hashlib.sha256()
        descriptor, name = tempfile.mkstemp(prefix=".fastlloyd-", suffix=".part", dir=path.parent)
        self.aside[path] = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            with _packed(file) if path.suffix == ".gz" else nullcontext(file) as body:
                for piece in pieces:
                    digest.update(piece)
                    body.write(piece)
            os.fchmod(file.fileno(), _MODE)
        return digest.hexdigest()


def _packed(file: BinaryIO) -> gzip.GzipFile:
    """Compress into a file, without a name or a time: the same bytes for the same content."""
    return gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0)


@contextmanager
def placing() -> Iterator[Shelf]:
    """Open a shelf; at the end its files are renamed into place in the order of writing, or after an error removed."""
    shelf = Shelf()
    try:
        yield shelf
        for path, written in shelf.aside.items():
            written.replace(path)
    finally:
        for left in shelf.aside.values():
            left.unlink(missing_ok=True)


def csv_pieces(names: Sequence[str], rows: NDArray[Any]) -> Iterator[bytes]:
    """Write a table as CSV, whole numbers without a point, others so that they read back exactly."""
    yield (",".join(names) + "\n").encode("ascii")
    for start in range(0, len(rows), _ROWS):
        block = rows[start : start + _ROWS]
        whole = bool((np.mod(block, 1) == 0).all())
        body = block.astype(np.int64).tolist() if whole else block.astype(np.float64).tolist()
        lines = (",".join(repr(cell).removesuffix(".0") for cell in row) for row in body)
        yield ("\n".join(lines) + "\n").encode("ascii")


def content_sha256(path: Path) -> str:
    """Return the SHA-256 of a file; of one that ends in .gz, of what is in it."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
