"""`fastlloyd serve --parent` as real processes: one server, two aggregators, and clients below both."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.__main__ import main
from fastlloyd.net.tcp.address import Address
from fastlloyd.net.tcp.route import Route
from fastlloyd.report.document import validate
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_rank import connection_keys, find_own_rank
from tests.e2e.test_serve_join import BUSY_S, DEADLINE_S, GRACE_S, LIMIT_S, SLOWLY, Sites, alone  # noqa: F401
from tests.mpi.support import hospitals, read_matrix, report
from tests.net.test_tcp import knock_with_another_version

CLIENTS = 5
BELOW = {1: 101, 2: 101, 3: 102, 4: 102, 5: 102}
EVERYBODY = (0, 101, 102, *BELOW)


@pytest.fixture(scope="module")
def parties(tmp_path_factory):
    """Keys, roster, records and run file, made as docs/sites.md says."""
    folder = tmp_path_factory.mktemp("parties")
    roster = ["--roster", str(folder / "roster.toml")]
    for rank in range(CLIENTS + 1):
        with contextlib.redirect_stdout(None):
            main(["keygen", "--name", f"site {rank}", "--rank", str(rank), "--prefix", str(folder / f"party_{rank}")])
            main(["roster", "add", *roster, "--cert", str(folder / f"party_{rank}.pem")])
    hospitals(folder, clients=CLIENTS)
    (folder / "run.toml").write_text(
        f'roster = "{folder}/roster.toml"\nk = 2\nbounds = "-1,1"\nn_total = 200\nrounds = 4\nepsilon = 5.0\n'
        f"deadline = {DEADLINE_S}\nsetup_deadline = {LIMIT_S}\n"
    )
    return folder


class Tree(Sites):
    """One server, two aggregators (101 and 102), five clients."""

    def __init__(self, parties: Path, folder: Path, *flags: str) -> None:
        super().__init__(parties, folder, *flags)
        self.ports: dict[int, int] = {}

    def aggregate(self, number: int) -> None:
        words = ["--listen", "127.0.0.1:0", "--parent", f"127.0.0.1:{self.root}"]
        self._start(number, "serve", *words, "--key", str(self.parties / "party_0.key"))
        self.until(lambda: "listening at" in self.out(number))
        self.ports[number] = int(re.search(r"listening at 127.0.0.1:(\d+)", self.out(number))[1])

    def start(self) -> None:
        self.open()
        self.join_all()

    def open(self, *flags: str) -> None:
        self.serve(*flags)
        self.root = self.port
        for number in (101, 102):
            self.aggregate(number)

    def join_all(self) -> None:
        for rank, number in BELOW.items():
            self.port = self.ports[number]
            self.join(rank)


def test_one_server_two_aggregators_five_clients(parties, tmp_path):
    with Tree(parties, tmp_path) as sites:
        sites.open("--offer", "march")
        key = RunConfig(roster=str(parties / "roster.toml"), key=str(parties / "party_1.key"))
        route = Route(Address("127.0.0.1", sites.ports[101]), 1, connection_keys(find_own_rank(key, None)))
        assert json.loads(route.ask())["name"] == "march"
        sites.join_all()
        assert sites.codes(*EVERYBODY) == [0] * len(EVERYBODY), sites.said()
    server = json.loads((sites.result(0) / "server.json").read_text())
    validate(server, "server")
    centers = [read_matrix(sites.result(rank) / "centroids.csv") for rank in BELOW]
    for rank in BELOW:
        document = report(sites.result(rank))
        validate(document)
        assert document["parties"]["authenticated"] is True
        assert [entry["clients_included"] for entry in document["rounds"]] == [list(BELOW)] * 4
        assert all(entry["problem"] is None for entry in document["signatures"]["parties"])
        assert "incomplete" not in document["traffic"] or document["traffic"]["incomplete"] is None
        assert np.array_equal(centers[rank - 1], centers[0])
        assert sites.err(rank) == ""
    assert "an aggregator joined from 127.0.0.1:" in sites.out(0)
    assert "client 5 joined from the aggregator at 127.0.0.1:" in sites.out(0) and "5 of 5" in sites.out(0)
    for number, updates in ((101, 8), (102, 12)):
        assert f"added up {updates} updates in 4 sums" in sites.out(number), sites.said()
        assert not sites.result(number).exists()


def test_a_client_of_another_version_below_an_aggregator_is_named_at_once(parties, tmp_path):
    with Tree(parties, tmp_path) as sites:
        sites.open()
        for rank in (1, 2, 3, 4):
            sites.port = sites.ports[BELOW[rank]]
            sites.join(rank)
        sites.until(lambda: "4 of 5" in sites.out(0))
        key = RunConfig(roster=str(parties / "roster.toml"), key=str(parties / "party_5.key"))
        with socket.create_connection(("127.0.0.1", sites.ports[102]), LIMIT_S) as connection:
            knock_with_another_version(connection, connection_keys(find_own_rank(key, None)).context, 8)
        rest = [number for number in EVERYBODY if number != 5]
        assert sites.codes(*rest, limit_s=LIMIT_S / 3) == [3] * len(rest), sites.said()
        assert "client 5 (site 5) speaks version 8 of the messages, this server 9" in sites.err(0), sites.said()
        for number in rest[1:]:
            words = "fastlloyd: client 5 (\\(site 5\\) )?speaks another version of the messages: install"
            assert re.search(words, sites.err(number)), sites.said()


@pytest.mark.slow
def test_a_client_killed_below_an_aggregator_is_left_out_of_the_rounds_to_come(parties, tmp_path):
    with Tree(parties, tmp_path, *SLOWLY, "--rounds", "24", "--min-clients", "4") as sites:
        sites.start()
        sites.until(lambda: "round 3 of 24" in sites.out(0))
        sites.processes[5].kill()
        others = [number for number in EVERYBODY if number != 5]
        assert sites.codes(*others) == [0] * len(others), sites.said()
    included = [entry["clients_included"] for entry in report(sites.result(1))["rounds"]]
    assert included[0] == [1, 2, 3, 4, 5] and included[-1] == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_client_killed_below_an_aggregator_is_named_by_all(parties, tmp_path):
    with Tree(parties, tmp_path, *SLOWLY) as sites:
        sites.start()
        sites.in_the_middle()
        sites.processes[3].kill()
        others = [number for number in EVERYBODY if number != 3]
        assert sites.codes(*others, limit_s=GRACE_S + BUSY_S) == [3] * len(others), sites.said()
    for number in others:
        assert re.match(r"fastlloyd: client 3 (\(site 3\) )?is gone", sites.err(number)), sites.said()


@pytest.mark.slow
@pytest.mark.parametrize("least", ["2", "5"])
def test_an_aggregator_killed_takes_its_clients_with_it_and_no_others(parties, tmp_path, least):
    with Tree(parties, tmp_path, *SLOWLY, "--rounds", "24", "--min-clients", least) as sites:
        sites.start()
        sites.until(lambda: "round 3 of 24" in sites.out(0))
        sites.processes[102].kill()
        assert sites.codes(3, 4, 5, limit_s=GRACE_S + BUSY_S) == [3] * 3, sites.said()
        code = 0 if least == "2" else 3
        assert sites.codes(0, 1, 2, 101) == [code] * 4, sites.said()
    for rank in (3, 4, 5):
        assert sites.err(rank).startswith("fastlloyd: the server (site 0) is gone"), sites.said()
    if code == 0:
        included = [entry["clients_included"] for entry in report(sites.result(1))["rounds"]]
        assert included[0] == [1, 2, 3, 4, 5] and included[-1] == [1, 2]
    else:
        assert "is gone with its aggregator: the aggregator at 127.0.0.1:" in sites.err(0)
        assert re.match(r"fastlloyd: client [345] \(site \d\) is gone", sites.err(1)), sites.said()


@pytest.mark.slow
def test_a_client_that_hangs_below_an_aggregator_is_named_within_the_deadline(parties, tmp_path):
    with Tree(parties, tmp_path, *SLOWLY) as sites:
        sites.start()
        sites.in_the_middle()
        sites.processes[4].send_signal(signal.SIGSTOP)
        others = [number for number in EVERYBODY if number != 4]
        assert sites.codes(*others, limit_s=DEADLINE_S + GRACE_S + BUSY_S) == [3] * len(others), sites.said()
        assert all(re.match(r"fastlloyd: client 4 ", sites.err(number)) for number in others), sites.said()


@pytest.mark.slow
def test_a_server_killed_ends_aggregators_and_clients(parties, tmp_path):
    with Tree(parties, tmp_path, *SLOWLY) as sites:
        sites.start()
        sites.in_the_middle()
        sites.processes[0].kill()
        assert sites.codes(*EVERYBODY[1:], limit_s=GRACE_S + BUSY_S) == [3] * 7, sites.said()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--parent", "nowhere"], "--parent: expected HOST:PORT"),
        (["--parent", "localhost:1"], "--parent: an aggregator needs --roster and --key"),
        (["--parent", "localhost:1", "--require-approvals", "x"], "--require-approvals: it is for the server itself"),
        (["--parent", "localhost:1", "--status", "localhost:2"], "--status: it is for the server itself"),
    ],
)
def test_mistakes_are_one_sentence(alone, capsys, words, sentence):  # noqa: F811
    assert main(["serve", "--listen", "127.0.0.1:0", *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.startswith("fastlloyd: ") and error.count("\n") == 1


@pytest.mark.parametrize("masking", ["pairwise", "threshold"])
def test_a_run_whose_clients_open_its_sums_takes_no_aggregators(parties, tmp_path, masking):
    with Tree(parties, tmp_path, "--masking", masking) as sites:
        sites.serve()
        words = ["--listen", "127.0.0.1:0", "--parent", f"127.0.0.1:{sites.port}"]
        sites._start(101, "serve", *words, "--key", str(parties / "party_0.key"))
        assert sites.codes(101) == [2], sites.said()
        assert "--parent: no aggregator can join there" in sites.err(101) and "with common masks)" in sites.err(101)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_below_other_aggregators(parties, tmp_path):
    state = ("--state-dir", str(tmp_path / "state"), "--rounds", "12")
    for folder in ("first", "then"):
        (tmp_path / folder).mkdir()
    with Tree(parties, tmp_path / "first", *SLOWLY, *state, "--new-state") as sites:
        sites.start()
        sites.until(lambda: "round 3 of 12" in sites.out(0))
        sites.processes[102].kill()
        sites.codes(*EVERYBODY)
    with Tree(parties, tmp_path / "then", *SLOWLY, *state, "--resume") as sites:
        sites.start()
        assert sites.codes(*EVERYBODY) == [0] * len(EVERYBODY), sites.said()
    assert [entry["clients_included"] for entry in report(sites.result(4))["rounds"]] == [list(BELOW)] * 12
