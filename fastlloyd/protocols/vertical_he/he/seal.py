"""Microsoft SEAL from tenseal, which this file alone imports, and the files that SEAL reads and writes.

::

    file    magic A15E | header length 16 | version, 2 bytes | compression | 0, 2 bytes | length of the file u64 | body
    body    level, 4 x u64 | transformed u8 | polynomials u64 = 2 | N u64 | limbs u64 | scale f64 | factor u64 = 1
            file of: how many u64 | residues u64, limb by limb        of both polynomials, or of the first and
            file of: generator u8 = 1 (Blake2xb) | seed, 64 bytes     of the second, if seeded
    plain   level, 4 x u64 | numbers u64 = N limbs | scale f64 | file of: how many u64 | residues u64, limb by limb
    keys    level, 4 x u64 | 1 u64 | how many u64 | files of the key's parts        all numbers little endian

Files written here are for the library to read; their numbers may be a peer's, but their frame is not. Files read here
were written by the library in this process. No peer decides about their form (`residues`); reading is exact all the
same, to detect at once a library that writes another form.

Source: tenseal 0.3.15 to 0.3.18; the files of Microsoft SEAL 4.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.crypto.hidden_file import HiddenFile
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.vertical_he.he.residues import SEED_BYTES, Halves

HEADER = struct.Struct("<HBBBBHQ")
ZSTD = 2
_MAGIC, _PLAIN, _BLAKE2XB = 0xA15E, 0, b"\1"
_MEMBERS = struct.Struct("<4Q?QQQdQ")
_COUNT = struct.Struct("<Q")
_KEYS = struct.Struct("<4QQQ")
_PLAIN_MEMBERS = struct.Struct("<4QQd")


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
    """Find the decompressor in the library, which always compresses its files and has no call to undo that."""
    library()
    try:
        found = ctypes.CDLL(sys.modules["_sealapi_cpp"].__file__).ZSTD_decompress
    except (KeyError, OSError, AttributeError) as error:
        raise unsupported() from error
    found.restype = ctypes.c_size_t
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    return found


def unsupported() -> ConfigError:
    """Return the error for a version of the library whose files have an unknown form."""
    return ConfigError("this version of tenseal is not supported: install tenseal 0.3.15 to 0.3.18")


def _unwritable(why: object) -> ConfigError:
    """Return the error for a file of ciphertexts that could not be written."""
    return ConfigError(
        f"a file of ciphertexts in memory cannot be written ({why}): allow this process larger files (`ulimit -f`), or "
        "more memory"
    )


def _is_cut(content: bytes) -> bool:
    """Whether a file of the library is shorter than its header says."""
    if len(content) < HEADER.size:
        return True
    magic, *_, length = HEADER.unpack_from(content)
    return bool(magic == _MAGIC and length > len(content))


class Exchange:
    """A hidden file for SEAL, which only reads and writes files."""

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
            It has another size: an unknown version of the library; or the file cannot be written.
        """
        _, compressed = self._compressed(thing)
        body = ctypes.create_string_buffer(size)
        if _decompress()(body, size, compressed, len(compressed)) != size:
            raise unsupported()
        return body.raw

    def load(self, thing: Any, context: Any, content: bytes) -> None:
        """Read an object from a file that `SealForm` wrote.

        Raises
        ------
        ConfigError
            SEAL refuses it: an unknown version of the library; or the file cannot be written.
        """
        try:
            self._file.write(content)
        except OSError as error:
            raise _unwritable(error.strerror) from error
        try:
            thing.load(context, self._file.path)
        except (RuntimeError, ValueError) as error:
            raise unsupported() from error

    def _compressed(self, thing: Any) -> tuple[bytes, bytes]:
        self._file.write(b"")
        try:
            thing.save(self._file.path)
        except RuntimeError as error:  # SEAL says only that it could not write
            raise _unwritable(error) from error
        content = os.pread(self._file.descriptor, os.fstat(self._file.descriptor).st_size, 0)
        if _is_cut(content):  # what SEAL writes when it closes a file may fail without a word
            raise _unwritable(f"it ends after {len(content)} bytes")
        try:
            return compressed_part(content)
        except ValueError as error:
            raise unsupported() from error


@dataclass(frozen=True, slots=True)
class SealForm:
    """All of a file except its residues and seed.

    Attributes
    ----------
    level : four int
        The library's name for a set of parameters.
    limbs : int
        Primes at that level.
    version : bytes
        The library's, two bytes.
    transformed : bool
        Whether polynomials are stored by their values.
    """

    level: tuple[int, ...]
    degree: int
    limbs: int
    version: bytes
    scale: float = 1.0
    transformed: bool = True

    def write(self, halves: Halves) -> bytes:
        """Write a file without compression."""
        content, seed = halves.first.astype("<u8").tobytes(), b""
        if isinstance(halves.second, bytes):
            seed = self._frame(_BLAKE2XB + halves.second)
        else:
            content += halves.second.astype("<u8").tobytes()
        return self._frame(b"".join((self._members(), self._array(len(content)), content, seed)))

    def write_keys(self, parts: Sequence[Halves]) -> bytes:
        """Write a relinearisation key's file."""
        return self._frame(_KEYS.pack(*self.level, 1, len(parts)) + b"".join(map(self.write, parts)))

    def body_bytes(self, *, seeded: bool) -> int:
        """Count the bytes of a body."""
        count = self.degree * self.limbs * (1 if seeded else 2)
        seed = HEADER.size + 1 + SEED_BYTES if seeded else 0
        return _MEMBERS.size + HEADER.size + _COUNT.size + 8 * count + seed

    def keys_bytes(self, parts: int) -> int:
        """Count the bytes of the body of a relinearisation key with this number of seeded parts."""
        return _KEYS.size + parts * (HEADER.size + self.body_bytes(seeded=True))

    def read(self, body: bytes, *, seeded: bool) -> Halves:
        """Read a body.

        Raises
        ------
        ValueError
            It is not of exactly this form.
        """
        if len(body) != self.body_bytes(seeded=seeded):
            raise ValueError("a file of another length")
        start = _MEMBERS.size + HEADER.size + _COUNT.size
        count = self.degree * self.limbs * (1 if seeded else 2)
        end = start + 8 * count
        before = self._members() + self._array(8 * count)
        after = self._head(1 + SEED_BYTES) + _BLAKE2XB if seeded else b""
        if body[:start] != before or body[end : end + len(after)] != after:
            raise ValueError("a file of another form")
        numbers = np.frombuffer(body, "<u8", count, start).astype(np.int64).reshape(-1, self.limbs, self.degree)
        return Halves(numbers[0], body[-SEED_BYTES:] if seeded else numbers[1])

    def read_keys(self, body: bytes, parts: int) -> list[Halves]:
        """Read the body of a relinearisation key with this number of seeded parts; raise ValueError as `read` does."""
        if len(body) != self.keys_bytes(parts):
            raise ValueError("a file of another length")
        each = self.body_bytes(seeded=True) + HEADER.size
        starts = range(_KEYS.size, len(body), each)
        found = [self.read(body[start + HEADER.size : start + each], seeded=True) for start in starts]
        if self.write_keys(found)[HEADER.size :] != body:
            raise ValueError("a file of another form")
        return found

    @property
    def plain_bytes(self) -> int:
        """Count the bytes of a plaintext's body."""
        return _PLAIN_MEMBERS.size + HEADER.size + _COUNT.size + 8 * self.degree * self.limbs

    def read_plain(self, body: bytes) -> NDArray[np.int64]:
        """Read the body of a plaintext, shape (limbs, N); raise ValueError as `read` does."""
        count = self.degree * self.limbs
        before = _PLAIN_MEMBERS.pack(*self.level, count, self.scale) + self._array(8 * count)
        if len(body) != self.plain_bytes or not body.startswith(before):
            raise ValueError("a file of another form")
        return np.frombuffer(body, "<u8", count, len(before)).astype(np.int64).reshape(self.limbs, self.degree)

    def _members(self) -> bytes:
        return _MEMBERS.pack(*self.level, self.transformed, 2, self.degree, self.limbs, self.scale, 1)

    def _array(self, size: int) -> bytes:
        """Return the start of the file of an array of `size` bytes."""
        return self._head(_COUNT.size + size) + _COUNT.pack(size // 8)

    def _frame(self, body: bytes) -> bytes:
        return self._head(len(body)) + body

    def _head(self, size: int) -> bytes:
        return HEADER.pack(_MAGIC, HEADER.size, *self.version, _PLAIN, 0, HEADER.size + size)


def compressed_part(content: bytes) -> tuple[bytes, bytes]:
    """Split a file of the library into its version and its compressed body.

    Raises
    ------
    ValueError
        It is not a compressed file.
    """
    if len(content) < HEADER.size:
        raise ValueError("a file without a header")
    magic, header, major, minor, mode, _, size = HEADER.unpack_from(content)
    if (magic, header, mode, size) != (_MAGIC, HEADER.size, ZSTD, len(content)):
        raise ValueError("a file of another form")
    return bytes((major, minor)), content[HEADER.size :]
