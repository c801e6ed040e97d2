"""Opens databases read-only and runs one query; the only module that imports duckdb and psycopg.

Each database has its own means against writing: SQLite an open mode and an authoriser, DuckDB an open mode and the
kind of statement that it parses, PostgreSQL a read-only transaction. Each takes one statement: a second one could end
that transaction.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fastlloyd.data.form import NO_RECORDS, needs
from fastlloyd.errors import DataError, Interrupted, format_count

Row = tuple[Any, ...]
Asked = tuple[tuple[str, ...], Iterator[Sequence[Row]]]
"""The names of the columns, and the rows, some at a time."""

_BATCH_ROWS = 1000
_MOST_CELL_BYTES = 1 << 26
_SQLITE_STEPS = 1 << 20
_CONNECT_TIMEOUT_S = 30
_DUCKDB = "DuckDB and folders of Parquet files"
_DUCKDB_MEMORY = "1GB"
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
_ONE_SELECT = "expected one SELECT, which is all that --query may be, for the database is only read"


@contextlib.contextmanager
def ask(kind: str, place: str, query: str | None, table: str | None, shown: str) -> Iterator[Asked]:
    """Open a database, query it, and close it at the end.

    Parameters
    ----------
    kind, place, query, table
        As `Database` has them.
    shown : str
        The place as errors may name it.

    Raises
    ------
    DataError
        It does not exist, cannot be reached, or refuses the query.
    ConfigError
        The library that reads it is not installed.
    """
    openers = {"sqlite": _sqlite, "duckdb": _duckdb, "parquet": _parquet, "postgresql": _postgresql}
    text = query if query is not None else f"SELECT * FROM {_quoted(table or _WHOLE)}"  # noqa: S608
    with openers[kind](place, text, shown) as asked:
        yield asked


def _quoted(table: str) -> str:
    """Quote the name of a table, perhaps after that of its schema, so that nothing in it is read as SQL."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def _refused(shown: str, error: Exception, fix: str = "") -> DataError:
    """Return the error of a database that refuses, with the first line of its own words."""
    words = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return DataError(f"{shown}: the database says: {words[:300]}{fix or '; correct --query or --table'}")


def _file(place: str, kind: str) -> Path:
    """Refuse what is not a file."""
    path = Path(place)
    if not path.exists():
        raise DataError(f"no file {path}: expected a database of {kind} there; check --data")
    if not path.is_file():
        raise DataError(f"{path} is not a file; name one database of {kind}")
    return path


def _named(description: Any, shown: str) -> tuple[str, ...]:
    """Return the names of the columns of a result."""
    if not description:
        raise DataError(f"{shown}: the statement gives no table; {_ONE_SELECT}")
    return tuple(str(column[0]) for column in description)


def _batches(fetch: Callable[[int], Iterable[Row]]) -> Iterator[Sequence[Row]]:
    """Fetch some rows at a time."""
    return iter(lambda: list(fetch(_BATCH_ROWS)), [])


@contextlib.contextmanager
def _sqlite(place: str, query: str, shown: str) -> Iterator[Asked]:
    """Query a file of SQLite."""
    path = _file(place, "SQLite")
    address = f"{path.absolute().as_uri()}?mode=ro"
    with _sqlite_errors(shown), closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
            connection.execute(f"PRAGMA {pragma}")
        # VACUUM INTO and ATTACH would write other files, which the open mode does not forbid.
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY)
        # Python handles a signal only when SQLite calls it, so it is called now and then.
        connection.set_progress_handler(lambda: 0, _SQLITE_STEPS)
        cursor = connection.execute(query)
        yield _named(cursor.description, shown), _sqlite_batches(cursor, shown)


def _sqlite_batches(cursor: sqlite3.Cursor, shown: str) -> Iterator[Sequence[Row]]:
    """Fetch some rows at a time; errors are caught here, because `Answer` uses SQLite too."""
    with _sqlite_errors(shown):
        yield from _batches(cursor.fetchmany)


@contextlib.contextmanager
def _sqlite_errors(shown: str) -> Iterator[None]:
    """Turn an error of SQLite into one sentence."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise Interrupted("told to stop while a database was read") from error
        wrote = "authorized" in str(error) or "one statement" in str(error)
        raise _refused(shown, error, f"; {_ONE_SELECT}" if wrote else "") from error


def _duckdb(place: str, query: str, shown: str) -> AbstractContextManager[Asked]:
    """Query a file of DuckDB, which may read no other file."""
    with needs("duckdb", _DUCKDB, "sql"):
        import duckdb
    return _in_duckdb(duckdb, str(_file(place, "DuckDB")), query, shown, lambda connection: None, read_only=True)


_WHOLE = "records"
"""The table of a folder whose Parquet files form one table."""


def _parquet(place: str, query: str, shown: str) -> AbstractContextManager[Asked]:
    """Query a folder of Parquet files, and no file outside it."""
    with needs("duckdb", _DUCKDB, "sql"):
        import duckdb
    folder = Path(place)
    tables = {path.stem: [path] for path in sorted(folder.glob("*.parquet"))}
    tables |= {inner.name: parts for inner in sorted(folder.iterdir()) if (parts := sorted(inner.glob("*.parquet")))}
    if not tables:
        raise DataError(f"{folder}: expected Parquet files in this folder, or folders of them, got none; check --data")
    tables.setdefault(_WHOLE, sorted(folder.glob("*.parquet")))

    def prepare(connection: Any) -> None:
        for name, parts in tables.items():
            if parts:
                connection.read_parquet([str(part.resolve()) for part in parts]).create_view(name)
        found = {path.resolve().parent for parts in tables.values() for path in parts}
        connection.execute("SET allowed_directories = $1", [[f"{path}/" for path in (folder.resolve(), *found)]])

    return _in_duckdb(duckdb, ":memory:", query, shown, prepare)


@contextlib.contextmanager
def _in_duckdb(
    duckdb: Any, database: str, query: str, shown: str, prepare: Callable[[Any], None], *, read_only: bool = False
) -> Iterator[Asked]:
    """Run one SELECT, in a separate thread: DuckDB may compute for hours before it looks for a signal.

    Its memory is bounded, it loads no extension, and after `prepare` it reads no other file, for good.
    """
    with tempfile.TemporaryDirectory(prefix="fastlloyd-") as scratch:
        settings = {
            "memory_limit": _DUCKDB_MEMORY,
            "temp_directory": scratch,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        try:
            with (
                duckdb.connect(database, read_only=read_only, config=settings) as connection,
                ThreadPoolExecutor(1) as pool,  # ends before the connection is closed
            ):

                def apart(call: Callable[..., Any], *arguments: Any) -> Any:
                    future = pool.submit(call, *arguments)
                    try:
                        return future.result()
                    except BaseException:
                        connection.interrupt()  # this thread stops: the other one would go on
                        raise

                prepare(connection)
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
                statements = connection.extract_statements(query)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    kinds = ", ".join(statement.type.name for statement in statements) or "none"
                    number = format_count(len(statements), "statement")
                    raise DataError(f"{shown}: {_ONE_SELECT}; got {number} ({kinds})")
                apart(connection.execute, statements[0])
                yield _named(connection.description, shown), _batches(partial(apart, connection.fetchmany))
        except duckdb.Error as error:
            raise _refused(shown, error) from error


@contextlib.contextmanager
def _postgresql(place: str, query: str, shown: str) -> Iterator[Asked]:
    """Query a server of PostgreSQL, in one read-only transaction."""
    psycopg = _psycopg()
    try:
        settings = {"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "fastlloyd"}
        settings |= psycopg.conninfo.conninfo_to_dict(place) | {"client_encoding": "utf8"}
        connection = psycopg.connect(**settings)
    except psycopg.Error as error:
        raise _refused(
            shown, error, "; check --data, and that the password is in PGPASSWORD or in the file ~/.pgpass"
        ) from error
    with closing(connection):
        connection.read_only = True
        try:
            # One row at a time in memory, and by the protocol that takes one statement: after a second one, such as
            # COMMIT, a third would no longer be in the read-only transaction.
            with connection.cursor() as cursor, closing(cursor.stream(query)) as rows:
                first = next(rows, None)
                if first is None:
                    raise DataError(f"{shown}: the answer has no rows; {NO_RECORDS}")
                yield _named(cursor.description, shown), _batches(partial(islice, chain([first], rows)))
        except (psycopg.Error, UnicodeError) as error:
            raise _refused(shown, error, _fix(error)) from error


def _psycopg() -> Any:
    with needs("psycopg", "PostgreSQL", "sql"):
        import psycopg
    return psycopg


def _fix(error: Exception) -> str:
    """Return what to do about a refusal of PostgreSQL; empty if the query is wrong."""
    if getattr(error, "sqlstate", None) == "42501":
        return "; let this account SELECT there (GRANT SELECT ON .. TO ..), or ask other tables"
    if getattr(error, "sqlstate", None) == "25006" or "multiple commands" in str(error):
        return f"; {_ONE_SELECT}"
    return ""
