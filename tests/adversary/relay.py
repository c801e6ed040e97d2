"""Whoever stands between the parties: the hub that forwards the clients' frames, and the network in front of it.

Neither can read or forge what is said inside the links; with a roster they can end a run and do nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import selectors
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastlloyd.__main__ import main

HUB_ACTS = ("flip", "drop", "twice", "swap", "cut", "empty", "replay", "kind", "misdirect", "long")
WIRE_ACTS = ("flip", "insert", "remove", "reset", "stall", "twice", "trickle", "garbage first")
_CHUNK = 1 << 16


def make_roster(folder: Path, names: Sequence[str]) -> Path:
    """Make keys and a roster as docs/sites.md says; the first name is the server's."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    roster = ["--roster", str(folder / "roster.toml")]
    with (folder / "log").open("w") as log, contextlib.redirect_stdout(log):
        for rank, name in enumerate(names):
            key = str(folder / f"party_{rank}")
            assert main(["keygen", "--name", name, "--rank", str(rank), "--prefix", key]) == 0
            assert main(["roster", "add", *roster, "--cert", f"{key}.pem"]) == 0
    return folder


def hostile_hub(act: str, seed: int, told: Path) -> Callable[[], None]:
    """Return what makes the server's process a hub that changes one forwarded frame."""
    return functools.partial(_be_hostile, act, seed, told)


def _be_hostile(act: str, seed: int, told: Path) -> None:
    from fastlloyd.net.tcp.hub import TcpServer

    draw = random.Random(seed)
    relay = TcpServer._relay
    nth = draw.randrange(10)
    passed: list[tuple[Any, Any, bytes]] = []
    late: list[tuple[Any, Any, bytes]] = []

    def lying_relay(self: Any, source: Any, target: Any, frame: bytes) -> None:
        passed.append((source, target, frame))
        if len(passed) != nth + 1:
            relay(self, source, target, frame)
            for each in [*late]:
                late.remove(each)
                relay(self, *each)
            return
        with told.open("a") as file:
            file.write('{"to": -1}\n')
        if act == "swap":
            late.append((source, target, frame))
        for each in _changed(act, draw, source, target, frame, passed):
            relay(self, *each)

    TcpServer._relay = lying_relay  # type: ignore[method-assign]


def _changed(
    act: str, draw: random.Random, source: Any, target: Any, frame: bytes, passed: list[tuple[Any, Any, bytes]]
) -> list[tuple[Any, Any, bytes]]:
    """Return what is forwarded in place of a frame."""
    honest = (source, target, frame)
    place = draw.randrange(len(frame)) if frame else 0
    return {
        "flip": [(source, target, frame[:place] + bytes([frame[place] ^ 1 << draw.randrange(8)]) + frame[place + 1 :])],
        "drop": [],
        "swap": [],
        "twice": [honest, honest],
        "cut": [(source, target, frame[:-1])],
        "empty": [(source, target, b"")],
        "replay": [draw.choice(passed), honest],
        "kind": [(source, target, bytes([draw.randrange(256)]) + frame[1:])],
        "misdirect": [(target, source, frame)],
        "long": [(source, target, frame + bytes(1 << 20))],
    }[act]


class Wire:
    """A proxy in front of the server's port that changes what one connection carries; a process of its own.

    Parameters
    ----------
    act : str
        One of `WIRE_ACTS`.
    seed : int
    told : Path
        Gets a line once something was changed.
    """

    def __init__(self, act: str, seed: int, told: Path) -> None:
        self._act = act
        self._draw = random.Random(seed)
        self._told = told
        self._pid = 0

    def between(self, port: int) -> int:
        """Start, and give the port that clients are told."""
        listener = socket.create_server(("127.0.0.1", 0))
        own: int = listener.getsockname()[1]
        self._pid = os.fork()
        if not self._pid:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self._serve(listener, port)
            finally:
                os._exit(0)
        listener.close()
        return own

    def stop(self) -> None:
        """End the proxy."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _serve(self, listener: socket.socket, port: int) -> None:
        """Pass bytes on in both directions, and strike once: the chosen connection, direction and place."""
        chosen, to_server = self._draw.randrange(3), self._draw.random() < 0.5
        after = self._draw.choice([0, 10, 500, 2000, 5000, 9000])
        selector = selectors.DefaultSelector()
        selector.register(listener, selectors.EVENT_READ, None)
        count, passed = 0, 0
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    client, _ = listener.accept()
                    server = socket.create_connection(("127.0.0.1", port))
                    selector.register(client, selectors.EVENT_READ, (server, count, True))
                    selector.register(server, selectors.EVENT_READ, (client, count, False))
                    count += 1
                    continue
                target, number, upwards = key.data
                chunk = _read(key.fileobj)
                if not chunk:
                    selector.unregister(key.fileobj)
                    with contextlib.suppress(OSError):
                        target.shutdown(socket.SHUT_WR)
                    continue
                if number == chosen and upwards == to_server:
                    passed += len(chunk)
                    if passed > after >= 0:
                        after = -1
                        chunk = self._strike(chunk, target)
                with contextlib.suppress(OSError):
                    target.sendall(chunk)

    def _strike(self, chunk: bytes, target: socket.socket) -> bytes:
        """Do what the act says to the bytes at hand."""
        with self._told.open("a") as file:
            file.write('{"to": -1}\n')
        place = self._draw.randrange(len(chunk))
        if self._act == "reset":
            target.close()
            return b""
        if self._act == "stall":
            time.sleep(600)
        if self._act == "trickle":
            for byte in chunk:
                target.sendall(bytes([byte]))
            return b""
        return {
            "flip": chunk[:place] + bytes([chunk[place] ^ 1 << self._draw.randrange(8)]) + chunk[place + 1 :],
            "insert": chunk[:place] + self._draw.randbytes(7) + chunk[place:],
            "remove": chunk[:place] + chunk[place + 1 :],
            "twice": chunk + chunk,
            "garbage first": self._draw.randbytes(200) + chunk,
        }[self._act]


def _read(source: Any) -> bytes:
    try:
        data: bytes = source.recv(_CHUNK)
    except OSError:
        return b""
    return data
