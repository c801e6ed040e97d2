"""Floods the open port of a server on this machine, and counts the honest clients that join meanwhile.

    python papers/benchmarks/door_flood.py [--seconds 10] [--rate 900] [--clients 20]

Everything is on the loopback interface and ends by itself. Honest clients come one after the other through a relay that
adds a round trip of 60 ms. The flood opens connections and leaves them open; with `hello` it sends the first message of
a TLS handshake in each. "Same" has flood and clients at one address, as behind one NAT; "other" at two.

It uses nothing that older versions lack, so it can be run against one of those for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import multiprocessing
import resource
import socket
import ssl
import threading
import time
from typing import Any

from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.crypto.link.tls import pinned_context
from fastlloyd.errors import FastLloydError
from fastlloyd.net.tcp.address import Address, listen
from fastlloyd.net.tcp.admission import Keys
from fastlloyd.net.tcp.hub import TcpServer
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import join
from fastlloyd.wire.header import SERVER, PartyId

FLOOD, HONEST = "127.0.0.2", "127.0.0.3"
ROUND_TRIP_S = 0.06
PATIENCE_S = 5.0
_KEPT = 3000


def first_tls_bytes() -> bytes:
    """Return the first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def flood(port: int, source: str, rate: float, end: float, kind: str, opened: Any) -> None:
    """Open connections at a rate until the end."""
    first = first_tls_bytes() if kind == "hello" else b""
    kept: collections.deque[socket.socket] = collections.deque()
    began, count = time.monotonic(), 0
    while time.monotonic() < end:
        try:
            made = socket.create_connection(("127.0.0.1", port), 1.0, (source, 0))
            made.sendall(first)
            kept.append(made)
            count += 1
        except OSError:
            time.sleep(0.002)
        if len(kept) > _KEPT:
            kept.popleft().close()
        time.sleep(max(0.0, began + count / rate - time.monotonic()))
    opened.value = count / (time.monotonic() - began)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on, half a round trip later."""
    loop = asyncio.get_running_loop()
    while chunk := await reader.read(1 << 16):
        loop.call_later(ROUND_TRIP_S / 2, writer.write, chunk)
    loop.call_later(ROUND_TRIP_S / 2, writer.close)


def relay(port: int, source: str, ready: Any) -> None:
    """Relay connections to the server from an address of their own, with a round trip of 60 ms."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, onward = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            await asyncio.gather(_pump(reader, onward), _pump(back, writer))
        except OSError:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(one, "127.0.0.1", 0)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def attempt(kind: str, source: str, rate: float, seconds: float, clients: int) -> str:
    """Let clients join during one flood, and say how many did."""
    identities = [make_identity(f"site {rank}", rank) for rank in range(clients + 1)]
    certificates = {identity.certificate_der: PartyId(rank) for rank, identity in enumerate(identities) if rank}
    keys = Keys(pinned_context(identities[0], certificates, server_side=True), certificates)
    listeners = listen(Address("127.0.0.1", 0))
    port = listeners[0].getsockname()[1]
    # One more than come, so that the port stays open.
    server = TcpServer(listeners, clients + 1, keys=keys, note=lambda _: None, warn=lambda _: None)
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            try:
                server.receive(0.05)
            except FastLloydError:
                continue

    opened, ready = multiprocessing.Value("d", 0.0), multiprocessing.Queue()
    end = time.monotonic() + seconds
    helpers = [
        multiprocessing.Process(target=relay, args=(port, HONEST, ready), daemon=True),
        multiprocessing.Process(target=flood, args=(port, source, rate, end, kind, opened), daemon=True),
    ]
    for helper in helpers if rate else helpers[:1]:
        helper.start()
    turning = threading.Thread(target=turn)
    turning.start()
    address = Address("127.0.0.1", ready.get(timeout=10))
    time.sleep(1.0)
    took: list[float] = []
    tried = 0
    der = identities[0].certificate_der
    for rank in range(1, clients + 1):
        if time.monotonic() > end - 1.0:
            break
        tried += 1
        own = Keys(pinned_context(identities[rank], (der,), server_side=False), {der: SERVER})
        began = time.monotonic()
        try:
            client = join(Route(address, rank, own), deadline_s=min(PATIENCE_S, end - began), note=lambda _: None)
        except FastLloydError:
            continue
        took.append(time.monotonic() - began)
        client.close(lost=True)
    if rate:
        helpers[1].join(seconds + 10)
    stop.set()
    turning.join()
    server.close(lost=True)
    for helper in helpers:
        helper.kill() if helper.pid else None
    middle = f"{sorted(took)[len(took) // 2]:.2f} s in the middle, {max(took):.2f} s at most" if took else "-"
    return f"{len(took)} of {tried} joined ({middle}); {opened.value:.0f} connections a second"


def main() -> None:
    """Run all kinds of flood, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=900.0)
    parser.add_argument("--clients", type=int, default=20)
    chosen = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    seconds = min(chosen.seconds, 60.0)
    print("no flood:", attempt("bare", FLOOD, 0.0, seconds, chosen.clients), flush=True)
    for kind in ("bare", "hello"):
        for where, source in (("other", FLOOD), ("same", HONEST)):
            print(f"{kind}, {where}:", attempt(kind, source, chosen.rate, seconds, chosen.clients), flush=True)


if __name__ == "__main__":
    main()
