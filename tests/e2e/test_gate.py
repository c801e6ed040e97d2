"""The gate before release with real processes: under mpirun, and between sites with keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.crypto.link.identity import load_key
from fastlloyd.gate.decisions import Decisions, public_hex
from fastlloyd.report.document import load
from tests.e2e.test_serve_join import CLIENTS, Sites, parties  # noqa: F401
from tests.mpi.support import Job, hospitals


@pytest.mark.slow
@pytest.mark.mpi
def test_a_supervised_run_holds_every_client_s_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hospitals(tmp_path)
    flags = ["--data", "hospital_{client}.csv", "--bounds", "-1,1", "--k", "2", "--n-total", "80", "--output", "res"]
    with Job(tmp_path, [*flags, "--state-dir", "state", "--new-state", "--review"], supervised=True) as job:
        ended = job.finish()
    assert ended.code == 0, ended
    assert [path.name for path in (tmp_path / "res").iterdir()] == ["server.json"]
    assert ended.out.count("is held in state/client-") == 2 and "noisy size" not in ended.out
    assert main(["release", str(tmp_path / "state/client-1"), "--yes"]) == 0
    assert main(["discard", str(tmp_path / "state"), "--yes"]) == 0
    names = {path.name for path in (tmp_path / "res").iterdir()}
    assert "labels_1.csv" in names and "labels_2.csv" not in names
    assert "noisy size" in capsys.readouterr().out


def test_each_site_decides_for_itself_with_its_own_key(
    parties: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Sites(parties, tmp_path, "--state-dir", "state", "--new-state", "--review") as sites:
        sites.start()
        assert sites.codes(0, 1, 2, 3) == [0] * 4, sites.said()
        for rank in range(1, CLIENTS + 1):
            assert not sites.result(rank).exists() and "cluster  noisy size" not in sites.out(rank)
            assert sites.out(rank).splitlines()[-1] == "done: nothing has left this party's state folder"
        run = json.loads((sites.result(0) / "server.json").read_text())["run"]
        states = {rank: tmp_path / str(rank) / "state" / f"client-{rank}" for rank in range(1, CLIENTS + 1)}
        # Another site's key decides nothing here.
        key = str(parties / "party_2.key")
        assert main(["release", str(states[1]), "--yes", "--key", key]) == 2
        assert "is signed with another key" in capsys.readouterr().err
        assert main(["release", str(states[1]), "--yes", "--note", "Dr North"]) == 0
        assert main(["discard", str(states[2]), "--yes", "--note", "Dr South"]) == 0
        roster = str(parties / "roster.toml")
        assert main(["report", str(sites.result(1)), "--verify", "--roster", roster]) == 0
        assert load(sites.result(1) / "report.json")["run"] == run
        assert not sites.result(2).exists() and not sites.result(3).exists()
    for rank, what in ((1, "released"), (2, "discarded"), (3, "held")):
        last = Decisions(states[rank]).last(run)
        assert last is not None and last.what == what and last.genuine()
        assert last.public_key == public_hex(load_key(parties / f"party_{rank}.key"))
