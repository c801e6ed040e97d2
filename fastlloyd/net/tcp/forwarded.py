"""The PROXY protocol: a header in which a load balancer states the client's address.

::

    version 1    PROXY TCP4|TCP6 source destination port port CR LF       as text, at most 107 bytes
                 PROXY UNKNOWN ... CR LF
    version 2    12 fixed bytes | version, command u8 | family u8 | length u16 | addresses | TLVs      big endian

Such a header is accepted only from addresses that the operator has named, and required from them: a sender can claim
any address.

Source: HAProxy, doc/proxy-protocol.txt (2.x), sections 2.1 and 2.2; docs/sites.md, "Behind a load balancer".
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Callable

from fastlloyd.errors import ConfigError
from fastlloyd.net.tcp.address import Address, Network

_V1 = b"PROXY "
_V2 = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES = len(_V2)
_MOST_V1_BYTES = 107
_MOST_V2_BYTES = 2048
_V2_HEAD = struct.Struct(">12sBBH")
_LOCAL, _PROXY = 0x20, 0x21
# What follows for each family: source, destination, two ports.
_V2_FORMS = {0x11: struct.Struct(">4s4sHH"), 0x21: struct.Struct(">16s16sHH")}
_UNSPECIFIED = 0x00
_TLV = struct.Struct(">BH")
_PORT = re.compile(r"0|[1-9][0-9]{0,4}")
_Number = ipaddress.IPv4Address | ipaddress.IPv6Address
_NUMBERS: dict[str, Callable[[str], _Number]] = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}


def parse_networks(text: str, flag: str) -> tuple[Network, ...]:
    """Read addresses and networks, separated by commas.

    Raises
    ------
    ConfigError
        They cannot be read; says what is expected.

    Examples
    --------
    >>> [str(network) for network in parse_networks("10.0.0.7,2001:db8::/32", "--proxy-protocol")]
    ['10.0.0.7/32', '2001:db8::/32']
    """
    try:
        found = tuple(ipaddress.ip_network(entry.strip()) for entry in text.split(","))
    except ValueError as error:
        raise ConfigError(
            f"{flag}: expected the load balancers' addresses or networks, as in 10.0.0.7,10.1.0.0/24, got {text!r}"
        ) from error
    return found


def begins(head: bytes) -> bool:
    """Whether the first bytes of a connection, at least `HEAD_BYTES` of them, are a PROXY header's."""
    return head.startswith((_V1, _V2))


def missing(head: bytes | bytearray) -> int:
    """Return how many bytes may be read next without reading past the header; 0 once it is complete.

    Raises
    ------
    ValueError
        The header is invalid or too long.
    """
    size = len(head)
    if not (_V1.startswith(bytes(head[: len(_V1)])) or _V2.startswith(bytes(head[: len(_V2)]))):
        raise ValueError("it comes from a load balancer, but begins without a PROXY header")
    if size < len(_V2):  # every header is longer
        return len(_V2) - size
    if head.startswith(_V2):
        if size < _V2_HEAD.size:
            return _V2_HEAD.size - size
        length = _V2_HEAD.unpack_from(head)[-1]
        if length > _MOST_V2_BYTES:
            raise ValueError(f"its PROXY header has {length} bytes, expected at most {_MOST_V2_BYTES}")
        return int(_V2_HEAD.size + length - size)
    if head.endswith(b"\r\n"):
        return 0
    if size >= _MOST_V1_BYTES:
        raise ValueError(f"its PROXY header has no end within {_MOST_V1_BYTES} bytes")
    return 1


def decode(head: bytes | bytearray) -> Address | None:
    """Decode a complete header; return the client's address, or None for a connection of the load balancer itself.

    Raises
    ------
    ValueError
        It is malformed.
    """
    return _decode_v2(bytes(head)) if head.startswith(_V2) else _decode_v1(bytes(head))


def _decode_v1(head: bytes) -> Address | None:
    """Decode a text header."""
    fields = head.decode("latin-1").removesuffix("\r\n").split(" ")
    if fields[1] == "UNKNOWN":
        return None
    number = _NUMBERS.get(fields[1])
    if number is None or len(fields) != 6 or not all(_PORT.fullmatch(port) for port in fields[4:]):
        raise ValueError("its PROXY header is malformed")
    try:
        source, _ = (number(host) for host in fields[2:4])
    except ValueError as error:
        raise ValueError("its PROXY header is malformed") from error
    return _client(source, *(int(port) for port in fields[4:]))


def _decode_v2(head: bytes) -> Address | None:
    """Decode a binary header."""
    _, command, family, length = _V2_HEAD.unpack_from(head)
    block = head[_V2_HEAD.size :]
    if len(block) != length or command not in (_LOCAL, _PROXY):
        raise ValueError("its PROXY header is malformed")
    if command == _LOCAL or family == _UNSPECIFIED:
        return None
    form = _V2_FORMS.get(family)
    if form is None or length < form.size:
        raise ValueError("its PROXY header is malformed")
    source, _, source_port, port = form.unpack_from(block)
    rest = block[form.size :]
    while rest:
        size = _TLV.unpack_from(rest)[1] if len(rest) >= _TLV.size else len(rest)
        if len(rest) < _TLV.size + size:
            raise ValueError("its PROXY header is malformed")
        rest = rest[_TLV.size + size :]
    return _client(ipaddress.ip_address(source), source_port, port)


def _client(source: ipaddress.IPv4Address | ipaddress.IPv6Address, source_port: int, port: int) -> Address:
    """Return the client's address; one with a zone is invalid in another network."""
    if max(source_port, port) > 65_535 or getattr(source, "scope_id", None) is not None:
        raise ValueError("its PROXY header is malformed")
    return Address(str(source), source_port)
