"""`fastlloyd serve` and `join` in network namespaces: a path that forgets a flow in silence costs time only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.protocols.registry import PROTOCOLS
from tests.contracts import whole_run
from tests.e2e.test_serve_join import Sites
from tests.mpi.support import report
from tests.net import netns
from tests.net.connect_proxy import ConnectProxy
from tests.net.netns import Wires

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT_S = 300.0
SILENCE_S = 30.0
# A busy machine: a try to come back, a handshake, a line of output.
BUSY_S = 15.0


@pytest.fixture
def wires() -> Iterator[Wires]:
    yield from netns.wires()


class Far(Sites):
    """Client 1 is behind a router, all others are with the operator."""

    def __init__(self, wires: Wires, folder: Path, settings: dict[str, object], clients: int) -> None:
        roster = folder / "roster.toml"
        for rank in range(clients + 1):
            with contextlib.redirect_stdout(None):
                main(
                    ["keygen", "--name", f"site {rank}", "--rank", str(rank), "--prefix", str(folder / f"party_{rank}")]
                )
                main(["roster", "add", "--roster", str(roster), "--cert", str(folder / f"party_{rank}.pem")])
        super().__init__(folder, folder, fresh=True)
        words = {"dataset": "iris", "bounds": "0,10", "k": 3, "roster": roster} | settings
        self.flags = tuple(word for key, value in words.items() for word in (f"--{key}", str(value)))
        self.wires = wires
        self.apart = True
        self.clients = clients
        self.host = netns.OPERATOR

    def _start(self, rank: int, *words: str) -> None:
        home = self.folder / str(rank)
        home.mkdir(exist_ok=True)
        where = self.wires.site if rank == 1 else self.wires.operator
        within = ("ip", "netns", "exec", where) if self.apart else ()
        with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
            self.processes[rank] = subprocess.Popen(
                [*within, sys.executable, "-m", "fastlloyd", *words, *self.flags],
                env=os.environ | self.environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def join(self, rank: int, *flags: str) -> None:
        key = str(self.parties / f"party_{rank}.key")
        self._start(rank, "join", "--server", f"{self.host}:{self.port}", "--key", key, *flags)

    def start(self) -> None:
        self.serve(listen="*:0")
        for rank in range(1, self.clients + 1):
            self.join(rank)

    @property
    def site_port(self) -> int:
        """The port of client 1's connection."""
        found = re.search(r"client 1 joined from \S+:(\d+)", self.out(0))
        assert found is not None
        return int(found[1])


def forget_flow(sites: Far) -> None:
    sites.wires.drop(sites.site_port)


def forget_translations(sites: Far) -> None:
    sites.wires.forget()


def change_address(sites: Far) -> None:
    sites.wires.move()


def be_silent(sites: Far) -> None:
    sites.wires.silence(on=True)
    time.sleep(SILENCE_S)
    sites.wires.silence(on=False)


def passes(sites: Far, fail: Callable[[Far], None], begun: Callable[[], bool], limit_s: float) -> None:
    """Let the path fail once the run has begun; it goes on within a time, and ends well."""
    sites.start()
    sites.until(begun, limit_s=LIMIT_S)
    started = time.monotonic()
    fail(sites)
    sites.until(lambda: "is back" in sites.out(0) or "back at the server" in sites.out(1), limit_s=limit_s)
    print(f"back after {time.monotonic() - started:.1f} s")
    ranks = range(sites.clients + 1)
    assert sites.codes(*ranks, limit_s=LIMIT_S) == [0] * len(ranks), sites.said()
    assert "client 1 is back" in sites.out(0) and "back at the server" in sites.out(1), sites.said()
    assert re.search(r"was cut \(nothing has come from it for \d+ s\)", sites.out(0) + sites.out(1)), sites.said()


@pytest.mark.parametrize("deadline", [60.0, 120.0])
@pytest.mark.parametrize("fail", [forget_flow, forget_translations, change_address, be_silent])
def test_a_run_goes_on_after(fail: Callable[[Far], None], deadline: float, wires: Wires, tmp_path: Path) -> None:
    settings = {"rounds": 12, "delay": 0.2, "deadline": deadline}
    if fail is forget_translations:
        wires.translate()
    silence_s = SILENCE_S if fail is be_silent else 0.0
    with Far(wires, tmp_path, settings, 3) as sites:
        passes(sites, fail, lambda: "round 3 of 12" in sites.out(0), max(deadline / 2, silence_s) + BUSY_S)
    written = report(sites.result(1))
    assert [entry["clients_included"] for entry in written["rounds"]] == [[1, 2, 3]] * 12


def test_a_process_that_is_stopped_for_less_than_its_deadline_keeps_its_connection(
    wires: Wires, tmp_path: Path
) -> None:
    with Far(wires, tmp_path, {"rounds": 12, "delay": 0.2, "deadline": 60.0}, 3) as sites:
        sites.start()
        sites.until(lambda: "round 3 of 12" in sites.out(0), limit_s=LIMIT_S)
        for rank in (1, 0):  # a site, then the operator
            sites.processes[rank].send_signal(signal.SIGSTOP)
            time.sleep(SILENCE_S)
            sites.processes[rank].send_signal(signal.SIGCONT)
        assert sites.codes(0, 1, 2, 3, limit_s=LIMIT_S) == [0] * 4, sites.said()
        assert "was cut" not in sites.said() and " back " not in sites.said()


def test_a_run_goes_on_after_a_tunnel_that_its_proxy_forgets(wires: Wires, tmp_path: Path) -> None:
    with ConnectProxy() as proxy, Far(wires, tmp_path, {"rounds": 12, "delay": 0.2, "deadline": 60.0}, 3) as sites:
        # This machine itself is never reached through a proxy, so the proxy is given a name for it.
        proxy.names["operator.example"] = "127.0.0.1"
        sites.apart = False
        sites.serve(listen="*:0")
        for rank in (1, 2, 3):
            through = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}", "NO_PROXY": ""} if rank == 1 else {}
            sites.environment |= through
            sites.host = "operator.example" if rank == 1 else "127.0.0.1"
            sites.join(rank)
        sites.until(lambda: "round 3 of 12" in sites.out(0), limit_s=LIMIT_S)
        proxy.forget()
        assert sites.codes(0, 1, 2, 3, limit_s=LIMIT_S) == [0] * 4, sites.said()
        assert "client 1 is back" in sites.out(0) and "back at the server" in sites.out(1), sites.said()
        assert "was cut (nothing has come from it for 15 s)" in sites.out(1), sites.said()


MODES: dict[str, dict[str, object]] = {
    **{protocol: {"protocol": protocol} for protocol in PROTOCOLS},
    "pairwise": {"masking": "pairwise"},
    "threshold": {"masking": "threshold"},
}


@pytest.mark.parametrize("mode", MODES)
def test_every_protocol_goes_on_after_a_flow_that_is_forgotten(mode: str, wires: Wires, tmp_path: Path) -> None:
    if mode == "vertical-he":
        pytest.importorskip("tenseal")
    clients = 5 if mode == "threshold" else whole_run.CLIENTS.get(mode, 2)
    settings = {"delay": 0.3, "deadline": 60.0} | whole_run.SETTINGS.get(mode, {}) | MODES[mode]
    with Far(wires, tmp_path, settings, clients) as sites:
        begun = lambda: f"{clients} of {clients}" in sites.out(0)  # noqa: E731
        passes(sites, forget_flow, begun, 30.0 + BUSY_S)
