"""Watches the machine while times are measured: what others take of the cores, and what a hypervisor takes away.

The load average counts our own ranks too, and remembers them for a minute. So it decides only whether to begin. Each
cell is judged by the time of the cores (`/proc/stat`) less the time that this process and its ended children used.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fastlloyd.errors import ConfigError
from fastlloyd.net.cores import cores
from fastlloyd_papers.engine.machine import load

CONTENDED = "contended"
UNUSABLE = "unusable"
COLUMNS = ("load_per_core", "steal_share", "others_share", "usable")
MOST_LOAD = 0.25
MOST_STEAL = 0.02
MOST_OTHERS = 0.1
LIMIT_S = 900.0
_KEY = "conditions"
_GLANCE_S = 0.5
_PAUSE_S = 5.0
_STAT = Path("/proc/stat")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
# user, nice, system, irq and softirq; steal. Guests are part of user.
_BUSY, _STEAL = (0, 1, 2, 5, 6), (7,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Seconds so far: of the wall, of the cores at work, stolen from them, and of this process's own work."""

    wall: float
    busy: float
    stolen: float
    own: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the machine was like while one cell was measured.

    Attributes
    ----------
    load : float
        Processes that wanted a core over the minute before, for each core; our own of the cell before are among them.
    steal, others : float
        The share of the cores' time that a hypervisor took away, and that processes of others used.
    """

    load: float
    steal: float
    others: float

    @property
    def contended(self) -> bool:
        """Whether a time measured meanwhile is worth nothing."""
        return self.steal > MOST_STEAL or self.others > MOST_OTHERS

    def text(self) -> str:
        """Write all three."""
        return f"load {self.load:.2f} a core, {self.shares()}"

    def shares(self) -> str:
        """Write what was taken from us."""
        return f"{self.steal:.1%} of the cores' time stolen, {self.others:.1%} used by others"


def read_clock(stat: Path = _STAT) -> Clock:
    """Read the clocks of the cores that this process may use.

    Raises
    ------
    ConfigError
        The kernel does not tell how its cores are used.
    """
    try:
        own_cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = [line.split() for line in stat.read_text(encoding="utf-8").splitlines()]
        ticks = [[int(value) for value in values] for name, *values in filter(None, lines) if name in own_cores]
        busy, stolen = (sum(core[place] for core in ticks for place in places) for places in (_BUSY, _STEAL))
    except (OSError, ValueError, IndexError, AttributeError):
        busy = stolen = 0
    if not busy:
        raise ConfigError(f"{stat}: expected how this process's cores were used; times can be measured on Linux only")
    return Clock(wall=time.monotonic(), busy=busy * _TICK_S, stolen=stolen * _TICK_S, own=sum(os.times()[:4]))


def between(before: Clock, after: Clock, load_per_core: float) -> Conditions:
    """Return the conditions between two readings.

    The kernel counts in ticks (10 ms as a rule): one for each core is not held against others, or a cell of a few
    hundredths of a second would be judged by how its ticks fell. `Watch` has looked for longer just before.
    """
    total = max(after.wall - before.wall, 1e-9) * cores()
    others = (after.busy - before.busy) - (after.own - before.own) - cores() * _TICK_S
    return Conditions(load=load_per_core, steal=(after.stolen - before.stolen) / total, others=max(others, 0.0) / total)


def glance() -> Conditions:
    """Look at the machine for half a second in which nothing of ours runs."""
    before = read_clock()
    time.sleep(_GLANCE_S)
    return between(before, read_clock(), load() / cores())


def tell(sentence: str) -> None:
    """Write a sentence above the progress bar."""
    from tqdm import tqdm

    tqdm.write(sentence, file=sys.stderr)


@dataclass(slots=True, kw_only=True)
class Watch:
    """Waits for a quiet machine before each cell of a benchmark of times, and records what it was like.

    Attributes
    ----------
    noisy : bool
        Neither wait nor refuse: rows measured on a contended machine are written, and marked.
    limit_s : float
        Wait no longer than this for one cell.
    look, pause, say : callable
        How the machine is looked at, how time passes, and where sentences go.
    """

    noisy: bool = False
    limit_s: float = LIMIT_S
    look: Callable[[], Conditions] = field(default=glance, repr=False)
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)
    say: Callable[[str], None] = field(default=tell, repr=False)
    _begun: bool = False

    def around(self, measure: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that measures a cell on a quiet machine, and keeps the conditions with its value."""

        def watched(cell: Mapping[str, Any]) -> dict[str, Any]:
            self.await_quiet()
            load_per_core, before = load() / cores(), read_clock()
            value = measure(cell)
            return {**value, _KEY: asdict(between(before, read_clock(), load_per_core))}

        return watched

    def await_quiet(self) -> None:
        """Wait until others leave the cores alone; before the first cell, until the load has gone down too.

        Raises
        ------
        ConfigError
            That took longer than the limit.
        """
        waited = 0.0
        while not self.noisy:
            seen = self.look()
            if not seen.contended and (self._begun or seen.load <= MOST_LOAD):
                break
            least = f"{MOST_LOAD:g}, {MOST_STEAL:.0%} and {MOST_OTHERS:.0%}"
            if waited >= self.limit_s:
                raise ConfigError(
                    f"the machine was not quiet within {self.limit_s:g} s ({seen.text()}; at most {least} will do): "
                    "end what else runs and repeat the command, which goes on where it was, or give --noisy, which "
                    "writes such times but marks them unusable"
                )
            if not waited:
                self.say(
                    f"waiting at most {self.limit_s:g} s for a quiet machine: {seen.text()}; at most {least} will do"
                )
            self.pause(_PAUSE_S)
            waited += _PAUSE_S
        self._begun = True

    def rejects(self, value: Any) -> bool:
        """Whether a kept value must be measured again."""
        return not self.noisy and contended([value])

    def check(self, values: Sequence[Any]) -> None:
        """Refuse values that were measured on a contended machine.

        Raises
        ------
        ConfigError
            There are such values: no result is written.
        """
        wrong = [seen for value in values if self.rejects(value) and (seen := conditions_of(value))]
        if wrong:
            worst = max(wrong, key=lambda seen: seen.steal + seen.others)
            raise ConfigError(
                f"others used the machine while {len(wrong)} of {len(values)} cells were measured, twice "
                f"({worst.text()}): no result is written; the same command measures these again, --noisy writes them "
                "and marks them unusable"
            )


def begin_quietly() -> float:
    """Wait for a quiet machine, and return its load: for a program that measures times by itself.

    Raises
    ------
    ConfigError
        The machine was not quiet.
    """
    try:
        Watch().await_quiet()
    except ConfigError as error:
        problem = str(error).partition(": end what else runs")[0]
        raise ConfigError(f"{problem}: end what else runs and start again") from None
    return load()


def conditions_of(value: Any) -> Conditions | None:
    """Return what was recorded with a value; None where nobody watched."""
    kept = value.get(_KEY) if isinstance(value, Mapping) else None
    return None if kept is None else Conditions(**kept)


def contended(values: Iterable[Any]) -> bool:
    """Whether any of these values was measured on a contended machine."""
    return any(seen.contended for value in values if (seen := conditions_of(value)) is not None)


def entries(values: Iterable[Any]) -> list[object]:
    """Return what a line of a CSV says under `COLUMNS`: the worst of its values; empty where nobody watched."""
    seen = [one for value in values if (one := conditions_of(value)) is not None]
    if not seen:
        return [None] * len(COLUMNS)
    worst = [max(getattr(one, name) for one in seen) for name in ("load", "steal", "others")]
    return [*(round(share, 4) for share in worst), "no" if contended(values) else "yes"]


def marked(text: str, values: Iterable[Any]) -> str:
    """Return a figure as a table shows it; a mark follows where others used the machine."""
    return f"{text} ({CONTENDED})" if text and contended(values) else text


def ratio(figure: float, digits: int, values: Iterable[Any]) -> str:
    """Write a ratio of times, or that there is none because others used the machine."""
    return UNUSABLE if contended(values) else f"{figure:,.{digits}f}"


def words(values: Sequence[Any]) -> str:
    """Say what the machine was like while these values were measured."""
    seen = [one for value in values if (one := conditions_of(value)) is not None]
    if not seen:
        return "Nobody watched what else the machine did."
    worst = Conditions(**{name: max(getattr(one, name) for one in seen) for name in ("load", "steal", "others")})
    said = (
        f"While cells were measured, at most {worst.shares()}; load, with our own processes, at most {worst.load:.2f} "
        "a core."
    )
    if wrong := sum(one.contended for one in seen):
        said += (
            f" Others used the machine during {wrong} of {len(seen)} cells: times are marked '{CONTENDED}', and no "
            "ratio is taken of them."
        )
    return said
