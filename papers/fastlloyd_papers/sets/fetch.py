"""Fetches one public file of known size over https.

Redirects are not followed and no other scheme is opened, so that the address in the source is the one that is asked. A
proxy that the system names is used, as by other programs. What came is only as good as its checksum: the caller
compares that before anything is read.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from fastlloyd.errors import DataError

_BLOCK = 1 << 16
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Turns every redirect into an error."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


def https_opener() -> urllib.request.OpenerDirector:
    """Make what opens https addresses and nothing else, with the system's certificates."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context()),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _StayHere(),
    ):
        opener.add_handler(handler)
    return opener


def fetch(
    url: str,
    *,
    limit_bytes: int,
    timeout_s: float = 30.0,
    whole_s: float = 600.0,
    opener: urllib.request.OpenerDirector | None = None,
) -> bytes:
    """Fetch a file.

    Parameters
    ----------
    url : str
        https; with an opener of the caller's own also http to this machine, for tests.
    limit_bytes : int
        More than that is refused, and not read.
    timeout_s, whole_s : float
        Longest silence; longest time in all.
    opener : OpenerDirector, optional
        In the place of `https_opener()`.

    Raises
    ------
    DataError
        The address cannot be reached, answers with something else than a file, or with too long a one.
    """
    parts = urllib.parse.urlsplit(url)
    local = opener is not None and parts.scheme == "http" and parts.hostname in _LOOPBACK
    if parts.scheme != "https" and not local:
        raise DataError(f"{url}: expected an https address; nothing else is opened")
    deadline = time.monotonic() + whole_s
    try:
        with (opener or https_opener()).open(url, timeout=timeout_s) as answer:
            return _read(answer, url, limit_bytes, deadline)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url}: expected a file, got the answer {error.code}; it may have moved") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise DataError(f"{url} cannot be fetched ({reason}); check the network, or try again later") from error


def _read(answer: Any, url: str, limit_bytes: int, deadline: float) -> bytes:
    """Read the whole answer within the limits."""
    data = bytearray()
    while block := answer.read1(_BLOCK):
        data += block
        if len(data) > limit_bytes:
            raise DataError(f"{url}: expected at most {limit_bytes:,} bytes, got more; the file there is another one")
        if time.monotonic() > deadline:
            raise DataError(f"{url}: not there in time after {len(data):,} bytes; try again on a faster network")
    stated = answer.headers.get("Content-Length", "")
    if stated.isdecimal() and len(data) != int(stated):
        raise DataError(f"{url}: broke off after {len(data):,} of {int(stated):,} bytes; try again")
    return bytes(data)
