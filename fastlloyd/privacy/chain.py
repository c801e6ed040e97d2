"""The chain of a ledger's lines: each line holds the digest of everything before it.

::

    link 0  =  SHA-256("fastlloyd ledger 2")
    line n  =  {"previous": "link n-1, hexadecimal", "run": ..., ...}
    link n  =  SHA-256(link n-1 | line n)                  the line without its end

A line that is changed, removed or inserted breaks the link of the next one. Lines at the end can go without breaking a
link, so `fastlloyd/run/state.py` keeps a `Mark` of the ledger elsewhere.

A ledger of fastlloyd 0.1 has lines without `previous`. They are read at the start of the file only: the first chained
line seals them, and after it no other line may lack the digest.

Source: docs/privacy.md, "The ledger".
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.release import Release
from fastlloyd.randomness import domains
from fastlloyd.wire.decode import Within

FIRST_LINK = hashlib.sha256(domains.LEDGER).digest()

_PREVIOUS = re.compile(rb'\{"previous": "([0-9a-f]{64})", ')


@dataclass(frozen=True, slots=True)
class Mark:
    """Length and last link of a ledger: no other ledger of that length has the same.

    Attributes
    ----------
    entries : int
        Number of lines.
    link : str
        64 hexadecimal digits.
    """

    entries: Annotated[int, Within(0, 2**53)]
    link: Annotated[str, Within(64, 64)]


def next_link(link: bytes, line: bytes) -> bytes:
    """Return the link after a line without its end."""
    return hashlib.sha256(link + line).digest()


def chained_line(release: str, link: bytes) -> bytes:
    """Return the line of a release (from `Release.to_json`) that follows `link`, without its end."""
    return f'{{"previous": "{link.hex()}", {release[1:]}'.encode()


def read_line(line: bytes, link: bytes, where: str, *, sealed: bool) -> tuple[Release, bool]:
    """Read a line that should follow `link`.

    Parameters
    ----------
    line : bytes
        Without its end.
    link : bytes of length 32
    where : str
        Name of the line in errors.
    sealed : bool
        Whether an earlier line is chained, so that this one must be.

    Returns
    -------
    Release
    bool
        Whether the line is chained.

    Raises
    ------
    ConfigError
        The line is not in the format of fastlloyd, or does not belong here.
    """
    found = _PREVIOUS.match(line)
    if found is None and sealed:
        raise ConfigError(
            f"{where}: expected a line that holds the digest of the lines before it, got one without; restore the "
            "ledger from its newest copy"
        )
    if found is not None and found[1].decode() != link.hex():
        raise ConfigError(
            f"{where}: expected the digest of the lines before it, got another: a line was changed, removed or "
            "inserted; restore the ledger from its newest copy"
        )
    body = line if found is None else b"{" + line[found.end() :]
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: expected UTF-8, got other bytes; restore the file from a copy") from None
    return Release.from_json(text, where), found is not None
