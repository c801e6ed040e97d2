"""One end of a TLS 1.3 link, without any I/O.

OpenSSL does the handshake and the records through memory buffers; this module pins the peer's one
certificate and frames messages inside TLS by a 4-byte little-endian length. The lower rank of a pair is
the TLS server.

::

    link = TlsLink(identity, peer_der, server_side=..., peer=...)
    link.start(); send(link.outgoing())
    link.feed(bytes from the peer); send(link.outgoing())     until link.established
    send(link.seal(message));  link.feed(...); link.open() -> messages

Source: docs/protocol.md, "Links".
"""

from __future__ import annotations

import contextlib
import ssl
import struct
from collections.abc import Iterable
from typing import NoReturn

from fastlloyd.crypto.link.identity import Identity, fingerprint, refused_certificate
from fastlloyd.errors import PeerError, PeerGone, RangeError, SecurityError
from fastlloyd.wire.header import PartyId

MAX_MESSAGE_BYTES = 1 << 30
_LENGTH = struct.Struct("<I")
_RECORD_BYTES = 1 << 14
_RECORD_COST = 22
_HANDSHAKE, _SERVER_HELLO = 22, 2
_KEY_SHARE = 51
_GROUPS = {29: "X25519", 4588: "X25519MLKEM768", 23: "P-256", 24: "P-384", 25: "P-521", 30: "X448"}
_CERTIFICATE_ALERTS = ("UNKNOWN_CA", "CERTIFICATE", "ACCESS_DENIED")


def sealed_bytes(size: int) -> int:
    """Return the size of a message of `size` bytes after `TlsLink.seal`."""
    framed = _LENGTH.size + size
    return framed + _RECORD_COST * -(-framed // _RECORD_BYTES)


def agreed_group(opening: bytes) -> str | None:
    """Return the name of the group that a TLS server's first bytes agree on; None: it is not in these bytes (yet).

    Python's `ssl` does not say it before 3.15, and the ServerHello is not encrypted. Once the handshake is done, both
    ends have the same ServerHello.

    Parameters
    ----------
    opening : bytes
        From the first byte that the server has sent.

    Source: RFC 8446, sections 4.1.3, 4.2.8 and 5.1; a HelloRetryRequest has the same form.
    """
    if len(opening) < 44 or (opening[0], opening[5]) != (_HANDSHAKE, _SERVER_HELLO):
        return None
    # Behind headers (5 and 4 bytes), version (2) and random (32): the session's id, its length before it; then suite,
    # compression, and the length of the extensions.
    at = 44 + opening[43] + 5
    while at + 4 <= len(opening):
        kind, length = struct.unpack_from(">HH", opening, at)
        if kind == _KEY_SHARE and at + 6 <= len(opening):
            (group,) = struct.unpack_from(">H", opening, at + 4)
            return _GROUPS.get(group, f"group {group}")
        at += 4 + length
    return None


class TlsLink:
    """The state of one link.

    Parameters
    ----------
    identity : Identity
        This party's.
    peer_der : bytes
        The only certificate that the peer may present.
    server_side : bool
        Whether this party is the TLS server of the pair.
    peer : PartyId
        Named in errors.
    max_message : int
        A longer message is refused as soon as its length is read.

    Attributes
    ----------
    established : bool
    group : str or None
        The group that the link's keys are agreed in, such as `X25519MLKEM768`; None: not known yet.

    Raises
    ------
    SecurityError
        `peer_der` is not a certificate.
    """

    __slots__ = (
        "_buffer",
        "_failure",
        "_identity",
        "_incoming",
        "_opening",
        "_outgoing",
        "_peer_der",
        "_tls",
        "established",
        "group",
        "max_message",
        "peer",
        "server_side",
        "started",
    )

    def __init__(
        self,
        identity: Identity,
        peer_der: bytes,
        *,
        server_side: bool,
        peer: PartyId,
        max_message: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.peer = peer
        self.server_side = server_side
        self.max_message = max_message
        self.started = False
        self.established = False
        self.group: str | None = None
        self._opening = b""
        self._identity = identity
        self._peer_der = peer_der
        self._failure: PeerError | None = None
        self._buffer = bytearray()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        context = _context(identity, peer_der, server_side=server_side, peer=peer)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    def __repr__(self) -> str:
        return f"TlsLink({self.peer}, established={self.established})"

    @property
    def partial(self) -> bool:
        """Whether an incomplete message is buffered."""
        return bool(self._buffer)

    def start(self) -> None:
        """Begin the handshake; the TLS server only waits for it."""
        if not self.started:
            self.started = True
            if not self.server_side:
                self._shake()

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes of the peer and continue the handshake.

        Raises
        ------
        SecurityError
            The peer's certificate or handshake was refused; `outgoing` then returns the alert for it.
        PeerGone
            The peer ended the link.
        """
        if self._failure is not None:
            raise self._failure
        self._incoming.write(data)
        if not self.established:
            if not self.server_side:
                self._read_group(data)
            self.started = True
            self._shake()

    def feed_eof(self) -> NoReturn:
        """Note that the peer's bytes have ended.

        Raises
        ------
        PeerGone
            Always.
        """
        self._fail(PeerGone(f"{self.peer} ended its link", rank=self.peer.rank))

    def outgoing(self) -> bytes:
        """Return the bytes to be sent to the peer, once."""
        data = self._outgoing.read()
        if self.server_side:
            self._read_group(data)
        return data

    def seal(self, message: bytes | bytearray | memoryview) -> bytes:
        """Encrypt a message into the bytes to send.

        Raises
        ------
        RangeError
            The message is longer than `max_message`.
        """
        size = memoryview(message).nbytes
        if size > self.max_message:
            raise RangeError(f"a message has at most {self.max_message} bytes, this one has {size}: lower k or d")
        if self._failure is not None:
            raise self._failure
        framed = b"".join((_LENGTH.pack(size), message))
        if len(framed) <= _RECORD_BYTES:
            self._tls.write(framed)
            return self._outgoing.read()
        records = []
        with memoryview(framed) as view:
            written = 0
            while written < len(framed):
                # Record by record: OpenSSL keeps the memory of the longest text that ever waited.
                written += self._tls.write(view[written : written + _RECORD_BYTES])
                records.append(self._outgoing.read())
        return b"".join(records)

    def open(self) -> list[bytes]:
        """Decrypt the bytes so far and return the complete messages.

        Raises
        ------
        SecurityError
            A record was changed, repeated, reordered or forged, or declares too long a message.
        PeerGone
            The peer ended the link.
        """
        messages: list[bytes] = []
        if self._failure is not None:
            raise self._failure
        if not self.established:
            return messages
        while True:
            try:
                chunk = self._tls.read(_RECORD_BYTES)
            except ssl.SSLWantReadError:
                return messages
            except ssl.SSLError as error:
                self._refuse(error)
            if not chunk:
                self.feed_eof()
            # Nearly all messages are one record and need no assembly.
            if not self._buffer and int.from_bytes(chunk[:4], "little") == len(chunk) - 4 <= self.max_message:
                messages.append(chunk[4:])
            else:
                self._buffer += chunk
                self._split(messages)
            # Nothing is left to read: skip a call of OpenSSL.
            if not (self._incoming.pending or self._tls.pending()):
                return messages

    def end(self) -> bytes:
        """Return the bytes that end the link (close_notify)."""
        # `unwrap` waits for the peer's close_notify, which is not needed.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        return self._outgoing.read()

    def _read_group(self, data: bytes | memoryview) -> None:
        """Look for the group in the TLS server's first record."""
        if self.group is None and len(self._opening) < _RECORD_BYTES:
            self._opening += bytes(data)
            self.group = agreed_group(self._opening)

    def _split(self, messages: list[bytes]) -> None:
        """Take complete messages from the front of the buffer."""
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > self.max_message:
                self._fail(
                    SecurityError(
                        f"{self.peer} declared a message of {length} bytes: at most {self.max_message} are allowed",
                        rank=self.peer.rank,
                    )
                )
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view:
                messages.append(bytes(view[_LENGTH.size : end]))
            del self._buffer[:end]

    def _shake(self) -> None:
        """Continue the handshake as far as the bytes allow; at its end compare the certificate itself."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            self._refuse(error)
        shown = self._tls.getpeercert(binary_form=True) or b""
        # OpenSSL checks chains, and a chain may end in the pinned certificate with another leaf.
        if shown != self._peer_der:
            self._fail(SecurityError(self._wrong_certificate("it is another one"), rank=self.peer.rank))
        self.established = True

    def _fail(self, failure: PeerError) -> NoReturn:
        """Store the failure and raise it: a failed link never works again."""
        self._failure = failure
        self._buffer.clear()
        raise failure

    def _refuse(self, error: ssl.SSLError) -> NoReturn:
        """Explain what OpenSSL refused; its fixed texts contain no bytes of the peer."""
        reason = error.reason or ""
        if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            self.feed_eof()
        if isinstance(error, ssl.SSLCertVerificationError):
            text = self._wrong_certificate(str(error.verify_message))
        elif "ALERT" in reason and any(word in reason for word in _CERTIFICATE_ALERTS):
            text = (
                f"{self.peer} refused this party's certificate: check both clocks, and compare its fingerprint "
                f"{fingerprint(self._identity.certificate_der)} by telephone with the one {self.peer} has on its "
                "roster; if they differ, all parties need the same roster"
            )
        elif "ALERT" in reason:
            text = f"{self.peer} ended the link with the TLS alert {reason.partition('ALERT_')[2].lower()}"
        elif self.established:
            text = (
                f"a record from {self.peer} was refused ({reason.replace('_', ' ').lower()}): it was "
                "changed, truncated, repeated or reordered on the way; check the network between the two"
            )
        else:
            text = (
                f"the handshake with {self.peer} was refused ({reason.replace('_', ' ').lower()}): expected "
                "TLS 1.3 from another fastlloyd; check its version and the network between the two"
            )
        self._failure = SecurityError(text, rank=self.peer.rank)
        raise self._failure from error

    def _wrong_certificate(self, why: str) -> str:
        """Return the sentence for a refused certificate."""
        return (
            f"the certificate that {self.peer} showed, in place of the one with fingerprint "
            f"{fingerprint(self._peer_der)}, was refused {refused_certificate(why)}"
        )


def pinned_context(identity: Identity, trusted: Iterable[bytes], *, server_side: bool) -> ssl.SSLContext:
    """Return a TLS 1.3 context that requires a certificate, trusts exactly these, and presents this party's.

    Parameters
    ----------
    identity : Identity
    trusted : iterable of bytes
        Certificates, DER. OpenSSL checks chains, so the caller still compares the certificate that was shown.
    server_side : bool

    Raises
    ------
    ValueError
        One of them is not a certificate.
    """
    # Not ssl.create_default_context: that trusts the system's CAs and obeys SSLKEYLOGFILE.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if server_side:
        # Tickets would arrive as unexpected records.
        context.num_tickets = 0
    try:
        for certificate in trusted:
            context.load_verify_locations(cadata=certificate)
    except ssl.SSLError as error:
        raise ValueError("expected an X.509 certificate in DER") from error
    identity.load_into(context)
    return context


def _context(identity: Identity, peer_der: bytes, *, server_side: bool, peer: PartyId) -> ssl.SSLContext:
    """Trust one certificate, the peer's."""
    try:
        return pinned_context(identity, (peer_der,), server_side=server_side)
    except ValueError as error:
        raise SecurityError(f"the certificate of {peer} cannot be read", rank=peer.rank) from error
