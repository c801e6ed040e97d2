"""Connections through a site's HTTP proxy, which is asked for a tunnel (CONNECT) to the server.

::

    client -> proxy    CONNECT host:port HTTP/1.1 | Host | Proxy-Authorization (Basic), if there is a password
    proxy -> client    HTTP/1.x 2.. | headers, at most 16 KiB; then the bytes of the server, untouched

The environment names the proxy, as for other programs, in HTTPS_PROXY and NO_PROXY. Its password is sent to the proxy
and never shown.

Source: RFC 9110, section 9.3.6; docs/sites.md, "Firewall".
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import unquote, urlsplit

from fastlloyd.errors import ConfigError
from fastlloyd.net.tcp.address import Address, connect

VARIABLE = "HTTPS_PROXY"
_EXPECTED = (
    f"{VARIABLE}: expected http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, special characters of user and password "
    "as %40 and the like (what it is now is not shown, for it may hold a password)"
)
_DEFAULT_PORT = 80
_MOST_HEAD_BYTES = 1 << 14
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: |\r|\n)")
# 401 normally comes from a server, but tinyproxy sends it for a wrong password.
_WRONG_PASSWORD = (401, 407)
_FORBIDDEN = (403, 405)


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy.

    Attributes
    ----------
    address : Address
    password : str or None
        USER:PASSWORD if it requires one; never shown.
    """

    address: Address
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return str(self.address)


def find_proxy(server: Address, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the environment names for a server; None for a direct connection.

    A lower-case variable wins over its upper-case twin; this machine itself is never reached through a proxy.

    Parameters
    ----------
    server : Address
    environment : mapping
        HTTPS_PROXY, and NO_PROXY: names (a domain stands for what is below it too), addresses, networks such as
        10.0.0.0/8, each with or without :PORT, separated by commas; * for everything.

    Raises
    ------
    ConfigError
        HTTPS_PROXY cannot be read.

    Examples
    --------
    >>> str(find_proxy(Address("server.example.org", 4400), {"https_proxy": "http://me:secret@10.0.0.1:3128"}))
    '10.0.0.1:3128'
    """
    text = _variable(environment, "https_proxy")
    if not text or _is_direct(server, _variable(environment, "no_proxy")):
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigError(_EXPECTED) from None  # the cause quotes the text
    if parts.scheme != "http":
        raise ConfigError(f"{_EXPECTED}; the way to the proxy is plain HTTP, and what goes through it is encrypted")
    plain = parts.path in ("", "/") and not parts.query and not parts.fragment
    if not (host and host.isprintable() and " " not in host and plain):
        raise ConfigError(_EXPECTED)
    password = None
    if parts.username is not None:
        password = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(Address(host, port or _DEFAULT_PORT), password)


def tunnel(proxy: Proxy, server: Address, timeout_s: float) -> socket.socket:
    """Ask a proxy once for a connection to a server.

    Raises
    ------
    ConfigError
        There is no such proxy, or it refuses this user or this server.
    OSError
        The proxy cannot be reached, or cannot reach the server now.
    """
    end = time.monotonic() + timeout_s
    try:
        connection = connect(proxy.address, timeout_s, flag=VARIABLE)
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else str(error.strerror or error).lower()
        raise OSError(f"the proxy {proxy} cannot be reached: {why}") from error
    try:
        connection.sendall(_request(proxy, server))
        status = _answer(connection, proxy, end)
        if not 200 <= status < 300:
            _refused(status, proxy, server)
    except BaseException as error:
        with contextlib.suppress(OSError):
            connection.close()
        if isinstance(error, TimeoutError):
            raise OSError(f"the proxy {proxy} does not answer") from error
        raise
    return connection


def _variable(environment: Mapping[str, str], name: str) -> str:
    """Return a variable of the environment, in lower case first; '' if unset."""
    return environment.get(name, environment.get(name.upper(), "")).strip()


def _is_direct(server: Address, exceptions: str) -> bool:
    """Whether a server is reached without a proxy."""
    number = _number(server.host)
    if server.host.lower() == "localhost" or (number is not None and number.is_loopback):
        return True
    return any(_names(entry, server, number) for entry in exceptions.replace(",", " ").split())


def _names(entry: str, server: Address, number: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    """Whether one entry of NO_PROXY matches a server."""
    if entry == "*":
        return True
    host, port = entry, ""
    if entry.startswith("[") or entry.count(":") == 1:
        host, _, port = entry.rpartition(":") if not entry.endswith("]") else (entry, "", "")
    if port not in ("", str(server.port)):
        return False
    host = host.strip("[]")
    if number is not None:
        with contextlib.suppress(ValueError):
            return number in ipaddress.ip_network(host, strict=False)
        return False
    domain = host.lower().lstrip("*").strip(".")
    own = server.host.lower().rstrip(".")
    return bool(domain) and (own == domain or own.endswith(f".{domain}"))


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return a host's IP address, if it is one."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def _request(proxy: Proxy, server: Address) -> bytes:
    """Encode the request to the proxy."""
    try:
        host = server.host if ":" in server.host else server.host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ConfigError(f"--server {server}: this is no host name; check how it is written") from error
    target = Address(host, server.port)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.password is not None:
        secret = base64.b64encode(proxy.password.encode(errors="surrogateescape")).decode()
        lines.append(f"Proxy-Authorization: Basic {secret}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


def _answer(connection: socket.socket, proxy: Proxy, end: float) -> int:
    """Read the proxy's answer and nothing after it; return the status.

    Raises
    ------
    ConfigError
        This is not an HTTP proxy.
    OSError
        It hung up, or is silent.
    """
    head = bytearray()
    while not head.endswith((b"\r\n\r\n", b"\n\n")):
        connection.settimeout(max(1e-3, end - time.monotonic()))
        # Byte by byte: what follows the head comes from the server.
        byte = connection.recv(1)
        if not byte:
            raise OSError(f"the proxy {proxy} hung up")
        head += byte
        if len(head) > _MOST_HEAD_BYTES or not b"HTTP/1.".startswith(bytes(head[:7])):
            raise _no_proxy(proxy)
    found = _STATUS.match(head)
    if found is None:
        raise _no_proxy(proxy)
    return int(found[1])


def _refused(status: int, proxy: Proxy, server: Address) -> NoReturn:
    """Raise the reason why there is no tunnel: an error to fix, or one that may be temporary."""
    if status in _WRONG_PASSWORD:
        how = (
            f"it needs a user and a password: give {VARIABLE}=http://USER:PASSWORD@{proxy}"
            if proxy.password is None
            else f"it refuses the user or the password in {VARIABLE} (or needs another scheme than Basic)"
        )
        raise ConfigError(f"the proxy {proxy} refuses this connection ({status}): {how}")
    if status in _FORBIDDEN:
        raise ConfigError(
            f"the proxy {proxy} does not allow a connection to {server} ({status}): ask its operator to allow "
            f"CONNECT to port {server.port}, or the server's operator to listen at one that it allows (often 443); "
            "NO_PROXY bypasses it"
        )
    raise OSError(f"the proxy {proxy} has no connection to it: it answered {status}")


def _no_proxy(proxy: Proxy) -> ConfigError:
    return ConfigError(f"what listens at {proxy} is not an HTTP proxy: check {VARIABLE}")
