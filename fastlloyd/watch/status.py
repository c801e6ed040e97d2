"""`serve --status`: a page, JSON and metrics about the current run, for people and monitoring of the operator.

A separate thread answers one request after the other, each of at most 4 KiB that must arrive within two seconds, and
rests nine times as long as an answer took. So a client of the port can keep others from seeing the page, but cannot
hold up the run. The page is HTML without scripts, loads nothing, and is refreshed every few seconds. It is read-only
and shows nothing but a `View`, which holds public facts.

A web page from elsewhere, opened in a browser on this machine, must not read the run: no header allows another origin,
and a request for an unknown `Host` is refused, so that no other name can be bound to this address (DNS rebinding).

Source: docs/operations.md, "Monitoring"; docs/security.md, "What monitoring shows".
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import json
import logging
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from fastlloyd.errors import ConfigError, printable
from fastlloyd.net.tcp.address import Address
from fastlloyd.report.unit import format_bytes, format_seconds
from fastlloyd.report.view import View
from fastlloyd.version import __version__
from fastlloyd.watch.metrics import render

AGAIN_S: Final = 5
_STAGES = {
    "starting": "waiting for all parties to start",
    "setup": "set-up: links, plan, seed",
    "rounds": "in the rounds",
    "done": "done",
    "failed": "failed",
}
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 46rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin-bottom: 0; }
p { margin: .3rem 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; overflow-wrap: anywhere; table-layout: fixed; width: 100%; }
caption { font-weight: 600; text-align: left; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top; }
th { font-weight: 500; width: 40%; }
progress { width: 100%; }
"""
MOST_REQUEST_BYTES = 1 << 12
REQUEST_S = 2.0
REST_S = 0.02
"""Least rest after each request."""
_REST = 9
_LOOK_S = 0.2
_END_S = 5.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_log = logging.getLogger(__name__)


def render_page(values: Mapping[str, Any]) -> str:
    """Write the page.

    Parameters
    ----------
    values : mapping
        From `status_values`; names come from people and are escaped.
    """
    stage = _STAGES[values["stage"]]
    rounds, clients = values["rounds"], values["clients"]
    rows = "\n".join(f"<tr><th scope=row>{name}</th><td>{_text(value)}</td></tr>" for name, value in _rows(values))
    people = "\n".join(
        f"<tr><th scope=row>{_text(_named(one))}</th><td>{'joined' if one['joined'] else 'not yet'}</td></tr>"
        for one in clients
    )
    bar = ""
    if rounds["planned"]:
        bar = f'<progress aria-label="rounds closed" max="{rounds["planned"]}" value="{rounds["closed"]}"></progress>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="{AGAIN_S}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fastlloyd: {_text(stage)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(stage)}</h1>
<p>{_text(values["waiting"])}</p>
{bar}
<table>
<caption>The run</caption>
<tbody>
{rows}
</tbody>
</table>
<table>
<caption>Clients: {sum(one["joined"] for one in clients)} of {len(clients)} have joined</caption>
<tbody>
{people}
</tbody>
</table>
{_earlier(values["earlier"])}
<p>fastlloyd {_text(values["version"])}. Public values only; as JSON: <a href="/status.json">status.json</a>.</p>
</main>
</body>
</html>
"""


def _earlier(runs: Sequence[Mapping[str, str]]) -> str:
    """Write the table of earlier runs; empty without one."""
    if not runs:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{_text(one['begun'])}, {_text(one['outcome'])}</th>"
        f"<td>{_text(', '.join(filter(None, (one['run'], one['protocol'], one['title']))))}, with {_text(one['with'])}"
        "</td></tr>\n"
        for one in runs
    )
    caption = "Earlier runs of this server, the newest first"
    return f"<table>\n<caption>{caption}</caption>\n<tbody>\n{rows}</tbody>\n</table>"


def _rows(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table."""
    rounds, counts = values["rounds"], values["bytes"]
    yield "protocol", f"{values['protocol']}, epsilon {values['epsilon']:g}"
    yield "run", values["run"] or "not begun"
    yield "running for", format_seconds(values["seconds"])
    yield "set-up", format_seconds(values["setup_seconds"]) if values["setup_seconds"] else "not done"
    if rounds["planned"]:
        yield "rounds closed", f"{rounds['closed']} of {rounds['planned']}"
        yield "last round", f"{format_seconds(rounds['last_seconds'])}, {rounds['last_included']} clients"
    yield (
        "bytes on the server's links",
        f"{format_bytes(counts['sent'])} sent, {format_bytes(counts['received'])} received",
    )
    if values["exit_code"] is not None:
        yield "exit code", str(values["exit_code"])


def _named(client: Mapping[str, Any]) -> str:
    return f"client {client['rank']}" + (f" ({client['name']})" if client["name"] else "")


def _text(value: str) -> str:
    return escape(printable(value))


def check_address(address: Address, *, remote: bool) -> None:
    """Refuse an address that others can reach, unless `remote` allows it.

    Raises
    ------
    ConfigError
        Other machines can reach it.
    """
    if not remote and not _is_loopback(address.host):
        raise ConfigError(
            f"--status {address}: expected a loopback address such as 127.0.0.1:{address.port}, which only this "
            "machine can reach; add --status-remote if others may see the run"
        )


def status_values(view: View) -> dict[str, Any]:
    """Return what the page and the JSON show: public facts."""
    now = view.ended or time.time()
    joined = frozenset(view.joined)
    return {
        "status": 1,
        "version": __version__,
        "party": str(view.me),
        "protocol": view.protocol,
        "epsilon": view.epsilon,
        "run": view.run,
        "stage": view.stage,
        "seconds": round(now - view.started, 1),
        "clients": [
            {"rank": rank, "name": view.names.get(rank, ""), "joined": rank in joined}
            for rank in range(1, view.clients + 1)
        ],
        "setup_seconds": view.setup_seconds,
        "rounds": {
            "planned": view.rounds,
            "closed": view.rounds_done,
            "last_seconds": view.round_seconds,
            "last_included": view.included,
        },
        "bytes": {"payload": view.payload_bytes, "sent": view.sent_bytes, "received": view.received_bytes},
        "waiting": view.awaited(),
        "exit_code": view.exit_code,
        "earlier": list(view.earlier),
    }


class StatusPage:
    """Answers requests until it is closed.

    Parameters
    ----------
    listeners : sequence of socket
        From `net.tcp.address.listen`; owned from now on.
    view : View
    host : str
        A host name that requests may use, besides addresses and localhost.
    """

    def __init__(self, listeners: Sequence[socket.socket], view: View, host: str) -> None:
        self._listeners = listeners
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._view = view
        self._host = host.casefold()
        self._over = threading.Event()
        self.port: int = listeners[0].getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="status", daemon=True)
        self._thread.start()

    def linger(self, seconds: float) -> None:
        """Go on answering for so long, or until a signal comes."""
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: ended.set())
        ended.wait(seconds)

    def close(self) -> None:
        """Stop answering."""
        self._over.set()
        self._thread.join(_END_S)
        self._selector.close()
        for listener in self._listeners:
            listener.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(_LOOK_S):
                begun = time.thread_time()
                try:
                    self._answer(key.fileobj)  # type: ignore[arg-type]
                except Exception as error:  # a page must never end a run
                    _log.info("--status: %s", error)
                self._over.wait(max(REST_S, _REST * (time.thread_time() - begun)))

    def _answer(self, listener: socket.socket) -> None:
        """Take one connection and answer it."""
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            _Request(connection, self._view, self._host)


class _Request(BaseHTTPRequestHandler):
    """One request, read whole before it is looked at."""

    protocol_version = "HTTP/1.0"
    server_version = "fastlloyd"
    sys_version = ""

    def __init__(self, connection: socket.socket, view: View, host: str) -> None:
        self._view = view
        self._host = host
        head = _read_head(connection)
        self.rfile = io.BytesIO(head)
        self.wfile = io.BytesIO()
        self.client_address = ("", 0)
        self.close_connection = True
        if head:
            self.handle_one_request()
            connection.sendall(self.wfile.getvalue())

    def do_GET(self) -> None:
        """Show the run."""
        host = _host(self.headers.get_all("Host", []))
        if host is None or not (_is_number(host) or host in ("localhost", self._host)):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "ask for localhost, a number, or the host of --status")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer("text/html", render_page(status_values(self._view)))
        elif path == "/status.json":
            self._answer("application/json", json.dumps(status_values(self._view), allow_nan=False) + "\n")
        elif path == "/metrics":
            self._answer("text/plain; version=0.0.4", render(self._view, "serve"))
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "there are /, /status.json and /metrics")

    def do_HEAD(self) -> None:
        """Show only the headers."""
        self.do_GET()

    def end_headers(self) -> None:
        """Add the headers of every answer."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *values: Any) -> None:
        """Log nothing: a client of the port could fill the log."""

    def _answer(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(HTTPStatus.OK)
        charset = kind if kind == "application/json" else f"{kind}; charset=utf-8"
        self.send_header("Content-Type", charset)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _read_head(connection: socket.socket) -> bytes:
    """Return a request up to the empty line; empty if it is late or too long."""
    head, end = b"", time.monotonic() + REQUEST_S
    while b"\r\n\r\n" not in head and b"\n\n" not in head:
        left = end - time.monotonic()
        if left <= 0 or len(head) > MOST_REQUEST_BYTES:
            return b""
        connection.settimeout(left)
        more = connection.recv(MOST_REQUEST_BYTES)
        if not more:
            return b""
        head += more
    connection.settimeout(REQUEST_S)
    return head


def _host(given: Sequence[str]) -> str | None:
    """Return the host of a request without its port; None if there is not exactly one."""
    if len(given) != 1:
        return None
    host = given[0].strip().casefold()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_number(host: str) -> bool:
    """Whether a host is an IP address, which cannot be bound to another one."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)
