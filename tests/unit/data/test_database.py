"""Addresses of databases: what is one, what goes with it, and that none with a password is taken or shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.data.database import Database, find_place
from fastlloyd.data.form import DataFile
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config, to_toml, with_values
from fastlloyd.run.vertical import refuse_one_file

SECRET = "hunter2"
NEEDED = {"bounds": "0,1", "n_total": 100, "k": 2}
WITH_PASSWORD = [
    f"postgresql://me:{SECRET}@db/omop",
    f"postgres://me:{SECRET}@db:5432/omop?sslmode=require",
    f"postgresql://:{SECRET}@db/omop",
    f"postgresql://me:{SECRET}/with/slashes@db/omop",
    f"postgresql://me:{SECRET}#and@marks@db/omop",
    f"postgresql://me:{SECRET}?x=1@db/omop",
    f"postgresql://me:{SECRET}@one,two/omop",
    f"postgresql://db/omop?user=me&password={SECRET}",
    f"postgresql://db/omop?%70assword={SECRET}",
    f"postgresql://db/omop?sslmode=require&sslpassword={SECRET}",
    f"POSTGRESQL://me:{SECRET}@db/omop",
    f"postgresql+psycopg://me:{SECRET}@db/omop",
    f"mysql://me:{SECRET}@db/omop",
    f"mariadb://db/omop?user=me&password={SECRET}",
    f"jdbc:postgresql://db/omop?user=me&password={SECRET}",
    f"mssql+pyodbc://me:{SECRET}@db/omop",
    f"host=db dbname=omop password={SECRET}",
]


@pytest.mark.parametrize("address", WITH_PASSWORD)
def test_a_password_is_refused_and_not_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(f"data = {address!r}\ntable = 'person'\nbounds = '0,1'\nn_total = 100\nk = 2\n")
    (tmp_path / "list.toml").write_text(f"data = [{address!r}]\n")
    (tmp_path / "centroids.csv").write_text("a\n1\n")
    flags = ["--data", address, "--table", "person", "--bounds", "0,1", "--n-total", "100", "--k", "2"]
    for command in (
        ["run", "-n", "3", *flags],
        ["join", "--server", "127.0.0.1:1", "--rank", "1", *flags],
        ["check", *flags],
        ["plan", *flags, "--d", "2"],
        ["label", "--centroids", "centroids.csv", "--data", address, "--table", "person", "--out", "labels.csv"],
        ["run", "-n", "3", "--config", "run.toml"],
        ["check", "--config", "run.toml"],
    ):
        assert main(command) == 2
        said = capsys.readouterr()
        assert "has a password in it" in said.err and said.err.count("\n") == 1, said.err
        assert SECRET not in said.err + said.out
    assert main(["check", "--config", "list.toml"]) == 2
    assert SECRET not in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["centroids.csv", "list.toml", "run.toml"]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me@db.example.org:5432/omop",
        "postgresql://db/omop?sslmode=verify-full&passfile=/run/pgpass&sslkey=own.key",
        "postgresql://me@[::1]:5432/omop",
        "postgresql:///omop?host=/run/postgresql",
        "mysql://me@db.example.org:3306/omop?ssl-ca=ca.pem&defaults-file=/run/my.cnf",
        "mariadb:///omop?socket=/run/mysqld/mysqld.sock",
        "sqlite:///odd:name@ward.db",
        "sqlite:////srv/omop.db",
        "duckdb:///omop.duckdb",
    ],
)
def test_other_addresses_are_taken(address: str) -> None:
    config = RunConfig(data=address, table="person", **NEEDED)
    assert isinstance(config.own_file(1), Database)
    assert f"data = {address!r}".replace("'", '"') in to_toml(config)


def test_what_errors_show_of_an_address() -> None:
    place = find_place("postgresql://me@db/omop?sslmode=require&options=-csearch_path%3Dcdm", table="person")
    assert str(place) == "postgresql://me@db/omop"
    assert str(find_place("sqlite:///a/b.db", table="person")) == "a/b.db"
    assert find_place("a/b.csv") == DataFile(Path("a/b.csv"))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"data": "sqlite:///a.db"}, "--data a.db: say what of the database, with --query"),
        ({"data": "sqlite:///a.db", "query": "SELECT 1", "table": "b"}, "--query and --table exclude each other"),
        ({"data": "sqlite:///a.db", "query": " "}, "--query: expected SQL, got ' '"),
        ({"data": "sqlite:///a.db", "table": "a\0b"}, "--table: expected the name of a table"),
        ({"data": "sqlite://a.db", "table": "a"}, "expected sqlite:///FILE, duckdb:///FILE, postgresql://"),
        ({"data": "mssql://me@db/omop", "table": "a"}, "got an address that begins with 'mssql://'"),
        ({"data": "s3://bucket/a.parquet"}, "got an address that begins with 's3://'"),
        ({"query": "SELECT 1"}, "--query asks the database that --data names: add it"),
        ({"dataset": "iris", "table": "a"}, "--table asks the database that --data names: add it"),
    ],
)
def test_what_does_not_go_together(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_values(RunConfig(), {**NEEDED, **values})
    assert sentence in str(caught.value)


def test_a_question_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    for asked, flag in (({"query": "SELECT 1"}, "--query"), ({"table": "a"}, "--table")):
        with pytest.raises(ConfigError, match=f"^{flag} asks a database, and --data .*a.csv is no folder"):
            RunConfig(data=str(tmp_path / "a.csv"), **NEEDED, **asked).own_file(1)
    with pytest.raises(ConfigError, match=r"--query .*gone.sql: cannot be read"):
        RunConfig(data="sqlite:///a.db", query=str(tmp_path / "gone.sql"), **NEEDED).own_file(1)
    (tmp_path / "empty.sql").write_text(" \n")
    with pytest.raises(ConfigError, match=r"--query .*empty.sql: expected SQL in that file, got none"):
        RunConfig(data="sqlite:///a.db", query=str(tmp_path / "empty.sql"), **NEEDED).own_file(1)


def test_paths_in_a_run_file_begin_at_its_folder(tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    for data, moved in (
        ("sqlite:///a_{client}.db", f"sqlite:///{study}/a_{{client}}.db"),
        ("sqlite:////srv/a.db", "sqlite:////srv/a.db"),
        ("duckdb:///../a.duckdb", f"duckdb:///{tmp_path}/a.duckdb"),
        ("postgresql://me@db/omop_{client}", "postgresql://me@db/omop_{client}"),
    ):
        (study / "run.toml").write_text(f"data = '{data}'\nquery = 'f.sql'\nbounds = '0,1'\nn_total = 100\nk = 2\n")
        config = load_config(study / "run.toml")
        assert (config.data, config.query) == (moved, str(study / "f.sql"))
        (study / "again.toml").write_text(to_toml(config, study))
        again = load_config(study / "again.toml")
        assert (again.data, again.query) == (config.data, config.query)
    text = 'SELECT a\nFROM "b" -- c.sql'
    (study / "run.toml").write_text(to_toml(RunConfig(data="sqlite:////a.db", query=text, **NEEDED), study))
    assert load_config(study / "run.toml").query == text


def test_the_number_of_a_party_stands_in_address_and_question(tmp_path: Path) -> None:
    (tmp_path / "site.sql").write_text("SELECT a FROM b WHERE site = {client}")
    plain = RunConfig(data="sqlite:///a.db", table="b", **NEEDED)
    with pytest.raises(ConfigError, match="would read this one file"):
        refuse_one_file(plain, None, 2)  # type: ignore[arg-type]
    for values in (
        {"data": "sqlite:///a_{client}.db", "table": "b"},
        {"data": "sqlite:///a.db", "table": "b_{client}"},
        {"data": "sqlite:///a.db", "query": "SELECT a FROM b WHERE site = {client}"},
        {"data": "sqlite:///a.db", "query": str(tmp_path / "site.sql")},
    ):
        config = RunConfig(**NEEDED, **values)
        refuse_one_file(config, None, 2)  # type: ignore[arg-type]
        place = config.own_file(2)
        assert isinstance(place, Database)
        assert "2" in f"{place.place} {place.query} {place.table}".replace(str(tmp_path), "")


def test_the_key_of_errors() -> None:
    names = {"id": "row_name", "unit": "who"}
    config = RunConfig(data="sqlite:///a.db", table="b", **NEEDED, **names)
    assert config.own_file(1) == Database(kind="sqlite", place="a.db", table="b", key="row_name")
    assert config.own_file(1, "nhs") == Database(kind="sqlite", place="a.db", table="b", key="nhs")


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "a.duckdb").write_bytes(b"x")
    addresses = {
        "duckdb": f"duckdb:///{tmp_path}/a.duckdb",
        "psycopg": "postgresql://db/omop",
        "pymysql": "mysql://db/a",
    }
    for module, address in addresses.items():
        monkeypatch.setitem(sys.modules, module, None)
        place = find_place(address, table="a")
        with pytest.raises(
            ConfigError, match=rf"needs {module}, which is not installed: run pip install 'fastlloyd\[sql\]'"
        ):
            _ = place.answer  # type: ignore[union-attr]
