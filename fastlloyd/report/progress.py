"""Progress of a run, drawn from events: one line a round, or a bar on a terminal.

Under `fastlloyd run` every rank writes its events to standard output, one line each::

    @fastlloyd {"event": "round", "round": 0, "rounds": 6, "clients": 2, "seconds": 0.004, "bytes": 96}

Events hold public values only. The names are `started` (rank, pid, host), `setup` (seconds), `round` (as
above; where rounds differ in kind, `step` names it), `progress` within long steps (stage, fraction) and `done`
(rank, code).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any, TextIO

from fastlloyd.errors import printable
from fastlloyd.report.display import paint
from fastlloyd.report.unit import format_bytes, format_count, format_seconds

PREFIX = "@fastlloyd "

_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "started": {"rank": (int,), "pid": (int,), "host": (str,)},
    "setup": {"seconds": (int, float)},
    "round": {"round": (int,), "rounds": (int,), "clients": (int,), "seconds": (int, float), "bytes": (int,)},
    "progress": {"stage": (str,), "fraction": (int, float)},
    "done": {"rank": (int,), "code": (int,)},
}


def encode_event(event: str, **values: Any) -> str:
    """Write an event as one line, newline included.

    Parameters
    ----------
    event : str
        `started`, `setup`, `round` or `done`.
    **values
        The event's public values.

    Raises
    ------
    ValueError
        The event is unknown, or a value is missing or of a wrong type: the caller is at fault.
    """
    line = {"event": event, **values}
    if not _is_event(line):
        raise ValueError(f"not an event: expected {event!r} with {sorted(_FIELDS.get(event, _FIELDS))}")
    return f"{PREFIX}{json.dumps(line, allow_nan=False, separators=(',', ':'))}\n"


def split_event(line: str) -> tuple[str, dict[str, Any] | None]:
    """Extract the event from a line of output.

    Launchers join lines of different ranks, so there may be text before and after the event.

    Returns
    -------
    rest : str
        The line without the event.
    event : dict or None
        None if the line holds no well-formed event; the line is then returned whole.
    """
    start = line.find(PREFIX)
    if start < 0:
        return line, None
    try:
        event, length = json.JSONDecoder().raw_decode(line[start + len(PREFIX) :])
    except ValueError:
        return line, None
    if not isinstance(event, dict) or not _is_event(event):
        return line, None
    rest = line[:start] + line[start + len(PREFIX) + length :]
    return ("" if rest.strip() == "" else rest), event


def round_line(event: Mapping[str, Any]) -> str:
    """Return what one round did, without a newline."""
    step = f" ({printable(event['step'])})" if isinstance(event.get("step"), str) else ""
    return (
        f"round {event['round'] + 1} of {event['rounds']}{step}: {format_count(event['clients'], 'client')}, "
        f"{format_seconds(event['seconds'])}, {format_bytes(event['bytes'])}"
    )


class Progress:
    """Draw events on a stream: a bar if it is a terminal, one line a round otherwise.

    Parameters
    ----------
    stream : text stream or None
        None, as `sys` has it where a stream is closed: nobody reads.
    quiet : bool
        Draw nothing.
    terminal : bool, optional
        Whether to draw a bar; by default whether the stream is a terminal.
    """

    def __init__(self, stream: TextIO | None, *, quiet: bool = False, terminal: bool | None = None) -> None:
        self._stream = stream
        self._quiet = quiet or stream is None
        self._terminal = (stream is not None and stream.isatty()) if terminal is None else terminal
        self._bar: Any = None
        self._step: Any = None

    def show(self, event: Mapping[str, Any]) -> None:
        """Draw one event; skip events that people need not see."""
        if self._quiet:
            return
        if event["event"] == "progress":
            self._draw_step(event)
            return
        self._close_step()
        if event["event"] == "setup" and not self._terminal:
            self._print(f"set-up: {format_seconds(event['seconds'])}")
        elif event["event"] == "round" and self._terminal:
            self._draw(event)
        elif event["event"] == "round":
            self._print(round_line(event))

    def write(self, text: str, stream: TextIO | None) -> None:
        """Write other output without breaking the bar; to no stream, nothing."""
        if stream is None:
            return
        if self._bar is not None:
            self._bar.clear()
        stream.write(paint(text, stream))
        stream.flush()
        if self._bar is not None:
            self._bar.refresh()

    def close(self) -> None:
        """Stop updating the bar, and leave it on the screen; idempotent."""
        self._close_step()
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _print(self, text: str) -> None:
        self.write(text + "\n", self._stream)

    def _draw_step(self, event: Mapping[str, Any]) -> None:
        """Draw the progress of a long step with an estimate of the rest, on a terminal only."""
        if not self._terminal:
            return
        if self._step is not None and self._step.desc != event["stage"]:
            self._close_step()
        if self._step is None:
            from tqdm import tqdm

            self._step = tqdm(
                total=1.0,
                desc=printable(event["stage"]),
                file=self._stream,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]",
                ncols=shutil.get_terminal_size()[0] - 1,
                leave=False,
                position=0 if self._bar is None else 1,
            )
        self._step.update(min(float(event["fraction"]), 1.0) - self._step.n)

    def _close_step(self) -> None:
        """Remove the bar of a step."""
        if self._step is not None:
            self._step.close()
            self._step = None

    def _draw(self, event: Mapping[str, Any]) -> None:
        if self._bar is None:
            from tqdm import tqdm

            # tqdm takes a terminal of unknown size for one of size zero.
            columns, rows = shutil.get_terminal_size()
            # A resumed run starts in the middle, and earlier rounds must not count into the rate.
            self._bar = tqdm(
                total=event["rounds"],
                initial=event["round"],
                file=self._stream,
                bar_format="{percentage:3.0f}%|{bar}| round {n_fmt} of {total_fmt} [{elapsed}{postfix}]",
                ncols=columns - 1,
                nrows=rows,
                mininterval=0,
            )
        values = (
            format_count(event["clients"], "client"),
            f"{format_seconds(event['seconds'])} a round",
            format_bytes(event["bytes"]),
        )
        self._bar.set_postfix_str(", ".join(values), refresh=False)
        self._bar.update(event["round"] + 1 - self._bar.n)
        if event["round"] + 1 >= event["rounds"]:
            # The result follows; the full bar stays above it.
            self.close()


def _is_event(line: Mapping[str, Any]) -> bool:
    """Whether a decoded line has a known name and all its values, of the right types."""
    name = line.get("event")
    fields = _FIELDS.get(name) if isinstance(name, str) else None
    return fields is not None and all(
        isinstance(line.get(field), types) and not isinstance(line.get(field), bool) for field, types in fields.items()
    )
