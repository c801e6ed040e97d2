"""Whole runs under mpirun: what goes where, who opens what, and that the result is the protocol's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.__main__ import main
from fastlloyd.data.bounds import scale
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.lifecycle.masked_sums import MaskedUpdate, NoisyMaskedSum
from fastlloyd.lifecycle.same_secret import EqualityTag
from fastlloyd.lifecycle.sealed import SealKey
from fastlloyd.net.link.frame import FrameKind
from fastlloyd.report.document import load
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import PublicInputs
from fastlloyd.run.session import find_protocol
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import PartyId
from tests.mpi.support import PROGRAMS, ROOT, Ended, done, hospitals, once, read_matrix, report, run

pytestmark = pytest.mark.mpi
slow = pytest.mark.slow

OWN = ("--data", "hospital_{client}.csv", "--bounds", "-1,1", "--output", "res")
IRIS = ("--dataset", "iris", "--output", "res")


# --- what a folder and a file are for ------------------------------------------------------------------


def test_one_file_is_not_several_clients(tmp_path: Path) -> None:
    hospitals(tmp_path)
    ended = run(tmp_path, ["--data", "hospital_1.csv", *OWN[2:], "--k", "2", "--n-total", "80"])
    assert (ended.code, ended.codes, ended.left) == (2, {2}, ()), ended
    assert "--data hospital_1.csv: all 2 parties with records run on this host" in ended.ranks[0].err
    assert not (tmp_path / "res").exists()


# --- own records only ----------------------------------------------------------------------------------


def test_each_rank_opens_its_own_file_and_no_other(tmp_path: Path) -> None:
    files = hospitals(tmp_path)
    env = {"PYTHONPATH": f"{PROGRAMS / 'audit'}:{ROOT}"}
    done(tmp_path, [*OWN, "--protocol", "lloyd", "--k", "2", "--n-total", "80"], env=env)
    opened = [(tmp_path / f"opened.{rank}").read_text().splitlines() for rank in range(3)]
    for rank, paths in enumerate(opened):
        assert any(path.endswith("client.py") or path.endswith(".pyc") for path in paths), "the hook saw nothing"
        found = {Path(path).name for path in paths if "hospital_" in path}
        assert found == ({files[rank - 1].name} if rank else set())
    assert not any("labels_" in path or "centroids" in path for path in opened[0])


def test_ranks_that_share_no_folder_need_no_file_of_another(tmp_path: Path) -> None:
    files = hospitals(tmp_path / "all")
    for rank in range(3):
        (tmp_path / f"rank-{rank}").mkdir()
    for rank, path in enumerate(files, start=1):
        shutil.move(path, tmp_path / f"rank-{rank}")
    done(tmp_path, [*OWN, "--protocol", "sulloyd", "--k", "2", "--n-total", "80"])
    assert [path.name for path in (tmp_path / "rank-0" / "res").iterdir()] == ["server.json"]
    own = [tmp_path / f"rank-{rank}" / "res" for rank in (1, 2)]
    assert (own[0] / "centroids.csv").read_bytes() == (own[1] / "centroids.csv").read_bytes()
    for rank, folder in enumerate(own, start=1):
        assert load(folder / "report.json")["run"] == report(own[0])["run"]
        assert {path.name for path in folder.glob("labels_*")} == {f"labels_{rank}.csv"}
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]


# --- one iris run after the other, all with seed 0 -------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Iris:
    """A finished run on iris."""

    folder: Path
    ended: Ended

    @property
    def centroids(self) -> NDArray[np.float64]:
        return read_matrix(self.folder / "res" / "centroids.csv")


def iris(tmp: pytest.TempPathFactory, name: str, *flags: str, **options: Any) -> Iris:
    return Iris(*once(tmp, f"iris-{name}", lambda folder: done(folder, [*IRIS, *flags], **options)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iris:
    return iris(tmp_path_factory, "plain")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iris:
    return iris(tmp_path_factory, "single", n=2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iris:
    return iris(tmp_path_factory, "recorded", n=4, program=[str(PROGRAMS / "recording.py")])


@pytest.fixture(scope="module")
def authentic(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iris:
    """Over TCP, with pinned certificates, as two programs of one job."""
    secure = ["--roster", f"{keys}/roster.toml", "--key", f"{keys}/party-{{client}}.key"]
    server = ("-m", "fastlloyd.server")
    return iris(tmp_path_factory, "authentic", "--transport", "tcp", *secure, server=server)


@pytest.fixture(scope="module")
def all_iris(plain: Iris, single: Iris, recorded: Iris, authentic: Iris) -> list[Iris]:
    return [plain, single, recorded, authentic]


@pytest.fixture(scope="module")
def common() -> PublicInputs:
    return find_protocol("fastlloyd").gather(RunConfig(dataset="iris"), 2)[1]


def test_a_run_of_one_client(single: Iris) -> None:
    written = report(single.folder / "res")
    assert written["parties"]["clients"] == 1
    assert written["traffic"]["payload_bytes_per_round"] == 2 * 3 * 5 * 4
    assert written["privacy"]["unit"] == "one record, which is one row of one client"
    assert "is the same for neighbours" in written["claim"]


def test_masked_updates_go_to_the_server_and_to_nobody_else(recorded: Iris) -> None:
    rounds = report(recorded.folder / "res")["parameters"]["rounds"]
    for rank in range(4):
        lines = [json.loads(line) for line in (recorded.folder / f"sent.{rank}").read_text().splitlines()]
        messages = [line for line in lines if line["what"] == "message"]
        if rank == 0:
            assert not [m for m in messages if m["type"] in (MaskedUpdate.TYPE, SealKey.TYPE, EqualityTag.TYPE)]
            continue
        updates = [m for m in messages if m["type"] == MaskedUpdate.TYPE]
        assert [(m["peer"], m["round"]) for m in updates] == [(0, t) for t in range(rounds)]
        assert all(len(m["body"]) == 2 * 60 for m in updates)
        # Between clients there is nothing, not on the level of MPI either.
        frames = [line for line in lines if line["what"] == "frame"]
        assert {line["peer"] for line in lines} == {0}
        sealed = Counter(
            f["peer"] for f in frames if f["kind"] == FrameKind.RECORD and f["size"] == 1 + 22 + 4 + 8 + 60
        )
        assert sealed == {0: rounds}


def test_all_clients_get_the_same_reply(recorded: Iris) -> None:
    lines = [json.loads(line) for line in (recorded.folder / "sent.0").read_text().splitlines()]
    replies = [m for m in lines if m["what"] == "message" and m["type"] == NoisyMaskedSum.TYPE]
    bodies: dict[int, set[str]] = {}
    for message in replies:
        bodies.setdefault(message["round"], set()).add(message["body"])
    assert Counter(m["peer"] for m in replies) == dict.fromkeys((1, 2, 3), len(bodies))
    assert all(len(same) == 1 for same in bodies.values())


# --- roster ----------------------------------------------------------------------------------------------


def fastlloyd(*words: object) -> None:
    with contextlib.redirect_stdout(None):
        assert main([str(word) for word in words]) == 0


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """party-0 .. party-2 in roster.toml, and a stranger with a roster in which it is client 2."""
    return once(tmp_path_factory, "keys", make_keys)[0]


def make_keys(folder: Path) -> None:
    for rank in range(3):
        fastlloyd("keygen", "--name", f"party {rank}", "--rank", rank, "--prefix", folder / f"party-{rank}")
        fastlloyd("roster", "add", "--roster", folder / "roster.toml", "--cert", folder / f"party-{rank}.pem")
    shutil.copy(folder / "roster.toml", folder / "strange.toml")
    fastlloyd("keygen", "--name", "stranger", "--rank", 2, "--prefix", folder / "stranger")
    fastlloyd("roster", "add", "--roster", folder / "strange.toml", "--cert", folder / "stranger.pem", "--replace")


def test_a_run_with_a_roster_is_authenticated(authentic: Iris, plain: Iris) -> None:
    assert report(authentic.folder / "res")["parties"]["authenticated"] is True
    assert report(authentic.folder / "res", "server.json")["parties"]["authenticated"] is True
    assert "demonstration" not in authentic.ended.ranks[0].out
    assert report(plain.folder / "res")["parties"]["authenticated"] is False
    assert "not authenticated" in plain.ended.ranks[0].out
    assert report(authentic.folder / "res")["network"]["transport"] == "tcp"


@pytest.mark.parametrize(
    ("case", "only", "code", "sentence"),
    [
        (
            "another's key",
            {2: ["--key", "{keys}/party-1.key"]},
            2,
            r"client 2 \(.*\) did not start: wrong configuration",
        ),
        pytest.param(
            "stranger's key",
            {2: ["--key", "{keys}/stranger.key"]},
            2,
            r"client 2 \(.*\) did not start: wrong configuration",
            marks=slow,
        ),
        pytest.param(
            "no key",
            {1: ["--key", "{keys}/nobody.key"]},
            2,
            r"client 1 \(.*\) did not start: wrong configuration",
            marks=slow,
        ),
        (
            "stranger's roster",
            {2: ["--roster", "{keys}/strange.toml", "--key", "{keys}/stranger.key"]},
            3,
            r"certificate that client 2 \(.*\) showed, in place of .* was refused|"
            r"client 2 \(.*\) sent a record or certificate that",
        ),
    ],
)
def test_wrong_keys_end_the_run(tmp_path: Path, keys: Path, case: str, only: Any, code: int, sentence: str) -> None:
    secure = ["--roster", f"{keys}/roster.toml", "--key", f"{keys}/party-{{client}}.key"]
    flags = [*IRIS, "--protocol", "lloyd", *secure]
    ended = run(tmp_path, flags, only={rank: [flag.format(keys=keys) for flag in more] for rank, more in only.items()})
    assert (ended.code, ended.codes, ended.left) == (code, {code}, ()), case
    assert re.search(sentence, ended.ranks[0].err), ended
    assert "PRIVATE KEY" not in ended.said
    assert not (tmp_path / "res").exists() or not list((tmp_path / "res").iterdir())


# --- all runs on iris together: last, so that no one test starts them all ----------------------------------


def test_the_same_seed_twice_gives_other_noise(all_iris: list[Iris]) -> None:
    # Shared public seed and data: what differs is the operating system's entropy alone.
    seeds = {report(run.folder / "res")["parameters"]["seed"] for run in all_iris}
    assert seeds == {0}
    assert len({run.centroids.tobytes() for run in all_iris}) == len(all_iris)


def test_nicv_over_mpi_is_that_in_memory(all_iris: list[Iris], common: PublicInputs) -> None:
    """Exact rank test, false alarm below 1e-6: with one public seed all runs are independent and equally distributed.

    How iris is split does not matter: the sums are exact integers.
    """
    stats = pytest.importorskip("scipy.stats")
    assert common.dataset is not None
    points = scale(common.dataset.values.copy(), common.bounds)
    alone = [run_together(RunConfig(dataset="iris"), 2).outcomes[PartyId(1)].result for _ in range(120)]
    here = [nearest(points, result.evaluated)[1] for result in alone]
    there = [nearest(points, scale(run.centroids, common.bounds))[1] for run in all_iris]
    assert stats.mannwhitneyu(there, here, method="exact").pvalue > 1e-6
    # Four against 120 can fall below 1e-6 only by being all lowest or all highest: 2 / C(124, 4) = 2.2e-7.
    assert stats.mannwhitneyu([max(here) + 1] * 4, here, method="exact").pvalue < 1e-6
