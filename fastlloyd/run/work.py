"""What a run computes, estimated before it starts: processor seconds, and how long parties wait for one another.

A protocol says what it knows (`protocol.base.Protocol.work`), from public numbers and from times that are measured
while it is asked, on the machine that asks. Nothing of it is agreed on, approved or reported: another machine says
another number.

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
        How long a party waits for what others compute, if each has processors for itself.
    because : str
        What decides the set-up, for whoever wonders at it; empty: nothing does.
    """

    rounds: int
    setup: float
    round: float
    setup_wait: float
    round_wait: float
    because: str = ""


def measured(job: Callable[[], object], times: int = 5) -> float:
    """Return the processor seconds of a short job: the median of a few."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        job()
        found.append(time.process_time() - begin)
    return statistics.median(found)


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


def work_lines(config: RunConfig, work: Work | None) -> list[PlanLine]:
    """Say what a run computes, and which deadline would end it; None: it is not known.

    Parameters
    ----------
    config : RunConfig
    work : Work or None
    """
    if work is None:
        return [PlanLine("work", "processor seconds are not known beforehand")]
    because = f" ({work.because})" if work.because else ""
    lines = [
        PlanLine(
            "work",
            f"about {_roughly(work.setup)} processor seconds of set-up{because} and {_roughly(work.round)} a round, "
            f"{_roughly(work.setup + work.rounds * work.round)} with {format_count(work.rounds, 'round')}: of all "
            "parties together, for as many records as N, on a machine like this one",
        )
    ]
    for flag, limit, wait, what in (
        ("--setup-deadline", config.setup_deadline, work.setup_wait, "the set-up"),
        ("--deadline", config.deadline, work.round_wait, "a round"),
    ):
        if wait > limit:
            lines.append(
                PlanLine(
                    "warning",
                    f"{what} is estimated at {wait:.0f} seconds, {flag} is {limit:g}: give all parties {flag} "
                    f"{math.ceil(_ROOM * wait)} or more",
                )
            )
    return lines


def _roughly(seconds: float) -> str:
    """Write two digits of a number of seconds."""
    return f"{float(f'{seconds:.2g}'):,g}"
