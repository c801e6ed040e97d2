"""What holds for a state directory over all its runs: what its ledger counts, and how much may be spent.

Both are settled by the first run that says so, and not changed in passing.

Source: docs/operations.md, "State directory, budget, resume".
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from fastlloyd.errors import ConfigError, Reason
from fastlloyd.report.unit import format_count, format_epsilon
from fastlloyd.wire.decode import Within, decode, load_json
from fastlloyd.wire.regular import read_regular_bytes, replace_file, sync_directory

STATE_VERSION: Final = 2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limit:
    """A lifetime limit: everything in the ledger together is to spend at most `epsilon` at `delta`."""

    state: Literal[2]
    epsilon: Annotated[float, Within(0.0, 1e6)]
    delta: Annotated[float, Within(0.0, 0.5)]


@dataclass(frozen=True, slots=True)
class _Unit:
    """What the releases of a ledger are about: people, by the column of `--unit`, or by another flag, as typed."""

    state: Literal[2]
    unit: str


class Terms:
    """The files that say so.

    Parameters
    ----------
    folder : Path
        A party's own, where its ledger is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep_unit(self, column: str | None, *, empty: bool) -> None:
        """Keep to what the ledger counts: epsilon for single rows says nothing about people, nor the other way round.

        Parameters
        ----------
        column : str or None
            As given by `--unit`, or by a protocol's own setting: then with the flag before it. A ledger without a
            release takes any.
        empty : bool
            The ledger has no release.

        Raises
        ------
        ConfigError
            The ledger counts something else, or the file is damaged.
        """
        path = self._folder / "unit.json"
        if empty:
            _keep_or_forget(path, column)
            return
        stood = read_kept(_Unit, path)
        kept = None if stood is None else stood.unit
        if (kept is None or column is None) and (kept or column or "").startswith("--"):
            # Users, and rows or whole clients: the accountant says what releases for one are worth for the other.
            if column is not None:
                _keep_or_forget(path, column)
        elif kept != column:
            counts = "rows" if kept is None else f"people, by {_by(kept)}"
            asked = "rows (no --unit)" if column is None else f"people, by {_by(column)}"
            raise problem(
                f"--state-dir: the ledger in {self._folder} counts epsilon for {counts}, and this run protects {asked}"
                ": one says nothing about the other; give this run its own --state-dir, and remember what "
                "was spent here"
            )

    def limit(self, epsilon: float | None, delta: float, *, stated: float | None = None) -> Limit | None:
        """Return the limit that holds for this directory: the one that stands in it, or else the one that is given.

        Parameters
        ----------
        epsilon : float or None
            As given by `--budget`.
        delta : float
            Of this run; counts only where no limit stands in the directory and none is stated.
        stated : float, optional
            As given by `--budget-delta`.

        Raises
        ------
        ConfigError
            The file is damaged, or another limit stands in it: a limit is not changed in passing.
        """
        kept = self.kept
        if kept is None:
            return None if epsilon is None else Limit(STATE_VERSION, epsilon, delta if stated is None else stated)
        if epsilon not in (None, kept.epsilon) or stated not in (None, kept.delta):
            given = "" if stated is None else f" --budget-delta {stated:g}"
            raise ConfigError(
                f"--budget {kept.epsilon if epsilon is None else epsilon:g}{given}: expected the limit that "
                f"{self._limit_path} holds, {kept.epsilon:g} at delta "
                f"{kept.delta:g}; give that one or none, or remove the file to set another",
                reason=Reason.STATE,
            )
        return kept

    @property
    def kept(self) -> Limit | None:
        """The limit that stands in the directory; None: there is none. Raises ConfigError if the file is damaged."""
        return read_kept(Limit, self._limit_path)

    @property
    def unit(self) -> str | None:
        """The flag that names the people whom the ledger counts; None: it counts rows. Raises as `kept`."""
        stood = read_kept(_Unit, self._folder / "unit.json")
        return None if stood is None else _by(stood.unit)

    def keep_limit(self, limit: Limit) -> None:
        """Let a limit hold from now on, also for runs without `--budget`."""
        if not self._limit_path.exists():
            write_limit(self._limit_path, limit)

    @property
    def _limit_path(self) -> Path:
        return self._folder / "budget.json"


def read_kept(kind: type[T], path: Path) -> T | None:
    """Return what a file of a state directory holds, decoded; None where there is no file.

    Raises
    ------
    ConfigError
        The file is damaged.
    """
    try:
        return decode(kind, load_json(read_regular_bytes(path)), "it")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise problem(f"{path} is damaged ({error}); restore it from its newest copy") from error


def write_limit(path: Path, limit: Limit) -> None:
    """Keep a limit in a file, durably."""
    write(path, json.dumps(asdict(limit)).encode())


def _keep_or_forget(path: Path, column: str | None) -> None:
    """Write down the column that a ledger counts people by."""
    if column is None:
        path.unlink(missing_ok=True)
    else:
        write(path, json.dumps(asdict(_Unit(STATE_VERSION, column))).encode())


def _by(column: str) -> str:
    """Write the flag that names the people of a ledger."""
    return column if column.startswith("--") else f"--unit {column}"


def problem(text: str, reason: Reason = Reason.STATE) -> ConfigError:
    """Return an error about a state directory, of which the other parties hear the reason alone."""
    return ConfigError(text, reason=reason)


def write(target: Path, content: bytes) -> None:
    """Write a file of a state directory durably: aside, synced, renamed, and its folder synced.

    Raises
    ------
    ConfigError
        The disk is full or not writable.
    """
    try:
        replace_file(target, [content], mode=0o600, draft=f".{target.name}.part")
        sync_directory(target.parent)
    except OSError as error:
        raise problem(f"{target} cannot be written ({error.strerror}); free some space") from error


def cost_words(before: float, after: float, delta: float, *, runs: int, budget: float | None) -> str:
    """Say what a run adds to what was spent on the same records.

    Parameters
    ----------
    before, after : float
        Epsilon of the whole ledger without and with this run; infinite where something carries no noise.
    delta : float
        At which it is read.
    runs : int
        How many runs stand in the ledger.
    budget : float or None

    Examples
    --------
    >>> cost_words(0.5, 0.75, 1e-6, runs=1, budget=None)
    'state: 1 run before has spent epsilon 0.5 on these records; this one adds 0.25, together 0.75, at delta 1e-06'
    """
    begin = f"state: {format_count(runs, 'run')} before"
    if math.isinf(before):
        return f"{begin} released something without noise, or protect a smaller unit: no epsilon holds for all together"
    spent = f"{begin} {'has' if runs == 1 else 'have'} spent epsilon {format_epsilon(before)} on these records"
    if math.isinf(after):
        return f"{spent}; this one releases something without noise, and then no epsilon holds for all together"
    limit = "" if budget is None else f" of the budget {format_epsilon(budget)}"
    return (
        f"{spent}; this one adds {format_epsilon(after - before)}, together {format_epsilon(after)}{limit}, at delta "
        f"{delta:.3g}"
    )
