"""Runs of parties whose records lie in databases: docs/data-sources.md typed as it is written, and PostgreSQL."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.bounds import parse_bounds
from fastlloyd.data.database import find_place
from fastlloyd.data.table import read_table
from tests.contracts.databases import PASSWORD, Postgresql, postgresql_server
from tests.documents.test_commands import ROOT, run_page
from tests.mpi.support import quick
from tests.reading import texts_of

OMOP = ROOT / "examples/omop"
TABLES = ("person", "visit_occurrence", "measurement", "condition_occurrence")
LIMIT_S = 110


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    with postgresql_server() as started:
        yield started


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's folder with small hospitals in it."""
    folder = tmp_path_factory.mktemp("omop") / "study"
    shutil.copytree(OMOP, folder)
    subprocess.run(
        [sys.executable, "make_databases.py", ".", "--people", "200"], cwd=folder, check=True, capture_output=True
    )
    return folder


def copy_to(database: Postgresql, path: Path) -> None:
    """Copy the tables of a hospital to PostgreSQL."""
    with closing(sqlite3.connect(path)) as own:
        for table in TABLES:
            (made,) = own.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            rows = own.execute(f"SELECT * FROM {table}").fetchall()
            marks = ", ".join("?" * len(rows[0]))
            database.run(made, f"INSERT INTO {table} VALUES ({marks})", rows=rows)


def features(address: str) -> tuple[np.ndarray, tuple[str, ...]]:
    place = find_place(address, query=str(OMOP / "features.sql"), key="person_id")
    table = read_table(place, missing="midpoint", bounds=parse_bounds(str(OMOP / "bounds.csv")), ignore=["person_id"])
    return table.values, texts_of(place, "person_id")


@pytest.mark.mpi
@pytest.mark.timeout(3 * LIMIT_S)
def test_the_page_as_written(tmp_path: Path) -> None:
    shutil.copytree(OMOP, tmp_path / "examples/omop")
    run_page("docs/data-sources.md", tmp_path)
    with (tmp_path / "study/result/labels_1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [str(100_000 + number) for number in range(1, 1001)]
    assert len((tmp_path / "labels_2.csv").read_text().splitlines()) == 1 + 750
    centres = read_table(tmp_path / "study/result/centroids.csv", columns=["age", "bmi", "systolic", "hba1c"]).values
    kinds = np.array([[34, 23.5, 118, 5.2], [67, 27.5, 152, 5.7], [58, 33.0, 136, 8.1]])
    for kind in kinds:  # the three invented kinds of patient are found
        assert (np.abs(centres - kind) / [82, 30, 90, 7]).max(axis=1).min() < 0.15


def test_the_query_of_the_example_gives_the_same_features_everywhere(
    study: Path, tmp_path: Path, server: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    copy_to(database := server.fresh("same"), study / "hospital_1.db")
    with closing(sqlite3.connect(study / "hospital_1.db")) as own, duckdb.connect(str(tmp_path / "a.duckdb")) as other:
        other.execute("BEGIN")  # else each row is written to the disk by itself
        for table in TABLES:
            rows = own.execute(f"SELECT * FROM {table}").fetchall()
            other.execute(own.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0])
            other.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            other.execute(f"COPY {table} TO '{tmp_path}/{table}.parquet' (FORMAT parquet)")
        other.execute("COMMIT")
    values, keys = features(f"sqlite:///{study}/hospital_1.db")
    assert values.shape == (200, 7)
    for address in (database.address, f"duckdb:///{tmp_path}/a.duckdb", str(tmp_path)):
        others, other_keys = features(address)
        assert other_keys == keys
        np.testing.assert_allclose(others, values, rtol=1e-12)


@pytest.mark.mpi
@pytest.mark.timeout(3 * LIMIT_S)
def test_a_run_from_postgresql_shows_no_password_anywhere(
    study: Path, tmp_path: Path, server: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hospital in (1, 2):
        copy_to(server.fresh(f"omop_{hospital}"), study / f"hospital_{hospital}.db")
    address = server.address.replace("/postgres", "/omop_{client}")
    command = [sys.executable, "-m", "fastlloyd", "run", "-n", "3", "--config", str(study / "run.toml")]
    command += ["--data", address, "--client-caps", "2000,2000", "--output", "out", "--state-dir", "state"]
    command += ["--log-level", "debug", "--log-file", "log_{client}"]
    own = {**os.environ, **quick(), "PGPASSWORD": PASSWORD}
    told = ""
    for more, code in (
        (["--new-state"], 0),
        (["--resume"], 2),
        (["--query", "SELECT * FROM persons", "--overwrite"], 2),
    ):
        done = subprocess.run([*command, *more], cwd=tmp_path, env=own, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == code, done.stdout + done.stderr
        told += done.stdout + done.stderr
    assert 'relation "persons" does not exist' in told
    wrong = {**own, "PGPASSWORD": f"{PASSWORD}-not"}
    done = subprocess.run(
        [*command, "--overwrite"], cwd=tmp_path, env=wrong, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 2 and "password authentication failed" in done.stderr
    told += done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"report.json", "config.toml", "ledger.jsonl", "log_1"} <= {path.name for path in files}
    assert PASSWORD not in told and not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["parties"]["clients"] == 2
    with (tmp_path / "out/labels_2.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)][:2] == ["200001", "200002"]


@pytest.mark.mpi
@pytest.mark.timeout(3 * LIMIT_S)
def test_vertical_parties_with_ids_in_databases(study: Path, tmp_path: Path) -> None:
    hospital = f"sqlite:///{study}/hospital_1.db"
    for party, columns in ((1, "2025 - year_of_birth AS age"), (2, "person_id % 7 AS b, person_id % 5 AS c")):
        (tmp_path / f"q_{party}.sql").write_text(f"SELECT person_id, {columns} FROM person")
    (tmp_path / "b_1.csv").write_text("feature,lo,hi\nage,18,100\n")
    (tmp_path / "b_2.csv").write_text("feature,lo,hi\nb,0,7\nc,0,5\n")
    command = [sys.executable, "-m", "fastlloyd", "run", "-n", "3", "--protocol", "vertical-plain", "--quiet"]
    command += ["--data", hospital, "--query", "q_{client}.sql", "--bounds", "b_{client}.csv", "--n-total", "300"]
    command += ["--k", "2", "--set", "vertical.id=person_id"]
    own = {**os.environ, **quick()}
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "fastlloyd-run").rglob("centroids*.csv"))
