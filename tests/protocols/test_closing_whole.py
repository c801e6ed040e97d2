"""Whole runs with a party that lies at the end: nothing is written after another story, and nonsense costs a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.lifecycle.closing import Chains, Counters, Totals
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum
from fastlloyd.lifecycle.same_secret import EqualityProof, EqualityTag
from fastlloyd.net.link.secure import SecureLinks
from fastlloyd.wire.header import COMPARE_ROUND, FINAL_ROUND, Header, PartyId
from tests.protocols.whole import run_whole

RESULTS = ("report.json", "centroids.csv", "labels_*.csv", "server.json", "ledger.jsonl")


def lie(
    monkeypatch: pytest.MonkeyPatch, liar: int, receiver: int | None, kind: int, change: Any, last: int | None
) -> None:
    """Let one party change what it sends to one receiver (None: all) in one round (None: all)."""
    send = SecureLinks.send

    def changed(self: SecureLinks, peer: PartyId, message: bytes, *, payload_bytes: int, round: int) -> None:
        if self.me.rank == liar and peer.rank == (peer.rank if receiver is None else receiver):
            header = Header.decode(message)
            if header.type == kind and header.round == (header.round if last is None else last):
                message = header.encode() + change(message[8:])
        send(self, peer, message, payload_bytes=payload_bytes, round=round)

    monkeypatch.setattr(SecureLinks, "send", changed)


def written(folder: Path) -> list[Path]:
    return [path for pattern in RESULTS for path in folder.glob(f"*/{pattern}")]


def test_after_two_stories_nobody_writes_and_the_server_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # One bit of a masked sum is enough; the included sets may differ too.
    lie(monkeypatch, 0, 2, NoisyMaskedSum.TYPE, lambda body: body[:-1] + bytes([body[-1] ^ 0b100]), 1)
    codes = run_whole(tmp_path, 4, protocol="fastlloyd", rounds=3, min_clients=2)
    assert codes == [3] * 4
    assert not written(tmp_path)
    assert "did not send client" in capsys.readouterr().err


def test_a_server_that_lies_about_the_comparison_too_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # It tells client 2 another sum, and names nobody in the proof.
    lie(monkeypatch, 0, 2, NoisyMaskedSum.TYPE, lambda body: body[:-1] + bytes([body[-1] ^ 0b100]), 1)
    lie(monkeypatch, 0, None, EqualityProof.TYPE, lambda body: body[:1] + bytes(4) + body[5:], COMPARE_ROUND)
    assert run_whole(tmp_path, 4, protocol="fastlloyd", rounds=3, min_clients=2) == [3] * 4
    assert not written(tmp_path)
    assert "the server did not send all clients the same" in capsys.readouterr().err


TOLD: dict[str, tuple[int, dict[str, Any]]] = {
    "kfed": (65, {}),
    "feddp": (51, {"settings": {"feddp": {"start": "sphere-packing"}}, "epsilon": 50.0}),
    "vertical-dp": (
        106,
        {
            "settings": {"vertical-dp": {"share_result": True, "rows": 64, "local_clusters": 3}},
            "k": 2,
            "epsilon": 8.0,
        },
    ),
}


@pytest.mark.parametrize("protocol", TOLD)
def test_another_result_for_one_client_is_noticed_in_other_protocols_too(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, options = TOLD[protocol]
    # The lowest bit of the last number.
    lie(monkeypatch, 0, 2, kind, lambda body: body[:-8] + bytes([body[-8] ^ 1]) + body[-7:], None)
    assert run_whole(tmp_path, 4, protocol=protocol, **options) == [3] * 4
    assert not written(tmp_path)
    assert "did not send client" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff" * 40, b'{"accounts": {"2": 5}}'])
def test_nonsense_counters_cost_a_line_of_the_report(
    body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie(monkeypatch, 2, None, Counters.TYPE, lambda _: body, FINAL_ROUND)
    assert run_whole(tmp_path, 3, protocol="fastlloyd", rounds=2) == [0] * 3
    for rank in (1, 2):
        traffic = json.loads((tmp_path / str(rank) / "report.json").read_text())["traffic"]
        assert ("counters of client 2" in (traffic["incomplete"] or "")) == (rank == 1)
    server = json.loads((tmp_path / "0" / "server.json").read_text())["traffic"]
    assert "client 2: " in server["incomplete"] and server["payload_bytes"] > 0


def test_nonsense_totals_cost_a_line_of_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie(monkeypatch, 0, 1, Totals.TYPE, lambda _: b'{"accounts": -1}', FINAL_ROUND)
    assert run_whole(tmp_path, 3, protocol="fastlloyd", rounds=2) == [0] * 3
    traffic = json.loads((tmp_path / "1" / "report.json").read_text())["traffic"]
    assert "the server: " in traffic["incomplete"]
    assert json.loads((tmp_path / "2" / "report.json").read_text())["traffic"]["incomplete"] is None


def test_malformed_chains_are_their_senders_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lie(monkeypatch, 2, 1, Chains.TYPE, lambda _: bytes(7), COMPARE_ROUND)
    assert run_whole(tmp_path, 3, protocol="fastlloyd", rounds=2, masking="pairwise") == [3] * 3
    assert "client 2 sent a malformed Chains" in capsys.readouterr().err
    assert not written(tmp_path)


def test_a_malformed_tag_is_its_senders_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lie(monkeypatch, 2, 0, EqualityTag.TYPE, lambda _: bytes(7), COMPARE_ROUND)
    assert run_whole(tmp_path, 3, protocol="fastlloyd", rounds=2) == [3] * 3
    assert "client 2 sent a malformed EqualityTag" in capsys.readouterr().err
    assert not written(tmp_path)
