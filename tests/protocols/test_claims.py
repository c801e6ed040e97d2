"""What was approved is what is claimed, for every protocol: before the run, in its report, and afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.__main__ import main
from fastlloyd.crypto.link.identity import make_identity, save_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.dossier.approval import Approved, read_approval, sign_approval
from fastlloyd.dossier.planned_run import PlannedRun, plan_run
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.registry import PROTOCOLS, find
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.document import load
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import execute
from fastlloyd.run.promise import plan_words
from fastlloyd.wire.header import PartyId
from tests.net.memory import MemoryNetwork
from tests.protocols.whole import without_plots

N = 5000
"""Of the run files; the parties have far fewer records."""
CLIENTS = {"secfc": 5, "vertical-he": 1}
OWN = (211, 197, 173, 157, 149)
"""Records of each client; of vertical tables the first one's are common to all."""
DIFFERENT = {"rounds", "scales", "names", "sizes", "hi", "lo", "protocol"}
"""What a plan has in another form than the report: rounds as numbers, the columns' own names."""
SERVER_S = {"feddp": {"n_server", "norm_bound"}}
"""What depends on the server's own points, of which a plan assumes the worst."""


@dataclass(frozen=True)
class Sites:
    """Keys, roster, run file and records of all parties."""

    folder: Path
    config: RunConfig
    clients: int

    @cached_property
    def roster(self) -> Roster:
        return Roster.load(self.folder / "roster.toml")

    @cached_property
    def planned(self) -> PlannedRun:
        return plan_run(self.config, self.clients, self.roster, d=4)

    def own(self, rank: int, **changes: Any) -> RunConfig:
        keys = {"roster": str(self.folder / "roster.toml"), "key": str(self.folder / f"{rank}.key")}
        places: dict[str, Any] = {"output": str(self.folder / f"out{rank}"), "state_dir": str(self.folder / "state")}
        party = f"client-{rank}" if rank else "server"
        places["new_state"] = not (self.folder / "state" / party).exists()
        server = {} if rank else {"server_data": self.config.server_data}
        return replace(self.config, **{**keys, **places, "server_data": None, **server, **changes})

    def run(self, approvals: Mapping[int, Approved]) -> tuple[list[int], list[str]]:
        """Run all parties over links; give their exit codes and what each said."""
        network, said = MemoryNetwork(self.clients + 1), [""] * (self.clients + 1)

        class Heard(Announcer):
            def complain(self, sentence: str) -> None:
                said[self.me.rank] += sentence

        def one(rank: int) -> int:
            me = PartyId(rank)
            with network.endpoint(me) as transport:
                announcer = Heard(me, quiet=True, own_terminal=True)
                return execute(self.own(rank), transport, announcer, approve=approvals.get(rank)).code

        with without_plots(), ThreadPoolExecutor(self.clients + 1) as pool:
            return list(pool.map(one, range(self.clients + 1))), said

    def recorded(self, rank: int) -> list[str]:
        """Return all that a client's ledger holds."""
        return (self.folder / "state" / f"client-{rank}" / "ledger.jsonl").read_text().splitlines()


def make_sites(folder: Path, protocol: str) -> Sites:
    if protocol == "vertical-he":
        pytest.importorskip("tenseal")
    clients, vertical = CLIENTS.get(protocol, 2), find(protocol).partition == "vertical"
    identities = [make_identity(f"site {rank}", rank) for rank in range(clients + 1)]
    for rank, one in enumerate(identities):
        save_identity(one, folder / f"{rank}.key", folder / f"{rank}.pem")
    entries = [
        RosterEntry(one.name, "client" if rank else "server", rank, one.certificate_pem)
        for rank, one in enumerate(identities)
    ]
    Roster(tuple(entries)).save(folder / "roster.toml")
    rng = np.random.default_rng(1)
    for rank in range(clients + 1):
        n = OWN[0] if vertical else OWN[max(rank, 1) - 1]
        points = np.concatenate([rng.normal(2, 0.3, (n // 2, 4)), rng.normal(8, 0.3, (n - n // 2, 4))])
        ids = [f"p{row}" for row in range(n)]
        names, kept = (["a", "b", "c", "d"], points) if not vertical else ([f"x{rank}", f"y{rank}"], points[:, :2])
        rows = [",".join(f"{value:.4f}" for value in row) for row in kept]
        head = ",".join(["id", *names] if vertical else names)
        lines = [f"{name},{row}" for name, row in zip(ids, rows, strict=True)] if vertical else rows
        (folder / f"own_{rank}.csv").write_text("\n".join([head, *lines]) + "\n")
        bounds = "".join(f"{name},0,10\n" for name in names)
        (folder / f"bounds_{rank}.csv").write_text(f"feature,lo,hi\n{bounds}")
    served = (folder / "own_0.csv").read_text().splitlines()[:40]
    (folder / "server.csv").write_text("\n".join(served) + "\n")
    config = RunConfig(
        protocol=protocol,
        title="Who comes back?",
        authors=("A. Meyer", "B. Roy"),
        purpose="plan beds",
        data=str(folder / "own_{client}.csv"),
        bounds=str(folder / ("bounds_{client}.csv" if vertical else "bounds_1.csv")),
        n_total=N,
        k=2,
        epsilon=5.0,
        rounds=None if protocol in ("vertical-dp", "vertical-plain", "kfed", "feddp") else 2,
        client_caps=() if vertical else (N // clients,) * clients,
        server_data=str(folder / "server.csv") if protocol == "feddp" else None,
        settings={"vertical": {"widths": "2+2"}} if vertical else {},
        setup_deadline=120.0,
        deadline=120.0,
        roster=str(folder / "roster.toml"),
        workers=1 if protocol == "vertical-he" else None,
    )
    return Sites(folder, config, clients)


@pytest.fixture(params=PROTOCOLS)
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> Sites:
    return make_sites(tmp_path, request.param)


def sign_all(
    sites: Sites, values: Mapping[str, Any] | None = None, *, expires: str | None = None, **changes: Any
) -> dict[int, Approved]:
    """Let each client sign the run with some values changed, and a claim of it with some changes."""
    found, planned = {}, sites.planned
    signed = {**planned.values, **(values or {})}
    claim = {**(planned.claim or {}), **changes}
    for rank in range(1, sites.clients + 1):
        identity = make_identity_of(sites, rank)
        approval = sign_approval(signed, identity, sites.roster, approved_at="2026-01-01", claim=claim, expires=expires)
        path = sites.folder / f"approval_{rank}.json"
        path.write_text(approval.text())
        found[rank] = Approved({f"--approval {path}": read_approval(path, sites.roster)})
    return found


def make_identity_of(sites: Sites, rank: int) -> Any:
    from fastlloyd.crypto.link.identity import load_key

    return sites.roster.identity(PartyId(rank), load_key(sites.folder / f"{rank}.key"))


def test_what_was_approved_is_what_is_done_and_reported(sites: Sites, capsys: pytest.CaptureFixture[str]) -> None:
    planned = sites.planned
    assert planned.foreseen is not None and planned.claim is not None
    codes, said = sites.run(sign_all(sites))
    assert set(codes) == {0}, said
    protocol = sites.config.protocol
    reports = sorted(sites.folder.glob("out*/report.json"))
    assert reports
    for path in reports:
        report = load(path)
        privacy = report["privacy"]
        for name in ("epsilon", "delta", "neighbours", "unit"):
            assert privacy[name] == planned.claim[name], name
        if report["not_private"]:
            assert report["not_private_reason"] is not None and planned.claim["epsilon"] is None
        else:
            assert planned.claim["against"] in report["claim"]
            assert all(condition in report["claim"] for condition in planned.claim["conditions"])
        before = json.loads(json.dumps(dict(planned.foreseen.parameters)))
        for name in before.keys() & report["parameters"].keys() - DIFFERENT - SERVER_S.get(protocol, set()):
            assert before[name] == report["parameters"][name], name
        assert before["n_total"] == report["parameters"]["n_total"] == N
        check_releases(planned.foreseen.releases, privacy["releases"], exact=protocol not in SERVER_S)
        verify = ["report", str(path.parent), "--verify", "--roster", str(sites.folder / "roster.toml")]
        assert main([*verify, "--approval", str(sites.folder / "approval_1.json")]) == 0
        settled = planned.values["settled"]
        cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
            ({"delta": 0.3}, {}, "claim.delta"),
            ({"neighbours": "x"}, {}, "neigh"),
            ({}, {"settled": {**settled, "k": 3}}, "k:"),
            ({}, {"results_version": 1000}, "results_version: approved 1000"),
            ({}, {"title": None}, "title: approved not set"),
            ({}, {"authors": ["A. Meyer"]}, "authors: approved A. Meyer"),
            ({}, {"institution": "North clinic"}, "institution: approved North clinic"),
            ({}, {"purpose": "sell beds"}, "purpose: approved sell beds"),
            ({"expires": "2020-01-31"}, {}, "approval of client 1 had ended, it held until 2020-01-31"),
        ]
        if "min_clients" in settled and "min_clients" in report["parameters"]:
            cases.append(({}, {"settled": {**settled, "min_clients": 99}}, "min_clients: approved 99"))
        for claim, values, sentence in cases:
            sign_all(sites, values, **claim)
            assert main([*verify, "--approval", str(sites.folder / "approval_1.json")]) == 2
            assert sentence in capsys.readouterr().err
        sign_all(sites)
    words = plan_words(sites.config, sites.clients, 4)
    if planned.claim["epsilon"] is not None:
        assert f"of {planned.claim['epsilon']:g}" in words["privacy"] or "epsilon" in words["privacy"]
        assert planned.claim["delta"] == 0.0 or f"delta {planned.claim['delta']:.3g}" in words["privacy"]
    for path in (*reports, *sites.folder.glob("out*/server.json")):
        assert not counts_in(json.loads(path.read_text()), protocol), path


def check_releases(planned: Any, reported: Any, *, exact: bool) -> None:
    """Compare the releases that were planned with those of a report; whoever sees them goes by the ledger."""
    before = {(one.round, one.name): one for one in planned}
    assert len(before) == len(planned) == len(reported)
    for entry in reported:
        now = Release(**{name: value for name, value in entry.items() if name in Release.__dataclass_fields__})
        then = before[now.round, now.name]
        for name in ("mechanism", "norm", "neighbours", "rows"):
            assert getattr(now, name) == getattr(then, name)
        if exact:
            assert (now.sensitivity, now.noise_scale, now.unit) == (then.sensitivity, then.noise_scale, then.unit)
        elif now.mechanism != "none":
            assert now.noise_multiplier == pytest.approx(then.noise_multiplier, rel=0.01)


def counts_in(report: Any, protocol: str) -> list[int]:
    """Return the numbers of records that a report shows, but for times and bytes."""
    clients = CLIENTS.get(protocol, 2)
    vertical = find(protocol).partition == "vertical"
    wanted = {OWN[0]} if vertical else {*OWN[:clients], sum(OWN[:clients])}
    for name in ("traffic", "timing", "rounds", "machine", "network", "created", "run", "signatures", "version"):
        report.pop(name, None)
    return [value for value in numbers_in(report) if value in wanted]


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from numbers_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from numbers_in(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


@pytest.mark.parametrize("change", ["epsilon", "delta", "against"])
def test_an_approval_whose_claim_is_not_met_ends_the_run_before_anything_is_spent(sites: Sites, change: str) -> None:
    claim = sites.planned.claim or {}
    private = claim["epsilon"] is not None
    epsilon = claim["epsilon"] / 2 if private else 1.0
    values = {"epsilon": epsilon, "delta": claim["delta"] / 5 or 1e-9, "against": "all"}
    codes, said = sites.run({1: sign_all(sites, **{change: values[change]})[1]})
    assert set(codes) == {2}, said
    assert f"claim.{change}: approved" in said[1] and "nothing of this site was released" in said[1]
    assert sites.recorded(1) == [] and not list(sites.folder.rglob("report.json"))


def test_every_protocol_is_held_to_an_approval() -> None:
    from fastlloyd.run.session import Adapter, find_protocol

    assert all(type(find_protocol(name)).claim is not Adapter.claim for name in PROTOCOLS)
