"""Real databases for tests: each takes rows and gives the address at which they are found."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PASSWORD = "hunter2-of-the-ward"
WAIT_S = 100.0


@dataclass(frozen=True)
class Sqlite:
    """A file of SQLite."""

    path: Path

    @property
    def address(self) -> str:
        return f"sqlite:///{self.path}"

    def run(self, *statements: str, rows: Sequence[Sequence[Any]] | None = None) -> None:
        """Run statements, the last one for each of the rows."""
        with closing(sqlite3.connect(self.path)) as connection:
            for statement in statements if rows is None else statements[:-1]:
                connection.execute(statement)
            if rows is not None:
                connection.executemany(statements[-1], rows)
            connection.commit()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


@dataclass(frozen=True)
class Duckdb:
    """A file of DuckDB."""

    path: Path

    @property
    def address(self) -> str:
        return f"duckdb:///{self.path}"

    def run(self, *statements: str, rows: Sequence[Sequence[Any]] | None = None) -> None:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(self.path)) as connection:
            for statement in statements if rows is None else statements[:-1]:
                connection.execute(statement)
            if rows:
                connection.execute("BEGIN")
                connection.executemany(statements[-1], rows)
                connection.execute("COMMIT")

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(self.path), read_only=True) as connection:
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return found


@dataclass(frozen=True)
class Postgresql:
    """A database of a server of PostgreSQL, reached over TCP with a password."""

    folder: Path
    port: int
    name: str

    @property
    def address(self) -> str:
        return f"postgresql://reader@127.0.0.1:{self.port}/{self.name}"

    def connect(self, name: str | None = None) -> Any:
        import psycopg

        # As its owner, over the socket that only the tests' user and the server's can reach.
        return psycopg.connect(
            host=str(self.folder), port=self.port, user="owner", dbname=name or self.name, autocommit=True
        )

    def run(self, *statements: str, rows: Sequence[Sequence[Any]] | None = None) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements if rows is None else statements[:-1]:
                cursor.execute(statement)
            if rows:
                with connection.transaction():
                    cursor.executemany(statements[-1].replace("?", "%s"), rows)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return found

    def fresh(self, name: str) -> Postgresql:
        """Make a database beside this one, in which the reader may read and write: only reading is asked of it."""
        own = Postgresql(self.folder, self.port, name)
        with self.connect("postgres") as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
            connection.execute(f'CREATE DATABASE "{name}" OWNER reader')
        own.run("GRANT ALL ON SCHEMA public TO reader", "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO reader")
        return own


@contextmanager
def postgresql_server() -> Iterator[Postgresql]:
    """Start a server of PostgreSQL for the tests alone, or skip the test where there is none."""
    pytest.importorskip("psycopg", reason="no psycopg: pip install 'fastlloyd[sql]'")
    tools = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.get_exec_path())]
    found = next((folder for folder in tools if (folder / "initdb").exists()), None)
    if found is None:
        pytest.skip("no server of PostgreSQL here (Debian: apt install postgresql)")
    user: Mapping[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="fastlloyd-pg-", dir="/tmp"))
    if os.geteuid() == 0:  # it refuses to run as root
        name = next(
            (name for name in ("postgres", "nobody") if name in {entry.pw_name for entry in pwd.getpwall()}), None
        )
        if name is None:
            pytest.skip("a server of PostgreSQL does not run as root, and there is no user postgres or nobody")
        account = pwd.getpwnam(name)
        os.chown(folder, account.pw_uid, account.pw_gid)
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    try:
        port = _free_port()
        made = [
            str(found / "initdb"),
            "-D",
            str(folder / "data"),
            "-U",
            "owner",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run([*made, "--locale=C"], check=True, capture_output=True, cwd=folder, **user)
        (folder / "data/pg_hba.conf").write_text("local all owner trust\nhost all reader 127.0.0.1/32 scram-sha-256\n")
        settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off"}
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [str(found / "postgres"), "-D", str(folder / "data"), *words],
                stdout=log,
                stderr=log,
                cwd=folder,
                **user,
            )
        try:
            own = Postgresql(folder, port, "postgres")
            _wait(own, server)
            own.run(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")
            yield own
        finally:
            server.send_signal(signal.SIGINT)  # ends connections, too
            try:
                server.wait(WAIT_S)
            finally:
                server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(database: Postgresql, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    import psycopg

    end = time.monotonic() + WAIT_S
    while True:
        try:
            database.ask("SELECT 1")
            return
        except psycopg.OperationalError:
            log = database.folder / "log"
            assert server.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.05)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
