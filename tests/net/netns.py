"""A site and an operator in network namespaces of one machine, and a router between them that fails in silence.

::

    operator 10.9.1.1 ---- 10.9.1.2 router 10.9.2.2 ---- 10.9.2.1 site
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "scripts" / "netem"
sys.path.insert(0, str(FOLDER))

from shaping import namespace  # noqa: E402
from shaping.failure import MachineError  # noqa: E402

OPERATOR, SITE, NEW_SITE = "10.9.1.1", "10.9.2.1", "10.9.2.77"
_NETFILTER, _FLUSH, _REQUEST, _ACKNOWLEDGE, _ERROR = 12, (1 << 8) | 2, 1, 4, 2


class Wires:
    """Three namespaces; everything is passed on until a method says otherwise."""

    def __init__(self) -> None:
        self.operator, self.router, self.site = (f"fl{part}{os.getpid()}" for part in "ors")

    def up(self) -> None:
        for name in (self.operator, self.router, self.site):
            namespace.add(name)
        for name, here, there, own, routers in (
            (self.operator, "eo", "ro", OPERATOR, "10.9.1.2"),
            (self.site, "es", "rs", SITE, "10.9.2.2"),
        ):
            words = f"ip link add {here} netns {name} type veth peer name {there} netns {self.router}"
            namespace.call(*words.split())
            lines = (f"addr add {own}/24 dev {here}", f"link set {here} up", f"route add default via {routers}")
            namespace.batch("ip", self.router, (f"addr add {routers}/24 dev {there}", f"link set {there} up"))
            namespace.batch("ip", name, lines)
        self._set("ip_forward", "1")
        self.rule("-L")  # raises where there is no filter

    def down(self) -> None:
        for name in (self.site, self.operator, self.router):
            with contextlib.suppress(MachineError):
                namespace.remove(name)

    def rule(self, *words: str) -> None:
        """Change the router's filter."""
        namespace.call("ip", "netns", "exec", self.router, "iptables", "-w", *words)

    def drop(self, port: int, *, to_operator: bool = True, to_site: bool = True) -> None:
        """Drop the flow from the site's port without a word; another one passes."""
        for wanted, side in ((to_operator, "--sport"), (to_site, "--dport")):
            if wanted:
                self.rule("-A", "FORWARD", "-p", "tcp", side, str(port), "-j", "DROP")

    def silence(self, *, on: bool) -> None:
        """Drop everything, or pass everything on again."""
        self.rule("-P", "FORWARD", "DROP" if on else "ACCEPT")

    def translate(self) -> None:
        """Let the router translate the site's address, and pass on nothing that belongs to no flow that it knows."""
        self._set("netfilter/nf_conntrack_tcp_loose", "0")
        self.rule("-t", "nat", "-A", "POSTROUTING", "-o", "ro", "-j", "MASQUERADE")
        self.rule("-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP")
        self.rule("-A", "INPUT", "-i", "ro", "-p", "tcp", "-j", "DROP")

    def forget(self) -> None:
        """Let the router forget all flows that it translates, as a restart does."""
        request = struct.pack("=IHHII", 20, _FLUSH, _REQUEST | _ACKNOWLEDGE, 1, 0) + bytes(4)
        with namespace.within(self.router), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as kernel:
            kernel.send(request)
            answer = kernel.recv(1 << 12)
        kind, code = struct.unpack_from("=H", answer, 4)[0], struct.unpack_from("=i", answer, 16)[0]
        assert (kind, code) == (_ERROR, 0), os.strerror(-code)

    def move(self) -> None:
        """Give the site another address."""
        lines = (f"addr del {SITE}/24 dev es", f"addr add {NEW_SITE}/24 dev es", "route replace default via 10.9.2.2")
        namespace.batch("ip", self.site, lines)

    def _set(self, name: str, value: str) -> None:
        with namespace.within(self.router):
            Path("/proc/sys/net", name if "/" in name else f"ipv4/{name}").write_text(value, encoding="ascii")


def wires() -> Iterator[Wires]:
    """Yield the namespaces, for a fixture; skip where this machine cannot have them."""
    if os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("ip", "iptables")):
        pytest.skip("network namespaces need root, iproute2 and iptables")
    made = Wires()
    try:
        try:
            made.up()
        except (MachineError, OSError) as error:
            pytest.skip(f"this machine makes no network namespaces: {error}")
        yield made
    finally:
        made.down()
