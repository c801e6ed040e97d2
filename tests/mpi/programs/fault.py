"""Ranks that misbehave on purpose; the first argument says how."""

import os
import signal
import sys
import time
from pathlib import Path

from fastlloyd.errors import FastLloydError, PeerGone, PeerTimeout
from fastlloyd.net.mpi.launcher import detect
from fastlloyd.net.mpi.transport import MpiTransport
from fastlloyd.wire.header import SERVER, PartyId

LAST = PartyId(2)
LARGE = bytes(20_000_000)


def say(text: str) -> None:
    """Say it in a file where one is named: a launcher need not pass on what a rank printed before an abort."""
    with Path(os.environ.get("FASTLLOYD_TEST_SAID", "/dev/stdout")).open("ab", buffering=0) as out:
        out.write(f"{text}\n".encode())


def absent() -> None:
    """The last rank never starts MPI."""
    if detect().rank == LAST.rank:
        signal.pause()
    MpiTransport(init_deadline_s=0.5)


def unfinished() -> None:
    """The last rank never closes."""
    transport = MpiTransport(close_deadline_s=0.5)
    if transport.me == LAST:
        signal.pause()
    transport.close()


def stopped() -> None:
    """The last rank stops in the middle of a large frame; nobody may hang on it."""
    transport = MpiTransport(close_deadline_s=0.5)
    if transport.me == LAST:
        transport.send(SERVER, LARGE)
        os.kill(os.getpid(), signal.SIGSTOP)
    if transport.me == SERVER:
        # Not the whole frame may be there, but another peer's must come through, and waits must end.
        heard, started = set(), time.monotonic()
        while PartyId(1) not in heard:
            found = transport.receive(5)
            assert found is not None
            heard.add(found[0])
        while transport.receive(0.3) is not None:
            pass
        transport.send(LAST, LARGE)
        try:
            transport.close()
        except PeerTimeout as error:
            say(f"{error} after {time.monotonic() - started:.1f} s")
            transport.abort(error.exit_code)
    transport.send(SERVER, b"from client 1")
    signal.pause()


def flushed() -> None:
    """Rank 0 closes right after its last large frames; the clients read them late."""
    transport = MpiTransport()
    if transport.me == SERVER:
        for peer in transport.peers:
            transport.send(peer, LARGE)
        transport.close()
    else:
        found = transport.receive(20)
        assert found is not None and found[1] == LARGE
        transport.close()
        say("whole")


def died() -> None:
    """The last rank dies; the others (Open MPI with ULFM) hear of it once and go on."""
    transport = MpiTransport()
    if transport.me == LAST:
        transport.send(SERVER, b"last words")
        while True:
            transport.receive(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
    other = PartyId(1 - transport.me.rank)
    heard = []
    try:
        while (found := transport.receive(10)) is not None:
            heard.append(found)
    except PeerGone as error:
        say(f"{transport.me}: {error}")
    try:
        transport.send(LAST, b"x")
    except PeerGone:
        say("refused")
    transport.send(other, b"still here")
    while (other, b"still here") not in heard:
        heard.append(transport.receive(10))
        assert heard[-1] is not None
    say(f"then {heard[-1][1]}")
    # The launcher ends the other rank as soon as one has left: both have spoken first.
    transport.send(other, b"spoken")
    transport.receive(10)
    transport.close(lost=True)
    os._exit(3)


def alone() -> None:
    """Nothing special: for launches that cannot work."""
    MpiTransport()


try:
    globals()[sys.argv[1]]()
except FastLloydError as error:
    os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(error.exit_code)
