"""Log lines as JSON, one object a line, for collectors of logs.

::

    {"time": "2026-05-12T09:30:01.125Z", "level": "info", "rank": 0, "logger": "fastlloyd.report.announcer",
     "message": "round 1 of 6: 3 clients, 20 ms, 6.1 kB",
     "event": "round", "round": 0, "rounds": 6, "clients": 3, "seconds": 0.02, "bytes": 6144}

An event has its values beside the message, with the names of `report.progress`; an internal error has its trace.

Source: docs/operations.md, "Deadlines and logging".
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

from fastlloyd.errors import printable


class Journal(Enum):
    """Where a process writes its messages to people other than progress."""

    TEXT = "text"
    """Sentences on standard error; the log as text."""
    FILE = "file"
    """Sentences on standard error, and all of it in a file of JSON lines."""
    STDERR = "stderr"
    """All of it as JSON lines on standard error."""
    LOG = "log"
    """All of it in the log, and nothing on a terminal, because the process belongs to another program."""


class JsonFormatter(logging.Formatter):
    """Format a record as one line of JSON.

    Parameters
    ----------
    rank : int
    """

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        values = dict(getattr(record, "values", {}))
        if record.exc_info:
            values["trace"] = self.formatException(record.exc_info)
        return json_line(
            record.levelname.lower(),
            record.getMessage(),
            when=record.created,
            rank=self._rank,
            logger=record.name,
            values=values,
        ).rstrip("\n")


def json_line(
    level: str,
    message: str,
    *,
    when: float | None = None,
    rank: int | None = None,
    logger: str = "fastlloyd",
    values: Mapping[str, Any] | None = None,
) -> str:
    """Return one line with its end.

    Parameters
    ----------
    level : str
        A name of `--log-level`.
    message : str
    when : float, optional
        Seconds since the epoch; by default now.
    rank : int, optional
        None for a process that is no rank.
    logger : str
        The part of the program that writes.
    values : mapping, optional
        Further values; none replaces those above.
    """
    now = time.time() if when is None else when
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    line = {
        "time": f"{seconds}.{int(now % 1 * 1000):03d}Z",
        "level": level,
        **({} if rank is None else {"rank": rank}),
        "logger": logger,
        "message": printable(message, lines=True),
    }
    more = {name: value for name, value in (values or {}).items() if name not in line}
    return json.dumps({**line, **more}, default=str) + "\n"


def speaks_json() -> bool:
    """Whether this process writes JSON lines instead of sentences on standard error."""
    handlers = logging.getLogger("fastlloyd").handlers
    return any(
        type(handler) is logging.StreamHandler and isinstance(handler.formatter, JsonFormatter) for handler in handlers
    )
