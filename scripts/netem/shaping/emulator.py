"""The user-space emulator: one process that forwards packets between the hosts' TUN devices.

It stands in for kernel netem where the kernel has none. Full mesh: every host reaches every other over
its own shaped way out. It sleeps until a packet comes or is due, so it costs nothing when idle.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns

from .egress import VIRTIO_HEADER_BYTES, Egress
from .failure import MachineError
from .namespace import enter
from .plan import INTERFACE, Plan
from .profile import MTU_BYTES, Profile
from .tun import open_tun

READY = "ready\n"
_LONGEST_PACKET_BYTES = 65_550 + VIRTIO_HEADER_BYTES
_BATCH = 32
_DESTINATION = slice(VIRTIO_HEADER_BYTES + 16, VIRTIO_HEADER_BYTES + 20)  # of an IPv4 header
# Packets leave this much before they are due: about what noticing their arrival and waking up again takes.
_EARLY_NS = 30_000
_PR_SET_TIMERSLACK = 29


def start(plan: Plan, arguments: Sequence[str], log: Path) -> int:
    """Start the forwarding process and wait until every host has its interface.

    Parameters
    ----------
    plan : Plan
        The set-up; its namespaces exist.
    arguments : sequence of str
        The command that runs `serve` with this plan.
    log : Path
        Where its errors go.

    Returns
    -------
    int
        Its process number.

    Raises
    ------
    MachineError
        When it ends before it is ready; with what it said.
    """
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout:
        if process.stdout.readline().decode() != READY:
            process.kill()
            process.wait()
            said = log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
            raise MachineError(f"the emulator of {plan.name} did not start: {said}; is /dev/net/tun there?")
    process.returncode = 0  # it keeps running without a parent: prevent Python's warning
    return process.pid


def serve(plan: Plan) -> None:
    """Forward packets until stopped; print one line when ready."""
    enter(plan.switch)
    trains = plan.profile.train_bytes is not None
    devices = [open_tun(host.namespace, INTERFACE, trains=trains) for host in plan.hosts]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    _be_punctual()
    sys.stdout.write(READY)
    sys.stdout.flush()
    addresses = [host.address for host in plan.hosts]
    forward(devices, addresses, plan.profile)


def _be_punctual() -> None:
    """Ask for exact timers and to run before ordinary processes, as far as the system allows."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    try:
        # Ranks of an MPI program poll without pause: an ordinary process would wait for its turn.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)
    gc.disable()  # nothing here is cyclic, and a collection would delay packets


def forward(devices: Sequence[int], addresses: Sequence[str], profile: Profile) -> None:
    """Move packets between TUN devices for ever.

    Parameters
    ----------
    devices : sequence of int
        Descriptors of the devices, non-blocking.
    addresses : sequence of str
        The IPv4 address behind each.
    profile : Profile
        What each device's way out does.
    """
    draw = random.Random().random  # noqa: S311 - losses are no secret; seeded by the system
    egress = {device: Egress(profile, draw) for device in devices}
    route = {bytes(map(int, address.split("."))): device for address, device in zip(addresses, devices, strict=True)}
    longest = MTU_BYTES + VIRTIO_HEADER_BYTES if profile.train_bytes is None else _LONGEST_PACKET_BYTES
    queues = list(egress.values())
    until_ns = float("inf")
    while True:
        for device in _wait(devices, until_ns):
            now_ns = monotonic_ns()  # before reading: the packets are there already
            egress[device].accept(now_ns, _read(device, route, longest))
        until_ns = float("inf")
        for queue in queues:
            if queue:
                for target, packet in queue.release(monotonic_ns() + _EARLY_NS, _BATCH):
                    with suppress(OSError):  # an interface that is down loses packets like any other
                        os.write(target, packet)
                until_ns = min(until_ns, queue.next_ns())


def _wait(devices: Sequence[int], until_ns: float) -> Sequence[int]:
    """Sleep until a packet comes or the time is near; return the devices with packets."""
    if until_ns == float("inf"):
        return select.select(devices, (), ())[0]
    return select.select(devices, (), (), max(0.0, until_ns - monotonic_ns() - _EARLY_NS) / 1e9)[0]


def _read(device: int, route: dict[bytes, int], longest: int) -> list[tuple[int, bytes]]:
    """Read the packets a host has sent, with the device each is for; a batch at most, to be fair to others."""
    packets = []
    with suppress(BlockingIOError):
        for _ in range(_BATCH):
            packet = os.read(device, longest)
            target = route.get(packet[_DESTINATION])
            if target is not None:  # what goes to no host, a broadcast say, is dropped
                packets.append((target, packet))
    return packets
