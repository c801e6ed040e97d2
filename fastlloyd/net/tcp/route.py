"""One attempt to join the server, or to ask about its run: a connection, direct or through a proxy.

Source: docs/sites.md, "On the wire".
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastlloyd.errors import PeerError, PeerTimeout, SecurityError
from fastlloyd.net.tcp.address import Address, connect
from fastlloyd.net.tcp.admission import Admission, Introduction, Keys, Welcome, refused_by_server
from fastlloyd.net.tcp.delivery import ASKS, NO_ID
from fastlloyd.net.tcp.proxy import Proxy, tunnel
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.wire.header import SERVER

MOST_OFFER_BYTES = 1 << 18
# Why an attempt failed, if the resolver gave no answer: neither the server nor a firewall has to do with it.
NOT_LOOKED_UP = "this machine's name service does not answer"
# If the machine answered, and no program there listens.
NOBODY_LISTENS = os.strerror(errno.ECONNREFUSED).lower()
_ATTEMPT_S = 10.0
_LEAST_S = 0.05
# A connection, and the server's answer on it.
Found = tuple[Stream, Welcome]


@dataclass(frozen=True, slots=True)
class Route:
    """How a client connects to its server, and as which rank.

    Attributes
    ----------
    address : Address
    rank : int
        0 for an aggregator.
    keys : Keys or None
        None: plain TCP without any proof (demonstration).
    proxy : Proxy or None
        None for a direct connection.
    """

    address: Address
    rank: int
    keys: Keys | None
    proxy: Proxy | None = None

    def __str__(self) -> str:
        return str(self.address) if self.proxy is None else f"{self.address} through the proxy {self.proxy}"

    @property
    def flag(self) -> str:
        """The flag that the address came from: that of an aggregator (rank 0) is another."""
        return "--parent" if self.rank == SERVER.rank else "--server"

    def attempt(
        self, end: float, session: bytes = NO_ID, taken: int = 0, *, unless: Callable[[], bool] = lambda: False
    ) -> tuple[Found | None, str, bool]:
        """Try once, until the monotonic time `end` at most.

        Parameters
        ----------
        end : float
        session : bytes, length 16
            The session to continue; zeros to join.
        taken : int
            Number of frames that were taken in it.
        unless : callable
            Asked once the server answers the handshake: whether to hang up instead of asking to be let in.

        Returns
        -------
        The connection and the server's answer to it, or None; why there is none; whether a server listens.
        """
        stream = None
        try:
            stream = Stream(self._connect(end), None if self.keys is None else self.keys.context, server_side=False)
            stream.name = str(self)
            welcome = self._knock(stream, Introduction(self.rank, session, taken), end, unless)
            if welcome is not None:
                return (stream, welcome), "", True
            hung_up = stream.ended
            stream.close()
            return None, "it hung up" if hung_up else "it does not answer", True
        except socket.gaierror:
            return None, NOT_LOOKED_UP, False
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else str(error.strerror or error).lower()
            return None, why, stream is not None
        except BaseException:
            if stream is not None:
                stream.close()
            raise

    def ask(self, timeout_s: float = _ATTEMPT_S) -> bytes:
        """Ask the server once about its run, without joining; empty if it has no offer.

        Raises
        ------
        ConfigError
            The host does not exist, the proxy refuses the connection, or the run has no such rank.
        PeerError
            Nothing answers, or not a fastlloyd server.
        """
        end = time.monotonic() + timeout_s
        found, why, _ = self.attempt(end, ASKS)
        if found is None:
            raise PeerTimeout(f"no answer from {self} ({why})", rank=SERVER.rank)
        stream, welcome = found
        try:
            if welcome.answer is Admission.NO_SUCH_SESSION:  # a build without offers
                return b""
            if welcome.answer is not Admission.OFFER:
                welcome.check(self.rank)
            if welcome.answer is not Admission.OFFER or welcome.taken > MOST_OFFER_BYTES:
                raise PeerError("the server gave an unexpected answer", rank=SERVER.rank)
            return self._read(stream, welcome.taken, end)
        finally:
            stream.close()

    def _read(self, stream: Stream, size: int, end: float) -> bytes:
        """Return the `size` bytes that follow."""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while (content := stream.take(size)) is None:
                remaining_s = end - time.monotonic()
                if stream.ended or remaining_s <= 0:
                    why = "hung up before it had answered" if stream.ended else "did not send all of its offer in time"
                    raise PeerTimeout(f"the server at {self} {why}", rank=SERVER.rank)
                selector.select(remaining_s)
                try:
                    stream.fill()
                except ssl.SSLError as error:
                    raise refused_by_server(error, self.flag) from error
        return content

    def _connect(self, end: float) -> socket.socket:
        """Connect to the server or to the proxy."""
        timeout_s = max(_LEAST_S, min(_ATTEMPT_S, end - time.monotonic()))
        if self.proxy is None:
            return connect(self.address, timeout_s, self.flag)
        return tunnel(self.proxy, self.address, timeout_s)

    def _knock(self, stream: Stream, hello: Introduction, end: float, unless: Callable[[], bool]) -> Welcome | None:
        """Send the introduction, and wait for the answer; None if none comes."""
        sent = False
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                if stream.ready and not sent:
                    self._check_server(stream)
                    if unless():
                        return None
                    stream.write(hello.encode())
                    sent = True
                stream.flush()
                if sent and (welcome := Welcome.take(stream)) is not None:
                    return welcome
                remaining_s = end - time.monotonic()
                if stream.ended or remaining_s <= 0:
                    return None
                selector.select(remaining_s)
                try:
                    stream.fill()
                except ssl.SSLError as error:
                    raise refused_by_server(error, self.flag) from error

    def _check_server(self, stream: Stream) -> None:
        """Compare the certificate itself: OpenSSL checks chains, which may end in the pinned one."""
        if self.keys is not None and self.keys.certificates.get(stream.certificate()) != SERVER:
            raise SecurityError(
                "the server showed a certificate that is not the one on the roster: compare fingerprints by telephone",
                rank=SERVER.rank,
            )
