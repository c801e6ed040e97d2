"""Microsoft SEAL as tenseal brings it: the only file that imports it, and how objects get in and out.

Source: tenseal 0.3.15 to 0.3.18.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from functools import cache
from types import ModuleType
from typing import Any

from fastlloyd.crypto.hidden_file import HiddenFile
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_he.he.seal_form import compressed_part


@cache
def library() -> ModuleType:
    """Import the library at first use.

    Raises
    ------
    ConfigError
        It is not installed.
    """
    try:
        import tenseal.sealapi as found
    except ImportError as error:
        raise ConfigError(
            "vertical-he needs the package tenseal, which is not installed; install it with "
            "`pip install 'fastlloyd[he]'` (Python 3.11 to 3.14)"
        ) from error
    return found  # type: ignore[no-any-return]


@cache
def _decompress() -> Any:
    """Find the decompressor in the library: it always compresses what it writes, and has no call to undo that."""
    library()
    try:
        found = ctypes.CDLL(sys.modules["_sealapi_cpp"].__file__).ZSTD_decompress
    except (KeyError, OSError, AttributeError) as error:
        raise unsupported() from error
    found.restype = ctypes.c_size_t
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    return found


def unsupported() -> ConfigError:
    """Say that this version of the library writes or reads in another way than the known ones."""
    return ConfigError("this version of tenseal is not supported: install tenseal 0.3.15 to 0.3.18")


class Exchange:
    """A hidden file, since SEAL reads and writes files only: its own, and those that `seal_form` wrote."""

    def __init__(self) -> None:
        self._file = HiddenFile()
        weakref.finalize(self, self._file.close)

    def version(self) -> bytes:
        """Return the version that the library writes, two bytes."""
        return self._compressed(library().Plaintext())[0]

    def save(self, thing: Any, size: int) -> bytes:
        """Return the body of an object's file, of `size` bytes without compression.

        Raises
        ------
        ConfigError
            It has another size: an unknown version of the library.
        """
        _, compressed = self._compressed(thing)
        body = ctypes.create_string_buffer(size)
        if _decompress()(body, size, compressed, len(compressed)) != size:
            raise unsupported()
        return body.raw

    def load(self, thing: Any, context: Any, content: bytes) -> None:
        """Read an object from a file that `seal_form` wrote.

        Raises
        ------
        ConfigError
            SEAL refuses it: an unknown version of the library.
        """
        os.ftruncate(self._file.descriptor, 0)
        os.pwrite(self._file.descriptor, content, 0)
        try:
            thing.load(context, self._file.path)
        except (RuntimeError, ValueError) as error:
            raise unsupported() from error

    def _compressed(self, thing: Any) -> tuple[bytes, bytes]:
        os.ftruncate(self._file.descriptor, 0)
        thing.save(self._file.path)
        try:
            return compressed_part(os.pread(self._file.descriptor, os.fstat(self._file.descriptor).st_size, 0))
        except ValueError as error:
            raise unsupported() from error
