"""Records that are more than memory may hold: files without a name, and passes that read them piece by piece.

A file here stands in no folder (`O_TMPFILE`): nobody else can open it by a name, its mode is 0600, and it is gone with
the process that made it, however that ends. Mapped pages count as memory of the process until they are given back, so
each pass gives them back after each piece; the system's cache of the file stays.

Source: docs/performance.md, "More records than memory".
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.kmeans.passes import Passes

T = TypeVar("T")

_PIECE_BYTES = 1 << 25
_BLOCK_VALUES = 1 << 18


class Scratch:
    """A file without a name.

    Parameters
    ----------
    folder : Path
        Its folder, or the nearest existing folder above.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
        try:
            self._file = TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 it exists as long as this object
        except OSError as error:
            raise self._problem(error) from error
        weakref.finalize(self, self._file.close)

    def write(self, values: NDArray[Any], at: int) -> None:
        """Write an array's bytes at a place in the file.

        Raises
        ------
        ConfigError
            The disk is full.
        """
        rest = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        try:
            while rest:
                done = os.pwrite(self._file.fileno(), rest, at)
                rest, at = rest[done:], at + done
        except OSError as error:
            raise self._problem(error) from error

    def read(self, values: NDArray[Any], at: int) -> None:
        """Fill a C-contiguous array with the bytes from a place in the file on.

        Raises
        ------
        ConfigError
            The disk fails.
        """
        rest = memoryview(values.reshape(-1).view(np.uint8).data)
        try:
            while rest:
                done = os.preadv(self._file.fileno(), [rest], at)
                if not done:
                    raise OSError(0, "the file ends early")
                rest, at = rest[done:], at + done
        except OSError as error:
            raise self._problem(error) from error

    def cut(self, size: int) -> None:
        """Truncate the file to this many bytes."""
        os.ftruncate(self._file.fileno(), size)

    def reserve(self, size: int) -> None:
        """Reserve this many bytes of the disk, so that writing to a map of the file cannot fail.

        Raises
        ------
        ConfigError
            The disk is full.
        """
        try:
            os.posix_fallocate(self._file.fileno(), 0, max(size, 1))
        except AttributeError:  # macOS cannot reserve: with a full disk, writing to the map ends the process
            os.ftruncate(self._file.fileno(), max(size, 1))
        except OSError as error:
            raise self._problem(error) from error

    def map(self, kind: DTypeLike, shape: tuple[int, ...], at: int = 0) -> NDArray[Any]:
        """Map an array at a place in the file; the file exists as long as its maps."""
        count = int(np.prod(shape))
        if not count:
            return np.empty(shape, kind)
        mapping = mmap.mmap(self._file.fileno(), at + count * np.dtype(kind).itemsize)
        return np.frombuffer(mapping, kind, count, at).reshape(shape)

    def _problem(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"--memory: no space for more records in {self._folder} ({error.strerror}); free some, give another "
            "--state-dir (or --output, without one), or more --memory",
            reason=Reason.OUTPUT,
        )


class StoredRows:
    """Rows of numbers in a file without a name.

    Parameters
    ----------
    folder : Path
    width : int
        Numbers in a row, at least one.
    """

    __slots__ = ("_rows", "_scratch", "width")

    def __init__(self, folder: Path, width: int) -> None:
        self._scratch = Scratch(folder)
        self._rows = 0
        self.width = width

    def __len__(self) -> int:
        return self._rows

    def append(self, values: NDArray[np.float64]) -> None:
        """Add rows, shape (b, width), at the end."""
        self._scratch.write(values, 8 * self.width * self._rows)
        self._rows += len(values)

    def blocks(self) -> Iterator[NDArray[np.float64]]:
        """Read all rows, block by block, from the first on."""
        height = max(1, _BLOCK_VALUES // self.width)
        for start in range(0, self._rows, height):
            yield self._read(start, min(start + height, self._rows))

    def drain(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Read all rows once, each block with the number of its first row, from the last on; free their space."""
        height = max(1, _BLOCK_VALUES // self.width)
        while self._rows:
            start = (self._rows - 1) // height * height
            values = self._read(start, self._rows)
            self._scratch.cut(8 * self.width * start)
            self._rows = start
            yield start, values

    def _read(self, start: int, stop: int) -> NDArray[np.float64]:
        values = np.empty((stop - start, self.width), dtype=np.float64)
        self._scratch.read(values, 8 * self.width * start)
        return values


class StoredPasses(Passes):
    """Carries out passes over records in a file, a piece at a time; the memory of a piece is released after it.

    Parameters
    ----------
    threads : int
    folder : Path
        Folder of the file of labels.
    memory : int
        Bytes that the pieces in progress may use together; there is always at least one.
    patience : float
        As for `Passes`.
    """

    __slots__ = ("_arrays", "_folder", "_piece_bytes", "_threads")

    def __init__(self, threads: int, folder: Path, memory: int, *, patience: float = 1.0) -> None:
        super().__init__(threads, patience=patience)
        self._threads = threads
        self._folder = folder
        self._piece_bytes = min(_PIECE_BYTES, memory // (2 * threads))
        self._arrays: list[NDArray[Any]] = []

    def watch(self, array: NDArray[Any]) -> None:
        """Release the memory of this map after each piece from now on."""
        self._arrays.append(array)

    def new_labels(self, n: int) -> NDArray[np.int64]:
        """Return an array for the labels of all records, in a file."""
        scratch = Scratch(self._folder)
        scratch.reserve(8 * n)
        labels = scratch.map(np.int64, (n,))
        self.watch(labels)
        return labels

    def over(self, n: int, k: int, d: int, run: Callable[[int, int], T]) -> Iterator[T]:
        """Call `run(start, stop)` for pieces that together are 0 to n, in threads."""
        height = max(1, self._piece_bytes // (4 * d + 16))

        def piece(start: int) -> T:
            try:
                return run(start, min(start + height, n))
            finally:
                for array in self._arrays:
                    release(array)

        with ThreadPoolExecutor(self._threads) as pool:
            yield from pool.map(piece, range(0, max(n, 1), height))


def release(array: NDArray[Any]) -> None:
    """Release the memory of a mapped array; its pages are read again when they are needed. Do nothing for other arrays.

    Only for maps of files, whose pages the file holds as well.
    """
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)
