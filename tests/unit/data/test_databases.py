"""What every kind of database has to do as a place of records: the same table, the same errors, and nothing written."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.data import connection as connection_module
from fastlloyd.data import database as database_module
from fastlloyd.data import mysql as mysql_module
from fastlloyd.data.bounds import parse_bounds
from fastlloyd.data.categories import Categories
from fastlloyd.data.database import Database, Place, find_place, place_of
from fastlloyd.data.merge import Unit
from fastlloyd.data.records import StoredRecords
from fastlloyd.data.table import MemoryLimit, StoredTable, read_table, read_table_within
from fastlloyd.data.vertical import read_vertical
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.errors import ConfigError, DataError, Interrupted, Reason, SourceError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_records import load_large
from fastlloyd.run.session import find_protocol
from fastlloyd.wire.header import PartyId
from tests.contracts.databases import PASSWORD, Duckdb, Mysql, Postgresql, Sqlite, mysql_server, postgresql_server
from tests.contracts.kinds import check_types, fill
from tests.reading import column_names, texts_of

Store = Sqlite | Duckdb | Postgresql | Mysql
MAKE = "CREATE TABLE people (person_id INTEGER, ward VARCHAR(20), age INTEGER, dose DOUBLE PRECISION)"
FILL = "INSERT INTO people VALUES (?, ?, ?, ?)"
ROWS = [(7, "B", 40, 1.5), (3, "A", None, 2.25), (12, "A", 71, -0.5), (5, " B ", 18, 1e300)]
CSV = "person_id,ward,age,dose\n3,A,,2.25\n5, B ,18,1e300\n7,B,40,1.5\n12,A,71,-0.5\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    with postgresql_server() as started:
        yield started


@pytest.fixture(scope="module")
def mysql() -> Iterator[Mysql]:
    with mysql_server() as started:
        yield started


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mysql"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty database."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    if request.param == "sqlite":
        return Sqlite(tmp_path / "it's 100% here?.db")
    if request.param == "duckdb":
        pytest.importorskip("duckdb")
        return Duckdb(tmp_path / "it's 100% here?.duckdb")
    started: Postgresql | Mysql = request.getfixturevalue("server" if request.param == "postgresql" else "mysql")
    return started.fresh("omop")


@pytest.fixture
def filled(store: Store) -> Store:
    """A database with the table of `CSV`."""
    store.run(MAKE, FILL, rows=ROWS)
    return store


def all_of(store: Store, **asked: Any) -> Place:
    return find_place(store.address, **(asked or {"table": "people"}))


def test_it_gives_the_table_that_a_file_would(filled: Store, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(CSV)
    for asked in ({"table": "people"}, {"query": "SELECT * FROM people ORDER BY age DESC;"}):
        for wanted in (
            {"missing": "drop"},
            {"missing": "midpoint", "bounds": parse_bounds("0,100")},
            {"missing": "drop", "columns": ["dose", "age"]},
            {"missing": "drop", "unit": Unit("ward", "mean")},
            {"missing": "drop", "categories": Categories((("ward", (("A", 1.0), ("B", 0.5))),))},
        ):
            file, own = read_table(tmp_path / "people.csv", **wanted), read_table(all_of(filled, **asked), **wanted)
            assert own.names == file.names and own.missing_in == file.missing_in and own.ignored == file.ignored
            np.testing.assert_array_equal(own.values, file.values)
        assert texts_of(all_of(filled, **asked), "ward") == ("A", "B", "B", "A")
        assert texts_of(all_of(filled, **asked), "person_id") == ("3", "5", "7", "12")
        assert column_names(all_of(filled, **asked)) == ("person_id", "ward", "age", "dose")


def test_columns_that_describe_clusters_are_read_by_one_rule(filled: Store, tmp_path: Path) -> None:
    """Fractions are text that reads back exactly, a null is empty, and a missing column is named for what it is."""
    (tmp_path / "people.csv").write_text(CSV)
    for place in (place_of(tmp_path / "people.csv"), all_of(filled)):
        table = read_table(place, columns=["person_id"], beside=["age", "dose", "ward"])
        assert table.raw_texts["age"] == ["", "18", "40", "71"] and table.raw_texts["ward"] == ["A", "B", "B", "A"]
        column = DescribedColumn(name="dose", lo=0, hi=1)
        numbers = column.read_numbers(table.raw_texts["dose"], source=str(place), form=place.cell_form)
        assert numbers.tolist() == [2.25, 1e300, 1.5, -0.5]
        with pytest.raises(DataError, match=r"no column 'weight', which the description of clusters names; it has"):
            read_table(place, columns=["person_id"], beside=["weight"])


def test_it_feeds_the_reader_of_more_than_memory_holds(filled: Store, tmp_path: Path) -> None:
    table = read_table_within(all_of(filled), MemoryLimit(1, tmp_path), missing="drop")
    assert isinstance(table, StoredTable)
    read = np.concatenate(list(table.rows.blocks()))
    np.testing.assert_array_equal(read, [[18, 1e300], [40, 1.5], [71, -0.5]])


def test_the_order_of_rows_in_the_database_makes_no_difference(store: Store) -> None:
    rows = [(n % 50, "AB"[n % 2], n % 7, n / 8) for n in range(600)]
    random.Random(1).shuffle(rows)
    store.run(MAKE, FILL, rows=rows[:300])
    store.run(FILL, rows=rows[300:])
    place = all_of(store)
    expected = sorted(rows)
    np.testing.assert_array_equal(read_table(place).values, [row[2:] for row in expected])
    assert texts_of(place, "person_id") == tuple(str(row[0]) for row in expected)


def test_a_table_that_changes_meanwhile_is_read_as_it_was(filled: Store) -> None:
    place = all_of(filled)
    assert texts_of(place, "person_id") == ("3", "5", "7", "12")
    filled.run("DELETE FROM people WHERE person_id = 3")
    assert len(read_table(place, missing="drop").values) == 3
    assert texts_of(place, "person_id") == ("3", "5", "7", "12")
    assert texts_of(all_of(filled), "person_id") == ("5", "7", "12")


def test_kinds_of_numbers(store: Store) -> None:
    store.run(
        "CREATE TABLE people (id BIGINT, small SMALLINT, cost NUMERIC(12, 2), share REAL, known BOOLEAN, born DATE, "
        "note TEXT)",
        "INSERT INTO people VALUES (9007199254740993, -3, 1234567.25, 0.5, NULL, '1980-02-29', '12.5')",
        "INSERT INTO people VALUES (2, 4, NULL, NULL, NULL, NULL, NULL)",
    )
    table = read_table(
        all_of(store), missing="midpoint", bounds=parse_bounds("0,100"), columns=["small", "cost", "share"]
    )
    assert table.values.tolist() == [[4, 50, 50], [-3, 1234567.25, 0.5]]
    assert texts_of(all_of(store), "id") == ("2", "9007199254740993")
    for column in ("born", "note"):
        cell = r"the row of 'id' 9007199254740993, column '{}': expected a number, got text"
        typed = r"column '{}': expected numbers, got (text|dates); convert it in --query"
        with pytest.raises(DataError, match=(cell if isinstance(store, Sqlite) else typed).format(column)):
            read_table(all_of(store), columns=[column], missing="midpoint", bounds=parse_bounds("0,1"))
    found = read_table(all_of(store, query="SELECT id, CAST(note AS DECIMAL(9, 2)) AS own FROM people"), missing="drop")
    assert found.values.tolist() == [[12.5]]


def test_errors_name_a_row_by_its_key(filled: Store) -> None:
    with pytest.raises(DataError, match=r", the row of 'person_id' 3, column 'age': the value is missing or NaN"):
        read_table(all_of(filled))
    with pytest.raises(DataError, match=r", the row of 'ward' 'A', column 'age': the value is missing"):
        read_table(all_of(filled, table="people", key="ward"))
    with pytest.raises(
        DataError, match=r", row 1 in the order of its columns \(--id COLUMN names rows\), column 'dose'"
    ):
        read_table(all_of(filled, query="SELECT 1.5 AS dose UNION ALL SELECT NULL"))
    with pytest.raises(DataError, match=r"the row of 'ward' 'A' and the row of 'ward' 'A' have the same id"):
        read_vertical(
            all_of(filled, table="people", key="ward"), id_column="ward", missing="midpoint", bounds=parse_bounds("0,1")
        )
    lists = Categories((("ward", (("A", 1.0),)),))
    with pytest.raises(DataError, match=r"the row of 'person_id' 5, column 'ward': expected a category of the list"):
        read_table(all_of(filled), categories=lists, missing="drop")
    with pytest.raises(
        DataError, match=r"the row of 'person_id' 5 and the row of 'person_id' 7 are of the same person"
    ):
        read_table(all_of(filled), unit=Unit("ward", "error"), columns=["dose"])


def test_vertical_tables_are_read_in_the_order_of_ids(filled: Store) -> None:
    table = read_vertical(all_of(filled), id_column="person_id", columns=["dose"])
    assert table.raw_ids == ("12", "3", "5", "7")
    assert table.raw_values[:, 0].tolist() == [-0.5, 2.25, 1e300, 1.5]


def test_names_of_tables_are_quoted(store: Store) -> None:
    store.run(MAKE, FILL, rows=ROWS)
    name = 'odd "name"; DROP TABLE people; --'
    store.run(f"""CREATE TABLE "{name.replace('"', '""')}" (a INTEGER)""")
    store.run(f"""INSERT INTO "{name.replace('"', '""')}" VALUES (5)""")
    assert read_table(all_of(store, table=name)).values.tolist() == [[5]]
    assert store.ask("SELECT count(*) FROM people") == [(4,)]
    schema = {Sqlite: "main", Duckdb: "main", Postgresql: "public", Mysql: "omop"}[type(store)]
    assert len(texts_of(all_of(store, table=f"{schema}.people"), "person_id")) == 4


REFUSED = [
    "DELETE FROM people",
    "DELETE FROM people RETURNING person_id",
    "INSERT INTO people SELECT * FROM people",
    "UPDATE people SET age = 1 RETURNING age",
    "DROP TABLE people",
    "CREATE TABLE more AS SELECT * FROM people",
    "SELECT * FROM people; DROP TABLE people",
    "SELECT 1; COMMIT; DROP TABLE people",
    "SELECT 1) TO STDOUT; COMMIT; DROP TABLE people; --",
    "COMMIT; DROP TABLE people; SELECT 1",
    "WITH gone AS (DELETE FROM people RETURNING *) SELECT * FROM gone",
    "SELECT * INTO more FROM people",
    "COPY people TO 'FOLDER/copy'",
    "COPY people TO PROGRAM 'cat > FOLDER/copy'",
    "ATTACH 'FOLDER/copy' AS copy",
    "VACUUM INTO 'FOLDER/copy'",
    "EXPORT DATABASE 'FOLDER/copy'",
    "PRAGMA user_version = 7",
    "PRAGMA writable_schema = ON",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_text('FOLDER/people.csv')",
    "SELECT load_extension('FOLDER/people.csv')",
    "SELECT * FROM enable_logging()",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "DO $$ BEGIN DELETE FROM people; END $$",
    "EXPLAIN ANALYZE DELETE FROM people",
    "SELECT nextval('numbers')",
    "SELECT nextval(numbers)",
    "SELECT 1.0INTO OUTFILE 'FOLDER/copy'",
    "/* SELECT */ DROP TABLE people",
    "(SELECT 1 AS a) INTO DUMPFILE 'FOLDER/copy'",
    "SET GLOBAL max_connections = 100",
    "EXECUTE IMMEDIATE 'DROP TABLE people'",
    "",
    ";",
    "-- nothing",
]


def test_nothing_but_one_select_is_taken(filled: Store, tmp_path: Path) -> None:
    # One database takes them all: none changes anything, and the first that does is named.
    if not isinstance(filled, Sqlite):
        filled.run("CREATE SEQUENCE numbers")
    (tmp_path / "people.csv").write_text(CSV)
    before = sorted(path.name for path in tmp_path.iterdir())
    for query in REFUSED:
        with pytest.raises((DataError, ConfigError)) as caught:
            column_names(all_of(filled, query=query.replace("FOLDER", str(tmp_path))))
        assert "\n" not in str(caught.value), query
        assert filled.ask("SELECT count(*), sum(dose) FROM people") == [(4, pytest.approx(1e300))], query
        assert sorted(path.name for path in tmp_path.iterdir()) == before, query


def test_a_cell_that_fills_the_memory_is_refused_before_it_is_made(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "people.db")
    store.run(MAKE)
    for cell in ("zeroblob(100000000)", "hex(zeroblob(50000000))"):
        with pytest.raises(DataError, match="string or blob too big"):
            read_table(all_of(store, query=f"SELECT {cell} AS age"))


def test_what_is_not_there_is_said_in_one_sentence(store: Store) -> None:
    store.run(MAKE)
    for asked in ({"table": "peple"}, {"query": "SELECT agge FROM people"}, {"query": "SELEKT 1"}):
        with pytest.raises(
            DataError, match=r"the database says: .*; correct --query or --table|expected one SELECT"
        ) as caught:
            read_table(all_of(store, **asked))
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="no rows; expected at least one record"):
        read_table(all_of(store))
    with pytest.raises(DataError, match="names the column 'a' twice"):
        read_table(all_of(store, query="SELECT 1 AS a, 2 AS a"))


FOREVER = {
    Sqlite: "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g) SELECT count(*) AS a FROM g",
    # DuckDB by itself does not break this off for a signal.
    Duckdb: f"SELECT sum(p0.dose * p6.age) AS a FROM {', '.join(f'people p{at}' for at in range(7))}",
    Postgresql: "SELECT sum(random()) AS a FROM generate_series(1, 100000) a, generate_series(1, 100000) b",
    Mysql: "SELECT sum(rand()) AS a FROM seq_1_to_100000 a, seq_1_to_100000 b",
}


def test_a_signal_ends_a_query_that_takes_forever(filled: Store) -> None:
    def stop(*_: object) -> None:
        raise Interrupted("told to stop")

    filled.run(FILL, rows=[(n, "A", n, 0.5) for n in range(1000)])
    before = signal.signal(signal.SIGUSR1, stop)  # not SIGALRM, with which pytest ends what takes too long
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(1.0, signal.pthread_kill, (main, signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(Interrupted, match="told to stop"):
            read_table(all_of(filled, query=FOREVER[type(filled)]))
        if isinstance(filled, Mysql):  # which would go on by itself
            time.sleep(0.1)
            assert filled.ask("SELECT * FROM information_schema.processlist WHERE info LIKE '%rand()%'")[1:] == []
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    folder = tmp_path / "it's [an] export"
    (folder / "measurement").mkdir(parents=True)
    with duckdb.connect() as connection:
        for part in (0, 1):
            rows = f"SELECT range AS person_id, range / 2.0 AS dose FROM range({5 * part}, {5 * part + 5})"
            connection.execute(f"COPY ({rows}) TO $1 (FORMAT parquet)", [f"{folder}/measurement/part-{part}.parquet"])
            connection.execute(f"COPY ({rows}) TO $1 (FORMAT parquet)", [f"{folder}/part-{part}.parquet"])
        connection.execute(
            "COPY (SELECT 1 AS person_id, 'x' AS name) TO $1 (FORMAT parquet)", [f"{folder}/person.parquet"]
        )
        for name in ("outside", "shared"):
            connection.execute("COPY (SELECT 1 AS a) TO $1 (FORMAT parquet)", [f"{tmp_path}/{name}.parquet"])
    (folder / "linked.parquet").symlink_to(tmp_path / "shared.parquet")
    assert read_table(find_place(str(folder), table="linked")).values.tolist() == [[1.0]]
    inner = read_table(find_place(str(folder / "measurement")))
    assert inner.values[:, 0].tolist() == [n / 2 for n in range(10)]
    assert read_table(find_place(str(folder), table="measurement")).values.tolist() == inner.values.tolist()
    assert read_table(find_place(str(folder), table="part-1")).values.tolist() == inner.values[5:].tolist()
    joined = "SELECT person_id, dose FROM person JOIN measurement USING (person_id)"
    assert read_table(find_place(str(folder), query=joined)).values.tolist() == [[0.5]]
    for query in (
        f"SELECT * FROM '{tmp_path}/outside.parquet'",
        f"SELECT * FROM read_parquet('{tmp_path}/outside.parquet')",
        f"SELECT * FROM read_parquet('{str(folder).replace(chr(39), chr(39) * 2)}/../outside.parquet')",
        f"COPY person TO '{tmp_path}/copy'",
        f"COPY person TO '{str(folder).replace(chr(39), chr(39) * 2)}/copy.parquet'",
        "CREATE TABLE more (a INT)",
    ):
        with pytest.raises(DataError):
            read_table(find_place(str(folder), query=query))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["it's [an] export", "outside.parquet", "shared.parquet"]
    assert not (folder / "copy.parquet").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="expected Parquet files in this folder"):
        read_table(find_place(str(tmp_path / "empty")))


def test_a_server_that_does_not_let_us_in(server: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    database = server.fresh("locked")
    for variable, value in (("PGPASSWORD", None), ("PGPASSWORD", "hunter3-of-the-ward")):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PGPASSFILE", "/nonexistent")
        if value:
            monkeypatch.setenv(variable, value)
        with pytest.raises(
            DataError, match=r"the database says: .*password.*; check --data, and that the password is"
        ) as caught:
            read_table(find_place(database.address, table="people", patience_s=0.0))
        assert "hunter" not in str(caught.value) and "\n" not in str(caught.value)


def test_postgresql_says_who_can_mend_what(server: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database = server.fresh("rights")
    database.run("CREATE TABLE shut (age int)", "REVOKE ALL ON shut FROM reader", "CREATE TABLE open (age int)")
    for asked, sentence in (
        ({"table": "shut"}, "permission denied for table shut; let this account SELECT there"),
        ({"query": "DELETE FROM open RETURNING age"}, "read-only transaction; expected one SELECT"),
        ({"query": "SELECT age FROM open; SELECT 1"}, "; expected one SELECT"),
        ({"query": "SELECT agge FROM open"}, "; correct --query or --table"),
    ):
        with pytest.raises(DataError) as caught:
            read_table(find_place(database.address, **asked))
        assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_a_database_that_ends_the_query_for_a_moment_is_asked_again(
    server: Postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setattr(database_module, "_FIRST_PAUSE_S", 0.01)
    database = server.fresh("away")
    database.run(MAKE, FILL, rows=ROWS)

    def restart() -> None:
        ours = "datname = 'away' AND application_name = 'fastlloyd'"
        while not database.ask(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"):
            time.sleep(0.01)

    operator = threading.Thread(target=restart)
    operator.start()
    place = find_place(database.address, query="SELECT age, dose FROM people, pg_sleep(0.3)")
    assert len(texts_of(place, "age")) == 4
    operator.join()


def test_a_database_that_does_not_answer_is_no_bad_input(server: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    limited = f"{server.address}?options=-c%20statement_timeout%3D50"
    for address, query, said in (
        (f"postgresql://reader@127.0.0.1:{port}/away", "SELECT 1 AS a", "refused"),
        (limited, "SELECT 1 AS a FROM pg_sleep(9)", "statement timeout"),
    ):
        with pytest.raises(SourceError, match=f"the database does not answer.*{said}.*nothing was spent") as caught:
            read_table(find_place(address, query=query, patience_s=0.0))
        assert (caught.value.exit_code, caught.value.reason) == (3, Reason.SOURCE)


def test_a_file_that_another_program_locks_is_no_bad_input(tmp_path: Path) -> None:
    database = Sqlite(tmp_path / "x.db")
    database.run(MAKE, FILL, rows=ROWS)
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceError, match="database is locked"):
            read_table(find_place(database.address, table="people", patience_s=0.0))


def test_a_file_that_another_program_writes_with_duckdb_is_no_bad_input(tmp_path: Path) -> None:
    database = Duckdb(tmp_path / "x.duckdb")
    database.run(MAKE, FILL, rows=ROWS)
    writes = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", writes, str(tmp_path / "x.duckdb")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(SourceError, match="does not answer.*lock"):
            read_table(find_place(database.address, table="people", patience_s=0.0))
        other.communicate()
    assert read_table(find_place(database.address, table="people"), missing="drop").names


def test_a_password_in_a_file(server: Postgresql, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    database = server.fresh("filed")
    database.run(MAKE, FILL, rows=ROWS)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    (tmp_path / "pgpass").write_text(f"127.0.0.1:*:filed:reader:{PASSWORD}\n")
    (tmp_path / "pgpass").chmod(0o600)
    place = find_place(f"{database.address}?passfile={tmp_path}/pgpass", table="people")
    assert isinstance(place, Database) and str(place) == database.address
    assert len(texts_of(place, "person_id")) == 4


def test_the_account_of_mysql_is_in_the_environment_or_in_a_file(
    mysql: Mysql, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = mysql.fresh("filed")
    database.run(MAKE, FILL, rows=ROWS)
    monkeypatch.setenv("HOME", str(tmp_path))
    own, address = tmp_path / ".my.cnf", database.address.replace("reader@", "")
    own.write_text(f"[client]\nuser = reader\npassword = '{PASSWORD}'\n")
    own.chmod(0o600)
    assert len(texts_of(find_place(address, table="people"), "person_id")) == 4
    monkeypatch.setenv("MYSQL_PWD", wrong := "hunter3-of-the-wärd€")
    sentence = r"the database says: Access denied .*; check --data, and that the password is in MYSQL_PWD"
    with pytest.raises(DataError, match=sentence) as caught:
        read_table(find_place(address, table="people"))
    assert wrong not in str(caught.value)
    monkeypatch.delenv("MYSQL_PWD")
    own.rename(tmp_path / "other")
    place = find_place(f"{address}?defaults-file={tmp_path}/other", table="people")
    assert isinstance(place, Database) and str(place) == address
    assert len(texts_of(place, "person_id")) == 4
    for content, mode, said in (
        (f"[client]\npassword = {PASSWORD}\n", 0o640, r"others can read it, .*; run chmod 600 "),
        (f"password {PASSWORD}\n", 0o600, r"expected \[client\], and below it lines such as password="),
    ):
        (tmp_path / "other").write_text(content)
        (tmp_path / "other").chmod(mode)
        with pytest.raises(ConfigError, match=said) as refused:
            read_table(find_place(f"{address}?defaults-file={tmp_path}/other", table="people"))
        assert PASSWORD not in str(refused.value)


def test_a_server_of_mysql_elsewhere_is_reached_by_tls_and_by_its_name(
    mysql: Mysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    monkeypatch.setattr(mysql_module, "_HERE", ("nowhere",))  # 127.0.0.1 is as any other host
    database = mysql.fresh("safe")
    database.run(MAKE, FILL, rows=ROWS)

    def links(address: str) -> str:
        one = "SELECT variable_value AS a FROM information_schema.session_status WHERE variable_name = 'ssl_version'"
        return texts_of(find_place(address, query=one), "a")[0]

    pem, named = f"ssl-ca={mysql.folder}/pem", database.address.replace("127.0.0.1", "localhost")
    assert links(f"{database.address}?{pem}") == "TLSv1.3"
    assert links(f"{named}?{pem}&ssl-mode=verify_ca") == "TLSv1.3"
    assert links(f"{named}?ssl-mode=REQUIRED") == "TLSv1.3"
    assert links(f"{named}?ssl-mode=DISABLED") == ""
    for address in (database.address, f"{named}?{pem}", f"{named}?ssl-mode=VERIFY_CA"):
        with pytest.raises(
            DataError, match=r"CERTIFICATE_VERIFY_FAILED.*; name the file of its authority with \?ssl-ca="
        ):
            links(address)
    for more, said in (
        ("ssl-mode=maybe", "ssl-mode: expected DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY, got 'MAYBE'"),
        ("ssl-ca=/gone.pem", "a file of ssl-ca, ssl-cert or ssl-key cannot be used .*; expected PEM"),
        ("sslmode=require", r"after '\?' expected ssl-mode, .*, got 'sslmode' \(did you mean 'ssl-mode'\?\)"),
    ):
        with pytest.raises(ConfigError, match=said):
            links(f"{database.address}?{more}")


def test_a_server_of_mysql_that_does_not_speak_or_speaks_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_module, "CONNECT_TIMEOUT_S", 0.3)
    hello = b"\n11.4\0" + bytes(4) + b"12345678\0" + b"\xff\xf7\x08\x02\0\xff\x81\x15" + bytes(10) + b"123456789012\0"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"mysql://me@127.0.0.1:{server.getsockname()[1]}/omop"

        def speak(answers: bytes) -> None:
            with server.accept()[0] as link:
                link.sendall(answers)
                while link.recv(1 << 12):
                    pass

        def ask(answers: bytes) -> None:
            speaker = threading.Thread(target=speak, args=(answers,))
            speaker.start()
            try:
                read_table(find_place(address, table="people", patience_s=0.0))
            finally:
                speaker.join()

        with pytest.raises(SourceError, match="the database does not answer"):
            ask(b"")
        hello = len(hello).to_bytes(3, "little") + b"\0" + hello
        for nonsense in (b"\1\0\0\0\n", b"\x05\0\0\0\x0a\xff\xff\xff\xff", hello):
            with pytest.raises((DataError, SourceError)) as caught:
                ask(nonsense + b"\1\0\0\2\x01" * 9)
            assert "\n" not in str(caught.value)


def test_mysql_has_time_for_a_query_and_ends_one_that_nobody_awaits(
    mysql: Mysql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    monkeypatch.setattr(mysql_module, "CONNECT_TIMEOUT_S", 0.5)
    slow = mysql.fresh("slow").address
    for comment in ("/*!", "/*M!100000 "):  # elsewhere it is one
        with pytest.raises(DataError, match="nor a comment that the server executes"):
            read_table(find_place(slow, query=f"SELECT 1 AS a {comment}INTO OUTFILE '/tmp/copy'*/"))
    assert read_table(find_place(slow, query="# one\n/* two */ (SELECT 1 AS intown)")).values.tolist() == [[1]]
    assert read_table(find_place(slow, query="SELECT SLEEP(0.7) AS a")).values.tolist() == [[0]]
    mysql.run("SET GLOBAL max_statement_time = 0.1")
    try:
        with pytest.raises(SourceError, match=r"does not answer.*max_statement_time"):
            read_table(find_place(slow, query=FOREVER[Mysql], patience_s=0.0))
    finally:
        mysql.run("SET GLOBAL max_statement_time = 0")


def test_kinds_that_only_postgresql_has(server: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database = server.fresh("kinds")
    key = "6e7f2f0a-0000-4000-8000-000000000001"
    columns = f"'{key}'::uuid AS id, 1 AS a, "
    one = lambda text: find_place(database.address, query=f"SELECT {columns}{text} AS b")  # noqa: E731
    assert texts_of(one("2"), "id") == (key,)
    assert read_table(one("1e-400::numeric")).values.tolist() == [[1, 0]]
    assert read_table(one("12345678901234567890::numeric")).values.tolist() == [[1, 12345678901234567890.0]]
    for text in ("'infinity'::float8", "'-infinity'::numeric", "('1' || repeat('0', 400))::numeric"):
        with pytest.raises(DataError, match=rf"the row of 'id' '{key}', column 'b': expected a finite number"):
            read_table(one(text))
    for text in ("'infinity'::date", "'0044-03-15 BC'::date", "'-infinity'::timestamptz", "'24:00'::time"):
        assert read_table(one(text)).names == ("a",)  # no number, and no use: nothing converts it
    for text in ("'nan'::float8", "'nan'::numeric"):
        with pytest.raises(DataError, match="column 'b': the value is missing or NaN"):
            read_table(one(text))
    for text in (
        "true",
        "now()",
        "'{1,2}'::int[]",
        "'{\"a\": 1}'::jsonb",
        "'\\x00'::bytea",
        "repeat('1', 2000000)",
        "'3 days'::interval",
    ):
        assert read_table(one(text)).names == ("a",)
        with pytest.raises(DataError, match=r"column 'b': expected numbers, got [\w ,]+; convert it in --query"):
            place = one(text)
            read_table(place, columns=["b"])
    with pytest.raises(
        DataError, match=r"column 'b': expected whole numbers or text, got text of more than 1000 characters"
    ):
        texts_of(one("repeat('1', 2000000)"), "b")


def test_each_type_has_the_same_roles_from_postgresql(server: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    database = server.fresh("types")
    fill(database, far=("DATE", "'0044-03-15 BC'", "'200000-01-01'"))
    check_types(find_place(database.address, table="t"), {"struct": ("got jsonb", "got jsonb")})


def test_labels_of_more_than_memory_holds_have_their_keys(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "many.db")
    store.run(MAKE, FILL, rows=[(n, "A", n % 7, n / 8) for n in range(40_000, 0, -1)])
    config = RunConfig(
        data=store.address, table="people", id="person_id", bounds="0,1", n_total=100_000, k=2, memory="1M",
        output=str(tmp_path),
    )  # fmt: skip
    config, common = find_protocol(config.protocol).gather(config, 2)
    records = load_large(config, common, PartyId(1))
    assert isinstance(records, StoredRecords)
    for _ in range(2):
        lines = list(records.raw_rows.label(np.arange(40_000)))
        assert lines[0] == (1, "1", 0) and lines[-1] == (40_000, "40000", 39_999)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """The rights of a user who is not root, for whom everything may be written."""
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65534)
        yield
    finally:
        os.seteuid(before)


def test_a_write_ahead_log_in_a_folder_of_others_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "ward.db"
        with contextlib.closing(sqlite3.connect(path)) as store:
            store.executescript("PRAGMA journal_mode = WAL; CREATE TABLE own (age); INSERT INTO own VALUES (1), (2)")
        path.chmod(0o444)
        path.parent.chmod(0o555)
        try:
            place = find_place(f"sqlite:///{path}", table="own")
            assert hasattr(connection_module, "Answer")  # read while root may
            with as_nobody():
                with (
                    pytest.raises(sqlite3.OperationalError),
                    contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store,
                ):
                    store.execute("SELECT age FROM own")
                with pytest.raises(DataError, match=r"ward.db has a write-ahead log \(WAL\), .* may not be written to"):
                    read_table(place)
        finally:
            path.parent.chmod(0o755)
        assert read_table(place).values.tolist() == [[1], [2]]
