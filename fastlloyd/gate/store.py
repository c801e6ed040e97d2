"""The storage of waiting results: the folder of a run's files, written atomically, and the lock for decisions.

::

    STATE/client-1/held/RUN/...      the files of a run as in --output (folder 0700, files 0600)
    STATE/client-1/held/.RUN.part/   the same while they are written
    STATE/client-1/decisions.jsonl   the ledger of decisions (`gate/decisions.py`)

Source: docs/sites.md, "A gate before release".
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fastlloyd.gate.decisions import NAME, Decision, Decisions, problem
from fastlloyd.privacy.record_digest import load_key
from fastlloyd.report.files import PRIVATE_MODE
from fastlloyd.wire.regular import open_regular, sync_directory

HELD = "held"
_BLOCK_BYTES = 1 << 20
_LOCK_S = 10.0
_PAUSE_S = 0.05


def draft_folder(state: Path, run: str) -> Path:
    """Make the empty folder in which a run writes files to be held.

    Parameters
    ----------
    state : Path
        The party's state folder.
    run : str
        Its id.

    Raises
    ------
    ConfigError
        It cannot be made.
    """
    folder = state / HELD / f".{run}.part"
    try:
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        for left in folder.parent.glob(".*.part"):  # of a run that broke off while it wrote, this one or another
            remove(left)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise problem(f"--review: {folder} cannot be made ({error.strerror}); check rights and free space") from error
    return folder


def hold(state: Path, waiting: Decision, key: Ed25519PrivateKey | None) -> Decision | None:
    """Turn the draft of a run into a waiting result, atomically.

    Parameters
    ----------
    state : Path
        The party's state folder.
    waiting : Decision
        The line without the files' digests: run, output, own, key_file.
    key : Ed25519PrivateKey or None
        Signs the line; None without a roster.

    Returns
    -------
    Decision or None
        The last line about the run: that it is held, or an earlier decision, if the run was resumed after it (then the
        draft is removed). None if this party has no file of it.

    Raises
    ------
    ConfigError
        Ledger, lock or folder cannot be written.
    """
    draft, folder = state / HELD / f".{waiting.run}.part", state / HELD / waiting.run
    with locked(state):
        decisions = Decisions(state)
        last = decisions.last(waiting.run)
        try:
            if last is not None and last.what != "held":
                remove(draft)
                return last
            digests = {path.name: digest_file(state, path) for path in sorted(draft.iterdir())}
            if not digests:
                remove(draft)
                return None
            for name in digests:
                (draft / name).chmod(PRIVATE_MODE)
            sync_directory(draft)
            remove(folder)  # from before this run was resumed
            draft.replace(folder)
            sync_directory(folder.parent)
        except OSError as error:
            raise problem(
                f"--review: {folder} cannot be written ({error.strerror}); check rights and free space"
            ) from error
        own = tuple(name for name in waiting.own if name in digests)
        return decisions.add(replace(waiting, files=digests, own=own), key)


def drop_draft(state: Path, run: str) -> None:
    """Remove an incomplete draft."""
    with contextlib.suppress(OSError):
        remove(state / HELD / f".{run}.part")


def is_held(folder: Path) -> bool:
    """Whether a folder is a result that waits for a decision."""
    place = folder.resolve()
    return place.parent.name == HELD and (place.parent.parent / NAME).is_file()


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Lock a party's state folder against decisions of other processes.

    Raises
    ------
    ConfigError
        The folder is missing, or another process holds the lock for long.
    """
    try:
        descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise problem(f"{state} cannot be opened ({error.strerror}); check path and rights") from error
    try:
        end = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise problem(f"{state}: another process decides about a result here; wait for it") from None
                time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def digest_file(state: Path, path: Path) -> str:
    """Return the keyed digest of a file: a plain digest of labels or centroids could be guessed."""
    mac = hmac.new(load_key(digest_key(state)), digestmod=hashlib.sha256)
    for block in blocks(path):
        mac.update(block)
    return mac.hexdigest()


def digest_key(state: Path) -> Path:
    """Return the path of the key of the privacy ledger's digests."""
    return state / "ledger.jsonl.key"


def blocks(path: Path) -> Iterator[bytes]:
    """Yield an ordinary file in blocks."""
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def remove(folder: Path) -> None:
    """Remove a folder with its content, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
