"""A link that an aggregator has opened: the same calls as `TlsLink`, and the messages in clear.

The client's TLS ends at the aggregator, which has the server's key; what passes between it and the server does so on
one connection with TLS of its own (`net/tcp/stream.py`). Only a transport that knows this says that a link is opened.
"""

from __future__ import annotations

from fastlloyd.errors import RangeError, SecurityError
from fastlloyd.wire.header import PartyId


class OpenedLink:
    """The server's end of the link to a client behind an aggregator.

    Parameters
    ----------
    peer : PartyId
    max_message : int
        A longer message is refused.
    """

    __slots__ = ("_fed", "max_message", "peer")

    started = True
    established = True
    partial = False

    def __init__(self, peer: PartyId, *, max_message: int) -> None:
        self.peer = peer
        self.max_message = max_message
        self._fed: list[bytes] = []

    def start(self) -> None:
        """Nothing is to be done: the aggregator has done it."""

    def outgoing(self) -> bytes:
        """Return nothing: there is no handshake."""
        return b""

    def seal(self, message: bytes | bytearray | memoryview) -> bytes:
        """Return the message.

        Raises
        ------
        RangeError
            It is longer than `max_message`.
        """
        if len(message) > self.max_message:
            raise RangeError(
                f"a message has at most {self.max_message} bytes, this one has {len(message)}: lower k or d"
            )
        return bytes(message)

    def feed(self, data: bytes | memoryview) -> None:
        """Take one message.

        Raises
        ------
        SecurityError
            It is longer than `max_message`.
        """
        if len(data) > self.max_message:
            raise SecurityError(
                f"{self.peer} sent a message of {len(data)} bytes: at most {self.max_message} do", rank=self.peer.rank
            )
        self._fed.append(bytes(data))

    def open(self) -> list[bytes]:
        """Return what was fed."""
        fed, self._fed = self._fed, []
        return fed
