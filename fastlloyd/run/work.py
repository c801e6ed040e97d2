"""What a run computes, estimated before it starts: processor seconds, and how long parties wait for one another.

A protocol says what it knows (`protocol.base.Protocol.work`), from public numbers and from times that are measured
while it is asked, on the machine that asks, or why it is not known. Nothing of it is agreed on, approved or reported:
another machine says another number.

Compared with runs: papers/benchmarks/planned_work.py.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from fastlloyd.errors import format_count
from fastlloyd.report.outlook import PlanLine
from fastlloyd.run.config import RunConfig

_REFERENCE_S = 5.6e-4
_ROOM = 1.5
"""What an estimate is multiplied by to advise a deadline."""
# What a message takes on the lan and wan of the benchmarks (scripts/netem/profiles.toml).
_LAN_S, _WAN_S = 2.5e-4, 2.5e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a run of the largest agreed size computes, in processor seconds of a machine like this one.

    Starting processes and the network are left out.

    Attributes
    ----------
    rounds : int
    setup, round : float
        Before round 0 and in each round: of all parties together.
    setup_wait, round_wait : float
        How long a party waits for what others compute, if each has a processor for itself.
    ending : float
        After the last round, of all parties together: labels and result.
    messages : int
        Of a round, one after the other; 0: not stated.
    because : str
        What decides the set-up, for whoever wonders at it; empty: nothing does.
    most : str
        Why rounds and their number are the most there can be; empty: they are about what a run takes.
    """

    rounds: int
    setup: float
    round: float
    setup_wait: float
    round_wait: float
    ending: float = 0.0
    messages: int = 0
    because: str = ""
    most: str = ""

    @property
    def total(self) -> float:
        """Of all parties in the whole run."""
        return self.setup + self.rounds * self.round + self.ending


@dataclass(frozen=True, slots=True)
class Linear:
    """Processor seconds of a job on some records: `fixed`, and `each` for a record."""

    fixed: float
    each: float

    def of(self, n: int) -> float:
        """Return the seconds for n records."""
        return self.fixed + n * self.each


def measured(job: Callable[[], object], times: int = 5) -> float:
    """Return the processor seconds of a short job: the median of a few."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        job()
        found.append(time.process_time() - begin)
    return statistics.median(found)


def measured_linear(prepare: Callable[[int], Callable[[], object]], most: int) -> Linear:
    """Measure a job on two numbers of records.

    Parameters
    ----------
    prepare : callable
        From a number of records to the job, which makes no records itself.
    most : int
        The larger number, at least 1.
    """
    few = max(1, most // 4)
    short, long = (measured(prepare(n), 3) for n in (few, most))
    if not few < most or long <= short:
        return Linear(0.0, long / most)
    each = (long - short) / (most - few)
    return Linear(max(0.0, short - few * each), each)


@cache
def machine_factor() -> float:
    """Return how much longer this machine takes than that of the benchmarks, for transforms and for whole numbers."""
    values = np.arange(1 << 11)  # little enough to need no new pages, whose cost depends on what ran before
    found = np.empty_like(values)

    def job() -> None:
        for _ in range(16):
            np.fft.ifft(np.fft.fft(values))
            np.multiply(values, 0x1234567, out=found)
            np.remainder(found, 0x7FFFFFFF, out=found)

    job()
    return measured(job, 9) / _REFERENCE_S


def work_lines(config: RunConfig, work: Work | str) -> list[PlanLine]:
    """Say what a run computes, and which deadline would end it.

    Parameters
    ----------
    config : RunConfig
    work : Work or str
        A text says why it is not known.
    """
    if isinstance(work, str):
        return [PlanLine("work", f"processor seconds are not known beforehand: {work}")]
    because = f" ({work.because})" if work.because else ""
    whole, delayed = f"{_roughly(work.total)} with {format_count(work.rounds, 'round')}", ""
    limit, why = ("at most ", f"; {work.most}") if work.most else ("", "")
    if work.messages:
        lan, wan = (_roughly(work.round_wait + work.messages * delay) for delay in (_LAN_S, _WAN_S))
        delayed = (
            f"; with {_LAN_S * 1e3:g} ms a message a round takes about {lan} seconds, with {_WAN_S * 1e3:g} ms {wan}"
        )
    lines = [
        PlanLine(
            "work",
            f"about {_roughly(work.setup)} processor seconds of set-up{because} and "
            f"{limit}{_roughly(work.round)} a round, {limit}{whole}: of all parties together, for as many records as "
            f"N, on a machine like this one{delayed}{why}",
        )
    ]
    says = "may take" if work.most else "is estimated at"
    for flag, deadline, wait, what in (
        ("--setup-deadline", config.setup_deadline, work.setup_wait, "the set-up"),
        ("--deadline", config.deadline, work.round_wait, "a round"),
    ):
        if wait > deadline:
            lines.append(
                PlanLine(
                    "warning",
                    f"{what} {says} {wait:.0f} seconds, {flag} is {deadline:g}: give all parties {flag} "
                    f"{math.ceil(_ROOM * wait)} or more",
                )
            )
    return lines


def _roughly(seconds: float) -> str:
    """Write two digits of a number of seconds."""
    return f"{float(f'{seconds:.2g}'):,g}"
