"""Opening of regular files only (a pipe would block forever, a device may never end), and atomic replacement."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def open_regular(path: Path) -> BinaryIO:
    """Open an ordinary file for reading, without waiting.

    Raises
    ------
    OSError
        It is missing, not readable, not an ordinary file, or its name is impossible; `strerror` says which.
    """
    try:
        # Non-blocking: opening a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"no file can have such a name: {error}") from error
    try:
        _check(os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> str:
    """Read an ordinary file as UTF-8 text.

    Raises
    ------
    OSError
        As for `open_regular`.
    UnicodeDecodeError
        It is no text.
    """
    with open_regular(path) as file:
        return file.read().decode("utf-8")


def read_regular_bytes(path: Path, most_bytes: int = -1) -> bytes:
    """Read an ordinary file from its start, at most `most_bytes`.

    Raises
    ------
    OSError
        As for `open_regular`.
    """
    with open_regular(path) as file:
        return file.read(most_bytes)


def replace_file(
    path: Path, pieces: Iterable[bytes], *, mode: int, draft: str | None = None, fresh: bool = False
) -> None:
    """Write a temporary file, sync it, and rename it into place: an atomic replacement.

    Parameters
    ----------
    path : Path
    pieces : iterable of bytes
        The content, in order.
    mode : int
        Permissions.
    draft : str, optional
        Name of the temporary file, if only one process writes it: the rest of an earlier one is replaced. By default a
        unique name.
    fresh : bool
        Keep an existing file.

    Raises
    ------
    FileExistsError
        With `fresh`: the name exists already.
    OSError
        The folder is missing or not writable, or the disk is full; an old file stays unchanged.
    """
    if draft is None:
        descriptor, name = tempfile.mkstemp(prefix=".fastlloyd-", suffix=".part", dir=path.parent)
        aside = Path(name)
    else:
        aside = path.with_name(draft)
        aside.unlink(missing_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if fresh:
            os.link(aside, path)  # a rename would replace a file that was created meanwhile
            aside.unlink()
        else:
            aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make a new entry of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, mode: int) -> None:
    """Make a directory, and those above it that are missing, durably: what is synced in it is lost if its own name is.

    Parameters
    ----------
    path : Path
    mode : int
        Permissions; those above it get the usual ones.

    Raises
    ------
    OSError
        It cannot be made, or something else has its name.
    """
    if not path.is_dir():
        if path.parent != path:
            make_directory(path.parent, mode=0o777)
        path.mkdir(mode=mode, exist_ok=True)
        sync_directory(path.parent)


def _check(mode: int) -> None:
    """Refuse anything except an ordinary file."""
    if not stat.S_ISREG(mode):
        kind = next((name for holds, name in _KINDS if holds(mode)), "a device")
        raise OSError(errno.EINVAL, f"expected an ordinary file, it is {kind}")
