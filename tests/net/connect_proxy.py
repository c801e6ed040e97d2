"""What stands between a site and the server, small and real: a proxy that cuts its tunnels, and a load balancer."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Collection, Mapping
from typing import Any

LIMIT_S = 20.0
_MOST_HEAD_BYTES = 1 << 14


class ConnectProxy:
    """A proxy on a port of this machine, in separate threads; a context manager.

    Parameters
    ----------
    password : str, optional
        USER:PASSWORD that it asks for.
    names : mapping, optional
        Hosts that only the proxy can look up, and the address of each.
    status : int, optional
        What it answers instead of making tunnels.

    Attributes
    ----------
    port : int
    names : dict
        As given.
    asked : list of bytes
        The head of each request.
    down : bool
        Whether it answers 503 for now.
    """

    def __init__(
        self, *, password: str | None = None, names: Mapping[str, str] | None = None, status: int | None = None
    ) -> None:
        self.asked: list[bytes] = []
        self.down = False
        self._expected = None if password is None else base64.b64encode(password.encode())
        self.names = dict(names or {})
        self._status = status
        self._tunnels: list[socket.socket] = []
        self._forgotten: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def cut(self) -> int:
        """Cut every tunnel that there is, as a proxy that starts again does; give how many ends were open."""
        tunnels, self._tunnels = self._tunnels, []
        for each in tunnels:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(tunnels)

    def forget(self) -> None:
        """Pass nothing more on in the tunnels that there are, and say so to nobody; new ones work."""
        self._forgotten.update(self._tunnels)

    def __enter__(self) -> ConnectProxy:
        return self

    def __exit__(self, *_: Any) -> None:
        # A plain close would leave the thread in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Answer one request, and pass bytes on until one end has had enough."""
        with client, contextlib.suppress(OSError):
            client.settimeout(LIMIT_S)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = client.recv(1)
                if not byte or len(head) > _MOST_HEAD_BYTES:
                    return
                head += byte
            self.asked.append(head)
            status = self._judge(head)
            if status is not None:
                client.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)
                return
            host, _, port = head.split(b" ")[1].decode("ascii").rpartition(":")
            try:
                server = socket.create_connection((self.names.get(host, host.strip("[]")), int(port)), LIMIT_S)
            except OSError:
                client.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
                return
            with server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\nX-Proxy: test\r\n\r\n")
                for end in (client, server):
                    end.settimeout(None)
                    self._tunnels.append(end)
                back = threading.Thread(target=_pass_on, args=(server, client, self._forgotten), daemon=True)
                back.start()
                _pass_on(client, server, self._forgotten)
                back.join()

    def _judge(self, head: bytes) -> int | None:
        """Return with what a request is refused; None lets it through."""
        if self.down:
            return 503
        if self._status is not None:
            return self._status
        if self._expected is not None and b"Proxy-Authorization: Basic " + self._expected not in head.split(b"\r\n"):
            return 407
        return None if head.startswith(b"CONNECT ") else 405


def _pass_on(source: socket.socket, target: socket.socket, forgotten: Collection[socket.socket] = ()) -> None:
    """Pass bytes on in one direction to their end; swallow those of a source that is forgotten."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(1 << 16):
            if source not in forgotten:
                target.sendall(chunk)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Balancer:
    """A load balancer in front of a port of this machine: it says first whose connection it passes on.

    Parameters
    ----------
    server : int
        The port.
    source : str
        The address that it connects from.
    header : bytes
        What it says.

    Attributes
    ----------
    port : int
    """

    def __init__(self, server: int, *, source: str, header: bytes) -> None:
        self._server, self._source, self._header = server, source, header
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Balancer:
        return self

    def __exit__(self, *_: Any) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server), LIMIT_S, (self._source, 0))
        with client, server:
            server.settimeout(None)
            server.sendall(self._header)
            back = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
            back.start()
            _pass_on(client, server)
            back.join()
