"""The first two messages of a connection: who the client is, and whether it is admitted.

::

    client                                      server
      (TLS 1.3 with pinned certificates, where the parties have a roster)
      HELLO    magic | version u8 | rank u16 | session 16 bytes | taken u64          ---->
      <----    WELCOME  magic | version u8 | answer u8 | rank u16 | parties u16 | session 16 bytes | taken u64

With TLS the certificate alone determines the rank; an aggregator has the server's certificate and rank 0. Nothing else
is read before admission. A client that reconnects names its session, and both sides send how many frames they have
taken; otherwise the session is zeros. A session of ones asks which run this is, without joining: `taken` of the answer
is the number of bytes that follow.

Source: docs/sites.md, "On the wire".
"""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Self

from fastlloyd.crypto.link.identity import refused_certificate
from fastlloyd.errors import ConfigError, FastLloydError, PeerError, SecurityError
from fastlloyd.net.tcp.address import source_of
from fastlloyd.net.tcp.delivery import ID_BYTES, NO_ID
from fastlloyd.net.tcp.forwarded import HEAD_BYTES, begins, decode, missing
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.wire.header import PROTOCOL_VERSION, SERVER, PartyId

_UNANNOUNCED = (
    "it begins with a PROXY header of a load balancer that was not announced; start the server with --proxy-protocol "
    "and the balancer's address"
)
_MAGIC = b"FLsj"
_VERSION_AT = len(_MAGIC)
_HELLO = struct.Struct(f"<4sBH{ID_BYTES}sQ")
_WELCOME = struct.Struct(f"<4sBBHH{ID_BYTES}sQ")
_TLS_FIRST_BYTES = (0x15, 0x16)
_CERTIFICATE_WORDS = ("UNKNOWN_CA", "CERTIFICATE", "ACCESS_DENIED")


class Admission(IntEnum):
    """The server's answers to a client."""

    WELCOME = 0
    TAKEN = 1
    NO_SUCH_RANK = 2
    OTHER_VERSION = 3
    NO_AGGREGATORS = 4
    NO_SUCH_SESSION = 5
    OFFER = 6


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a connection, if the parties have a roster.

    Attributes
    ----------
    context : ssl.SSLContext
        Trusts only the certificates below, and presents this party's.
    certificates : mapping from DER bytes to PartyId
        The owner of each possible peer's certificate.
    """

    context: ssl.SSLContext
    certificates: Mapping[bytes, PartyId]


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who a client is, and which session it continues.

    Attributes
    ----------
    rank : int
        Replaced by the rank of its certificate, if there is one.
    session : bytes, length 16
        Zeros to join, ones to ask which run this is.
    taken : int
        Number of the server's frames that it has taken in that session.
    """

    rank: int
    session: bytes = field(default=NO_ID, repr=False)
    taken: int = 0

    def encode(self) -> bytes:
        """Encode to 31 bytes."""
        return _HELLO.pack(_MAGIC, PROTOCOL_VERSION, self.rank, self.session, self.taken)


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer.

    Attributes
    ----------
    answer : Admission
    rank : int
        The client's rank.
    parties : int
        Number of parties, including the server.
    session : bytes, length 16
        What the client sends to reconnect; a secret of the two. Zeros where it cannot.
    taken : int
        Number of the client's frames that the server has taken in that session.
    """

    answer: Admission
    rank: int
    parties: int
    session: bytes = field(default=NO_ID, repr=False)
    taken: int = 0

    def encode(self) -> bytes:
        """Encode to 34 bytes."""
        return _WELCOME.pack(_MAGIC, PROTOCOL_VERSION, self.answer, self.rank, self.parties, self.session, self.taken)

    @classmethod
    def take(cls, stream: Stream) -> Self | None:
        """Take an answer from a stream; None if it is incomplete.

        Raises
        ------
        FastLloydError
            The other end is not a compatible server.
        """
        first = stream.peek(len(_MAGIC))
        if first and first[0] in _TLS_FIRST_BYTES:
            raise SecurityError(
                "the server asks for TLS, so it runs with a roster and this party without one: give --roster and --key",
                rank=SERVER.rank,
            )
        if not _MAGIC.startswith(first):
            raise PeerError(
                f"what listens at {stream.name} is not a fastlloyd server: check host and port of --server",
                rank=SERVER.rank,
            )
        # Before the message is complete: that of another version may be shorter.
        if any(version != PROTOCOL_VERSION for version in stream.peek(_VERSION_AT + 1)[_VERSION_AT:]):
            raise _other_version()
        content = stream.take(_WELCOME.size)
        if content is None:
            return None
        _, _, answer, rank, parties, session, taken = _WELCOME.unpack(content)
        if answer not in tuple(Admission):
            raise _other_version()
        return cls(Admission(answer), rank, parties, session, taken)

    def check(self, rank: int) -> None:
        """Refuse anything except a welcome as client `rank`, or as an aggregator (0).

        Raises
        ------
        ConfigError, PeerError
            Names why the server did not admit it.
        """
        if self.answer is Admission.TAKEN:
            raise ConfigError(
                f"{PartyId(self.rank)} has joined already: give each client its own --rank, or its own key where there "
                "is a roster; a client that was started again cannot come back within a run"
            )
        if self.answer is Admission.NO_SUCH_RANK:
            raise ConfigError(
                f"--rank: expected a client from 1 to {self.parties - 1}, as the server counts them, got {self.rank}"
            )
        if self.answer is Admission.OTHER_VERSION:
            raise _other_version()
        if self.answer is Admission.NO_AGGREGATORS:
            raise ConfigError(
                "--parent: no aggregator can join there: expected the server itself, not another aggregator, in a run "
                "whose updates can be added up on their way (fastlloyd and its relatives, with common masks)"
            )
        if self.answer is not Admission.WELCOME or not min(rank, 1) <= self.rank < self.parties or self.rank != rank:
            raise PeerError(
                f"the server takes this party for rank {self.rank} of {self.parties}, expected rank {rank}: compare "
                "the rosters",
                rank=SERVER.rank,
            )


class OtherVersion(ValueError):
    """A client speaks another version of the messages.

    Attributes
    ----------
    version : int
    party : PartyId or None
        The party whose key it has shown; None without a roster, where nobody shows one.
    """

    def __init__(self, version: int, party: PartyId | None) -> None:
        super().__init__(
            f"{party or 'a client'} speaks version {version} of the messages, this server {PROTOCOL_VERSION}: install "
            "the same fastlloyd at all parties"
        )
        self.version = version
        self.party = party


class Guest:
    """A connection at the server that is not admitted yet.

    Parameters
    ----------
    stream : Stream
    source : str
        Its address or network (`address.source_of`).
    deadline : float
        Monotonic time at which it is dropped.
    passed_on : bool
        Whether it comes from a load balancer, which first sends a header with the client's address.

    Attributes
    ----------
    expected : bool
        Whether a load balancer's header is still to come.
    own : bool
        Whether this seems to be a health check of the load balancer itself.
    Others as given.
    """

    def __init__(self, stream: Stream, source: str, deadline: float, *, passed_on: bool = False) -> None:
        self.stream = stream
        self.source = source
        self.deadline = deadline
        self.expected = passed_on
        self.own = passed_on
        self._header = bytearray()
        self._balanced: bool | None = None

    def introduce(self) -> None:
        """Read the load balancer's header as far as it has arrived; once complete, source and name are the client's.

        Raises
        ------
        ValueError
            The header is invalid.
        """
        while need := missing(self._header):
            chunk = self.stream.read_ahead(need)
            if chunk is None:
                return
            if not chunk:
                raise ValueError("it hung up before it sent the client's address")
            self.own = False
            self._header += chunk
        client = decode(self._header)
        self.expected = False
        self.own = client is None
        if client is not None:
            self.source, self.stream.name = source_of(client.host), str(client)

    def advance(self, keys: Keys | None) -> Introduction | None:
        """Read what has arrived; return who the client is once it has identified itself.

        Raises
        ------
        ValueError
            It is not a valid client; says why. `OtherVersion` where it is one of another version.
        """
        if self._balanced is None:
            self._balanced = begins(self.stream.peek_raw(HEAD_BYTES))
        try:
            self.stream.fill()
        except ssl.SSLError as error:
            raise ValueError(_UNANNOUNCED if self._balanced else tls_problem(error)) from error
        first = self.stream.peek(len(_MAGIC))
        if first and not _MAGIC.startswith(first):
            if first[0] in _TLS_FIRST_BYTES:
                # In clear: a client that expects TLS fails at once instead of trying again.
                self.refuse(Welcome(Admission.OTHER_VERSION, 0, 0))
                raise ValueError("it speaks TLS, so it has a roster, which this server was not given")
            raise ValueError(_UNANNOUNCED if self._balanced else "it is not a fastlloyd client")
        # Before the message is complete: that of another version may be shorter.
        for version in self.stream.peek(_VERSION_AT + 1)[_VERSION_AT:]:
            if version != PROTOCOL_VERSION:
                self.refuse(Welcome(Admission.OTHER_VERSION, 0, 0))
                raise OtherVersion(version, None if keys is None else keys.certificates.get(self.stream.certificate()))
        content = self.stream.take(_HELLO.size)
        if content is None:
            if self.stream.ended:
                raise ValueError("it hung up before it identified itself")
            return None
        _, _, rank, session, taken = _HELLO.unpack(content)
        hello = Introduction(rank, session, taken)
        if keys is None:
            return hello
        party = keys.certificates.get(self.stream.certificate())
        # OpenSSL checks chains, and a chain may end in a pinned certificate with another leaf.
        if party is None:
            raise ValueError("it showed a certificate that is not on the roster")
        return replace(hello, rank=party.rank)

    def refuse(self, answer: Welcome) -> None:
        """Send a refusal."""
        self.stream.write(answer.encode())
        self.stream.flush()


def tls_problem(error: ssl.SSLError) -> str:
    """Describe what OpenSSL refused; its fixed texts contain no bytes of the peer."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was refused ({error.verify_message})"
    return f"its TLS was refused ({(error.reason or 'no reason given').replace('_', ' ').lower()})"


def refused_by_server(error: ssl.SSLError, flag: str) -> SecurityError:
    """Return a client's error for failed TLS with the server, whose address came from `flag`."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the certificate that came for the server's was refused {refused_certificate(error.verify_message)}"
    elif "ALERT" in reason and any(word in reason for word in _CERTIFICATE_WORDS):
        text = (
            "the server refused this party's certificate: compare the rosters (`fastlloyd roster show`), and check "
            "both clocks"
        )
    elif "ALERT" in reason:
        text = (
            f"the server ended the connection with the TLS alert {reason.partition('ALERT_')[2].lower()}: if a load "
            "balancer is in front of it, the operator must name it (`serve --proxy-protocol ADDRESS`); otherwise "
            "compare versions (`fastlloyd --version`)"
        )
    else:
        text = (
            f"the server does not speak TLS as expected ({reason.replace('_', ' ').lower()}): it runs without a "
            f"roster, or is not a fastlloyd server; check {flag}, and its --roster"
        )
    return SecurityError(text, rank=SERVER.rank)


class StrangerLog:
    """Log of dropped connections with a limited rate: strangers must not fill a disk.

    Parameters
    ----------
    say : callable
    interval_s : float
    clock : callable, optional
    """

    def __init__(
        self, say: Callable[[str], None], interval_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._interval_s = interval_s
        self._clock = clock
        self._next = clock()
        self._unsaid = 0

    def dropped(self, name: str, why: str) -> None:
        """Log a dropped connection."""
        now = self._clock()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more before it)" if self._unsaid else ""
        self._next, self._unsaid = now + self._interval_s, 0
        self._say(f"dropped a connection from {name}: {why}{more}")


def _other_version() -> FastLloydError:
    return PeerError(
        f"the server does not speak version {PROTOCOL_VERSION}: install the same fastlloyd at all parties",
        rank=SERVER.rank,
    )
