"""One host's way out in the user-space emulator: the same order of things as netem under htb in the kernel.

A packet that arrives is lost by chance, or dropped when the queue is full; else it gets its own delay.
Packets leave in the order of their due times, so jitter lets them overtake each other, as netem does;
and no faster than the bucket allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from .profile import ETHERNET_HEADER_BYTES, Profile

# A packet here is a virtio header and an IP packet; on the wire it is an Ethernet header and an IP packet.
VIRTIO_HEADER_BYTES = 10
_FRAME_SURPLUS_BYTES = ETHERNET_HEADER_BYTES - VIRTIO_HEADER_BYTES


class Egress:
    """Holds a host's packets until they are due.

    Parameters
    ----------
    profile : Profile
        What to do to them.
    draw : function
        Returns a float uniform in [0, 1).
    """

    __slots__ = (
        "_burst_ns",
        "_delay_ns",
        "_draw",
        "_free_ns",
        "_heap",
        "_jitter_ns",
        "_limit",
        "_loss",
        "_ns_per_byte",
        "_sequence",
    )

    def __init__(self, profile: Profile, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._delay_ns = (profile.delay_ms - profile.jitter_ms) * 1e6
        self._jitter_ns = 2 * profile.jitter_ms * 1e6
        self._loss = profile.loss_percent / 100
        self._limit = profile.queue_limit
        self._ns_per_byte = 0.0 if profile.rate_bytes_s is None else 1e9 / profile.rate_bytes_s
        self._burst_ns = profile.burst_bytes * self._ns_per_byte
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._sequence = 0
        self._free_ns = float("-inf")  # when the bucket will be full again

    def __len__(self) -> int:
        """Return how many packets are held."""
        return len(self._heap)

    def accept(self, now_ns: float, packets: Iterable[tuple[int, bytes]]) -> None:
        """Take packets that left the host now, each with the device it is for."""
        heap, draw, loss, jitter_ns = self._heap, self._draw, self._loss, self._jitter_ns
        base_ns = now_ns + self._delay_ns
        number = self._sequence  # keeps packets with equal due times in order
        for target, packet in packets:
            if (loss and draw() < loss) or len(heap) >= self._limit:
                continue
            number += 1
            heappush(heap, (base_ns + jitter_ns * draw() if jitter_ns else base_ns, number, target, packet))
        self._sequence = number

    def next_ns(self) -> float:
        """Return when the next packet may leave; infinity when none is held."""
        if not self._heap:
            return float("inf")
        return max(self._heap[0][0], self._free_ns - self._burst_ns)

    def release(self, now_ns: float, most: int) -> list[tuple[int, bytes]]:
        """Return the packets that may leave by now, each with its device; at most `most`."""
        heap, burst_ns, ns_per_byte, free_ns = self._heap, self._burst_ns, self._ns_per_byte, self._free_ns
        leaving: list[tuple[int, bytes]] = []
        # The bucket is kept in the packets' own time, not the clock's: a late wake-up costs no rate.
        while heap and len(leaving) < most:
            leave_ns = max(heap[0][0], free_ns - burst_ns)
            if leave_ns > now_ns:
                break
            _, _, target, packet = heappop(heap)
            if ns_per_byte:
                free_ns = max(leave_ns, free_ns) + (len(packet) + _FRAME_SURPLUS_BYTES) * ns_per_byte
            leaving.append((target, packet))
        self._free_ns = free_ns
        return leaving
