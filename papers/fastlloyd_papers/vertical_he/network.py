"""The ten networks of Vertical HE, Table 1, and what each adds to a run: computed from bytes and messages.

::

    plain     8 bytes / rate + delay * messages that wait for one another
    with TCP  as plain, but the rate is at most what TCP keeps at that loss, sqrt(3 / (2 p)) segments in a round
              trip (Mathis et al., 1997), and a stream that was idle starts with ten segments and doubles them in
              each round trip (RFC 6928)

Jitter, and the reordering it brings, are left out.

Source: Vertical HE, §4, Table 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SEGMENT_BYTES = 1460
FIRST_SEGMENTS = 10


@dataclass(frozen=True, slots=True)
class Network:
    """A line of Table 1; the delay is one way."""

    mbit: float
    delay_ms: float
    loss_percent: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        """The line's rate."""
        return self.mbit * 125_000.0

    @property
    def round_trip_s(self) -> float:
        """Twice the delay."""
        return 2e-3 * self.delay_ms


NETWORKS = {
    "LAN10000": Network(10_000, 0.1),
    "LAN1000": Network(1_000, 0.3),
    "LAN500": Network(500, 1.0),
    "regWAN500": Network(500, 10.0, 0.1),
    "regWAN250": Network(250, 15.0, 0.1),
    "regWAN100": Network(100, 20.0, 0.1),
    "crpWAN500": Network(500, 50.0, 0.1),
    "ccWAN200": Network(200, 100.0, 0.2),
    "ccWAN100": Network(100, 120.0, 0.3),
    "ccWAN50": Network(50, 150.0, 0.5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a run sends.

    Attributes
    ----------
    setup_bytes, round_bytes : float
    rounds : int
    setup_messages : int
        That wait for one another; what follows without waiting counts as one.
    """

    setup_bytes: float
    round_bytes: float
    rounds: int
    setup_messages: int

    @property
    def total_bytes(self) -> float:
        """Bytes of the whole run."""
        return self.setup_bytes + self.rounds * self.round_bytes

    @property
    def messages(self) -> int:
        """Messages that wait for one another: two in each round, and the set-up's."""
        return self.setup_messages + 2 * self.rounds


def plain_seconds(network: Network, traffic: Traffic) -> float:
    """Return what a network adds by its rate and delay alone."""
    return traffic.total_bytes / network.bytes_per_second + traffic.messages * 1e-3 * network.delay_ms


def tcp_seconds(network: Network, traffic: Traffic) -> float:
    """Return what a network adds when TCP carries the bytes."""
    streams = _stream_seconds(network, traffic.setup_bytes)
    streams += traffic.rounds * _stream_seconds(network, traffic.round_bytes)
    return streams + traffic.messages * 1e-3 * network.delay_ms


def kept_rate(network: Network) -> float:
    """Return the bytes a second that one TCP connection keeps."""
    if not network.loss_percent:
        return network.bytes_per_second
    window = math.sqrt(1.5 / (network.loss_percent / 100.0)) * SEGMENT_BYTES
    return min(network.bytes_per_second, window / network.round_trip_s)


def _stream_seconds(network: Network, size: float) -> float:
    """Return the seconds from the first byte's departure to the last one's, the connection having been idle."""
    rate, round_trip = kept_rate(network), network.round_trip_s
    window, sent, seconds = float(FIRST_SEGMENTS * SEGMENT_BYTES), 0.0, 0.0
    while sent + window < size and window < rate * round_trip:
        sent, window, seconds = sent + window, 2.0 * window, seconds + round_trip
    return seconds + max(size - sent, 0.0) / rate
