"""Pairwise masks over mpirun: a whole run, a killed client, and the same run resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.privacy.release import Release
from fastlloyd.privacy.shares import noise_price
from fastlloyd.report.document import load
from tests.mpi.support import PROGRAMS, content, done, hospitals, read_matrix, run

pytestmark = pytest.mark.mpi

FLAGS = ("--data", "hospital_{client}.csv", "--k", "2", "--bounds", "-1,1", "--output", "res", "--masking", "pairwise")
# The run is interrupted in the last but one.
ROUNDS = 5


def test_a_run_with_pairwise_masks(tmp_path: Path) -> None:
    hospitals(tmp_path, clients=3)
    flags = [*FLAGS, "--n-total", "120", "--rounds", "3", "--epsilon", "50", "--set", "fastlloyd-plus.start=survey"]
    done(tmp_path, flags, n=4, program=[str(PROGRAMS / "recording.py")])
    written = load(tmp_path / "res" / "report.json")
    assert written["parties"]["masking"] == "pairwise"
    assert written["parameters"]["noise_price"] == pytest.approx(1.5**0.5, rel=1e-3)
    assert 0.99 * 50 < written["privacy"]["spent_epsilon"] <= 50.0
    # Common masks send 2 M k (d + 1) ring elements a round; so do these.
    assert written["traffic"]["payload_bytes_per_round"] == 144
    assert "the server" in written["claim"]
    lines = (tmp_path / "res" / "ledger.jsonl").read_text().splitlines()
    releases = [Release.from_json(line) for line in lines]
    assert len(releases) == 6
    assert {release.mechanism for release in releases} == {"discrete gaussian shares"}
    assert all(noise_price(release) == pytest.approx(1.5**0.5, rel=1e-3) for release in releases)
    # At so large an epsilon the centres are those of the blobs, so the shares went into the sum once and fit it.
    points = np.concatenate([read_matrix(tmp_path / f"hospital_{i}.csv") for i in (1, 2, 3)])
    centers = read_matrix(tmp_path / "res" / "centroids.csv")
    spread = ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean()
    assert spread < 0.5 * ((points - points.mean(axis=0)) ** 2).sum(axis=1).mean()


def test_a_killed_client_ends_the_run_and_a_resume_ends_it_well(tmp_path: Path) -> None:
    hospitals(tmp_path)
    flags = [*FLAGS, "--n-total", "80", "--rounds", str(ROUNDS), "--state-dir", "state"]
    ended = run(tmp_path, [*flags, "--new-state"], program=[str(PROGRAMS / "dying.py")])
    assert ended.code != 0 and not ended.left
    state = tmp_path / "state"
    facts = json.loads(content(state / "client-1" / "run" / "facts.json"))
    pairs = [content(state / f"client-{rank}" / "run" / "pairs") for rank in (1, 2)]
    assert pairs[0] == pairs[1] and len(pairs[0]) == 32
    uplinks = {int(path.name[7:]): content(path) for path in (state / "client-1" / "run").glob("uplink-*")}
    shutil.rmtree(tmp_path / "res", ignore_errors=True)

    done(tmp_path, [*flags, "--resume"], program=[str(PROGRAMS / "recording.py")])
    written = load(tmp_path / "res" / "report.json")
    assert written["run"] == facts["run_id"]
    assert [entry["clients_included"] for entry in written["rounds"]] == [[1, 2]] * ROUNDS
    sent = [json.loads(line) for line in (tmp_path / "sent.1").read_text().splitlines()]
    again = {m["round"]: bytes.fromhex(m["body"]) for m in sent if m["what"] == "message" and m["type"] == 32}
    assert 3 in uplinks.keys() & again.keys(), "the uplink of the third round was open"
    assert all(again[t] == uplinks[t] for t in uplinks.keys() & again.keys())
    ledger = [json.loads(line) for line in (state / "client-2" / "ledger.jsonl").read_text().splitlines()]
    assert len({(entry["round"], entry["name"]) for entry in ledger}) == len(ledger) == 2 * ROUNDS - 1
