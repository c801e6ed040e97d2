"""The kernel's own shaping: veth pairs on a bridge, htb for the rate and netem for the rest.

Full mesh through one bridge; what leaves a host is shaped once, on its own interface. netem sits under
htb, so a packet is delayed first and then waits for the rate.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from .failure import MachineError
from .namespace import batch, call
from .plan import INTERFACE, PREFIX_BITS, Host, Plan
from .profile import Profile

_BRIDGE = "br0"
_DEFAULT_DISCIPLINES = {"noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo", "cake"}


def missing_netem(namespace: str) -> str | None:
    """Return why the kernel cannot shape with netem, tried on a namespace's loopback; None when it can."""
    command = ("tc", "-n", namespace, "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return " ".join((done.stderr or done.stdout).split())
    call("tc", "-n", namespace, "qdisc", "del", "dev", "lo", "root")
    return None


def discipline_commands(profile: Profile, interface: str) -> list[str]:
    """Return the `tc` commands, without the leading `tc`, that shape what leaves an interface."""
    place = f"dev {interface} root"
    commands = []
    rate = profile.rate_bytes_s
    if rate is not None:
        bits, burst = int(rate * 8), profile.burst_bytes
        quantum = f" quantum {profile.quantum_bytes}" if profile.quantum_bytes else ""
        # r2q must stand on the root even where each class has its quantum: the table gives both.
        r2q = f" r2q {profile.r2q}" if profile.r2q else ""
        commands = [
            f"qdisc add {place} handle 1: htb default 1{r2q}",
            # cburst as large as burst: htb takes the smaller of the two where rate and ceil are equal.
            f"class add dev {interface} parent 1: classid 1:1 htb rate {bits}bit ceil {bits}bit "
            f"burst {burst} cburst {burst}{quantum}",
        ]
        place = f"dev {interface} parent 1:1"
    loss = f" loss random {profile.loss_percent:g}%" if profile.loss_percent else ""
    delay_us, jitter_us = round(profile.delay_ms * 1000), round(profile.jitter_ms * 1000)
    jitter = f" {jitter_us}us" if jitter_us else ""
    commands.append(
        f"qdisc add {place} handle 10: netem limit {profile.queue_limit} delay {delay_us}us{jitter}{loss}",
    )
    return commands


def connect(plan: Plan) -> None:
    """Join the hosts' interfaces by a bridge and shape each; the namespaces exist.

    Raises
    ------
    MachineError
        When the kernel lacks something else, such as bridges.
    """
    try:
        call(
            *("ip", "-n", plan.switch, "link", "add", _BRIDGE, "type", "bridge"),
            *("stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"),
        )
    except MachineError as error:
        raise MachineError(f"{error}; load the module bridge, or use --backend emulator") from error
    lines = [f"link set {_BRIDGE} up"]
    for host in plan.hosts:
        port = f"p{host.number}"
        lines += [
            f"link add {port} type veth peer name {INTERFACE} netns {host.namespace} address {host.hardware_address}",
            f"link set {port} master {_BRIDGE} up",
        ]
    batch("ip", plan.switch, lines)
    for host in plan.hosts:
        batch("ip", host.namespace, _host_commands(plan, host))
        batch("tc", host.namespace, discipline_commands(plan.profile, INTERFACE))


def _host_commands(plan: Plan, host: Host) -> list[str]:
    """Return the `ip` commands that give a host its address."""
    return [
        f"addr add {host.address}/{PREFIX_BITS} dev {INTERFACE}",
        f"link set {INTERFACE} {plan.profile.interface_options} up",
        # Known neighbours: address queries would be delayed and lost like data.
        *(
            f"neigh replace {other.address} lladdr {other.hardware_address} dev {INTERFACE} nud permanent"
            for other in plan.hosts
            if other != host
        ),
    ]


def shape_real(profile: Profile, interface: str) -> None:
    """Shape what leaves an interface of this machine, which the user has named.

    Raises
    ------
    MachineError
        When there is no such interface, it is shaped already, or the kernel has no netem.
    """
    _check_real(interface)
    kind = call("tc", "qdisc", "show", "dev", interface, "root").split()[1:2]
    if kind and kind[0] not in _DEFAULT_DISCIPLINES:
        raise MachineError(
            f"expected {interface} not to be shaped yet, found a queueing discipline {kind[0]}; "
            f"remove it first: netem down --interface {interface}"
        )
    try:
        for command in discipline_commands(profile, interface):
            call("tc", *command.split())
    except BaseException:
        subprocess.run(["tc", "qdisc", "del", "dev", interface, "root"], capture_output=True, check=False)
        raise


def release_real(interface: str) -> bool:
    """Put an interface's default queueing discipline back; return whether it was shaped by this tool."""
    _check_real(interface)
    ours = call("tc", "qdisc", "show", "dev", interface, "root").split()[1:3] in (["htb", "1:"], ["netem", "10:"])
    if ours:
        call("tc", "qdisc", "del", "dev", interface, "root")
    return ours


def _check_real(interface: str) -> None:
    """Refuse an interface that is not there."""
    if "/" in interface or not (Path("/sys/class/net") / interface).exists():
        raise MachineError(f"expected an interface of this machine, got {interface!r}; see `ip link`")
