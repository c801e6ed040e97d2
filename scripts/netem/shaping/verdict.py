"""Asked against seen: measures one profile on a set-up of two hosts and judges it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import probe
from .probe import Delays, Losses
from .profile import Profile
from .setup import Setup

DELAY_PROBES = 1000
DELAY_GAP_S = 0.004
LOSS_PROBES = 20_000
ABSOLUTE_MS = 0.1
RELATIVE = 0.05
FALSE_ALARM = 1e-6


@dataclass(frozen=True, slots=True)
class Row:
    """One property: what was asked, what was seen, and the range it had to lie in; no range, no judgement."""

    quantity: str
    unit: str
    asked: float | None
    seen: float
    allowed: tuple[float, float] | None
    remark: str = ""

    @property
    def verdict(self) -> str:
        """'ok', 'out of tolerance', or 'not judged'."""
        if self.allowed is None:
            return "not judged"
        return "ok" if self.allowed[0] <= self.seen <= self.allowed[1] else "out of tolerance"


@dataclass(frozen=True, slots=True)
class Measurement:
    """All rows of one profile."""

    profile: str
    backend: str
    rows: tuple[Row, ...]

    @property
    def met(self) -> bool:
        """Whether nothing judged is out of tolerance."""
        return all(row.verdict != "out of tolerance" for row in self.rows)


def measure(setup: Setup) -> Measurement:
    """Measure delay, jitter, loss and rate between the first two hosts, in about twenty seconds."""
    profile = setup.plan.profile
    rows = delay_rows(profile, probe.measure_delays(setup, DELAY_PROBES, DELAY_GAP_S))
    rows.append(loss_row(profile, probe.measure_losses(setup, LOSS_PROBES)))
    datagrams = probe.measure_datagram_rate(setup) if profile.rate_mbit else 0.0
    rows += rate_rows(profile, datagrams, probe.measure_stream_rate(setup))
    return Measurement(profile.name, setup.backend, tuple(rows))


def delay_rows(profile: Profile, delays: Delays) -> list[Row]:
    """Judge delay and jitter: 0.1 ms and 5 per cent either way.

    The delay is the mean without the twentieth at either end: on a shared machine a few probes wait for
    the processor. The jitter is half the range that uniform delays would have.
    """
    ordered = sorted(delays.values_ms)
    if len(ordered) < delays.sent // 2:
        return [Row("delay", "ms", profile.delay_ms, math.inf, (0, 0), f"only {len(ordered)} probes arrived")]
    cut = len(ordered) // 20
    middle = ordered[cut:-cut]
    mean = sum(middle) / len(middle)
    spread = (middle[-1] - middle[0]) / 2 / 0.9
    overtaken = f"{100 * delays.reordered / len(ordered):.1f} % of the probes overtaken"
    return [
        Row(
            "delay", "ms", profile.delay_ms, mean, _around(profile.delay_ms), f"one way, median {_median(ordered):.3f}"
        ),
        Row("jitter", "ms", profile.jitter_ms, spread, _around(profile.jitter_ms), overtaken),
    ]


def loss_row(profile: Profile, losses: Losses) -> Row:
    """Judge the loss by a two-sided binomial test with a false-alarm rate of one in a million."""
    low, high = binomial_range(losses.sent, profile.loss_percent / 100, FALSE_ALARM)
    allowed = (100 * low / losses.sent, 100 * high / losses.sent)
    remark = f"{losses.lost} of {losses.sent} packets"
    return Row("loss", "%", profile.loss_percent, 100 * losses.lost / losses.sent, allowed, remark)


def rate_rows(profile: Profile, datagram_mbit: float, stream_mbit: float) -> list[Row]:
    """Judge the rate by whichever bulk transfer got further; either alone may be limited by its own ends.

    One TCP connection over a link that loses and reorders packets does not fill it, and a flood of
    datagrams takes more processor time than one core has; but neither may pass faster than asked.
    """
    stream = Row("TCP rate", "Mbit/s", None, stream_mbit, None, "one connection")
    if profile.rate_mbit is None:
        return [stream]
    best = max(datagram_mbit, stream_mbit)
    allowed = (profile.rate_mbit * (1 - RELATIVE), profile.rate_mbit * (1 + RELATIVE))
    source = "UDP" if datagram_mbit >= stream_mbit else "TCP"
    remark = source if best >= allowed[0] else f"not reached: as much as this machine forwards; {source}"
    return [Row("rate", "Mbit/s", profile.rate_mbit, best, allowed, remark), stream]


def binomial_range(count: int, chance: float, false_alarm: float) -> tuple[int, int]:
    """Return the smallest and largest number of successes that are no surprise, half the alarm at each end."""
    if chance <= 0 or chance >= 1:
        certain = 0 if chance <= 0 else count
        return certain, certain

    def probability(successes: int) -> float:
        choices = math.lgamma(count + 1) - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
        return math.exp(choices + successes * math.log(chance) + (count - successes) * math.log1p(-chance))

    low, tail = 0, probability(0)
    while tail < false_alarm / 2:
        low += 1
        tail += probability(low)
    high, tail = count, probability(count)
    while tail < false_alarm / 2:
        high -= 1
        tail += probability(high)
    return low, high


def _around(asked_ms: float) -> tuple[float, float]:
    """Return the tolerated range of a time."""
    margin = ABSOLUTE_MS + RELATIVE * asked_ms
    return max(0.0, asked_ms - margin), asked_ms + margin


def _median(ordered: Sequence[float]) -> float:
    """Return the middle of a sorted sequence."""
    return ordered[len(ordered) // 2]
