"""Whole runs in memory that end before they begin: one code, one sentence, nothing written.

tests/mpi/test_faults.py has one of each kind under mpirun.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fastlloyd.crypto import hybrid
from fastlloyd.report.document import load
from tests.mpi.support import hospitals, report
from tests.protocols.whole import Ended, done_flags, run_flags

PUBLIC = ("--protocol", "lloyd", "--k", "2", "--bounds", "-1,1", "--n-total", "80", "--output", "res")
FLAGS = ("--data", "hospital_{client}.csv", *PUBLIC)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two hospitals, and the results of an earlier run, which a failing one must leave alone."""
    hospitals(tmp_path)
    (tmp_path / "res").mkdir()
    (tmp_path / "res" / "report.json").write_text("of an earlier run")
    yield tmp_path
    assert [path.name for path in (tmp_path / "res").iterdir()] == ["report.json"]
    assert (tmp_path / "res" / "report.json").read_text() == "of an earlier run"


def refused(folder: Path, *flags: str, code: int = 2, only: dict[int, list[str]] | None = None) -> Ended:
    """Run with an output that may be replaced, to an end that all parties agree on."""
    ended = run_flags(folder, [*FLAGS, "--overwrite", *flags], only=only, quiet=False)
    assert ended.codes == {code} and "Traceback" not in ended.said, ended
    return ended


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
def test_a_build_without_ml_kem_does_not_start(folder: Path, masking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid, "_mlkem", None)
    ended = refused(folder, "--masking", masking)
    assert "the keys of a run need ML-KEM-768" in ended.said and "pip install 'cryptography>=48'" in ended.said


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--config", "run.toml"], "unknown key 'epsilom'"),
        (["--min-clients", "3"], "--min-clients"),
        (["--k", "81"], "--k: expected at most the public N = 80 clusters, got 81"),
        (["--bounds", "1,-1"], "expected LO < HI, got 1,-1"),
        (["--epsilon", "0"], "--epsilon: expected a number from"),
        (["--client-caps", "10,20,30"], "--client-caps: expected one number for each of"),
    ],
)
def test_a_wrong_configuration_is_told_once(folder: Path, flags: list[str], sentence: str) -> None:
    (folder / "run.toml").write_text("epsilom = 1\n")
    ended = refused(folder, *flags)
    assert sentence in ended.said and ended.said.count("\n") == len(ended.own(0)) == 1, ended


@pytest.mark.parametrize(
    ("table", "flags", "sentence"),
    [
        ("f1,f2\n0.1234,nan\n1,1\n", [], "hospital_2.csv, row 1 (line 2), column 'f2'"),
        (None, [], "no file hospital_2.csv"),
        ("f1,f2\n0.1234,0\n1,1,1\n", [], "hospital_2.csv"),
        ("f1,f2\n0.1234,green\n1,1\n", ["--columns", "f1,f2"], "column 'f2'"),
        ("f1,g2\n0.1234,0\n1,1\n", ["--columns", "f1,f2"], "no column 'f2'"),
        (
            "f1,f2\n" + "0,0\n" * 40,
            ["--client-caps", "60,20"],
            "hospital_2.csv has more than 20 records, the public cap of client 2",
        ),
    ],
)
def test_what_is_wrong_with_records_is_told_to_their_owner_only(
    folder: Path, table: str | None, flags: list[str], sentence: str
) -> None:
    path = folder / "hospital_2.csv"
    path.unlink() if table is None else path.write_text(table)
    ended = refused(folder, *flags)
    (owner,) = ended.own(2)
    assert sentence in owner
    told = "fastlloyd: client 2 did not start: bad input (the details stand on its own standard error)"
    assert (ended.own(0), ended.own(1)) == ([told], [])
    assert "hospital_2" not in ended.out and "f2" not in ended.out


@pytest.mark.parametrize(
    ("rank", "flags", "differs"),
    [
        (2, ["--seed", "7"], "seed is 7 there and 0 here;"),
        (0, ["--epsilon", "2", "--protocol", "sulloyd"], "epsilon is 1 there and 2 here;"),
    ],
)
def test_another_public_configuration_is_refused(folder: Path, rank: int, flags: list[str], differs: str) -> None:
    said = refused(folder, code=3, only={rank: flags}).own(0)[0]
    # Whoever differs from all others is named, also where it is the server.
    odd = "client 2 runs" if rank else "this server runs"
    assert f"{odd} with another public configuration" in said and differs in said


def test_other_columns_at_one_client_are_named(folder: Path) -> None:
    (folder / "hospital_2.csv").write_text("f1,g2\n0,0\n")
    said = refused(folder, code=3).own(0)[0]
    assert "feature 2 is 'g2' at client 2 and 'f2' at client 1" in said


def test_files_of_another_run_are_refused_and_then_replaced(tmp_path: Path) -> None:
    flags = ["--dataset", "iris", "--protocol", "lloyd", "--bounds", "0,10", "--k", "3", "--rounds", "2"]
    flags += ["--output", "res"]
    done_flags(tmp_path, flags, n=4)
    (tmp_path / "res" / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in (tmp_path / "res").iterdir()}
    assert "labels_3.csv" in before

    ended = run_flags(tmp_path, flags)
    assert ended.codes == {2}, ended
    (said,) = ended.own(0)
    assert "got one with files of another run" in said and "--overwrite" in said
    assert ended.own(1) == ended.own(2) == []
    assert {path.name: path.read_bytes() for path in (tmp_path / "res").iterdir()} == before

    done_flags(tmp_path, [*flags, "--overwrite"])
    left = {path.name for path in (tmp_path / "res").iterdir()}
    assert left == before.keys() - {"labels_3.csv"}
    assert load(tmp_path / "res" / "report.json")["run"] == report(tmp_path / "res", "server.json")["run"]
