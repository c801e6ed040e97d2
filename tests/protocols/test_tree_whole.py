"""Whole runs of all parties with aggregators between: bit for bit what one server comes to."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.crypto.link.identity import make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.crypto.link.tls import pinned_context
from fastlloyd.errors import FastLloydError
from fastlloyd.net.link.control import Ending
from fastlloyd.net.link.sums import Adder
from fastlloyd.net.tcp.address import Address, listen
from fastlloyd.net.tcp.admission import Keys
from fastlloyd.net.tcp.aggregator import Aggregator, BranchTransport
from fastlloyd.net.tcp.hub import TcpServer
from fastlloyd.net.tcp.route import Route
from fastlloyd.net.tcp.spoke import join, reach
from fastlloyd.net.transport import Transport
from fastlloyd.report.announcer import Announcer
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.own_rank import connection_keys, find_own_rank
from fastlloyd.wire.header import SERVER, PartyId
from tests.contracts.whole_run import LIMIT_S, vars_of
from tests.protocols.whole import without_plots

CLIENTS = 5
TREES = {
    "flat": (),
    "two groups": ((1, 4), (2, 3, 5)),
    "one beside two": ((2, 3), (4, 5)),
    "all below one": ((1, 2, 3, 4, 5),),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "lloyd": {"rounds": 4},
    "fastlloyd": {"rounds": 3, "epsilon": 8.0},
    "fastlloyd-plus": {"rounds": 4, "epsilon": 8.0},
    "fastlloyd, 64 bits": {"rounds": 2, "epsilon": 8.0, "ring_bits": 64},
    "choose k": {"protocol": "fastlloyd-plus", "k": 6, "choose_k": True, "rounds": 4, "epsilon": 20.0},
}
SLOW = ("lloyd", "choose k")


@pytest.fixture(scope="module")
def parties(tmp_path_factory) -> Path:
    """Keys and roster."""
    folder = tmp_path_factory.mktemp("parties")
    entries = []
    for rank in range(CLIENTS + 1):
        made = make_identity(f"site {rank}", rank)
        save_identity(made, folder / f"{rank}.key", folder / f"{rank}.pem")
        entries.append(RosterEntry(made.name, "client" if rank else "server", rank, made.certificate_pem))
    Roster(tuple(entries)).save(folder / "roster.toml")
    return folder


class Run:
    """All parties of a run in threads, over sockets of this host, with a real aggregator for each group."""

    def __init__(self, parties: Path, folder: Path, groups: Sequence[Sequence[int]], **config: Any) -> None:
        self.folder = folder
        values = {"protocol": "fastlloyd", "k": 3, **config}
        self.config = RunConfig(
            **{
                "dataset": "iris",
                "bounds": "0,10",
                "setup_deadline": LIMIT_S / 2,
                "roster": str(parties / "roster.toml"),
                "key": str(parties / "{client}.key"),
                **values,
            }
        )
        self.adders = [Adder() for _ in groups]
        self.others: dict[int, dict[str, Any]] = {}
        listeners = [listen(Address("127.0.0.1", 0)) for _ in (None, *groups)]
        addresses = [Address("127.0.0.1", each[0].getsockname()[1]) for each in listeners]
        self.root_address, self.listeners = addresses[0], listeners
        self.where = {rank: addresses[1 + i] for i, group in enumerate(groups) for rank in group}

    def end(self) -> dict[int, Ending]:
        """Run to the end; aggregators must end as the parties do."""
        with without_plots(), ThreadPoolExecutor(1 + CLIENTS + len(self.adders)) as pool:
            branches = [pool.submit(self._aggregate, i) for i in range(len(self.adders))]
            endings = dict(enumerate(pool.map(self._live, range(CLIENTS + 1))))
            codes = {branch.result(LIMIT_S) for branch in branches}
        assert codes <= {ending.code for ending in endings.values()}
        return endings

    def _live(self, rank: int) -> Ending:
        threading.current_thread().name = f"rank_{rank}"  # what it draws goes by this name
        me = PartyId(rank)
        config = RunConfig(
            **{**vars_of(self.config), "output": str(self.folder / str(rank)), **self.others.get(rank, {})}
        )
        with self._endpoint(me) as transport:
            return execute(config, transport, Announcer(me, quiet=True))

    def _endpoint(self, me: PartyId) -> AbstractContextManager[Transport]:
        keys = connection_keys(find_own_rank(self.config, me.rank))
        if me == SERVER:
            return TcpServer(
                self.listeners[0], CLIENTS, keys=keys, note=_quiet, warn=_quiet, stall_s=LIMIT_S, adds_up=True
            )
        where = self.where.get(me.rank, self.root_address)
        return join(Route(where, me.rank, keys), deadline_s=LIMIT_S, note=_quiet)

    def _aggregate(self, i: int) -> int:
        place = find_own_rank(self.config, SERVER.rank)
        keys = connection_keys(place)
        assert place.identity is not None and keys is not None
        own = place.identity.certificate_der
        upward = Keys(pinned_context(place.identity, (own,), server_side=False), {own: SERVER})
        stream, _ = reach(Route(self.root_address, 0, upward), deadline_s=LIMIT_S, note=_quiet)
        with BranchTransport(
            self.listeners[1 + i],
            stream,
            CLIENTS,
            keys=keys,
            note=_quiet,
            warn=_quiet,
            joined_here=self.adders[i].join,
            stall_s=LIMIT_S,
        ) as transport:
            try:
                Aggregator(transport, self.adders[i], place.identity, place.certificates).run()
            except FastLloydError as error:
                return error.exit_code
            return 0

    def result(self, rank: int = 1) -> tuple[str, dict[str, Any]]:
        """What a client wrote: its centroids, and what of its report does not tell of time and links."""
        folder = self.folder / str(rank)
        report = json.loads((folder / "report.json").read_text())
        assert not report["traffic"].get("incomplete")
        kept = {name: report[name] for name in ("protocol", "parameters", "privacy")}
        kept["included"] = [entry["clients_included"] for entry in report["rounds"]]
        kept["payload_bytes"] = report["traffic"]["payload_bytes"]
        for release in kept["privacy"]["releases"]:
            release.pop("run")
        return (folder / "centroids.csv").read_text(), kept


@pytest.fixture
def same_noise(monkeypatch):
    """Let the server draw the same noise in every run: only here, for a comparison bit for bit."""

    def draw(plan, t, secret):
        return np.random.default_rng(t).integers(-1000, 1000, plan.elements(t))

    monkeypatch.setattr("fastlloyd.protocols.fastlloyd.protocol.draw_noise", draw)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SETTINGS]
)
def test_a_tree_gives_what_one_server_gives(parties, tmp_path, same_noise, name) -> None:
    settings = {"protocol": name.partition(",")[0], **SETTINGS[name]}
    found = {}
    for tree, groups in TREES.items():
        if tree != "flat" and name != "fastlloyd" and tree != "one beside two":
            continue
        run = Run(parties, tmp_path / tree, groups, **settings)
        endings = run.end()
        assert {ending.code for ending in endings.values()} == {0}, endings
        results = [run.result(rank) for rank in range(1, CLIENTS + 1)]
        assert all(each == results[0] for each in results)
        found[tree] = results[0]
        rounds = len(results[0][1]["included"])
        assert [adder.sums for adder in run.adders] == [rounds] * len(groups)
        assert [adder.added for adder in run.adders] == [rounds * len(group) for group in groups]
    assert all(each == found["flat"] for each in found.values())


def test_a_client_below_an_aggregator_that_differs_is_named_with_what_differs(parties, tmp_path, capsys) -> None:
    run = Run(parties, tmp_path, ((1, 2), (3, 4)))
    run.others[3] = {"epsilon": 2.0}
    endings = run.end()
    assert {(ending.code, ending.rank) for ending in endings.values()} == {(3, 3)}, endings
    said = capsys.readouterr().err
    assert "client 3 (site 3) runs with another public configuration: epsilon is 2 there and 1 here" in said


def test_a_client_below_an_aggregator_that_cannot_start_is_named(parties, tmp_path) -> None:
    run = Run(parties, tmp_path, ((1, 2), (3, 4)))
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "report.json").write_text("{}")
    endings = run.end()
    assert {(ending.code, ending.rank) for ending in endings.values()} == {(2, 4)}, endings


def test_an_aggregator_that_adds_wrongly_spoils_the_result_and_learns_nothing_of_it(parties, tmp_path, monkeypatch):
    """As a server that adds wrongly does: the masks of those it leaves out stay on, and noise is what comes out."""
    whole = Adder.close

    def forget_one(self):
        ups = whole(self)
        return [replace(up, message=up.message[:8] + bytes(len(up.message) - 8)) for up in ups]

    honest = Run(parties, tmp_path / "honest", (), protocol="lloyd", rounds=2)
    honest.end()
    monkeypatch.setattr(Adder, "close", forget_one)
    run = Run(parties, tmp_path / "wrong", ((1, 2),), protocol="lloyd", rounds=2)
    endings = run.end()
    assert {ending.code for ending in endings.values()} == {0}
    assert run.result()[0] == run.result(5)[0] != honest.result()[0]


def _quiet(*_: object) -> None:
    """Say nothing."""
