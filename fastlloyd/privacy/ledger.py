"""The ledger: every noisy release is written down, durably, before it leaves.

A ledger is a file of JSON lines, one `Release` each, mode 0600, locked while it is open. It belongs to
one party: it says what that party's data has been used for. Without a file it lives in memory and
starts empty, so repeated runs add up without being seen.

Source: docs/privacy.md, "The ledger".
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import logging
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import BudgetError, ConfigError, InternalError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, ZERO_OUT_RECORD, Release

__all__ = ["Ledger", "Release", "keyed_digest"]

DIGEST_KEY_BYTES = 32

_LOG = logging.getLogger(__name__)
_PRIVATE_MODE = 0o600
_COVERED = {ADD_REMOVE: (ZERO_OUT_RECORD,), ADD_REMOVE_USER: (ADD_REMOVE, ZERO_OUT_RECORD)}


class Ledger:
    """An append-only list of releases, on disk or in memory.

    Parameters
    ----------
    path : Path or None
        The file, made if it does not exist; its directory must exist. None keeps everything in memory.

    Raises
    ------
    ConfigError
        The file cannot be opened, another run holds it, or one of its lines is damaged. A last line
        that a crash cut short was never acted on: it is cut off, with a warning.

    Notes
    -----
    Recording is idempotent per (run, round, name), so that a resumed run may record again what it
    recorded before the crash.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._releases: dict[tuple[str, int, str], Release] = {}
        self._descriptor = -1
        self._digest_key: bytes | None = None
        # What was begun and may not be on the disk yet, and where the file ends before it.
        self._unsettled: list[tuple[str, int, str]] = []
        self._settled_size = 0
        if path is not None:
            try:
                self._open(path)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in the order of recording."""
        return tuple(self._releases.values())

    def close(self) -> None:
        """Give the file and its lock back; recording afterwards is an error if there was a file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def record(self, releases: Iterable[Release]) -> None:
        """Write releases down, durably, before returning.

        Raises
        ------
        InternalError
            A release has no run, or another release stands under its (run, round, name).
        ConfigError
            The file cannot be written; then nothing counts as recorded and nothing may be released.
        """
        self.begin(releases)
        self.settle()

    def begin(self, releases: Iterable[Release]) -> None:
        """Write releases down without waiting for the disk: nothing may be released before `settle` has returned.

        Raises
        ------
        As `record`.
        """
        added: dict[tuple[str, int, str], Release] = {}
        for release in releases:
            if not release.run:
                raise InternalError(f"release {release.name!r} of round {release.round} has no run")
            key = release.key
            known = self._releases.get(key)
            if (added.setdefault(key, release) if known is None else known) != release:
                raise InternalError(
                    f"the ledger holds another release {release.name!r} for round {release.round} of this run"
                )
        if added and self._path is not None:
            start = self._append("".join(f"{release.to_json()}\n" for release in added.values()).encode())
            if self.settled:
                self._settled_size = start
            self._unsettled += added
        self._releases.update(added)

    @property
    def settled(self) -> bool:
        """Whether all that was begun is on the disk; always, where there is no file."""
        return not self._unsettled

    def settle(self) -> None:
        """Wait until all that was begun is on the disk; in any thread, while no other one uses the ledger.

        Raises
        ------
        ConfigError
            The disk refused; what was begun since the last `settle` counts as not recorded.
        """
        if self.settled:
            return
        try:
            self._sync(self._settled_size)
        except ConfigError:
            for key in self._unsettled:
                del self._releases[key]
            self._unsettled = []
            raise
        self._unsettled = []

    def epsilon(self, delta: float, neighbours: str = ADD_REMOVE) -> float:
        """Compose all releases for one neighbouring relation; see `accountant.spent`.

        Parameters
        ----------
        delta : float
        neighbours : str
            What the claim protects, as in `Release.neighbours`.

        Returns
        -------
        float
            Infinity if a release in the ledger says nothing about such neighbours (`covers`).
        """
        return _composed(self.releases, delta, neighbours)

    def check_budget(self, planned: Sequence[Release], delta: float, limit: float) -> None:
        """Check that all releases so far and the planned ones together stay within a limit.

        Parameters
        ----------
        planned : sequence of Release
            What this run is going to release, all for the same neighbours; those that are in the ledger already
            count once. Earlier releases that say nothing about such neighbours count as infinite.
        delta, limit : float
            The lifetime limit on epsilon, at delta.

        Raises
        ------
        BudgetError
            The composition exceeds the limit.
        """
        missing = [release for release in planned if self._releases.get(release.key) != release]
        neighbours = planned[0].neighbours if planned else ADD_REMOVE
        total = _composed((*self.releases, *missing), delta, neighbours)
        if total <= limit:
            return
        before = self.epsilon(delta, neighbours)
        asked = spent(planned, delta)
        would_add = total - before if math.isfinite(before) else asked
        raise BudgetError(asked=asked, spent=before, would_add=would_add, limit=limit)

    def digest_key(self) -> bytes:
        """Give the local key for `keyed_digest`, kept beside the ledger (mode 0600), made at first use.

        Sees
        ----
        Nobody but the caller.
        """
        if self._digest_key is None:
            if self._path is None:
                self._digest_key = os.urandom(DIGEST_KEY_BYTES)
            else:
                self._digest_key = _load_key(self._path.with_name(self._path.name + ".key"))
        return self._digest_key

    def _open(self, path: Path) -> None:
        """Open, lock and read the file."""
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _PRIVATE_MODE)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(self._descriptor, _PRIVATE_MODE)
            _sync_directory(path.parent)
            content = _read_all(self._descriptor)
        except BlockingIOError:
            raise ConfigError(
                f"expected the ledger {path} to be free, but another run holds it; "
                f"wait for that run or give this one a state directory of its own"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"cannot open the ledger {path}: {error.strerror}; give a directory that exists and is yours"
            ) from error
        self._read(path, content)

    def _read(self, path: Path, content: bytes) -> None:
        """Take the lines in; mend a last line that a crash cut short."""
        end = content.rfind(b"\n") + 1
        tail = content[end:]
        for number, line in enumerate(content[:end].split(b"\n")[:-1], start=1):
            self._take(_decode_line(line, f"line {number} of the ledger {path}"), number)
        if not tail:
            return
        number = content.count(b"\n") + 1
        try:
            release = _decode_line(tail, f"line {number} of the ledger {path}")
        except ConfigError:
            _LOG.warning("the last line of the ledger %s was cut short by a crash: removed", path)
            self._rewind(end)
            return
        # A whole release without its line's end counts as spent: an editor may have dropped the end.
        self._take(release, number)
        self._sync(self._append(b"\n"))

    def _take(self, release: Release, number: int) -> None:
        """Add a release that was read from the file."""
        if not release.run or release.key in self._releases:
            problem = "repeats an earlier line" if release.run else "has no run"
            raise ConfigError(
                f"line {number} of the ledger {self._path}: expected a new release of a run, "
                f"but it {problem}; restore the file from a copy"
            )
        self._releases[release.key] = release

    def _append(self, content: bytes) -> int:
        """Write, or leave the file as it was; give where it ended before."""
        if self._descriptor < 0:
            raise InternalError("the ledger was closed before a release was recorded")
        start = os.fstat(self._descriptor).st_size
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            self._rewind(start)
            raise self._unwritable(error) from error
        return start

    def _sync(self, start: int) -> None:
        """Wait until what was written from `start` on is on the disk, or take it away again."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._rewind(start)
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot write the ledger {self._path}: {error.strerror}; nothing was released, make room")

    def _rewind(self, size: int) -> None:
        """Cut the file to its first `size` bytes, as well as the disk allows."""
        try:
            os.ftruncate(self._descriptor, size)
            os.fsync(self._descriptor)
        except OSError as error:
            raise ConfigError(f"cannot mend the ledger {self._path}: {error.strerror}; make room") from error


def covers(released: str, claimed: str) -> bool:
    """Whether a release for the neighbours `released` bounds what neighbours `claimed` can do to it.

    Protecting all records of a user protects each of them. Nothing follows the other way round: a user may hold any
    number of records. Adding or removing a record, at a fixed public N, covers that one of n records counts or does
    not, n public; not the other way round, for there N is n. Nothing follows for the zero-out of a person's row at
    several parties, nor from it.
    """
    return released == claimed or claimed in _COVERED.get(released, ())


def _composed(releases: Sequence[Release], delta: float, neighbours: str) -> float:
    """Compose releases for one neighbouring relation."""
    if not all(covers(release.neighbours, neighbours) for release in releases):
        return math.inf
    return spent(releases, delta)


def keyed_digest(key: bytes, content: bytes | NDArray[Any]) -> str:
    """Give a digest of records that nobody without the key can test guesses against.

    Parameters
    ----------
    key : bytes
        As `Ledger.digest_key` gives it.
    content : bytes or array
        For an array its type and shape count too.

    Returns
    -------
    str
        HMAC-SHA256, 64 hexadecimal digits.

    Privacy
    -------
    A plain hash of a table with few possible values could be guessed; keep the key where the data is.
    """
    mac = hmac.new(key, digestmod=hashlib.sha256)
    if isinstance(content, np.ndarray):
        mac.update(f"{content.dtype.str} {content.shape}\n".encode())
        content = np.ascontiguousarray(content).tobytes()
    mac.update(content)
    return mac.hexdigest()


def _decode_line(line: bytes, where: str) -> Release:
    """Read one line of the file."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: expected UTF-8, got other bytes; restore the file from a copy") from None
    return Release.from_json(text, where)


def _read_all(descriptor: int) -> bytes:
    """Read a file from its start."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def _sync_directory(path: Path) -> None:
    """Make a new entry of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _load_key(path: Path) -> bytes:
    """Read the key file, or make it: written whole, synced and renamed, under the ledger's lock."""
    try:
        if not path.exists():
            draft = path.with_name(path.name + ".new")
            draft.unlink(missing_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE)
            try:
                os.write(descriptor, os.urandom(DIGEST_KEY_BYTES))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            draft.replace(path)
            _sync_directory(path.parent)
        key = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot keep the key {path}: {error.strerror}; check its directory") from error
    if len(key) != DIGEST_KEY_BYTES:
        raise ConfigError(
            f"expected {DIGEST_KEY_BYTES} bytes in the key {path}, got {len(key)}; restore it from a copy"
        )
    return key
