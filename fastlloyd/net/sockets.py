"""Bytes on the network, as the kernel counts them for the sockets of this process.

An interface counts the bytes of all programs. The kernel also counts for each TCP connection: bytes sent (including
retransmissions) and received, and segments. So each party counts its own connections, whatever else uses the network;
the size of headers follows from the number of segments.

Source: Linux, `struct tcp_info` in include/uapi/linux/tcp.h; docs/report.md, "traffic".
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from fastlloyd.wire.decode import Within

Address = tuple[Any, ...]
Bytes = Annotated[int, Within(0, 1 << 62)]

# Where the fields begin in `struct tcp_info`; bytes_sent came with Linux 4.19.
_OPTIONS, _RECEIVED, _SEGMENTS, _DATA_SEGMENTS, _SENT, _END = 5, 128, 136, 152, 200, 208
# The last one came with Linux 5.4.
_SEGMENT, _UNCONFIRMED, _SINCE_LAST, _CONFIRMED, _UNSENT, _ROOM, _LAST_END = 16, 24, 56, 120, 144, 228, 232
_MOST_AT_ONCE = 1 << 16
_TIMESTAMPS = 1
_TCP_HEADER, _TIMESTAMP_OPTION = 20, 12
_IPV4_HEADER, _IPV6_HEADER = 20, 40
_ETHERNET_HEADER = 14
# Of include/uapi/linux/sock_diag.h and inet_diag.h: where the attributes of an answer begin, and which has tcp_info.
_SOCK_DIAG, _BY_FAMILY, _INFO, _ATTRIBUTES = 4, 20, 2, 16 + 72
# The two segments that open a connection have 20 bytes of options, and the kernel counts one of them at one end only:
# 8 and 60 bytes, half of them for each end.
_OPENING = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class WireBytes:
    """Bytes that one party has put on the network, or has seen there.

    Attributes
    ----------
    stream_bytes : int
        Inside TCP, on connections between parties.
    outer_tls_bytes : int
        The part of it that the TLS around the frames takes (`serve` and `join`).
    tcp_ip_bytes : int
        Headers of TCP, IP and Ethernet of these connections, including acknowledgements.
    launcher_bytes : int
        All bytes of connections with MPI's launcher.
    whole : bool
        Whether this is the traffic of all parties, because all of it passes this one.
    """

    stream_bytes: Bytes
    outer_tls_bytes: Bytes = 0
    tcp_ip_bytes: Bytes
    launcher_bytes: Bytes = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class SocketCount:
    """Counts of connections: bytes inside TCP and in headers, each way; size of one segment's headers; peer's port.

    `spared_sent` and `spared_received` bound the header bytes that an interface does not see because the kernel passes
    it several segments at once; 0 on the loopback. `local`: whether a connection is on the loopback.
    """

    sent: int = 0
    received: int = 0
    headers_sent: int = 0
    headers_received: int = 0
    header: int = 0
    port: int = 0
    spared_sent: int = 0
    spared_received: int = 0
    local: bool = False

    def __add__(self, other: SocketCount) -> SocketCount:
        """Add two counts; keep the larger header."""
        return SocketCount(
            self.sent + other.sent,
            self.received + other.received,
            self.headers_sent + other.headers_sent,
            self.headers_received + other.headers_received,
            max(self.header, other.header),
            spared_sent=self.spared_sent + other.spared_sent,
            spared_received=self.spared_received + other.spared_received,
            local=self.local or other.local,
        )


def count(connection: socket.socket) -> SocketCount | None:
    """Return the kernel's count of a TCP connection; None if there is none, or it is no TCP connection."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return None
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _END)
        return _read(info, connection.getsockname(), connection.getpeername())
    except (OSError, AttributeError):
        return None


def unconfirmed(connection: socket.socket) -> tuple[int, float] | None:
    """Return what the other end's kernel has confirmed of a TCP connection, if it has not confirmed all.

    Bytes that this kernel cannot send count too (the address of this end is gone, say), except those for which the
    other end has no room.

    Returns
    -------
    (int, float) or None
        Bytes confirmed so far, and seconds since anything came from the other end; None if nothing waits for a
        confirmation, or the system does not say.
    """
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_END)
    except (OSError, AttributeError):
        return None
    if len(info) < _END:
        return None

    def read(place: int) -> int:
        return int(struct.unpack_from("=I", info, place)[0])

    stuck = len(info) >= _LAST_END and read(_UNSENT) and read(_ROOM) >= read(_SEGMENT)
    if not (read(_UNCONFIRMED) or stuck):
        return None
    return int(struct.unpack_from("=Q", info, _CONFIRMED)[0]), read(_SINCE_LAST) / 1000


def count_both_ends(connection: socket.socket) -> SocketCount | None:
    """Count a connection within this host at both ends: only the sender knows about retransmissions."""
    counted = count(connection)
    if counted is None:
        return None
    with contextlib.suppress(OSError, AttributeError):
        here, there = connection.getsockname(), connection.getpeername()
        other = _read(_ask_of(connection.family, there, here), there, here)
        if other is not None:
            return replace(counted, received=other.sent, headers_received=other.headers_sent)
    return counted


def _ask_of(family: int, here: Address, there: Address) -> bytes:
    """Return the kernel's `tcp_info` of one end of any process's connection; empty if there is none."""
    sides = (socket.inet_pton(family, str(each[0])).ljust(16, bytes(1)) for each in (here, there))
    ports = struct.pack("!HH", here[1], there[1])
    name = ports + b"".join(sides) + bytes(4) + bytes([0xFF]) * 8
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0xFFFFFFFF) + name
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, 1, 1, 0) + request)
        answer = kernel.recv(1 << 14)
    size, kind = struct.unpack_from("=IH", answer)
    place = _ATTRIBUTES
    while kind == _BY_FAMILY and place + 4 <= min(size, len(answer)):
        length, attribute = struct.unpack_from("=HH", answer, place)
        if attribute == _INFO:
            return answer[place + 4 : place + length]
        place += max(4, (length + 3) & ~3)
    return b""


def _read(info: bytes, sockname: Address, peername: Address) -> SocketCount | None:
    """Decode the `tcp_info` of one end of a connection."""
    if len(info) < _END:
        return None
    here, (there, port) = sockname[0], peername[:2]
    (received,) = struct.unpack_from("=Q", info, _RECEIVED)
    segments_out, segments_in = struct.unpack_from("=II", info, _SEGMENTS)
    (sent,) = struct.unpack_from("=Q", info, _SENT)
    header = _TCP_HEADER + (_TIMESTAMP_OPTION if info[_OPTIONS] & _TIMESTAMPS else 0)
    header += _IPV6_HEADER if ":" in here and not here.startswith("::ffff:") else _IPV4_HEADER
    local = here == there or here.startswith("127.")
    header += 0 if local else _ETHERNET_HEADER
    opening = _OPENING + header - _TCP_HEADER - _IPV4_HEADER - _TIMESTAMP_OPTION
    data_in, data_out = (0, 0) if local else struct.unpack_from("=II", info, _DATA_SEGMENTS)
    return SocketCount(
        sent,
        received,
        opening + header * segments_out,
        opening + header * segments_in,
        header,
        port,
        header * max(0, data_out - 1 - sent // _MOST_AT_ONCE),
        header * max(0, data_in - 1 - received // _MOST_AT_ONCE),
        local,
    )


def interface_bytes() -> tuple[int, int]:
    """Return the bytes that all interfaces except the loopback have sent and received; zeros if unknown."""
    sent = received = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/net/dev").read_text("ascii").splitlines()[2:]:
            name, _, figures = line.partition(":")
            if name.strip() != "lo":
                received += int(figures.split()[0])
                sent += int(figures.split()[8])
    return sent, received


def seen_headers(headers: int, spared: int, stream: int, moved: int) -> int:
    """Estimate the header bytes that an interface saw, which may receive several segments at once.

    Parameters
    ----------
    headers, spared : int
        Counted by segments; and the most that it did not see.
    stream : int
        Inside TCP.
    moved : int
        Bytes that all interfaces counted meanwhile, perhaps including other programs'.
    """
    return min(headers, max(headers - spared, moved - stream))


def own_sockets(*, but: frozenset[str] = frozenset()) -> Iterator[socket.socket]:
    """Yield duplicates of this process's sockets, except some by their names in /proc; each is closed afterwards."""
    for name, descriptor in _descriptors():
        if name not in but:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
                yield connection


def socket_names() -> frozenset[str]:
    """Return the names in /proc of this process's current sockets."""
    return frozenset(name for name, _ in _descriptors())


def _descriptors() -> Iterator[tuple[str, int]]:
    """Yield name and number of each socket; none without /proc."""
    seen = set()
    with contextlib.suppress(OSError):
        for entry in list(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                name = str(entry.readlink())
                if name.startswith("socket:") and name not in seen:
                    seen.add(name)
                    yield name, int(entry.name)
