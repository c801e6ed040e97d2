"""Opens ordinary files only: a pipe would block for ever, a device may never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def open_regular(path: Path) -> BinaryIO:
    """Open an ordinary file for reading, without waiting for anybody.

    Raises
    ------
    OSError
        It is missing, closed to this user, or no ordinary file, or no file can have such a name; `strerror` says which.
    """
    try:
        # Non-blocking: opening a pipe waits for whoever writes to it.
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


def _check(mode: int) -> None:
    """Refuse anything but an ordinary file."""
    if not stat.S_ISREG(mode):
        kind = next((name for holds, name in _KINDS if holds(mode)), "a device")
        raise OSError(errno.EINVAL, f"expected an ordinary file, it is {kind}")
