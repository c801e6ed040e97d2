"""The ledger: every noisy release is recorded durably before it leaves.

A ledger is a file of JSON lines, one `Release` each and chained (`privacy/chain.py`), mode 0600, locked while it is
open. It belongs to one party and records the use of that party's data. Without a file it is kept in memory and starts
empty, so it does not count earlier runs.

Source: docs/privacy.md, "The ledger".
"""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from fastlloyd.errors import BudgetError, ConfigError, InternalError, Reason, format_count
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.chain import FIRST_LINK, Mark, chained_line, next_link, read_line
from fastlloyd.privacy.record_digest import DIGEST_KEY_BYTES, PRIVATE_MODE, key_path, keyed_digest, load_key
from fastlloyd.privacy.release import ADD_REMOVE, ADD_REMOVE_USER, ZERO_OUT_RECORD, Release
from fastlloyd.wire.regular import sync_directory

__all__ = ["Ledger", "Release", "keyed_digest"]

_LOG = logging.getLogger(__name__)
_PAUSE_S = 0.01
_COVERED = {ADD_REMOVE: (ZERO_OUT_RECORD,), ADD_REMOVE_USER: (ADD_REMOVE, ZERO_OUT_RECORD)}


class Ledger:
    """An append-only list of releases, on disk or in memory.

    Parameters
    ----------
    path : Path or None
        The file, made if it does not exist; its directory must exist. None keeps everything in memory.
    patience_s : float
        How long to wait, in seconds, while another run holds the file.

    Raises
    ------
    ConfigError
        The file cannot be opened, another run holds it, or one of its lines is damaged or does not follow the line
        before it. A last line that a crash cut short was never acted on: it is removed, with a warning.

    Notes
    -----
    Recording is idempotent per (run, round, name), so that a resumed run may record again what it
    recorded before the crash.
    """

    def __init__(self, path: Path | None = None, *, patience_s: float = 0.0) -> None:
        self._path = path
        self._releases: dict[tuple[str, int, str], Release] = {}
        self._encoded: dict[tuple[str, int, str], tuple[Release, str]] = {}
        self._descriptor = -1
        self._digest_key: bytes | None = None
        # The link before the first line and after each.
        self._links: list[bytes] = [FIRST_LINK]
        self._sealed = False
        # Releases that may not be on the disk yet, and the size of the file before them.
        self._unsettled: list[tuple[str, int, str]] = []
        self._settled_size = 0
        if path is not None:
            try:
                self._open(path, patience_s)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        runs = format_count(len({run for run, *_ in self._releases}), "run")
        return f"<Ledger: {format_count(len(self._releases), 'release')} of {runs}>"

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()

    @property
    def releases(self) -> tuple[Release, ...]:
        """All releases, in the order of recording."""
        return tuple(self._releases.values())

    @property
    def chained(self) -> bool:
        """Whether a line of the file is chained; a ledger of fastlloyd 0.1 is not before its first new release."""
        return self._sealed

    @property
    def mark(self) -> Mark:
        """Length and last link."""
        return Mark(len(self._links) - 1, self._links[-1].hex())

    def includes(self, mark: Mark) -> bool:
        """Whether this ledger is the marked one, or a later state of it."""
        return mark.entries < len(self._links) and self._links[mark.entries].hex() == mark.link

    def close(self) -> None:
        """Close the file and its lock; recording afterwards is an error if there was a file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def prepare(self, releases: Iterable[Release]) -> None:
        """Encode releases that may be recorded later, without writing them."""
        if self._path is not None:
            self._encoded.update((release.key, (release, release.to_json())) for release in releases)

    def record(self, releases: Iterable[Release]) -> None:
        """Record releases durably before returning.

        Raises
        ------
        InternalError
            A release has no run, or the ledger has another release with its (run, round, name).
        ConfigError
            The file cannot be written; then nothing counts as recorded and nothing may be released.
        """
        self.begin(releases)
        self.settle()

    def begin(self, releases: Iterable[Release]) -> None:
        """Record releases without waiting for the disk: nothing may be released before `settle` has returned.

        Raises
        ------
        As `record`.
        """
        added: dict[tuple[str, int, str], Release] = {}
        for release in releases:
            if not release.run:
                raise InternalError(f"release {release.name!r} of round {release.round} has no run")
            key = release.key
            known = self._releases.get(key) or added.setdefault(key, release)
            if known is not release and known != release:
                raise InternalError(
                    f"the ledger holds another release {release.name!r} for round {release.round} of this run"
                )
        links: list[bytes] = []
        # A ledger in memory is not chained: there is no file that could be changed.
        if added and self._path is not None:
            lines, links = self._chain(added.values())
            start = self._append(lines)
            if self.settled:
                self._settled_size = start
            self._unsettled += added
        self._links += links
        self._sealed = self._sealed or bool(links)
        self._releases.update(added)

    def _chain(self, releases: Iterable[Release]) -> tuple[bytes, list[bytes]]:
        """Return the next lines, and the link after each."""
        link, lines, links = self._links[-1], [], []
        for release in releases:
            prepared, text = self._encoded.pop(release.key, (None, ""))
            line = chained_line(text if prepared is release else release.to_json(), link)
            link = next_link(link, line)
            lines.append(line + b"\n")
            links.append(link)
        return b"".join(lines), links

    @property
    def settled(self) -> bool:
        """Whether all releases are on the disk; always true without a file."""
        return not self._unsettled

    def settle(self) -> None:
        """Wait until all releases are on the disk; in any thread, while no other one uses the ledger.

        Raises
        ------
        ConfigError
            The disk failed; releases since the last `settle` count as not recorded.
        """
        if self.settled:
            return
        try:
            self._sync(self._settled_size)
        except ConfigError:
            for key in self._unsettled:
                del self._releases[key]
            del self._links[len(self._releases) + 1 :]
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
            Infinity if a release in the ledger does not cover such neighbours (`covers`).
        """
        return _composed(self.releases, delta, neighbours)

    def total(self, delta: float) -> float:
        """Compose all releases for whoever all of them protect; infinity if there is nobody, or one has no noise."""
        return min((self.epsilon(delta, each) for each in {one.neighbours for one in self.releases}), default=0.0)

    def check_budget(self, planned: Sequence[Release], delta: float, limit: float) -> None:
        """Check that all releases so far and the planned ones together stay within a limit.

        Parameters
        ----------
        planned : sequence of Release
            The planned releases of this run, all for the same neighbours; those already in the ledger count once.
            Earlier releases that do not cover such neighbours count as infinite.
        delta, limit : float
            The lifetime limit on epsilon, at delta.

        Raises
        ------
        BudgetError
            The composition exceeds the limit.
        """
        neighbours, total = self._together(planned, delta)
        if total <= limit:
            return
        before = self.epsilon(delta, neighbours)
        asked = spent(planned, delta)
        would_add = total - before if math.isfinite(before) else asked
        raise BudgetError(asked=asked, spent=before, would_add=would_add, limit=limit)

    def cost(self, planned: Sequence[Release], delta: float) -> tuple[float, float]:
        """Return epsilon of all releases so far, and of these with the planned ones; as for `check_budget`."""
        neighbours, total = self._together(planned, delta)
        return self.epsilon(delta, neighbours), total

    def _together(self, planned: Sequence[Release], delta: float) -> tuple[str, float]:
        """Return the neighbours of the planned releases, and epsilon of all together."""
        missing = [release for release in planned if self._releases.get(release.key) != release]
        neighbours = planned[0].neighbours if planned else ADD_REMOVE
        return neighbours, _composed((*self.releases, *missing), delta, neighbours)

    def digest_key(self) -> bytes:
        """Return the local key for `keyed_digest`, kept beside the ledger (mode 0600), made at first use.

        Sees
        ----
        Nobody but the caller.
        """
        if self._digest_key is None:
            if self._path is None:
                self._digest_key = os.urandom(DIGEST_KEY_BYTES)
            else:
                self._digest_key = load_key(key_path(self._path))
        return self._digest_key

    def _open(self, path: Path, patience_s: float) -> None:
        """Open, lock and read the file."""
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE_MODE)
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            _lock(self._descriptor, time.monotonic() + patience_s)
            os.fchmod(self._descriptor, PRIVATE_MODE)
            sync_directory(path.parent)
            with os.fdopen(os.dup(self._descriptor), "rb") as file:
                file.seek(0)
                content = file.read()
        except BlockingIOError:
            raise _problem(
                f"expected the ledger {path} to be free, but another run holds it; wait for that run and start again"
            ) from None
        except OSError as error:
            raise _problem(
                f"cannot open the ledger {path}: {error.strerror}; give a directory that exists and is yours"
            ) from error
        self._read(path, content)

    def _read(self, path: Path, content: bytes) -> None:
        """Read the lines; remove a last line that a crash cut short."""
        end = content.rfind(b"\n") + 1
        tail = content[end:]
        for number, line in enumerate(content[:end].split(b"\n")[:-1], start=1):
            self._take(line, number)
        if not tail:
            return
        number = content.count(b"\n") + 1
        try:
            # A complete release without its line's end counts as spent: an editor may have dropped the end.
            self._take(tail, number)
        except ConfigError:
            _LOG.warning("the last line of the ledger %s was cut short by a crash: removed", path)
            self._rewind(end)
        else:
            self._sync(self._append(b"\n"))

    def _take(self, line: bytes, number: int) -> None:
        """Add a line that was read from the file."""
        where = f"line {number} of the ledger {self._path}"
        try:
            release, chained = read_line(line, self._links[-1], where, sealed=self._sealed)
        except ConfigError as error:
            raise _problem(str(error)) from None
        if not release.run or release.key in self._releases:
            problem = "repeats an earlier line" if release.run else "has no run"
            raise _problem(f"{where}: expected a new release of a run, but it {problem}; restore the file from a copy")
        self._sealed = self._sealed or chained
        self._links.append(next_link(self._links[-1], line))
        self._releases[release.key] = release

    def _append(self, content: bytes) -> int:
        """Append, or leave the file unchanged; return its size before."""
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
        """Wait until the content from `start` on is on the disk, or remove it again."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._rewind(start)
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ConfigError:
        return _problem(f"cannot write the ledger {self._path}: {error.strerror}; nothing was released, make room")

    def _rewind(self, size: int) -> None:
        """Truncate the file to its first `size` bytes."""
        try:
            os.ftruncate(self._descriptor, size)
            os.fsync(self._descriptor)
        except OSError as error:
            raise _problem(f"cannot repair the ledger {self._path}: {error.strerror}; make room") from error


def covers(released: str, claimed: str) -> bool:
    """Whether a release for the neighbours `released` also protects the neighbours `claimed`.

    Protecting all records of a user protects each of them, but not conversely: a user may hold any number of records.
    Adding or removing a record, at a fixed public N, covers zeroing out one of n records, n public; not conversely,
    because N is n there. Nothing follows for or from the zero-out of a person's row at several parties.
    """
    return released == claimed or claimed in _COVERED.get(released, ())


def _composed(releases: Sequence[Release], delta: float, neighbours: str) -> float:
    """Compose releases for one neighbouring relation."""
    if not all(covers(release.neighbours, neighbours) for release in releases):
        return math.inf
    return spent(releases, delta)


def _problem(text: str) -> ConfigError:
    """Return an error; the other parties receive only that this party cannot keep its state."""
    return ConfigError(text, reason=Reason.STATE)


def _lock(descriptor: int, until: float) -> None:
    """Lock a file for this process, waiting until the monotonic time `until`."""
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_PAUSE_S)
