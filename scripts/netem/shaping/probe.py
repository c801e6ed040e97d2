"""Probes between two hosts of a set-up: one-way delays, losses, and bulk transfers.

Both ends run on one machine and share its clock, so delays are measured one way, from just before the
send to the kernel's time stamp of arrival, which no scheduling of the receiver disturbs.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from .failure import MachineError
from .namespace import within
from .plan import Host
from .profile import Profile
from .setup import Setup, interface_counters

_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_PR_SET_PDEATHSIG = 1
_CHILD_PRIORITY = -15
_RECEIVE_BYTES = 32 << 20
_PROBE = struct.Struct("!IQ44x")
_TIMESPEC = struct.Struct("@qq")
_PORT = 7700
_DATAGRAM_BYTES = 1472  # fills a packet of 1,500 bytes
_DATAGRAMS = bytes(8 * _DATAGRAM_BYTES)
_UDP_SEGMENT = 103
_STREAM = bytes(1 << 18)
_FLOOD_FACTOR = 1.15
_WINDOW_S = 2.0
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Delays:
    """One-way delays in ms, both directions together, and how many of the probes came out of order."""

    values_ms: list[float]
    sent: int
    reordered: int


@dataclass(frozen=True, slots=True)
class Losses:
    """How many packets were sent, and how many of them did not arrive."""

    sent: int
    lost: int


def measure_delays(setup: Setup, count: int, gap_s: float) -> Delays:
    """Send single probes both ways, at random times so that they meet the network at rest."""
    ends = [_datagram_socket(host) for host in setup.plan.hosts[:2]]
    values: list[float] = []
    newest = [0, 0]
    reordered = 0

    def receive(until: float) -> None:
        nonlocal reordered
        while (left := until - time.monotonic()) > 0:
            for end in select.select(ends, (), (), left)[0]:
                number, delay_ms = _read_probe(end)
                values.append(delay_ms)
                side = ends.index(end)
                reordered += number < newest[side]
                newest[side] = max(newest[side], number)

    with ends[0], ends[1]:
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        for number in range(count):
            for end, other in (ends, reversed(ends)):
                end.sendto(_PROBE.pack(number, time.time_ns()), other.getsockname())
                receive(time.monotonic() + gap_s * random.uniform(0.25, 0.75))  # noqa: S311
        receive(time.monotonic() + _drain_s(setup.plan.profile))
    return Delays(values, 2 * count, reordered)


def _read_probe(end: socket.socket) -> tuple[int, float]:
    """Receive one probe; return its number and how long it took, in ms."""
    data, extra, _, _ = end.recvmsg(_PROBE.size, socket.CMSG_SPACE(_TIMESPEC.size))
    number, sent_ns = _PROBE.unpack(data)
    seconds, nanoseconds = _TIMESPEC.unpack(extra[0][2])
    return number, (seconds * 1_000_000_000 + nanoseconds - sent_ns) / 1e6


def measure_losses(setup: Setup, count: int) -> Losses:
    """Send small packets both ways, slowly enough for the queues, and count what the interfaces received."""
    profile = setup.plan.profile
    on_the_way_s = (profile.delay_ms + profile.jitter_ms) / 1000
    rate = min(10_000.0, profile.queue_limit / (2 * on_the_way_s) if on_the_way_s else 10_000.0)
    ends = [_datagram_socket(host) for host in setup.plan.hosts[:2]]
    hosts = setup.plan.hosts[:2]
    with ends[0], ends[1]:
        before = [interface_counters(host.namespace, setup.backend)["rx_packets"] for host in hosts]
        start = time.monotonic()
        for number in range(count):
            for end, other in (ends, reversed(ends)):
                end.sendto(_PROBE.pack(number, 0), other.getsockname())
            ahead = start + number / rate - time.monotonic()
            if ahead > 0.0005:
                time.sleep(ahead)
        time.sleep(_drain_s(profile))
        after = [interface_counters(host.namespace, setup.backend)["rx_packets"] for host in hosts]
    return Losses(2 * count, 2 * count - (sum(after) - sum(before)))


def measure_datagram_rate(setup: Setup) -> float:
    """Send more datagrams than the rate lets through; return what arrives, in Mbit/s of Ethernet frames."""
    profile = setup.plan.profile
    assert profile.rate_bytes_s is not None
    offered = _FLOOD_FACTOR * profile.rate_bytes_s
    settle_s = 0.3 + _drain_s(profile) + profile.burst_bytes / (offered - profile.rate_bytes_s)
    sender, receiver = (_datagram_socket(host) for host in setup.plan.hosts[:2])
    with sender, receiver:
        sender.connect(receiver.getsockname())
        sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _DATAGRAM_BYTES)  # the kernel cuts, for less work
        with _child(lambda: _flood(sender, offered / (_DATAGRAM_BYTES + 42))):
            return _received_rate(setup, settle_s, _WINDOW_S)


def _flood(sender: socket.socket, packets_s: float) -> None:
    """Send datagrams at a steady rate for ever."""
    start, sent = time.monotonic(), 0
    while True:
        due = (time.monotonic() - start) * packets_s
        while sent < due:
            with suppress(OSError):  # a full device queue
                sender.send(_DATAGRAMS)
            sent += len(_DATAGRAMS) // _DATAGRAM_BYTES
        time.sleep(0.0002)


def measure_stream_rate(setup: Setup) -> float:
    """Send as fast as one TCP connection can; return what arrives, in Mbit/s of Ethernet frames."""
    round_trip_s = 2 * setup.plan.profile.delay_ms / 1000
    source, sink = setup.plan.hosts[:2]
    with within(sink.namespace):
        listener = socket.create_server((sink.address, _PORT))
    with within(source.namespace):
        sender = socket.socket()
    with listener, sender:
        sender.settimeout(_PATIENCE_S)
        listener.settimeout(_PATIENCE_S)
        try:
            sender.connect(listener.getsockname())
            receiver, _ = listener.accept()
        except TimeoutError as error:
            raise MachineError(f"no TCP connection within {_PATIENCE_S:g} s; is the emulator running?") from error
        sender.settimeout(None)
        with receiver, _child(lambda: _discard(receiver)), _child(lambda: _pour(sender)):
            return _received_rate(setup, 0.5 + 15 * round_trip_s, max(_WINDOW_S, 8 * round_trip_s))


def _pour(sender: socket.socket) -> None:
    """Send for ever."""
    while True:
        sender.send(_STREAM)


def _discard(receiver: socket.socket) -> None:
    """Receive for ever; MSG_TRUNC lets the kernel throw the bytes away without copying them."""
    receiver.settimeout(None)
    while receiver.recv(1 << 20, socket.MSG_TRUNC):
        pass


def _received_rate(setup: Setup, settle_s: float, window_s: float) -> float:
    """Return the rate at which the second host's interface receives, in Mbit/s, after a while to settle."""
    host = setup.plan.hosts[1].namespace
    time.sleep(settle_s)
    first_bytes, first_s = interface_counters(host, setup.backend)["rx_bytes"], time.monotonic()
    time.sleep(window_s)
    last_bytes, last_s = interface_counters(host, setup.backend)["rx_bytes"], time.monotonic()
    return (last_bytes - first_bytes) * 8 / (last_s - first_s) / 1e6


def _drain_s(profile: Profile) -> float:
    """Return how long a packet sent now may still be on its way."""
    return 0.2 + 1.5 * (profile.delay_ms + profile.jitter_ms) / 1000


def _datagram_socket(host: Host) -> socket.socket:
    """Open a UDP socket on a host, with room for everything a measurement sends."""
    with within(host.namespace):
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    end.bind((host.address, 0))
    return end


@contextmanager
def _child(work: Callable[[], None]) -> Iterator[None]:
    """Run a function in a separate process until the block ends."""
    pid = os.fork()
    if pid == 0:
        try:
            # It is in no namespace of the set-up, so `down` would not find it should its parent be killed.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            # The link is to be the bottleneck, not what else runs on the machine.
            os.setpriority(os.PRIO_PROCESS, 0, _CHILD_PRIORITY)
            work()
        except OSError:
            pass  # the other end is gone: the measurement is over
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
