"""Where the public data sets come from, and how each is made of its files.

The table is `origins.toml`. Every file in it is named by an address that holds a commit, with its size and SHA-256;
what is made of the files is compared with a SHA-256 of names, values and labels. The sets are not part of this
package: their owners' terms hold.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Made = tuple[NDArray[np.float64], NDArray[np.int64] | None]


@dataclass(frozen=True, slots=True)
class Remote:
    """One file elsewhere: address, length in bytes, SHA-256."""

    url: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a set is made.

    Attributes
    ----------
    files : tuple of Remote
    names : tuple of str, length d
    build : callable
        From the files' contents, in order, to values, shape (n, d), and labels, shape (n,), or None.
    sha256 : str
        Of what is built: see `content_digest`.
    """

    files: tuple[Remote, ...]
    names: tuple[str, ...]
    build: Callable[[Sequence[bytes]], Made]
    sha256: str


def content_digest(names: Sequence[str], values: NDArray[np.float64], labels: NDArray[np.int64] | None) -> str:
    """Return the SHA-256 of a set's content, whatever its text looks like.

    It is taken over a line of JSON (names, numbers of rows and of labels), the values as little-endian float64 row by
    row, and the labels as little-endian int64.
    """
    head = json.dumps([list(names), len(values), None if labels is None else len(labels)])
    digest = hashlib.sha256(head.encode("utf-8") + b"\n")
    digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
    if labels is not None:
        digest.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return digest.hexdigest()


def _cells(data: bytes, separator: str | None = None) -> list[list[str]]:
    """Split a text into rows of cells; lines without any are left out."""
    lines = data.decode("ascii").splitlines()
    return [[cell.strip() for cell in line.split(separator)] for line in lines if line.strip()]


def _numbers(rows: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    return np.array([[float(cell) for cell in row] for row in rows])


def _classes(data: bytes) -> NDArray[np.int64]:
    """Read classes numbered from 1, one per line, compressed; 0 here is the first."""
    return np.array([int(word) - 1 for word in gzip.decompress(data).split()], dtype=np.int64)


def _plain(files: Sequence[bytes]) -> Made:
    """Read a table of numbers, with classes if there is a second file."""
    return _numbers(_cells(files[0])), _classes(files[1]) if len(files) > 1 else None


def _packed(files: Sequence[bytes]) -> Made:
    """Read a compressed table of numbers, with classes."""
    return _plain([gzip.decompress(files[0]), files[1]])


def _adult(files: Sequence[bytes]) -> Made:
    """Take the six numbers of the training and then the test rows; class 1 is an income above 50K."""
    rows = [row for data in files for row in _cells(data, ",")]
    labels = np.array([row[-1].startswith(">50K") for row in rows], dtype=np.int64)
    return _numbers([[row[column] for column in (0, 2, 4, 10, 11, 12)] for row in rows]), labels


def _breast(files: Sequence[bytes]) -> Made:
    """Leave out the identifier, fill missing values with 1 (the median of those present); class 1 is malignant."""
    rows = _cells(files[0], ",")
    labels = np.array([row[-1] == "4" for row in rows], dtype=np.int64)
    return _numbers([["1" if cell == "?" else cell for cell in row[1:-1]] for row in rows]), labels


def _birch2(files: Sequence[bytes]) -> Made:
    """Read the subset of 25,000 records; its classes are those of the same places in the whole set."""
    whole = _cells(gzip.decompress(files[1]))
    classes = dict(zip(map(tuple, whole), _classes(files[2]).tolist(), strict=True))
    rows = _cells(files[0])
    return _numbers(rows), np.array([classes[tuple(row)] for row in rows], dtype=np.int64)


def _mnist(files: Sequence[bytes]) -> Made:
    """Read images and classes in MNIST's own format: a head of 16 and of 8 bytes, then one byte each."""
    images, classes = (gzip.decompress(data) for data in files)
    pixels = np.frombuffer(images, dtype=np.uint8, offset=16).reshape(-1, 28 * 28)
    return pixels.astype(np.float64), np.frombuffer(classes, dtype=np.uint8, offset=8).astype(np.int64)


def _letter(files: Sequence[bytes]) -> Made:
    """Leave out the line of names and read the class, a letter, from the first cell."""
    rows = _cells(files[0].replace(b'"', b""), ",")[1:]
    return _numbers([row[1:] for row in rows]), np.array([ord(row[0]) - ord("A") for row in rows], dtype=np.int64)


_FORMATS: dict[str, Callable[[Sequence[bytes]], Made]] = {
    "plain": _plain,
    "packed": _packed,
    "adult": _adult,
    "breast": _breast,
    "birch2": _birch2,
    "mnist": _mnist,
    "letter": _letter,
}


def _read_origins() -> dict[str, Origin]:
    """Read the table beside this module."""
    table = tomllib.loads(Path(__file__).with_name("origins.toml").read_text("utf-8"))
    return {
        name: Origin(
            files=tuple(
                Remote(f"{table['addresses'][address]}/{path}", size, sha256)
                for address, path, size, sha256 in entry["files"]
            ),
            names=tuple(entry["names"]) if "names" in entry else tuple(f"p{i}" for i in range(entry["pixels"])),
            build=_FORMATS[entry["format"]],
            sha256=entry["sha256"],
        )
        for name, entry in table["sets"].items()
    }


ORIGINS = _read_origins()
"""By the name of the set, as `origins.toml` has them."""
