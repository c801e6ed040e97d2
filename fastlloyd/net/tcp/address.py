"""HOST:PORT, and the sockets that it names.

Source: docs/sites.md, "Addresses".
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastlloyd.errors import ConfigError

# Seconds, seconds, number of probes. Firewalls drop a silent connection after minutes; a dead host is noticed after
# 30 + 6 * 10 seconds.
_KEEPALIVE = (30, 10, 6)
_PROBES = 3
_LEAST_S = 0.05
_BACKLOG = 1024
_SITE_BITS = 64
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_UNKNOWN = (socket.EAI_NONAME, socket.EAI_FAMILY, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a listener.

    Attributes
    ----------
    host : str
        Name or IP address; empty for every address of this machine.
    port : int
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host or '*'}:{self.port}"


def parse_address(text: str, flag: str, *, listening: bool = False) -> Address:
    """Read HOST:PORT, with brackets around an IPv6 address.

    Parameters
    ----------
    text : str
    flag : str
        The flag to name in an error.
    listening : bool
        Allow the values of a listener: no host or '*' (every address) and port 0 (any free one).

    Raises
    ------
    ConfigError
        Says what is expected.

    Examples
    --------
    >>> parse_address("[::1]:4400", "--server")
    Address(host='::1', port=4400)
    """
    host, colon, port = text.rpartition(":")
    example = "server.example.org:4400 or [2001:db8::1]:4400"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        raise ConfigError(f"{flag}: expected an IPv6 address in brackets, as in {example}, got {text!r}")
    lowest = 0 if listening else 1
    if not colon or not (port.isascii() and port.isdigit() and lowest <= int(port) <= 65_535):
        raise ConfigError(f"{flag}: expected HOST:PORT with a port from 1 to 65535, as in {example}, got {text!r}")
    if listening and host == "*":
        host = ""
    if (not listening and not host) or any(character.isspace() for character in host):
        raise ConfigError(f"{flag}: expected HOST:PORT, as in {example}, got {text!r}")
    return Address(host, int(port))


def listen(address: Address, flag: str = "--listen") -> list[socket.socket]:
    """Listen on one port, at every address of the machine or those of the host name; errors name the flag.

    Raises
    ------
    ConfigError
        The port is in use or not allowed, or the host is not this machine's.
    """
    try:
        found = _resolve(address, passive=True)
    except socket.gaierror as error:
        raise _unknown(address, flag, error) from error
    listeners: list[socket.socket] = []
    port = address.port
    failure: OSError | None = None
    for family, host in found:
        try:
            made = _bind(family, host, port, dual=not address.host)
        except OSError as error:
            # A host without IPv6 may still have names with IPv6 addresses.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                _close(listeners)
                raise ConfigError(f"{flag} {address}: {_bind_problem(error)}") from error
            failure = error
            continue
        listeners.append(made)
        port = made.getsockname()[1]
    if not listeners:
        raise ConfigError(f"{flag} {address}: {_bind_problem(failure)}") from failure
    return listeners


def connect(address: Address, timeout_s: float, flag: str = "--server") -> socket.socket:
    """Connect once, trying all addresses of the host within the time; an error names `flag`.

    Each gets an equal part of what is left, so that one that is silent leaves time for the next.

    Raises
    ------
    ConfigError
        There is no such host.
    OSError
        Nothing answers there now.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in _UNKNOWN:
            raise _unknown(address, flag, error) from error
        raise
    except UnicodeError as error:
        raise ConfigError(f"{flag} {address}: this is not a host name; check how it is written") from error
    connection = _first_of(found, timeout_s)
    if connection.getsockname() == connection.getpeername():
        # The kernel may connect a port of this host to itself if nothing listens there.
        connection.close()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return connection


def _first_of(found: list[tuple[Any, ...]], timeout_s: float) -> socket.socket:
    """Connect to the first address that answers.

    Parameters
    ----------
    found : list of tuple
        As `socket.getaddrinfo` gives it; not empty.
    timeout_s : float

    Raises
    ------
    OSError
        None does; the last one's.
    """
    end, failure = time.monotonic() + timeout_s, OSError()
    for left, (family, kind, number, _, where) in zip(range(len(found), 0, -1), found, strict=True):
        connection = socket.socket(family, kind, number)
        try:
            connection.settimeout(max(_LEAST_S, end - time.monotonic()) / left)
            connection.connect(where)
        except OSError as error:
            failure = error
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise failure


def tune(connection: socket.socket) -> None:
    """Make a socket send small frames at once, notice a dead host, and never block."""
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    _probe(connection, *_KEEPALIVE)


def keep_alive(connection: socket.socket, silence_s: float) -> None:
    """Let the kernel end an idle connection whose other end answers nothing for about `silence_s` seconds and a third.

    The other end's kernel answers, also while its process computes. Bytes on their way are `Stream.check_silence`'s.
    """
    pause_s = max(1, round(silence_s / _PROBES))
    with contextlib.suppress(OSError):  # it has ended
        _probe(connection, pause_s, pause_s, _PROBES)


def peer_name(connection: socket.socket) -> str:
    """Return the other end's IP address and port, for messages."""
    try:
        host, port = connection.getpeername()[:2]
    except OSError:
        return "an unknown address"
    return str(Address(host.removeprefix("::ffff:"), port))


def source_of(host: str) -> str:
    """Return the part that connections from one place share: an IPv4 address, or the network of an IPv6 address."""
    # One host of an IPv6 network can use all its 2^64 addresses.
    address = _number(host)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.IPv6Network((address, _SITE_BITS), strict=False))


def is_within(host: str, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    address = _number(host)
    return any(address in network for network in networks)


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address from the kernel; IPv4 also if it came from an IPv6 socket."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped


def _resolve(address: Address, *, passive: bool) -> list[tuple[int, str]]:
    """Return family and address of each of the host's addresses, once each."""
    if passive and not address.host:
        return [(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, "")]
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((int(family), str(place[0])) for family, _, _, _, place in found))


def _bind(family: int, host: str, port: int, *, dual: bool) -> socket.socket:
    """Make one listening socket."""
    made = socket.create_server(
        (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual and family == socket.AF_INET6
    )
    made.setblocking(False)
    return made


def _bind_problem(error: OSError | None) -> str:
    """Explain in one sentence why a port is not available."""
    number = None if error is None else error.errno
    if number == errno.EADDRINUSE:
        return "the port is in use; end the other program (`ss -ltnp` shows it), or choose another port"
    if number == errno.EACCES:
        return "this user may not listen on that port; choose one above 1023"
    if number == errno.EADDRNOTAVAIL:
        return "this machine has no such address; give one that it has, or *:PORT for all"
    words = "no usable address" if error is None else error.strerror
    return f"cannot listen ({words}); give another address or port"


def _unknown(address: Address, flag: str, error: socket.gaierror) -> ConfigError:
    """Return the error for an unknown host name."""
    return ConfigError(f"{flag} {address}: the host name has no address ({error.strerror}); check how it is written")


def _probe(connection: socket.socket, idle_s: int, pause_s: int, count: int) -> None:
    """Set when keepalive begins, how often it probes, and after how many lost probes it ends the connection."""
    for name, value in (("TCP_KEEPIDLE", idle_s), ("TCP_KEEPINTVL", pause_s), ("TCP_KEEPCNT", count)):
        if hasattr(socket, name):  # not each system has them all
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.close()
