"""The runs of a party, as its state directory keeps them: when, with whom, and how each ended.

A file of JSON lines in the party's own folder, `runs.jsonl`, mode 0600; one when a run begins, and one when it ends.
Nothing depends on it but what `fastlloyd runs` shows: what was spent stands in the ledger, and a history that cannot be
written ends no run.

Source: docs/operations.md, "All runs of a site".
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from fastlloyd.errors import ConfigError, name_some, printable
from fastlloyd.gate.decisions import NAME as DECISIONS
from fastlloyd.gate.decisions import Decisions
from fastlloyd.gate.held import SHOWN_DIGITS, party_folders
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.privacy.release import Release
from fastlloyd.report.display import csv_cell
from fastlloyd.report.unit import format_count, format_epsilon, format_left
from fastlloyd.run.budget_terms import Limit, problem
from fastlloyd.run.config import READ_AT
from fastlloyd.run.state import LEDGER, StateDir, own_folder
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.header import PartyId
from fastlloyd.wire.regular import read_regular_bytes, replace_file

NAME = "runs.jsonl"
_MODE = 0o600
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_MOST_BYTES = 1 << 26
_MOST_TEXT = 2000
_MOST_PARTIES = 10_000
_MOST_SHOWN = 20
_HEAD = ("when", "run", "protocol", "epsilon", "left", "outcome")
_COLUMNS = (16, 8, 16, 8, 8)
_WIDTH = 80
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """One line of the history.

    Attributes
    ----------
    history : int
        Version of this format, 1.
    run : str
        The run's id, 32 hexadecimal digits.
    what : {'begun', 'ended'}
    at : str
        UTC, as ISO 8601, by the clock of the party.
    protocol, title : str
        Of a run that begins.
    parties : tuple of str
        All others, by their names in the roster, or as 'client 2'.
    output : str
        The folder of the result, absolute.
    code : int
        Of a run that ended: 0, or why it failed.
    said : str
        The verdict on the result, or the cause of the failure.
    """

    history: Literal[1] = 1
    run: Annotated[str, Within(32, 32)]
    what: Literal["begun", "ended"]
    at: Annotated[str, Within(20, 20)]
    protocol: Annotated[str, Within(0, 64)] = ""
    title: Annotated[str, Within(0, _MOST_TEXT)] = ""
    parties: Annotated[tuple[str, ...], Within(0, _MOST_PARTIES)] = ()
    output: Annotated[str, Within(0, 1 << 14)] = ""
    code: Annotated[int, Within(0, 255)] = 0
    said: Annotated[str, Within(0, _MOST_TEXT)] = ""

    def __post_init__(self) -> None:
        datetime.strptime(self.at, _TIME)
        if not {*self.run} <= {*"0123456789abcdef"}:
            raise ValueError(f"expected hexadecimal digits as run, got {self.run!r}")


def note_begun(
    folder: Path, run: str, *, protocol: str, title: str | None, parties: Sequence[str], output: Path
) -> None:
    """Note that a run begins, or goes on; parameters as the attributes of `RunNote`."""
    others = tuple(printable(name) for name in parties[:_MOST_PARTIES])
    place = printable(str(output.resolve()))  # a name on the disk may be no text
    _note(
        folder,
        RunNote(
            run=run,
            what="begun",
            at=_now(),
            protocol=protocol,
            title=(title or "")[:_MOST_TEXT],
            parties=others,
            output=place,
        ),
    )


def note_ended(folder: Path, run: str, *, code: int, said: str) -> None:
    """Note how a run ended."""
    _note(folder, RunNote(run=run, what="ended", at=_now(), code=code, said=printable(said)[:_MOST_TEXT]))


def _note(folder: Path, note: RunNote) -> None:
    """Add a line; what cannot be written is left out, for the run does not depend on it."""
    path = folder / NAME
    try:
        line = json.dumps(asdict(note)).encode()
        decode(RunNote, load_json(line), "it")  # one line that cannot be read would hide all runs
        replace_file(path, [*_lines(path), line + b"\n"], mode=_MODE, draft=f".{NAME}.part")
    except (OSError, ValueError) as error:
        _log.warning("%s is not written (%s): fastlloyd runs will not show this", path, error)


def _now() -> str:
    return datetime.now(UTC).strftime(_TIME)


def _lines(path: Path) -> list[bytes]:
    """Return the lines; a last one that was cut short is left out."""
    try:
        content = read_regular_bytes(path, _MOST_BYTES)
    except FileNotFoundError:
        return []
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def read_notes(folder: Path) -> tuple[RunNote, ...]:
    """Read the history of a party, oldest first; empty without one.

    Raises
    ------
    ConfigError
        It cannot be read, or a line is not what a run writes.
    """
    path = folder / NAME
    notes: list[RunNote] = []
    try:
        for line in _lines(path):
            notes.append(decode(RunNote, load_json(line), "it"))
    except OSError as error:
        raise problem(f"{path} cannot be read ({error.strerror}); check its rights") from error
    except ValueError as error:
        raise problem(
            f"{path}, line {len(notes) + 1}: expected a line as a run writes it, got another ({error}); "
            "restore the file, or move it away: the ledger has what was spent"
        ) from error
    return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run of a party, from history, ledger and decisions.

    Attributes
    ----------
    run : str
    begun_at, ended_at : str
        Empty where it is not known: no history was kept, or the run has not ended.
    protocol, title, output, said : str
        As in a `RunNote`.
    parties : tuple of str
    releases : tuple of Release
    epsilon : float
        What they spend together at the delta of the account; infinite where no epsilon holds.
    left : float or None
        Of the budget after this run and all before it; None without a budget.
    outcome : str
        'done', 'failed (3)', 'not ended', 'unknown', 'held', 'released' or 'discarded'.
    """

    run: str
    begun_at: str = ""
    ended_at: str = ""
    protocol: str = ""
    title: str = ""
    parties: tuple[str, ...] = ()
    output: str = ""
    said: str = ""
    releases: tuple[Release, ...] = ()
    epsilon: float = 0.0
    left: float | None = None
    outcome: str = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSummary:
    """What a party's ledger holds.

    Attributes
    ----------
    folder : Path
        The party's own.
    releases : tuple of Release
    unit : str or None
        The flag that names the people whom it counts; None: rows.
    limit : Limit or None
        The budget.
    delta : float
        At which epsilon is read: as asked for, the budget's, or 10^-6.
    total : float
        Epsilon of everything, at `delta`.
    left : float or None
        Of the budget, at its delta; None without one, or where it is exceeded.
    """

    folder: Path
    releases: tuple[Release, ...]
    unit: str | None
    limit: Limit | None
    delta: float
    total: float
    left: float | None

    @classmethod
    def of(cls, state: StateDir, ledger: Ledger, delta: float | None = None) -> LedgerSummary:
        """Read what an open ledger and the terms beside it say.

        Raises
        ------
        ConfigError
            A file beside the ledger is damaged.
        """
        limit = state.terms.kept
        used = 0.0 if limit is None else ledger.total(limit.delta)
        at = delta if delta is not None else READ_AT if limit is None else limit.delta
        return cls(
            folder=state.path,
            releases=ledger.releases,
            unit=state.terms.unit,
            limit=limit,
            delta=at,
            total=ledger.total(at),
            left=None if limit is None or used > limit.epsilon else limit.epsilon - used,
        )


def read_ledgers(folder: Path, delta: float | None) -> Iterator[LedgerSummary]:
    """Read each ledger of a state directory, or of one party's folder, checked as a run checks it.

    Parameters
    ----------
    folder : Path
    delta : float or None
        As for `LedgerSummary.of`.

    Raises
    ------
    ConfigError
        There is none, it is damaged or shorter than it was, or a run holds it.
    """
    for path in find_ledgers(folder):
        state = StateDir.of(path)
        with state.open_ledger() as ledger:
            yield LedgerSummary.of(state, ledger, delta)


def find_ledgers(folder: Path) -> list[Path]:
    """Return the folders of the parties that have a ledger in a state directory, or in one party's folder.

    Raises
    ------
    ConfigError
        None has.
    """
    found = [path for path in (folder, *party_folders(folder)) if (path / LEDGER).exists()]
    if not found:
        raise ConfigError(
            f"{folder}: expected a --state-dir, or one party's folder in it, got no {LEDGER} there; if runs were made "
            "with it, check the path, and that its disk is mounted"
        )
    return found


def summary_lines(summary: LedgerSummary) -> Iterator[str]:
    """Yield what a ledger holds, in lines for people."""
    runs, limit = len({release.run for release in summary.releases}), summary.limit
    whom = "rows" if summary.unit is None else f"people ({summary.unit})"
    count = format_count(len(summary.releases), "release")
    yield f"{summary.folder}: {count} of {format_count(runs, 'run')}, for {whom}"
    yield f"  together {epsilon_words(summary.total)} at delta {summary.delta:g}"
    if limit is not None:
        left = "nothing left" if summary.left is None else f"{format_left(summary.left)} left"
        yield f"  budget {format_epsilon(limit.epsilon)} at delta {limit.delta:g}: {left}"


def epsilon_words(value: float) -> str:
    """Write what was spent."""
    return "no epsilon holds" if math.isinf(value) else f"epsilon {format_epsilon(value)}"


def past_runs(summary: LedgerSummary) -> tuple[PastRun, ...]:
    """Return all runs of a party, in the order in which they began.

    Raises
    ------
    ConfigError
        The history or the ledger of decisions is damaged.

    Sees
    ----
    The owner of the state directory: names, times and folders of its runs, and what was released of their results.
    """
    notes = read_notes(summary.folder)
    decisions = Decisions(summary.folder) if (summary.folder / DECISIONS).exists() else None
    runs = dict.fromkeys([*(release.run for release in summary.releases), *(note.run for note in notes)])
    first = {note.run: place for place, note in reversed([*enumerate(notes)])}
    unknown = [run for run in runs if run not in first]  # before there was a history
    made, so_far = [], Ledger()
    for run in [*unknown, *sorted(first, key=lambda run: first[run])]:
        own = tuple(release for release in summary.releases if release.run == run)
        so_far.record(own)
        limit = summary.limit
        left = None if limit is None else max(0.0, limit.epsilon - so_far.total(limit.delta))
        last = None if decisions is None else decisions.last(run)
        one = _from_notes(run, [note for note in notes if note.run == run])
        made.append(
            replace(
                one,
                releases=own,
                epsilon=spent(own, summary.delta) if own else 0.0,
                left=left,
                outcome=one.outcome if last is None else last.what,
            )
        )
    return tuple(made)


def _from_notes(run: str, notes: Sequence[RunNote]) -> PastRun:
    """Return what the history says of a run, which may have been resumed."""
    begun = [note for note in notes if note.what == "begun"]
    if not begun:
        return PastRun(run=run)
    ended = notes[-1] if notes[-1].what == "ended" else None
    outcome = "not ended" if ended is None else "done" if ended.code == 0 else f"failed ({ended.code})"
    return PastRun(
        run=run,
        begun_at=begun[0].at,
        ended_at="" if ended is None else ended.at,
        protocol=begun[-1].protocol,
        title=begun[-1].title,
        parties=begun[-1].parties,
        output=begun[-1].output,
        said="" if ended is None else ended.said,
        outcome=outcome,
    )


def latest_runs(root: str, me: PartyId) -> tuple[dict[str, str], ...]:
    """Return the latest runs of a party, the newest first, for the status page of an operator; no cause, no result.

    Raises
    ------
    ConfigError
        The history is damaged.
    """
    notes = read_notes(own_folder(root, me))
    runs = [*dict.fromkeys(note.run for note in reversed(notes))][:_MOST_SHOWN]
    made = [_from_notes(run, [note for note in notes if note.run == run]) for run in runs]
    return tuple(
        {
            "begun": one.begun_at,
            "run": one.run[:SHOWN_DIGITS],
            "protocol": one.protocol,
            "title": one.title,
            "with": name_some(one.parties),
            "outcome": one.outcome,
        }
        for one in made
    )


def run_lines(runs: Sequence[PastRun]) -> Iterator[str]:
    """Yield the runs as a table for people: a line for each, with its title, parties, verdict and result below."""

    def line(cells: Sequence[str]) -> str:
        return "  ".join([*(f"{cell:<{width}}" for cell, width in zip(cells, _COLUMNS, strict=False)), cells[-1]])

    yield line(_HEAD)
    for one in runs:
        epsilon = "none" if math.isinf(one.epsilon) else format_epsilon(one.epsilon)
        left = "" if one.left is None else format_left(one.left)
        when = one.begun_at.replace("T", " ")[:16] or "not known"
        yield line((when, one.run[:SHOWN_DIGITS], one.protocol, epsilon, left, one.outcome))
        title = f'"{one.title}", ' if one.title else ""
        details = (
            f"{title}with {name_some(one.parties)}" if one.parties else "",
            one.said,
            f"result in {one.output}" if one.output and one.outcome in ("done", "released") else "",
        )
        for detail in filter(None, details):
            yield from textwrap.wrap(detail, _WIDTH, initial_indent="    ", subsequent_indent="    ")


def run_values(summary: LedgerSummary, one: PastRun) -> dict[str, Any]:
    """Return a run as plain values for JSON, CSV and the page; epsilon is None where none holds."""
    return {
        "party": summary.folder.name,
        "begun": one.begun_at,
        "ended": one.ended_at,
        "run": one.run,
        "protocol": one.protocol,
        "title": one.title,
        "with": list(one.parties),
        "epsilon": None if math.isinf(one.epsilon) else one.epsilon,
        "delta": summary.delta,
        "left": one.left,
        "outcome": one.outcome,
        "said": one.said,
        "result": one.output,
    }


def runs_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return runs, as `run_values` gives them, as CSV; cells that a spreadsheet would run get an apostrophe."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(rows[0].keys())
    for row in rows:
        cells = {**row, "with": "; ".join(row["with"])}
        table.writerow(csv_cell(cell) if isinstance(cell, str) else cell for cell in cells.values())
    return text.getvalue()
