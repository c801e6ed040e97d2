"""Set-ups as they come and go: up, down, status, counters, and running a command on a host."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn

from . import emulator, kernel, namespace
from .failure import MachineError, UsageError
from .plan import INTERFACE, PREFIX_BITS, Plan, check_name, namespaces_of
from .profile import ETHERNET_HEADER_BYTES, Profile

Backend = Literal["netem", "emulator"]
STATE_FOLDER = Path("/run/fastlloyd-netem")
_FOLDER = Path(__file__).resolve().parent.parent
ENTRY = _FOLDER / "netem"
REMOTE_SHELL = _FOLDER / "nsrsh"
# The device queues packets until the emulator gets its turn; the default of 500 overflows in 6 ms at 1 Gbit/s.
_DEVICE_QUEUE_PACKETS = 10_000


class Setup:
    """A set-up that is up.

    Parameters
    ----------
    plan : Plan
        What it consists of.
    backend : {'netem', 'emulator'}
        Who delays the packets.
    """

    def __init__(self, plan: Plan, backend: Backend) -> None:
        self.plan = plan
        self.backend = backend

    def document(self) -> dict[str, Any]:
        """Return what `up --json` and `status --json` print."""
        running = {host.namespace: _count(host.namespace) for host in self.plan.hosts}
        document = self.plan.document(self.backend)
        for host in document["hosts"]:
            host["processes"] = running[host["namespace"]]
        document["working"] = self.working
        document["remote_shell"] = str(REMOTE_SHELL)
        return document

    @property
    def working(self) -> bool:
        """Whether all namespaces and, where there is one, the emulator are there."""
        expected = {self.plan.switch, *(host.namespace for host in self.plan.hosts)}
        if not expected <= set(namespace.listed()):
            return False
        return self.backend == "netem" or bool(namespace.processes(self.plan.switch))

    def counters(self) -> dict[str, Any]:
        """Return what each host has sent and received on its interface, Ethernet headers counted.

        A TUN device counts IP packets; 14 bytes are added for each, so that both back ends agree.
        """
        hosts = [
            {"host": host.number, "namespace": host.namespace, "address": host.address, "interface": INTERFACE}
            | interface_counters(host.namespace, self.backend)
            for host in self.plan.hosts
        ]
        return {"name": self.plan.name, "backend": self.backend, "hosts": hosts}


def interface_counters(host: str, backend: Backend) -> dict[str, int]:
    """Return a host's counters, in Ethernet frames whatever the back end."""
    with namespace.within(host):
        lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()
    words = next((line.split(":")[1].split() for line in lines if line.strip().startswith(f"{INTERFACE}:")), None)
    if words is None:
        raise MachineError(
            f"expected an interface {INTERFACE} in {host}, found none: the emulator is gone; down, then up"
        )
    numbers = [int(word) for word in words]
    header = ETHERNET_HEADER_BYTES if backend == "emulator" else 0
    return {
        "tx_bytes": numbers[8] + header * numbers[9],
        "rx_bytes": numbers[0] + header * numbers[1],
        "tx_packets": numbers[9],
        "rx_packets": numbers[1],
        "tx_dropped": numbers[11],
        "rx_dropped": numbers[3],
    }


def up(plan: Plan, wanted: Backend | None, *, profiles_file: Path) -> Setup:
    """Make a set-up, or leave nothing behind.

    Parameters
    ----------
    plan : Plan
        What to make.
    wanted : {'netem', 'emulator'} or None
        Who is to delay the packets; None takes netem where the kernel has it.
    profiles_file : Path
        Where the profile stands, for the emulator to read.

    Raises
    ------
    MachineError
        When the name is in use, the rights or tools are missing, or the kernel refuses.
    """
    namespace.check_machine()
    with signals_raised(), _locked():
        if namespaces_of(plan.name, namespace.listed()) or _state_file(plan.name).exists():
            raise MachineError(
                f"expected no set-up called {plan.name}, found one; `netem down --name {plan.name}` removes it, "
                "or give this one another --name"
            )
        try:
            return _build(plan, wanted, profiles_file)
        except BaseException:
            _demolish(plan.name)
            raise


def _build(plan: Plan, wanted: Backend | None, profiles_file: Path) -> Setup:
    """Make the namespaces, the interfaces and the state file."""
    folder = _state_file(plan.name).parent
    folder.mkdir(parents=True)
    namespace.add(plan.switch)
    for host in plan.hosts:
        namespace.add(host.namespace)
    backend = _choose(plan, wanted)
    state = {"backend": backend, "hosts": plan.host_count, "profile": asdict(plan.profile)}
    _state_file(plan.name).write_text(json.dumps(state), encoding="utf-8")
    if backend == "netem":
        kernel.connect(plan)
    else:
        arguments = [str(ENTRY), "forward", plan.profile.name, "--name", plan.name, "--hosts", str(plan.host_count)]
        emulator.start(plan, [*arguments, "--profiles", str(profiles_file.resolve())], folder / "emulator.log")
        for host in plan.hosts:
            lines = [
                f"link set {INTERFACE} txqueuelen {_DEVICE_QUEUE_PACKETS} {plan.profile.interface_options}",
                f"addr add {host.address}/{PREFIX_BITS} dev {INTERFACE}",
                f"link set {INTERFACE} up",
            ]
            namespace.batch("ip", host.namespace, lines)
    return Setup(plan, backend)


def _choose(plan: Plan, wanted: Backend | None) -> Backend:
    """Choose the back end, and say so where it is not the kernel's."""
    if wanted == "emulator":
        return wanted
    reason = kernel.missing_netem(plan.switch)
    if reason is None:
        return "netem"
    if wanted == "netem":
        raise MachineError(
            f"expected a kernel with sch_netem, got: {reason}; load the module or use --backend emulator"
        )
    sys.stderr.write("netem: this kernel has no sch_netem; the user-space emulator shapes the packets instead\n")
    return "emulator"


def down(name: str) -> bool:
    """Remove a set-up and whatever is left of it; return whether there was anything.

    Raises
    ------
    MachineError
        When a process in it does not end, or a namespace cannot be removed.
    """
    namespace.check_machine()
    check_name(name)
    with _locked():
        return _demolish(name)


def _demolish(name: str) -> bool:
    """End the processes of a set-up, remove its namespaces and forget it; by names alone."""
    namespaces = namespaces_of(name, namespace.listed())
    # The hosts first: programs on them may still send through the emulator.
    hosts = [one for one in namespaces if not one.endswith("-sw")]
    namespace.empty(hosts)
    namespace.empty([one for one in namespaces if one not in hosts])
    for one in namespaces:
        namespace.remove(one)
    folder = _state_file(name).parent
    found = bool(namespaces) or folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return found


def names() -> list[str]:
    """Return the names of all set-ups, whole or left over."""
    from_state = {path.name for path in STATE_FOLDER.iterdir() if path.is_dir()} if STATE_FOLDER.is_dir() else set()
    return sorted(from_state)


def find(name: str) -> Setup:
    """Return a set-up that is up.

    Raises
    ------
    UsageError
        When there is none of that name.
    """
    try:
        state = json.loads(_state_file(check_name(name)).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"expected a set-up called {name}, found none; make it with `netem up PROFILE --name {name}`"
        ) from None
    return Setup(Plan(name, Profile(**state["profile"]), state["hosts"]), state["backend"])


def execute(setup: Setup, host: str, command: Sequence[str]) -> NoReturn:
    """Replace this process by a command on a host.

    Raises
    ------
    UsageError
        When there is no such host or command.
    """
    namespace.check_machine()
    place = setup.plan.host(host)
    if shutil.which(command[0]) is None:
        raise UsageError(f"expected a command that can be run, got {command[0]!r}; is it on the PATH?")
    # Its own host name: Open MPI treats equal names as one machine.
    named = 'hostname "$0" && exec "$@"'
    words = ["ip", "netns", "exec", place.namespace, "unshare", "--uts", "sh", "-c", named, place.hostname, *command]
    os.execvp(words[0], words)  # noqa: S606 - the words go to sh as arguments, never as its script


def _count(name: str) -> int:
    """Count the processes in a namespace that may be gone."""
    try:
        return len(namespace.processes(name))
    except MachineError:
        return 0


def _state_file(name: str) -> Path:
    """Return where a set-up's state stands."""
    return STATE_FOLDER / name / "state.json"


@contextmanager
def _locked() -> Iterator[None]:
    """Let one command at a time make or remove set-ups; the kernel drops the lock of a killed one."""
    STATE_FOLDER.mkdir(parents=True, exist_ok=True)
    with (STATE_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def signals_raised() -> Iterator[None]:
    """Turn the signals that end a process into an exception, so that what was made is removed again."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
