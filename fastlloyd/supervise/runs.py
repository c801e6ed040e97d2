"""What the service of a site keeps of its runs: the one that it began last, and how each ended.

The service may be killed at any moment, while the run goes on. So `runs/last.json` is written before a run begins, and
the run's process holds a lock on its log until it ends. A service that starts later waits for that lock, and reads from
ledger, state and log how the run ended.

Source: docs/sites.md, "A permanent service at a site".
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fastlloyd.errors import ConfigError
from fastlloyd.run.state import resume_words
from fastlloyd.wire.decode import decode, load_json
from fastlloyd.wire.regular import open_regular, read_regular, replace_file

_TAIL_BYTES = 1 << 14
_ROOM_BYTES = 1 << 16
"""With less room than this on its disk, a log may lack a run's last lines."""
_PREFIX = "fastlloyd: "
_WAITS = "set-up: "
_MOST_CAUSES = 2
"""A party says what happened to itself, and what all parties see."""


class UnwritableError(ConfigError):
    """A file of the site's folder cannot be written now; the next look tries again."""


@dataclass(frozen=True, slots=True)
class SiteEnding:
    """How a run ended, as in `outcomes/NAME.json`.

    Attributes
    ----------
    code : int
        Of `fastlloyd join`; 3 where the service was killed before it, and nobody saw the code of a run that failed.
    said : str
        Where the result is, or the cause of the failure.
    instance : str
        Which of the server's offers under this name it was; empty for one that the server did not make.
    run : str
        Id of a run whose result was held for a decision, else empty.
    """

    site: Literal[1]
    code: int
    said: str
    ended_at: str
    instance: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunRun:
    """The run that began last, as in `runs/last.json`.

    Attributes
    ----------
    name, instance : str
        Of its offer.
    output : str
        Name of the folder of its results.
    result : str
        What to say if it ends well.
    resumes : bool
        Whether it can go on where it broke off.
    ledger, log : int
        Bytes of the ledger and of its log before it began.
    decided : int
        Runs in the ledger of decisions before it began.
    pid : int
        Of its process, valid while the log is locked; 0 before it was started.
    over : bool
        Whether the service that began it has seen its end.
    resumed : bool
        Whether it went on with a run that had broken off, which may have spent all of it before.
    waits : bool
        Whether it was stopped with the service after it had spent something: it goes on without a person if the server
        goes on with it, too.
    """

    site: Literal[1] = 1
    name: str
    instance: str
    output: str
    result: str
    resumes: bool
    ledger: int
    log: int
    decided: int = 0
    pid: int = 0
    over: bool = False
    resumed: bool = False
    waits: bool = False


def read_begun(path: Path) -> BegunRun | None:
    """Read which run began last; None if there is no such file, or none that says so."""
    try:
        return decode(BegunRun, load_json(read_regular(path)), "")
    except (OSError, ValueError):
        return None


def read_ending(path: Path) -> SiteEnding | None:
    """Read how a run ended; None if it has not.

    Raises
    ------
    ConfigError
        The file is damaged.
    """
    try:
        return decode(SiteEnding, load_json(read_regular(path)), "")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}; if the run may be joined again, remove it") from error


def keep(path: Path, content: BegunRun | SiteEnding | dict[str, Any] | str) -> None:
    """Replace a file that only this user reads.

    Raises
    ------
    UnwritableError
        The disk is full, or the folder is not writable.
    """
    if not isinstance(content, str):
        values = content if isinstance(content, dict) else asdict(content)
        content = json.dumps(values, indent=1, ensure_ascii=False) + "\n"
    try:
        replace_file(path, [content.encode()], mode=0o600)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> UnwritableError:
    """Return the error of a file that cannot be written."""
    return UnwritableError(
        f"{path}: cannot be written ({error.strerror}); make room, or fix the folder's permissions: the next look "
        "tries again"
    )


@contextmanager
def locked_log(path: Path) -> Iterator[int]:
    """Open a run's log, and lock it for as long as this process, or one that inherits the descriptor, keeps it open.

    Raises
    ------
    UnwritableError
        It cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def is_running(log: Path) -> bool:
    """Whether a process that an earlier service began still holds its log."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def size_of(path: Path) -> int:
    """Return the bytes of a file, 0 if there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def read_cause(log: Path, start: int, own: Path) -> str:
    """Return what a run complained of at its end, without the advice that is for a person who types commands.

    Parameters
    ----------
    log : Path
    start : int
        Where the run's part of the log begins.
    own : Path
        This party's state folder.

    Returns
    -------
    str
        Its last one or two complaints, which follow each other; empty if there are none.
    """
    try:
        with open_regular(log) as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    said = [_complaint(line.strip()) for line in lines if line.strip()]
    causes: list[str] = []
    for sentence in reversed(said):
        if sentence is None or sentence.startswith(_WAITS) or len(causes) == _MOST_CAUSES:
            break
        if sentence != resume_words(own):
            causes.insert(0, sentence)
    return "; ".join(causes)


def why_silent(log: Path) -> str:
    """Return why a run's log does not say why the run failed, as far as that is seen afterwards."""
    with suppress(OSError):
        if shutil.disk_usage(log.parent).free < _ROOM_BYTES:
            return f"its log could not say why: no space is left in {log.parent}"
    return "its log says no more"


def _complaint(line: str) -> str | None:
    """Return the sentence of a line of a log, text or JSON; None for one that is no complaint."""
    if line.startswith(_PREFIX):
        return line.removeprefix(_PREFIX)
    try:
        found = load_json(line) if line.startswith("{") else None
    except ValueError:
        return None
    if isinstance(found, dict) and found.get("level") == "error" and isinstance(found.get("message"), str):
        return str(found["message"])
    return None
