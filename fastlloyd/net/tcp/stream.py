"""One TCP connection, inside TLS or not, that carries frames and never blocks.

::

    length u32 | rank u16 | taken u64 | frame      little endian; to the server: receiver, from it: sender;
                                                   number of frames that the sender has taken (`net/tcp/delivery.py`)

TLS goes through memory buffers, so that both kinds of connection have the same interface and no call of OpenSSL ever
waits for the network.

Source: docs/sites.md, "On the wire".
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable

from fastlloyd.net.sockets import SocketCount, count, unconfirmed
from fastlloyd.net.tcp.address import keep_alive, peer_name, tune
from fastlloyd.net.transport import MAX_FRAME_BYTES

_HEADER = struct.Struct("<IHQ")
HEADER_BYTES = _HEADER.size
_CHUNK = 1 << 18
_RECORD_BYTES = 1 << 14
_FILL_BYTES = 1 << 20
# "fatal: protocol_version", which OpenSSL does not send if the other end does not use TLS at all.
_NOT_TLS = bytes.fromhex("15030300020246")


class TooLong(ValueError):
    """A frame was announced that is longer than allowed.

    Attributes
    ----------
    size : int
    rank : int
        In the frame's header.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__(f"a frame of {size} bytes was announced")
        self.size = size
        self.rank = rank


class Stream:
    """An established connection.

    Parameters
    ----------
    connection : socket
        Owned from now on.
    context : SSLContext or None
        None: no TLS.
    server_side : bool

    Attributes
    ----------
    name : str
        The other end's address.
    ready : bool
        Whether the TLS handshake, if any, is done.
    ended : bool
        Nothing more will arrive; what has arrived may still be taken.
    broken : bool
        Nothing more can be sent.
    silent : bool
        It counts as ended because nothing came from the other end (`check_silence`).
    closed : bool
    moved_bytes : int
        Bytes sent so far.
    tls_bytes : int
        Overhead of TLS in both directions.
    at_end : callable or None
        Called once with the stream before the connection is closed.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext | None, *, server_side: bool) -> None:
        tune(connection)
        self.name = peer_name(connection)
        self.ready = context is None
        self.ended = False
        self.broken = False
        self.silent = False
        self.closed = False
        self.moved_bytes = 0
        self.tls_bytes = 0
        self.at_end: Callable[[Stream], None] | None = None
        self._socket = connection
        self._input = bytearray()
        self._output = bytearray()
        self._frame: tuple[int, int, int] | None = None
        self._confirmed: tuple[int, float] | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._context = context
        self._tls: ssl.SSLObject | None = None
        if not server_side:
            self._begin(server_side=False)

    def __repr__(self) -> str:
        return f"Stream({self.name}, ready={self.ready}, ended={self.ended})"

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return len(self._output)

    def certificate(self) -> bytes:
        """Return the other end's certificate, DER; empty without TLS."""
        return b"" if self._tls is None else self._tls.getpeercert(binary_form=True) or b""

    def write(self, data: bytes | bytearray) -> None:
        """Queue bytes; `flush` sends them."""
        if self.broken:
            return
        if self._tls is None:
            self._output += data
            return
        with memoryview(data) as view:
            written = 0
            while written < len(view):
                # Record by record: OpenSSL keeps the memory of the longest text that ever waited.
                text = self._tls.write(view[written : written + _RECORD_BYTES])
                self._put_out(text)
                written += text

    def put_frame(self, rank: int, frame: bytes, taken: int = 0) -> None:
        """Queue one frame and send what the kernel accepts."""
        header = _HEADER.pack(len(frame), rank, taken)
        if len(frame) <= _CHUNK:
            self.write(header + frame)
        else:
            self.write(header)
            self.write(frame)
        self.flush()

    def flush(self) -> None:
        """Send as much as the kernel accepts; a connection that fails becomes `broken`."""
        try:
            while self._output and not self.broken:
                with memoryview(self._output) as view, view[:_CHUNK] as chunk:
                    sent = self._socket.send(chunk)
                del self._output[:sent]
                self.moved_bytes += sent
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # What the other end sent before may still be read.
            self.broken = True
            self._output.clear()

    def keep_alive(self, silence_s: float) -> None:
        """Let the kernel end the connection if it is idle and the other end answers nothing for about `silence_s`."""
        keep_alive(self._socket, silence_s)

    def check_silence(self, silence_s: float) -> None:
        """Count the connection as ended if bytes were on their way for `silence_s`, and nothing has come meanwhile.

        The other end's kernel confirms bytes also while its process computes, is stopped, or reads nothing, so this
        means that the path is gone or forgotten.
        """
        now = time.monotonic()
        found = unconfirmed(self._socket)
        if found is None:
            self._confirmed = None
        elif self._confirmed is None or self._confirmed[0] != found[0]:
            self._confirmed = found[0], now
        elif min(now - self._confirmed[1], found[1]) >= silence_s:
            self.ended = self.silent = True

    def fill(self) -> None:
        """Read a limited amount of what has arrived, and continue the handshake.

        Raises
        ------
        ssl.SSLError
            The other end's certificate or bytes were refused; an alert is on its way to it.
        """
        arrived = 0
        while arrived < _FILL_BYTES and not self.ended:
            try:
                chunk = self._socket.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                chunk = b""
            self.ended = not chunk
            arrived += len(chunk)
            self._take_in(chunk)

    def read_ahead(self, size: int) -> bytes | None:
        """Read at most `size` raw bytes before the first frame; None if none are available, empty at the end."""
        try:
            chunk = self._socket.recv(size)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            chunk = b""
        self.ended = not chunk
        return chunk

    def peek_raw(self, size: int) -> bytes:
        """Return at most `size` raw bytes that have arrived, and leave them to be read."""
        try:
            return self._socket.recv(size, socket.MSG_PEEK)
        except OSError:
            return b""

    def take(self, size: int) -> bytes | None:
        """Take exactly `size` bytes, or None if there are fewer."""
        if len(self._input) < size:
            return None
        with memoryview(self._input) as view:
            taken = bytes(view[:size])
        del self._input[:size]
        return taken

    def peek(self, size: int) -> bytes:
        """Return the first bytes, at most `size`, without taking them."""
        return bytes(self._input[:size])

    def next_frame(self, limit: int = MAX_FRAME_BYTES) -> tuple[int, int, bytes] | None:
        """Take the next complete frame, after its rank and the number of frames that its sender has taken.

        Raises
        ------
        TooLong
            A frame is announced that is longer than `limit`.
        """
        if self._frame is None:
            header = self.take(HEADER_BYTES)
            if header is None:
                return None
            self._frame = _HEADER.unpack(header)
        size, rank, taken = self._frame
        if size > limit:
            raise TooLong(size, rank)
        frame = self.take(size)
        if frame is None:
            return None
        self._frame = None
        return rank, taken, frame

    def discard_input(self) -> None:
        """Discard the input."""
        self._input.clear()
        self._incoming.read()

    def end_output(self) -> None:
        """Shut down the sending side, once the kernel has sent what it has."""
        self.broken = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def drop_input(self) -> None:
        """Read and discard what arrives after the last frame."""
        self.discard_input()
        try:
            while self._socket.recv(_CHUNK):
                pass
            self.ended = True
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.ended = True

    def count(self) -> SocketCount | None:
        """Return the kernel's count of this connection's bytes; None if it has none."""
        return None if self.closed else count(self._socket)

    def close(self) -> None:
        """Close the connection; idempotent."""
        at_end, self.at_end = self.at_end, None
        if at_end is not None:
            at_end(self)
        self.ended = self.broken = self.closed = True
        with contextlib.suppress(OSError):
            self._socket.close()

    def _put_out(self, plain_bytes: int = 0) -> None:
        """Queue the TLS output of `plain_bytes` bytes."""
        made = self._outgoing.read()
        self.tls_bytes += len(made) - plain_bytes
        self._output += made

    def _begin(self, *, server_side: bool) -> None:
        """Begin the TLS handshake, if there is one."""
        if self._context is not None:
            self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side)
            self._shake()

    def _take_in(self, chunk: bytes) -> None:
        """Decrypt bytes that have arrived."""
        if self._tls is None and chunk:
            # Not before: a silent connection costs little.
            self._begin(server_side=True)
        if self._tls is None:
            self._input += chunk
            return
        self._incoming.write(chunk)
        self.tls_bytes += len(chunk)
        try:
            if not self.ready:
                self._shake()
            while self.ready and (plain := self._tls.read(_CHUNK)):
                self._input += plain
                self.tls_bytes -= len(plain)
        except ssl.SSLWantReadError:
            return
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError:
            self._output += self._outgoing.read() or (b"" if self.ready else _NOT_TLS)
            self.flush()
            raise

    def _shake(self) -> None:
        """Continue the handshake as far as the bytes allow."""
        if self._tls is None:
            return
        try:
            self._tls.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        self._put_out()
        self.flush()
