"""One host's way out in the user-space emulator: the same order of things as netem under htb in the kernel.

A packet that arrives is lost by chance, or dropped when the queue is full; else it gets its own delay.
Packets leave in the order of their due times, so jitter lets them overtake each other, as netem does;
and no faster than the bucket allows.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from .profile import ETHERNET_HEADER_BYTES, MTU_BYTES, Profile


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
        "dropped",
        "held",
        "lost",
    )

    def __init__(self, profile: Profile, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._delay_ns = profile.delay_ms * 1e6
        self._jitter_ns = profile.jitter_ms * 1e6
        self._loss = profile.loss_percent / 100
        self._limit = profile.queue_limit
        self._ns_per_byte = 0.0 if profile.rate_bytes_s is None else 1e9 / profile.rate_bytes_s
        self._burst_ns = profile.burst_bytes * self._ns_per_byte
        self._heap: list[tuple[float, int, int, bytes]] = []
        self._sequence = 0
        self._free_ns = float("-inf")  # when the bucket would be full again
        self.held = 0
        self.lost = 0
        self.dropped = 0

    def accept(self, now_ns: float, target: int, packet: bytes) -> None:
        """Take a packet that left the host now, for the host whose device is `target`."""
        weight = 1 + (len(packet) - 1) // (MTU_BYTES + ETHERNET_HEADER_BYTES)
        if self._loss and self._draw() < self._loss:
            self.lost += 1
            return
        if self.held + weight > self._limit:
            self.dropped += 1
            return
        due_ns = now_ns + self._delay_ns
        if self._jitter_ns:
            due_ns += self._jitter_ns * (2 * self._draw() - 1)
        # The sequence number keeps packets with equal due times in order.
        self._sequence += 1
        self.held += weight
        heappush(self._heap, (due_ns, self._sequence, target, packet))

    def next_ns(self) -> float:
        """Return when the next packet may leave; infinity when none is held."""
        if not self._heap:
            return float("inf")
        return max(self._heap[0][0], self._free_ns - self._burst_ns)

    def release(self, now_ns: float) -> tuple[int, bytes] | None:
        """Return the next packet that may leave by now, with its target; None when there is none."""
        heap = self._heap
        if not heap or heap[0][0] > now_ns:
            return None
        # The bucket is kept in the packets' own time, not the clock's: a late wake-up costs no rate.
        free_ns = self._free_ns
        leave_ns = max(heap[0][0], free_ns - self._burst_ns)
        if leave_ns > now_ns:
            return None
        _, _, target, packet = heappop(heap)
        self.held -= 1 + (len(packet) - 1) // (MTU_BYTES + ETHERNET_HEADER_BYTES)
        self._free_ns = max(leave_ns, free_ns) + (len(packet) + FRAME_SURPLUS_BYTES) * self._ns_per_byte
        return target, packet


# A packet here is a virtio header and an IP packet; on the wire it is an Ethernet header and an IP packet.
VIRTIO_HEADER_BYTES = 10
FRAME_SURPLUS_BYTES = ETHERNET_HEADER_BYTES - VIRTIO_HEADER_BYTES
