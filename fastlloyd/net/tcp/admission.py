"""The first two messages of a connection: who the client is, and whether it is let in.

::

    client                                      server
      (TLS 1.3 with pinned certificates, where the parties have a roster)
      HELLO    magic | version u8 | rank u16 | session 16 bytes | taken u64          ---->
      <----    WELCOME  magic | version u8 | answer u8 | rank u16 | parties u16 | session 16 bytes | taken u64

With TLS the certificate alone says which rank it is; the server's own is an aggregator's, which comes as rank 0.
Nothing else is read from a stranger. A client that comes back after its connection was cut names its session, and both
say how many frames they have taken; else the session is zeros. Ones ask what run this is, and join nothing: `taken` of
the answer says how many bytes follow.

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

from fastlloyd.errors import ConfigError, FastLloydError, PeerError, SecurityError
from fastlloyd.net.tcp.address import source_of
from fastlloyd.net.tcp.delivery import ASKS, ID_BYTES, NO_ID
from fastlloyd.net.tcp.forwarded import decode, missing
from fastlloyd.net.tcp.stream import Stream
from fastlloyd.wire.header import PROTOCOL_VERSION, SERVER, PartyId

MAX_CLIENTS = 0xFFFE
_MAGIC = b"FLsj"
_VERSION_AT = len(_MAGIC)
_HELLO = struct.Struct(f"<4sBH{ID_BYTES}sQ")
_WELCOME = struct.Struct(f"<4sBBHH{ID_BYTES}sQ")
_TLS_FIRST_BYTES = (0x15, 0x16)
_CERTIFICATE_WORDS = ("UNKNOWN_CA", "CERTIFICATE", "ACCESS_DENIED")


class Admission(IntEnum):
    """What the server says to a client that knocks."""

    WELCOME = 0
    TAKEN = 1
    NO_SUCH_RANK = 2
    OTHER_VERSION = 3
    NO_AGGREGATORS = 4
    NO_SUCH_SESSION = 5
    OFFER = 6


@dataclass(frozen=True, slots=True)
class Keys:
    """What a connection needs where the parties have a roster.

    Attributes
    ----------
    context : ssl.SSLContext
        Trusts the certificates below and no others, and shows this party's.
    certificates : mapping from DER bytes to PartyId
        Whom each certificate of a possible peer belongs to.
    """

    context: ssl.SSLContext
    certificates: Mapping[bytes, PartyId]


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who a client is, and which session it comes back to.

    Attributes
    ----------
    rank : int
        Where it shows a certificate, that alone counts.
    session : bytes, length 16
        Zeros for one that joins, ones for one that asks what run this is.
    taken : int
        How many of the server's frames it has taken in that session.
    """

    rank: int
    session: bytes = field(default=NO_ID, repr=False)
    taken: int = 0

    def encode(self) -> bytes:
        """Write the 31 bytes."""
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
        Server and clients together.
    session : bytes, length 16
        What the client says when it comes back; a secret of the two.
    taken : int
        How many of the client's frames the server has taken in that session.
    """

    answer: Admission
    rank: int
    parties: int
    session: bytes = field(default=NO_ID, repr=False)
    taken: int = 0

    def encode(self) -> bytes:
        """Write the 34 bytes."""
        return _WELCOME.pack(_MAGIC, PROTOCOL_VERSION, self.answer, self.rank, self.parties, self.session, self.taken)

    @classmethod
    def take(cls, stream: Stream) -> Self | None:
        """Take an answer from a stream, if it is there.

        Raises
        ------
        FastLloydError
            The other end is no server that this client can talk to.
        """
        first = stream.peek(len(_MAGIC))
        if first and first[0] in _TLS_FIRST_BYTES:
            raise SecurityError(
                "the server asks for TLS, so it runs with a roster and this party without one: give --roster and --key",
                rank=SERVER.rank,
            )
        if not _MAGIC.startswith(first):
            raise PeerError(
                f"what listens at {stream.name} is no fastlloyd server: check host and port of --server",
                rank=SERVER.rank,
            )
        # Before all of it is there: that of another version may be shorter.
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
        """Refuse anything but a welcome as client `rank`, or, as 0, as an aggregator.

        Raises
        ------
        ConfigError, PeerError
            Says why the server did not let it in.
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


class Guest:
    """A connection at the server that has not been let in yet.

    Parameters
    ----------
    stream : Stream
    source : str
        The address that it shares with others (`address.source_of`).
    deadline : float
        Monotonic time at which it is dropped.
    passed_on : bool
        Whether it comes from a load balancer, which says first whose connection this is.

    Attributes
    ----------
    expected : bool
        Whether a load balancer's header is still to come.
    own : bool
        Whether this is, as far as is known, a connection of the load balancer itself, which looks whether we are there.
    Others as given.
    """

    def __init__(self, stream: Stream, source: str, deadline: float, *, passed_on: bool = False) -> None:
        self.stream = stream
        self.source = source
        self.deadline = deadline
        self.expected = passed_on
        self.own = passed_on
        self._header = bytearray()

    def introduce(self) -> None:
        """Take in what has arrived of the load balancer's header; once it is whole, source and name are the client's.

        Raises
        ------
        ValueError
            This is no such header.
        """
        while need := missing(self._header):
            chunk = self.stream.read_ahead(need)
            if chunk is None:
                return
            if not chunk:
                raise ValueError("it hung up before it said whose connection it passes on")
            self.own = False
            self._header += chunk
        client = decode(self._header)
        self.expected = False
        self.own = client is None
        if client is not None:
            self.source, self.stream.name = source_of(client.host), str(client)

    def advance(self, keys: Keys | None) -> Introduction | None:
        """Take in what has arrived, and give who the client is once it has said or shown it.

        Raises
        ------
        ValueError
            This is no client; says why.
        """
        try:
            self.stream.fill()
        except ssl.SSLError as error:
            raise ValueError(tls_problem(error)) from error
        first = self.stream.peek(len(_MAGIC))
        if first and not _MAGIC.startswith(first):
            if first[0] in _TLS_FIRST_BYTES:
                # In clear: whoever expects TLS stumbles over it at once instead of trying again.
                self.refuse(Welcome(Admission.OTHER_VERSION, 0, 0))
                raise ValueError("it speaks TLS, so it has a roster, which this server was not given")
            raise ValueError("it is no fastlloyd client")
        # Before all of it is there: that of another version may be shorter.
        for version in self.stream.peek(_VERSION_AT + 1)[_VERSION_AT:]:
            if version != PROTOCOL_VERSION:
                self.refuse(Welcome(Admission.OTHER_VERSION, 0, 0))
                raise ValueError(f"it speaks version {version}, expected {PROTOCOL_VERSION}")
        content = self.stream.take(_HELLO.size)
        if content is None:
            if self.stream.ended:
                raise ValueError("it hung up before it said who it is")
            return None
        _, _, rank, session, taken = _HELLO.unpack(content)
        hello = Introduction(rank, session, taken)
        if keys is None:
            return hello
        party = keys.certificates.get(self.stream.certificate())
        # OpenSSL checks chains, and a chain may end in a pinned certificate without being it.
        if party is None:
            raise ValueError("it showed a certificate that is not on the roster")
        return replace(hello, rank=party.rank)

    def refuse(self, answer: Welcome) -> None:
        """Say why not."""
        self.stream.write(answer.encode())
        self.stream.flush()

    def show(self, offer: bytes, rank: int, parties: int) -> None:
        """Say what run this is; nothing where that is not to be told."""
        self.stream.write(Welcome(Admission.OFFER, rank, parties, ASKS, len(offer)).encode() + offer)
        self.stream.flush()

    def dismiss(self) -> None:
        """End the conversation, but leave the other end time to read the last words."""
        self.stream.flush()
        self.stream.end_output()


def tls_problem(error: ssl.SSLError) -> str:
    """Say what OpenSSL refused; its fixed texts carry no bytes of anybody."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was refused ({error.verify_message})"
    return f"its TLS was refused ({(error.reason or 'no reason given').replace('_', ' ').lower()})"


def refused_by_server(error: ssl.SSLError, flag: str) -> SecurityError:
    """Say at a client why there is no TLS with the server, whose address came with `flag`."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = (
            f"the server's certificate was refused ({error.verify_message}): expected the one on the roster; compare "
            "fingerprints by telephone, then `fastlloyd roster add --replace`"
        )
    elif "ALERT" in reason and any(word in reason for word in _CERTIFICATE_WORDS):
        text = (
            "the server refused this party's certificate: compare the rosters (`fastlloyd roster show`), and check "
            "both clocks"
        )
    elif "ALERT" in reason:
        text = f"the server ended the connection with the TLS alert {reason.partition('ALERT_')[2].lower()}"
    else:
        text = (
            f"the server does not speak TLS as expected ({reason.replace('_', ' ').lower()}): it runs without a "
            f"roster, or is no fastlloyd server; check {flag}, and its --roster"
        )
    return SecurityError(text, rank=SERVER.rank)


class StrangerLog:
    """Tells of dropped connections, at most once in a while: strangers must not fill a disk.

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
        """Note a connection that was dropped."""
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
