"""`fastlloyd serve` and `fastlloyd join` as real processes, from keys and run file to results and failures."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.__main__ import main
from fastlloyd.report.document import validate
from fastlloyd.run.run_file import load_config
from fastlloyd.run.simulation import run_together
from tests.forked import Forked
from tests.mpi.support import QUICK, Job, complaints, hospitals, read_matrix, report
from tests.net.connect_proxy import Balancer, ConnectProxy
from tests.net.test_proxy import free_port, started, tinyproxy

CLIENTS = 3
LIMIT_S = 90.0
DEADLINE_S = 3.0
GRACE_S = 5.0
# Python needs a moment to leave where other tests keep all cores busy; the contract knows no such moment.
BUSY_S = 10.0
# Enough rounds, slow enough, to be in the middle of when something happens; no privacy to be calibrated.
SLOWLY = ("--protocol", "lloyd", "--rounds", "600", "--delay", "0.02")


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """Keys, roster, records and run file, made as docs/sites.md says."""
    folder = tmp_path_factory.mktemp("parties")
    roster = ["--roster", str(folder / "roster.toml")]
    for rank, name in enumerate(["operator", "clinic north", "clinic south", "clinic west"]):
        with contextlib.redirect_stdout(None):
            main(["keygen", "--name", name, "--rank", str(rank), "--prefix", str(folder / f"party_{rank}")])
            main(["roster", "add", *roster, "--cert", str(folder / f"party_{rank}.pem")])
    hospitals(folder, clients=CLIENTS)
    (folder / "run.toml").write_text(
        f'roster = "{folder}/roster.toml"\nk = 2\nbounds = "-1,1"\nn_total = 120\nrounds = 4\nepsilon = 5.0\n'
        f"deadline = {DEADLINE_S}\nsetup_deadline = {LIMIT_S}\n"
    )
    return folder


class Sites:
    """One server and its clients, each a process with its own folder and terminal; `fresh`: a fresh interpreter."""

    def __init__(self, parties: Path, folder: Path, *flags: str, fresh: bool = False) -> None:
        self.parties = parties
        self.folder = folder
        self.flags = ("--config", str(parties / "run.toml"), *flags)
        self.processes: dict[int, Forked | subprocess.Popen] = {}
        self.host = "127.0.0.1"
        self.fresh = fresh
        self.environment = {"PYTHONPATH": QUICK}

    def serve(self, *flags: str, listen: str = "127.0.0.1:0") -> None:
        self._start(0, "serve", "--listen", listen, "--key", str(self.parties / "party_0.key"), *flags)
        self.until(lambda: "listening at" in self.out(0))
        self.port = int(re.search(r"listening at \S+:(\d+)", self.out(0))[1])

    def join(self, rank: int, *flags: str) -> None:
        key, data = self.parties / f"party_{rank}.key", self.parties / f"hospital_{rank}.csv"
        where = f"{self.host}:{self.port}"
        self._start(rank, "join", "--server", where, "--key", str(key), "--data", str(data), *flags)

    def _start(self, rank: int, *words: str) -> None:
        home = self.folder / str(rank)
        home.mkdir(parents=True, exist_ok=True)
        words = (*words, *self.flags)
        if not self.fresh:
            self.processes[rank] = Forked(words, home / "out", home / "err", folder=home, environment=self.environment)
            return
        with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-m", "fastlloyd", *words],
                env=os.environ | self.environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def start(self) -> None:
        self.serve()
        for rank in range(1, CLIENTS + 1):
            self.join(rank)

    def out(self, rank: int) -> str:
        return (self.folder / str(rank) / "out").read_text()

    def err(self, rank: int) -> str:
        return complaints((self.folder / str(rank) / "err").read_text())

    def result(self, rank: int) -> Path:
        return self.folder / str(rank) / "fastlloyd-run"

    def said(self) -> str:
        return "\n".join(f"[{rank}] {self.out(rank)}{self.err(rank)}" for rank in self.processes)

    def until(self, condition, limit_s: float = LIMIT_S) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            codes = [process.poll() for process in self.processes.values()]
            assert None in codes and not any(codes), self.said()  # some may have ended well before others say more
            assert time.monotonic() < end, self.said()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[0].wait(0.02)

    def in_the_middle(self) -> None:
        self.until(lambda: "round 3 of 600" in self.out(0))

    def codes(self, *ranks: int, limit_s: float = LIMIT_S) -> list[int]:
        end = time.monotonic() + limit_s
        return [self.processes[rank].wait(max(0.0, end - time.monotonic())) for rank in ranks]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ((), "expected a new or an empty folder"),
        (("--approval", "missing.json"), "cannot read the approval missing.json"),
        (("--log-file", "missing/log"), "--log-file missing/log: cannot be written (No such file or directory)"),
    ],
)
def test_a_site_that_refuses_before_it_joins_lets_nobody_wait(parties, tmp_path, flags, why):
    with Sites(parties, tmp_path) as sites:
        sites.serve()
        sites.join(1)
        sites.join(3)
        sites.until(lambda: "2 of 3" in sites.out(0))
        if not flags:
            sites.result(2).mkdir(parents=True)
            (sites.result(2) / "centroids.csv").write_text("x\n1\n")
        sites.join(2, *flags)
        assert sites.codes(0, 1, 2, 3, limit_s=LIMIT_S / 2) == [2] * (CLIENTS + 1), sites.said()
        assert why in sites.err(2) and sites.err(2).count(why) == 1, sites.said()
        for rank in (0, 1, 3):
            assert "client 2 (clinic south) did not start: wrong configuration" in sites.err(rank), sites.said()


def test_three_hospitals_and_an_operator_with_strangers_at_the_door(parties, tmp_path):
    approvals = tmp_path / "approvals"
    approvals.mkdir()
    for rank in range(1, CLIENTS + 1):
        key, output = str(parties / f"party_{rank}.key"), str(approvals / f"{rank}.json")
        with contextlib.redirect_stdout(None):
            assert (
                main(["agree", "--config", str(parties / "run.toml"), "--key", key, "--output", output, "--yes"]) == 0
            )
    with Sites(parties, tmp_path, fresh=True) as sites:
        sites.serve("--require-approvals", str(approvals))
        strangers = [socket.create_connection(("127.0.0.1", sites.port)) for _ in range(3)]
        strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        strangers[1].sendall(bytes.fromhex("1603010200010001fc0303"))
        for rank in range(1, CLIENTS + 1):
            sites.join(rank, "--approval", str(approvals / f"{rank}.json"))
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
        for stranger in strangers:
            stranger.close()
    server = json.loads((sites.result(0) / "server.json").read_text())
    validate(server, "server")
    assert [path.name for path in sites.result(0).iterdir()] == ["server.json"]
    centers = [read_matrix(sites.result(rank) / "centroids.csv") for rank in range(1, CLIENTS + 1)]
    for rank in range(1, CLIENTS + 1):
        document = report(sites.result(rank))
        validate(document)
        assert document["parties"]["authenticated"] is True
        assert document["network"]["transport"] == "serve/join"
        # k (d + 1) elements of 4 bytes, from and to each client; in round 0 the cells of a histogram, in round 1
        # twice as many clusters.
        first = document["traffic"]["payload_bytes"] - 4 * 2 * CLIENTS * 2 * 3 * 4
        assert first > 0 and math.isqrt(first // (2 * CLIENTS * 4)) ** 2 * 2 * CLIENTS * 4 == first
        assert np.array_equal(centers[rank - 1], centers[0])
        assert sites.err(rank) == ""
        assert f"as client {rank} of 3 (TLS 1.3" in sites.out(rank)
        assert "round 4 of 4: 3 clients" in sites.out(rank) and "cluster  noisy size" in sites.out(rank)
    assert server["parties"]["authenticated"] is True and server["network"]["transport"] == "serve/join"
    assert "3 of 3" in sites.out(0) and "round 4 of 4: 3 clients" in sites.out(0)
    assert "cluster" not in sites.out(0)
    assert sites.out(0).splitlines()[-1].startswith("done: the clients have the result; ")
    assert [sites.out(rank).splitlines()[-1] for rank in (1, 2, 3)] == ["done"] * 3
    assert sites.err(0).count("dropped a connection from 127.0.0.1") == 1


def test_who_has_its_files_hears_so_where_another_cannot_write_its_own(parties, tmp_path):
    labels = tmp_path / "1" / "fastlloyd-run" / "labels_1.csv"
    labels.mkdir(parents=True)  # no file can take its place
    with Sites(parties, tmp_path) as sites:
        sites.serve()
        for rank in range(1, CLIENTS + 1):
            sites.join(rank, *(["--overwrite"] if rank == 1 else []))
        assert sites.codes(0, 1, 2, 3) == [2] * 4, sites.said()
    assert "labels_1.csv" in sites.err(1) and "whole" not in sites.err(1)
    for rank in (0, 2, 3):
        cause, own = sites.err(rank).splitlines()
        assert "client 1 (clinic north) could not write its result files" in cause
        assert own == "fastlloyd: before that, all files of this party were written: they are whole"
    assert report(sites.result(2))["run"] == report(sites.result(3))["run"]


def test_a_site_in_other_units_hears_of_it_before_the_start_and_nobody_else_does(parties, tmp_path):
    wrong = tmp_path / "grams.csv"
    text = (parties / "hospital_2.csv").read_text().splitlines()
    rows = [[1000.0 * float(cell) for cell in line.split(",")] for line in text[1:]]
    np.savetxt(wrong, rows, "%.3f", ",", header=text[0], comments="")
    words = "more than half of the values of f1, f2 would be clipped: check units and bounds"
    with Sites(parties, tmp_path) as sites:
        sites.serve()
        for rank in range(1, CLIENTS + 1):
            sites.join(rank, *(["--data", str(wrong), "--quiet"] if rank == 2 else []))
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
    facts, first, last = sites.err(2).splitlines()
    assert facts.startswith("fastlloyd: of these records, ") and "outside the bounds, of" in facts
    assert first == f"fastlloyd: {words} (said to the owner of these records only)"
    assert last == f"fastlloyd: these records were not used well, whatever the verdict says of the noise: {words}"
    for rank in (0, 1, 3):
        assert "clipped" not in sites.out(rank) + sites.err(rank)
        for path in sites.result(rank).rglob("*"):
            assert not path.is_file() or b"clipped" not in path.read_bytes(), path
    # All clients have the same report: it does not depend on what one owner alone knows.
    assert "clipped" not in json.dumps(report(sites.result(2)))


@pytest.mark.mpi
def test_traffic_is_that_of_the_same_run_under_mpi(parties, tmp_path):
    with Sites(parties, tmp_path, "--protocol", "lloyd") as sites:
        sites.start()
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
        over_tcp = report(sites.result(2))
    key, data = parties / "party_{client}.key", parties / "hospital_{client}.csv"
    with Job(tmp_path / "mpi", [*sites.flags, "--key", str(key), "--data", str(data), "--output", "out"], n=4) as job:
        ended = job.finish()
        assert ended.code == 0, ended
    under_mpi = report(next((tmp_path / "mpi").rglob("report.json")).parent)
    # What carries the links differs: TLS around them here, MPI's own headers there.
    carried = {"wire", "wire_bytes"}
    links = [
        {name: value for name, value in each["traffic"].items() if name not in carried}
        for each in (over_tcp, under_mpi)
    ]
    assert links[0] == links[1] and links[0]["link_bytes"] > 0
    assert over_tcp["parties"] == under_mpi["parties"]
    assert over_tcp["parameters"] == under_mpi["parameters"]


def test_sites_behind_a_proxy_with_a_password_that_is_shown_nowhere(parties, tmp_path):
    password = "tr0ub4dor&3"
    names = {"operator.example.org": "127.0.0.1"}
    flags = ("--log-level", "debug", "--state-dir", "state", "--new-state")
    with (
        ConnectProxy(password=f"clinic:{password}", names=names) as proxy,
        Sites(parties, tmp_path, *flags) as sites,
    ):
        sites.serve()
        # Which the sites' machines cannot look up: the proxy does.
        sites.host = "operator.example.org"
        sites.environment |= {"HTTPS_PROXY": f"http://clinic:{password}@127.0.0.1:{proxy.port}", "NO_PROXY": ""}
        for rank in range(1, CLIENTS + 1):
            sites.join(rank)
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
        assert len(proxy.asked) == CLIENTS
    through = f"joined operator.example.org:{sites.port} through the proxy 127.0.0.1:{proxy.port} as client 2 of 3"
    assert through in sites.out(2)
    assert report(sites.result(2))["network"]["transport"] == "serve/join"
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 4 * CLIENTS and not any(password.encode() in content for content in files)


def test_a_site_behind_a_proxy_that_is_cut_for_five_seconds_in_a_round_goes_on(parties, tmp_path):
    flags = ("--protocol", "lloyd", "--rounds", "60", "--deadline", f"{LIMIT_S:g}")
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(ConnectProxy())
        sites = stack.enter_context(Sites(parties, tmp_path, *flags, "--delay", "0.02"))
        sites.serve("--proxy-protocol", "127.0.0.2,192.0.2.0/24")
        sites.join(1)
        header = b"PROXY TCP4 203.0.113.7 192.0.2.1 56324 4400\r\n"
        balancer = stack.enter_context(Balancer(sites.port, source="127.0.0.2", header=header))
        own, sites.port = sites.port, balancer.port
        sites.join(3)
        sites.port = own
        sites.host, names = "operator.example.org", proxy.names
        names[sites.host] = "127.0.0.1"
        sites.environment["HTTPS_PROXY"] = f"http://127.0.0.1:{proxy.port}"
        sites.join(2)  # with one outgoing connection, to the proxy
        sites.until(lambda: "round 3 of 60" in sites.out(0))
        proxy.down = True
        assert proxy.cut() == 2
        sites.until(lambda: "client 2 was cut" in sites.out(0))
        with contextlib.suppress(subprocess.TimeoutExpired):
            sites.processes[0].wait(5.0)
        proxy.down = False
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
    assert "client 3 joined from 203.0.113.7:56324" in sites.out(0)
    away = re.search(r"client 2 was cut(.*)client 2 is back after (\d+\.\d) s", sites.out(0), re.DOTALL)
    assert away and float(away[2]) >= 5.0 and "back at the server after" in sites.out(2)
    assert away[1].count("round ") <= 1  # it may have answered in one; the next waits for it
    assert [sites.err(rank) for rank in range(4)] == [""] * 4
    config = load_config(parties / "run.toml", {"protocol": "lloyd", "rounds": 60, "roster": None}, links=False)
    uncut = run_together(replace(config, data=str(parties / "hospital_{client}.csv")), CLIENTS)
    expected = next(outcome.result.files["centroids.csv"] for outcome in uncut.outcomes.values() if outcome.result)
    for rank in range(1, CLIENTS + 1):
        assert (sites.result(rank) / "centroids.csv").read_text() == expected
        assert [entry["clients_included"] for entry in report(sites.result(rank))["rounds"]] == [[1, 2, 3]] * 60


@pytest.mark.slow
def test_a_site_goes_on_although_a_real_proxy_is_away_for_five_seconds_in_a_round(parties, tmp_path):
    program = shutil.which("tinyproxy")
    if program is None:
        pytest.skip("tinyproxy is not installed (Debian: apt install tinyproxy)")
    port = free_port()
    command = [program, *tinyproxy(tmp_path, port)[1:]]
    flags = ("--protocol", "lloyd", "--rounds", "60", "--deadline", f"{LIMIT_S:g}", "--delay", "0.02")
    with Sites(parties, tmp_path / "sites", *flags) as sites:
        sites.serve(listen="*:0")
        sites.join(1)
        sites.join(3)
        sites.host = socket.gethostname()  # a name of this machine; its numbers are not reached through a proxy
        sites.environment |= {"HTTPS_PROXY": f"http://clinic:s3cret@127.0.0.1:{port}", "NO_PROXY": ""}
        with started(command, port, tmp_path / "log"):
            sites.join(2)
            sites.until(lambda: "round 3 of 60" in sites.out(0))
        sites.until(lambda: "client 2 was cut" in sites.out(0))
        with contextlib.suppress(subprocess.TimeoutExpired):
            sites.processes[0].wait(5.0)
        with started(command, port, tmp_path / "log again"):
            assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
    assert f"through the proxy 127.0.0.1:{port} as client 2 of 3" in sites.out(2)
    (away,) = re.findall(r"client 2 is back after (\d+\.\d) s", sites.out(0))
    assert float(away) >= 5.0 and [sites.err(rank) for rank in range(4)] == [""] * 4
    for rank in range(1, CLIENTS + 1):
        assert [entry["clients_included"] for entry in report(sites.result(rank))["rounds"]] == [[1, 2, 3]] * 60


def test_a_proxy_that_wants_another_password_is_one_sentence(parties, tmp_path):
    with ConnectProxy(password="clinic:right") as proxy, Sites(parties, tmp_path) as sites:
        sites.port, sites.host = 4400, "operator.example.org"
        sites.environment["https_proxy"] = f"http://clinic:wr0ng@127.0.0.1:{proxy.port}"
        sites.join(1)
        assert sites.codes(1) == [2]
        sentence = f"fastlloyd: the proxy 127.0.0.1:{proxy.port} refuses this connection (407): it refuses the user"
        assert sites.err(1).startswith(sentence)
        assert sites.err(1).count("\n") == 1 and "wr0ng" not in sites.said()


def test_a_missing_value_is_told_to_its_owner_only(parties, tmp_path):
    bad = tmp_path / "secret_ward.csv"
    bad.write_text("f1,f2\n0.1,0.2\n0.123456,nan\n")
    with Sites(parties, tmp_path) as sites:
        sites.serve()
        sites.join(1)
        sites.join(2, "--data", str(bad))
        sites.join(3)
        assert sites.codes(0, 1, 2, 3) == [2] * 4, sites.said()
    assert "secret_ward.csv" in sites.err(2) and "f2" in sites.err(2)
    for rank in (0, 1, 3):
        assert sites.err(rank) == (
            "fastlloyd: client 2 (clinic south) did not start: bad input (the details stand on its own standard "
            "error)\n"
        )
        assert "secret_ward" not in sites.out(rank)


def test_another_public_configuration_is_named_with_both_values_at_both_ends(parties, tmp_path):
    with Sites(parties, tmp_path) as sites:
        sites.serve()
        sites.join(1)
        sites.join(2, "--epsilon", "4", "--columns", "f2")
        sites.join(3)
        assert sites.codes(0, 1, 2, 3) == [3] * 4, sites.said()
    assert sites.err(0) == (
        "fastlloyd: client 2 (clinic south) runs with another public configuration: columns is f2 there and none here; "
        "epsilon is 4 there and 5 here; compare flags, run file and roster with its\n"
    )
    assert "columns is none there and f2 here; epsilon is 5 there and 4 here" in sites.err(2)
    for rank in (1, 3):  # the server's word or its own link to client 2, whichever is first
        assert sites.err(rank).startswith("fastlloyd: client 2 (clinic south) runs with another public configuration")
        assert "the server" in sites.err(rank) and "'s own standard error say" in sites.err(rank)


@pytest.mark.parametrize(
    ("number", "rank", "sentence"),
    [
        (signal.SIGKILL, 2, "client 2 (clinic south) is gone"),
        (signal.SIGINT, 3, "client 3 (clinic west) was interrupted"),
        (signal.SIGKILL, 0, "the server (operator) is gone"),
    ],
)
def test_whoever_ends_in_the_middle_is_named_by_all_others(parties, tmp_path, number, rank, sentence):
    with Sites(parties, tmp_path, *SLOWLY) as sites:
        sites.start()
        sites.in_the_middle()
        sites.processes[rank].send_signal(number)
        others = [other for other in range(CLIENTS + 1) if other != rank]
        assert sites.codes(*others, limit_s=GRACE_S + BUSY_S) == [3] * CLIENTS, sites.said()
    for other in others:
        assert sites.err(other).startswith(f"fastlloyd: {sentence}") and sites.err(other).count("\n") == 1
        assert not list(sites.result(other).glob("centroids.csv"))


def test_others_finish_without_a_client_where_that_is_allowed(parties, tmp_path):
    with Sites(parties, tmp_path, *SLOWLY, "--rounds", "24", "--min-clients", "2") as sites:
        sites.start()
        sites.until(lambda: "round 3 of 24" in sites.out(0))
        sites.processes[2].kill()
        assert sites.codes(0, 1, 3) == [0] * 3, sites.said()
    included = [entry["clients_included"] for entry in report(sites.result(3))["rounds"]]
    assert included[0] == [1, 2, 3] and included[-1] == [1, 3]


# The server: as under MPI, tests/mpi/test_faults.py.
@pytest.mark.parametrize("rank", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_whoever_hangs_is_named_within_the_deadline(parties, tmp_path, rank):
    with Sites(parties, tmp_path, *SLOWLY) as sites:
        sites.start()
        sites.in_the_middle()
        sites.processes[rank].send_signal(signal.SIGSTOP)
        others = [other for other in range(CLIENTS + 1) if other != rank]
        assert sites.codes(*others, limit_s=DEADLINE_S + GRACE_S + BUSY_S) == [3] * CLIENTS, sites.said()
        name = "the server" if rank == 0 else f"client {rank}"
        assert all(sites.err(other).startswith(f"fastlloyd: {name} ") for other in others), sites.said()
        if rank:
            sites.processes[rank].send_signal(signal.SIGCONT)
            assert sites.codes(rank, limit_s=GRACE_S + BUSY_S) == [3]


def test_a_client_that_never_comes_is_named(parties, tmp_path):
    # The others' processes have to be there by then, also where other tests keep all cores busy.
    deadline_s = 5.0
    with Sites(parties, tmp_path, "--setup-deadline", f"{deadline_s:g}") as sites:
        sites.serve()
        sites.join(1)
        sites.join(3)
        assert sites.codes(0, 1, 3, limit_s=deadline_s + GRACE_S + BUSY_S) == [3] * 3, sites.said()
    assert f"client 2 (clinic south) did not report within {deadline_s:g} s" in sites.err(0)
    assert "client 2 (clinic south) did not answer" in sites.err(1)


# One process, this one


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Undo what a command does to its process; run it in a new folder, where no demo has left its files."""
    monkeypatch.chdir(tmp_path)
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = list(logging.getLogger("fastlloyd").handlers)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    logging.getLogger("fastlloyd").handlers[:] = handlers


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["serve"], 2, "--listen"),
        (["serve", "--listen", "nowhere"], 2, "--listen: expected HOST:PORT"),
        (["serve", "--listen", "*:0"], 2, "--clients: expected the number of clients, or a --roster"),
        (["serve", "--listen", "*:0", "--clients", "0"], 2, "--clients: expected 1 to"),
        (["serve", "--listen", "192.0.2.1:0", "--clients", "2"], 2, "this machine has no such address"),
        (["serve", "--listen", "*:0", "--clients", "2", "--proxy-protocol", "on"], 2, "expected the load balancers'"),
        (["join", "--server", "host"], 2, "--server: expected HOST:PORT"),
        (["join", "--server", "localhost:1"], 2, "--rank: expected this client's number"),
        (["join", "--server", "localhost:1", "--patience", "0"], 2, "--patience: expected more than 0 seconds"),
        (["join", "--server", "localhost:1", "--rank", "0"], 2, "--rank: expected a whole number, at least 1"),
        (["join", "--server", "localhost:1", "--rank", "1", "--setup-deadline", "0.5"], 3, "no server let this client"),
        (["join", "--server", "localhost:1", "--rank", "1", "--log-file", "no/such/x"], 2, "--log-file no/such/x"),
    ],
)
def test_mistakes_are_one_sentence(alone, capsys, words, code, sentence):
    assert main(words) == code
    error = capsys.readouterr().err
    assert sentence in error and error.startswith("fastlloyd: ") and error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["serve", "--listen", "127.0.0.1:0", "--clients", "2"], ["join", "--server", "localhost:1", "--rank", "1"]],
)
def test_an_output_in_use_is_refused_before_anybody_waits(alone, tmp_path, capsys, words):
    (tmp_path / "report.json").write_text("{}")
    (tmp_path / "server.json").write_text("{}")
    assert main([*words, "--output", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "expected a new or an empty folder" in said.err and "listening" not in said.out + said.err


def test_a_port_in_use(alone, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        assert main(["serve", "--listen", where, "--clients", "2"]) == 2
    assert "the port is in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "key", "sentence"),
    [
        (["serve", "--listen", "127.0.0.1:0"], "party_1.key", "its --key belongs to client 1"),
        (["serve", "--listen", "127.0.0.1:0", "--clients", "2"], "party_0.key", "the roster names 3 clients, got 2"),
        (["join", "--server", "localhost:1"], "party_0.key", "this is the server's key"),
        (["join", "--server", "localhost:1", "--rank", "2"], "party_1.key", "its --key belongs to client 1"),
        (["join", "--server", "localhost:1"], "party_{client}.key", "name the file, or add --rank"),
    ],
)
def test_keys_that_do_not_fit(alone, parties, capsys, words, key, sentence):
    roster = ["--roster", str(parties / "roster.toml"), "--key", str(parties / key)]
    assert main([*words, *roster]) == 2
    assert sentence in capsys.readouterr().err


def test_certificates_with_one_subject_are_refused(alone, parties, tmp_path, capsys, monkeypatch):
    from cryptography import x509

    roster = ["--roster", str(tmp_path / "roster.toml")]
    with monkeypatch.context() as patched, contextlib.redirect_stdout(None):
        patched.setattr(x509, "random_serial_number", lambda: 7)
        for rank in (0, 1, 2):
            main(["keygen", "--name", "clinic", "--prefix", str(tmp_path / f"p{rank}")])
            words = ["--cert", str(tmp_path / f"p{rank}.pem"), "--name", f"party {rank}", "--rank", str(rank)]
            main(["roster", "add", *roster, *words])
    assert main(["serve", "--listen", "127.0.0.1:0", *roster, "--key", str(tmp_path / "p0.key")]) == 2
    assert "have the same subject" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("protocol", "flags"),
    [
        ("secfc", ("--rounds", "20", "--set", "secfc.reveal_centers=true")),
        # Over TCP in threads: tests/protocols/test_whole_runs.py.
        pytest.param("kfed", ("--rounds", "auto"), marks=pytest.mark.slow),
        pytest.param("feddp", ("--rounds", "1", "--server-data", "{parties}/hospital_1.csv"), marks=pytest.mark.slow),
    ],
)
def test_other_protocols_cross_the_one_port_too(parties, tmp_path, protocol, flags):
    words = [flag.replace("{parties}", str(parties)) for flag in flags]
    with Sites(parties, tmp_path, "--protocol", protocol, *words) as sites:
        sites.start()
        assert sites.codes(0, 1, 2, 3, limit_s=LIMIT_S) == [0] * 4, sites.said()
    texts = {(sites.result(rank) / "centroids.csv").read_text() for rank in (1, 2, 3)}
    assert len(texts) == 1
    document = report(sites.result(1))
    validate(document)
    assert document["parties"]["authenticated"] is True and document["protocol"] == protocol
