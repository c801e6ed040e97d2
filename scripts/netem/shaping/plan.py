"""What a set-up consists of: its name, profile, namespaces and addresses; worked out, not looked up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .failure import UsageError
from .profile import Profile

DEFAULT_NAME = "flnet"
INTERFACE = "eth0"
NETWORK = "10.77.0"
PREFIX_BITS = 24
MOST_HOSTS = 200
_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")


@dataclass(frozen=True, slots=True)
class Host:
    """One host: a namespace with one shaped interface."""

    number: int
    namespace: str

    @property
    def hostname(self) -> str:
        """The name programs on this host see."""
        return f"h{self.number}"

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return f"{NETWORK}.{self.number}"

    @property
    def hardware_address(self) -> str:
        """Its interface's Ethernet address, in the range left to local use."""
        return f"02:4d:0a:4d:00:{self.number:02x}"

    def answers_to(self, text: str) -> bool:
        """Whether this host is meant by a number, hostname, namespace or address."""
        return text in {str(self.number), self.hostname, self.namespace, self.address}


@dataclass(frozen=True, slots=True)
class Plan:
    """A set-up: hosts 1..N around one switch.

    Raises
    ------
    UsageError
        When the name or the number of hosts will not do.
    """

    name: str
    profile: Profile
    host_count: int

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 1 <= self.host_count <= MOST_HOSTS:
            raise UsageError(f"expected 1 to {MOST_HOSTS} hosts, got {self.host_count}; see --hosts")

    @property
    def switch(self) -> str:
        """The namespace of the bridge, or of the emulator."""
        return f"{self.name}-sw"

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts, in order."""
        return tuple(Host(number, f"{self.name}-h{number}") for number in range(1, self.host_count + 1))

    def host(self, text: str) -> Host:
        """Return the host meant by a number, hostname, namespace or address.

        Raises
        ------
        UsageError
            When there is no such host.
        """
        for host in self.hosts:
            if host.answers_to(text):
                return host
        raise UsageError(f"expected one of the hosts h1 to h{self.host_count} of {self.name}, got {text!r}")

    def document(self, backend: str) -> dict[str, Any]:
        """Return what `--json` prints about a set-up."""
        return {
            "name": self.name,
            "profile": self.profile.name,
            "backend": backend,
            "switch": self.switch,
            "hosts": [
                {
                    "host": host.number,
                    "hostname": host.hostname,
                    "namespace": host.namespace,
                    "address": host.address,
                    "interface": INTERFACE,
                    "backend": backend,
                }
                for host in self.hosts
            ],
        }


def check_name(name: str) -> str:
    """Return the name of a set-up if it can be one.

    Raises
    ------
    UsageError
        When it cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"expected a name of 1 to 16 small letters and digits, a letter first, got {name!r}")
    return name


def namespaces_of(name: str, listed: list[str]) -> list[str]:
    """Return which of the listed namespaces belong to the set-up called so."""
    own = re.compile(rf"{re.escape(name)}-(sw|h[0-9]+)")
    return [namespace for namespace in listed if own.fullmatch(namespace)]
