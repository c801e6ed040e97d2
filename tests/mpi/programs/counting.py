"""Rank 0 sends 8 MB to each client and prints by how many bytes the loopback interface moved on."""

import sys
from pathlib import Path

from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.wire.header import SERVER

FRAME_BYTES = 1_000_000


def loopback_bytes() -> int:
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == "lo":
            return int(figures.split()[8])
    raise SystemExit("no loopback interface")


with MpiTransport(transport=sys.argv[1]) as transport:
    before = loopback_bytes()
    if transport.me == SERVER:
        for _ in range(8):
            for peer in transport.peers:
                transport.send(peer, bytes(FRAME_BYTES))
        for _ in transport.peers:
            assert transport.receive(20) is not None
        print(f"moved {loopback_bytes() - before} for {8 * FRAME_BYTES * len(transport.peers)}", flush=True)
    else:
        for _ in range(8):
            found = transport.receive(20)
            assert found is not None and len(found[1]) == FRAME_BYTES
        transport.send(SERVER, b"all here")
