"""Whole runs with a roster: all hold the same result, or nobody writes one; and each signature can be checked."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.dossier.verify import verify
from fastlloyd.errors import ConfigError, Reason
from fastlloyd.lifecycle import rounds
from fastlloyd.privacy.ledger import Ledger
from fastlloyd.protocol import horizontal
from fastlloyd.protocol.horizontal import Horizontal
from fastlloyd.protocols.fastlloyd.rounds import post_process
from fastlloyd.protocols.registry import PROTOCOLS, find
from fastlloyd.report.signed import SIGNED_ELSE, SignedRecord
from fastlloyd.run.outcome import Result
from fastlloyd.run.session import find_protocol
from tests.contracts import whole_run
from tests.protocols.whole import make_rosters, run_whole

# Who has the result besides the clients, and what else makes a difference to how they compare.
RUNS: dict[str, dict[str, Any]] = {name: {"protocol": name} for name in PROTOCOLS}
RUNS |= {
    "fastlloyd, pairwise masks": {"protocol": "fastlloyd", "masking": "pairwise"},
    "choose k": {"protocol": "fastlloyd-plus", "k": 4, "choose_k": True, "rounds": 3, "epsilon": 20.0},
    "vertical-dp, shared": {"protocol": "vertical-dp", "settings": {"vertical-dp": {"share_result": True}}},
    "vertical-plain, shared": {"protocol": "vertical-plain", "settings": {"vertical-plain": {"share_result": True}}},
}
ALONE = ("vertical-dp", "vertical-plain")
"""Where the server keeps the result."""


@pytest.fixture(scope="module")
def roster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_rosters(tmp_path_factory.mktemp("keys"))


def start(name: str, roster: Path, folder: Path, parties: int | None = None) -> list[int]:
    chosen = RUNS[name]
    config = {"k": 3, "bounds": "0,10", **whole_run.SETTINGS.get(chosen["protocol"], {}), **chosen}
    parties = parties or 1 + whole_run.CLIENTS.get(chosen["protocol"], 3)
    return run_whole(
        folder, parties, roster=str(roster / f"{parties}.toml"), key=str(roster / "{client}.key"), **config
    )


def reports(folder: Path) -> Iterator[Path]:
    yield from sorted(path.parent for path in folder.glob("*/report.json"))


@pytest.mark.parametrize("name", RUNS)
def test_every_party_with_the_result_can_check_who_signed_it(name: str, roster: Path, tmp_path: Path) -> None:
    codes = start(name, roster, tmp_path)
    assert set(codes) == {0}
    with_result = list(reports(tmp_path))
    assert len(with_result) == (1 if name in ALONE else len(list(tmp_path.glob("*/centroids.csv"))) or len(codes) - 1)
    for folder in with_result:
        assert "; not by" not in verify(folder, roster / f"{len(codes)}.toml")
        for entry in json.loads((folder / "report.json").read_text())["signatures"]["parties"]:
            assert (entry["opening"] is None) == (entry["covers"] == "public") and entry["problem"] is None
    for server in tmp_path.glob("*/server.json"):
        assert "opening" not in server.read_text() and "signatures" not in server.read_text()


def deviate(monkeypatch: pytest.MonkeyPatch, protocol: str, rank: int) -> None:
    """Let one party make another result than the others at the end: what a build that computes otherwise does."""
    module = (
        horizontal
        if isinstance(find_protocol(protocol), Horizontal)
        else import_module(f"{find(protocol).package}.protocol")
    )
    conclude: Callable[..., Any] = module.conclude  # type: ignore[attr-defined]

    def other(session: Any, made: Any, **more: Any) -> Any:
        if session.me.rank == rank and isinstance(made, Result):
            if made.centroids is None:
                made = dataclasses.replace(made, exact_sizes=(made.exact_sizes[0] + 1, *made.exact_sizes[1:]))
            else:
                made = dataclasses.replace(made, centroids=made.centroids * (1.0 + 1e-12))
        return conclude(session, made, **more)

    monkeypatch.setattr(module, "conclude", other)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ALONE])
def test_where_one_party_has_another_result_all_end_and_nobody_writes(
    name: str, roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deviate(monkeypatch, RUNS[name]["protocol"], 2)
    codes = start(name, roster, tmp_path)
    assert set(codes) == {3}
    assert not list(reports(tmp_path)) and not list(tmp_path.glob("*/centroids.csv"))
    assert not list(tmp_path.glob("*/labels_*.csv")) and not list(tmp_path.glob("*/server.json"))
    assert "client 2" in (said := capsys.readouterr().err) and "a different result" in said
    # What was spent is not forgotten.
    assert list(tmp_path.glob("*/interrupted-*.ledger.jsonl"))


@pytest.mark.parametrize("masking", ["common", "pairwise"])
def test_of_two_clients_with_different_results_both_end(
    masking: str, roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deviate(monkeypatch, "fastlloyd", 1)
    monkeypatch.setitem(RUNS, "two", {"protocol": "fastlloyd", "masking": masking})
    assert set(start("two", roster, tmp_path, parties=3)) == {3}
    assert not list(reports(tmp_path))
    assert "have different results, and which of them is right is not known" in capsys.readouterr().err


def test_a_server_with_another_result_is_named(
    roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deviate(monkeypatch, "kfed", 0)
    assert set(start("kfed", roster, tmp_path)) == {3}
    assert "the server (site 0) has a different result than the others" in capsys.readouterr().err


def test_a_server_that_fails_before_its_first_release_goes_on(
    roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full when the clients have paid for round 0, and sent their vectors."""
    options: dict[str, Any] = {"protocol": "fastlloyd", "masking": "threshold", "k": 3, "bounds": "0,10", "rounds": 3}
    options |= {"state_dir": str(tmp_path / "state"), "epsilon": 5.0, "deadline": 20.0}
    options |= {"roster": str(roster / "4.toml"), "key": str(roster / "{client}.key")}
    prepare = rounds.Ahead.record

    def full(self: rounds.Ahead, t: int) -> Any:
        if threading.current_thread().name == "rank_0":
            state = tmp_path / "state" / "client-{}" / "run" / "uplink-0"
            while not all(Path(str(state).format(rank)).exists() for rank in (1, 2, 3)):
                time.sleep(0.01)
            raise ConfigError("the disk is full", reason=Reason.STATE)
        return prepare(self, t)

    with monkeypatch.context() as patch:
        patch.setattr(rounds.Ahead, "record", full)
        assert run_whole(tmp_path / "out", 4, new_state=True, **options) == [2] * 4
    spent = {path: Ledger(path).releases for path in sorted(tmp_path.glob("state/client-*/ledger.jsonl"))}
    assert run_whole(tmp_path / "out", 4, resume=True, **options) == [0] * 4
    for path, before in spent.items():
        now = Ledger(path).releases
        assert before and now[: len(before)] == before and len({entry.run for entry in now}) == 1


def test_another_build_of_one_client_costs_the_result_until_it_is_replaced(
    roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It computes the last centres otherwise. Then it is replaced, and the resumed run ends well without more spent.
    options: dict[str, Any] = {"protocol": "fastlloyd", "k": 3, "bounds": "0,10", "rounds": 3, "budget": 50.0}
    options |= {"state_dir": str(tmp_path / "state"), "epsilon": 5.0}
    options |= {"roster": str(roster / "4.toml"), "key": str(roster / "{client}.key")}

    def otherwise(noisy: Any, centers: Any, plan: Any, t: int) -> Any:
        changed = t == len(plan.rounds) - 1 and threading.current_thread().name == "rank_3"
        return post_process(noisy + changed, centers, plan, t)

    monkeypatch.setattr("fastlloyd.protocols.fastlloyd.client.post_process", otherwise)
    assert run_whole(tmp_path / "out", 4, new_state=True, **options) == [3] * 4
    assert not list(reports(tmp_path / "out"))
    spent = {path: Ledger(path).releases for path in sorted(tmp_path.glob("state/client-*/ledger.jsonl"))}
    assert all(spent.values())
    monkeypatch.undo()
    assert run_whole(tmp_path / "out", 4, resume=True, **options) == [0] * 4
    assert len({(folder / "centroids.csv").read_text() for folder in reports(tmp_path / "out")}) == 1
    assert {path: Ledger(path).releases for path in spent} == spent


def test_a_party_that_signed_something_else_makes_verify_fail(
    roster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A client that says one thing to the others and signs another.
    statement = SignedRecord.statement

    def other(self: SignedRecord, roster: bytes, agreed: bytes, covers: Any, opening: bytes | None) -> bytes:
        lies = threading.current_thread().name == "rank_2"
        return statement(self, roster, agreed[::-1] if lies else agreed, covers, opening)

    monkeypatch.setattr(SignedRecord, "statement", other)
    assert set(start("fastlloyd", roster, tmp_path)) == {0}
    for rank in (1, 3):
        entries = json.loads((tmp_path / str(rank) / "report.json").read_text())["signatures"]["parties"]
        assert entries[2]["problem"] == SIGNED_ELSE
        with pytest.raises(ConfigError, match="client 2 signed something else than client"):
            verify(tmp_path / str(rank), roster / "4.toml")
