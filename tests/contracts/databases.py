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
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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


@dataclass(frozen=True)
class Mysql:
    """A database of a server of MariaDB, reached over TCP with a password."""

    folder: Path
    port: int
    name: str

    @property
    def address(self) -> str:
        return f"mysql://reader@127.0.0.1:{self.port}/{self.name}"

    def connect(self) -> Any:
        import pymysql

        if not (self.folder / "s").exists():
            raise pymysql.err.OperationalError("it starts")
        # As its owner, over the socket that only the tests' user and the server's can reach.
        return pymysql.connect(
            unix_socket=str(self.folder / "s"), user="root", database=self.name, autocommit=True, ssl_disabled=True
        )

    def run(self, *statements: str, rows: Sequence[Sequence[Any]] | None = None) -> None:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ANSI_QUOTES'")
            for statement in statements if rows is None else statements[:-1]:
                cursor.execute(statement)
            if rows:
                cursor.executemany(statements[-1].replace("?", "%s"), rows)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def fresh(self, name: str) -> Mysql:
        """Make a database beside this one, in which the reader may read and write: only reading is asked of it."""
        own = Mysql(self.folder, self.port, name)
        self.run(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        self.run(f"GRANT ALL ON {name}.* TO reader@'%'")
        return own


def _certificate(path: Path) -> None:
    """Write a certificate that names 127.0.0.1, and its key, into one file."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    number, start, end = x509.random_serial_number(), datetime(2020, 1, 1), datetime(2120, 1, 1)
    host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), number, start, end).add_extension(host, critical=True)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    path.write_bytes(signed + key.private_bytes(*form))


@contextmanager
def mysql_server() -> Iterator[Mysql]:
    """Start a server of MariaDB for the tests alone, or skip the test where there is none."""
    pymysql = pytest.importorskip("pymysql", reason="no PyMySQL: pip install 'fastlloyd[sql]'")
    path = os.pathsep.join(["/usr/sbin", *os.get_exec_path()])
    server_program, install = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb-install-db"))
    if server_program is None or install is None:
        pytest.skip("no server of MariaDB here (Debian: apt install mariadb-server)")
    folder = Path(tempfile.mkdtemp(prefix="fastlloyd-my-", dir="/tmp"))
    _certificate(folder / "pem")
    options = []
    if os.geteuid() == 0:  # it refuses to run as root
        account = pwd.getpwnam("nobody")
        for path in (folder, folder / "pem"):
            os.chown(path, account.pw_uid, account.pw_gid)
        options = ["--user=nobody"]
    unsafe = ["--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite"]
    common = [f"--datadir={folder}/data", *unsafe, "--skip-sync-frm", "--innodb-log-file-size=4M"]
    try:
        port = _free_port()
        made = [install, "--no-defaults", *common, "--skip-test-db", "--auth-root-authentication-method=normal"]
        subprocess.run([*made, *options], check=True, capture_output=True, cwd=folder)
        own = [f"--socket={folder}/s", f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/pid"]
        own += [f"--ssl-cert={folder}/pem", f"--ssl-key={folder}/pem"]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [server_program, "--no-defaults", *common, *own, *options], stdout=log, stderr=log, cwd=folder
            )
        try:
            database = Mysql(folder, port, "mysql")
            _wait(database, server, pymysql.err.OperationalError)
            database.run(f"CREATE USER reader@'%' IDENTIFIED BY '{PASSWORD}'", "GRANT FILE ON *.* TO reader@'%'")
            yield database
        finally:
            server.kill()
            server.wait(WAIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
            _wait(own, server, pytest.importorskip("psycopg").OperationalError)
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


def _wait(database: Postgresql | Mysql, server: subprocess.Popen[bytes], away: type[Exception]) -> None:
    """Wait until the server answers."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            database.ask("SELECT 1")
            return
        except away:
            log = database.folder / "log"
            assert server.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.05)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
