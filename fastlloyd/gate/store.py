"""Where results wait: the folder of a run's files, written whole or not at all, and the lock of whoever decides.

::

    STATE/client-1/held/RUN/...      the files of a run, as --output would have them (folder 0700, files 0600)
    STATE/client-1/held/.RUN.part/   the same while they are written
    STATE/client-1/decisions.jsonl   what waits, and what was decided (`gate/decisions.py`)

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
    """Make the empty folder in which a run writes what is to be held.

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
        raise problem(f"--review: {folder} cannot be made ({error.strerror}); check rights and room") from error
    return folder


def hold(state: Path, waiting: Decision, key: Ed25519PrivateKey | None) -> Decision | None:
    """Let the draft of a run wait for a decision: whole, or not at all.

    Parameters
    ----------
    state : Path
        The party's state folder.
    waiting : Decision
        What is known before the files' digests: run, output, own, key_file.
    key : Ed25519PrivateKey or None
        Signs the line; None without a roster.

    Returns
    -------
    Decision or None
        The last line about the run: that it is held, or, of a run that was resumed after a decision, that decision;
        its draft is removed. None where this party has no file of it.

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
            remove(folder)  # of this run as it ended before it was resumed
            draft.replace(folder)
            sync_directory(folder.parent)
        except OSError as error:
            raise problem(f"--review: {folder} cannot be written ({error.strerror}); check rights and room") from error
        own = tuple(name for name in waiting.own if name in digests)
        return decisions.add(replace(waiting, files=digests, own=own), key)


def drop_draft(state: Path, run: str) -> None:
    """Leave nothing half-written."""
    with contextlib.suppress(OSError):
        remove(state / HELD / f".{run}.part")


def is_held(folder: Path) -> bool:
    """Whether a folder is one of those that wait for a decision."""
    place = folder.resolve()
    return place.parent.name == HELD and (place.parent.parent / NAME).is_file()


@contextlib.contextmanager
def locked(state: Path) -> Iterator[None]:
    """Keep every other process from deciding in a party's state folder.

    Raises
    ------
    ConfigError
        The folder is missing, or another process holds it for long.
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
    """Return the keyed digest of a file: a plain one of labels or centroids could be guessed."""
    mac = hmac.new(load_key(digest_key(state)), digestmod=hashlib.sha256)
    for block in blocks(path):
        mac.update(block)
    return mac.hexdigest()


def digest_key(state: Path) -> Path:
    """Return where the key of the privacy ledger's digests is."""
    return state / "ledger.jsonl.key"


def blocks(path: Path) -> Iterator[bytes]:
    """Yield an ordinary file in blocks."""
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
