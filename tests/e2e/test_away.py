"""An owner of vertical-he that is gone after the set-up, where fewer than all open: real processes over TLS."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

pytest.importorskip("tenseal")

from fastlloyd.__main__ import main
from fastlloyd.privacy.ledger import Ledger
from tests.e2e.test_serve_join import Sites
from tests.mpi.support import report
from tests.protocols.test_vertical_he_whole import three_offices

LIMIT_S = 600.0


class Owners(Sites):
    """Three owners, of whom rank 0 serves."""

    def own(self, rank: int) -> list[str]:
        return [
            "--data",
            str(self.parties / f"office_{rank}.csv"),
            "--bounds",
            str(self.parties / f"bounds_{rank}.csv"),
            "--workers",
            "1",
        ]

    def join(self, rank: int, *flags: str) -> None:
        key, where = self.parties / f"party_{rank}.key", f"{self.host}:{self.port}"
        self._start(rank, "join", "--server", where, "--key", str(key), *self.own(rank), *flags)


@pytest.mark.slow
@pytest.mark.timeout(2000)
def test_an_owner_that_is_killed_after_the_set_up_does_not_end_a_run_that_two_of_three_can_open(tmp_path: Path) -> None:
    parties = tmp_path / "parties"
    parties.mkdir()
    roster = parties / "roster.toml"
    for rank, name in enumerate(["north", "south", "west"]):
        with contextlib.redirect_stdout(None):
            main(["keygen", "--name", name, "--rank", str(rank), "--prefix", str(parties / f"party_{rank}")])
            main(["roster", "add", "--roster", str(roster), "--cert", str(parties / f"party_{rank}.pem")])
    three_offices(parties)
    (parties / "run.toml").write_text(
        f'protocol = "vertical-he"\nroster = "{roster}"\nk = 2\nn_total = 300\nrounds = 8\nepsilon = 20.0\n'
        # It may come back until the deadline.
        f"deadline = 60.0\nsetup_deadline = {LIMIT_S}\n[vertical-he]\n"
        'mode = "threshold"\nthreshold = 2\n'
    )
    with Owners(parties, tmp_path) as sites:
        sites.serve(*sites.own(0))
        sites.join(1)
        sites.join(2, "--state-dir", "state", "--new-state")
        sites.until(lambda: "round 2 of 8" in sites.out(0), limit_s=LIMIT_S)
        sites.processes[2].kill()
        assert sites.codes(0, 1, limit_s=LIMIT_S) == [0, 0], sites.said()
    found = [sites.result(rank) for rank in (0, 1)]
    assert (found[0] / "centroids.csv").read_text() == (found[1] / "centroids.csv").read_text()
    # The others opened the last rounds without it, so its ledger has had them since its columns left.
    with Ledger(tmp_path / "2" / "state" / "client-2" / "ledger.jsonl") as ledger:
        assert {release.round for release in ledger.releases} == set(range(8))
    written = report(found[0])
    assert len(written["rounds"]) == 8 and "any single other party" in written["claim"]
