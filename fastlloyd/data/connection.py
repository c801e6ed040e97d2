"""Opens databases read-only and runs one query; the only module that imports duckdb and psycopg.

Each database has its own means against writing: SQLite an open mode and an authoriser, DuckDB an open mode and the
kind of statement that it parses, PostgreSQL a read-only transaction. Each takes one statement: a second one could end
that transaction. Rows are then checked cell by cell and stored in a fixed order, outside of memory.

A database may return the same rows in another order each time. Rows are therefore sorted by all their columns, so
that the same rows always make the same records: a run's digest of its data, --resume and the ledger depend on that.
Every later read, of numbers, names or categories, is of these rows.

They are in a temporary SQLite database, which has no name on the disk and uses the disk (TMPDIR) only when it is
larger than its cache. Values from a database are untrusted until they have passed `_cell`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.asking import CONNECT_TIMEOUT_S, ONE_SELECT, AskedRows, Row, away, batches, named, refused
from fastlloyd.data.delimited import Cells
from fastlloyd.data.form import NO_RECORDS, PLAIN, Cap, Form, is_identifier, listed, needs
from fastlloyd.data.kinds import (
    ANY,
    IN_QUERY,
    MOST_DIGITS,
    MOST_TEXT,
    NUMBERS,
    SINGLE,
    TEXT,
    TRUTH,
    ColumnKind,
    check_kind,
    name_cells,
    pandas_indices,
    plain_number,
)
from fastlloyd.data.mysql import ask_mysql
from fastlloyd.errors import DataError, Interrupted, format_count

# SQLSTATE: connection, conflict with others (also with recovery), resources, and what an operator or a time limit ends.
_PASSING = ("08", "40", "53", "57")
_MOST_CELL_BYTES = 1 << 26
_SQLITE_STEPS = 1 << 20
_SQLITE_HEAD, _SQLITE_WAL = 20, b"\2\2"
"""The first bytes of a file of SQLite, and how they end where it has a write-ahead log."""
_SQLITE_BUSY_S = 5.0
_DUCKDB = "DuckDB and folders of Parquet files"
_DUCKDB_MEMORY = "1GB"
_DUCKDB_PROCESS_BYTES = 2 << 30
_LESS = "a query may take 1 GB for its tables and 2 GB in all; let it give less text, and no lists"
_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)

_LARGE = b"\0"
"""Begins a whole number that is stored as its digits: it has more than 64 bits."""
_CACHE_KIB = 1 << 14
_READ_VALUES = 1 << 19
_READ_NAMES = 1000
_SHOWN = 60
_SHOWN_TABLES = 8
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_COLUMNS = 2000
_PLAIN = {int, float, str, type(None)}


class Answer:
    """The rows that a database returned.

    Parameters
    ----------
    source : str
        The database, for errors.
    names : sequence of str, length d
    batches : iterator over sequences of rows, each of d values
    kinds : sequence of ColumnKind, length d
        Empty: each cell decides.
    indices : frozenset of str
        As `AskedRows` has them.
    key : str or None
        The column that names rows in errors; None, or no such column: the first that is called like an identifier.
    cap : Cap or None
        The most rows.
    form : Form
        Which cells stand for a missing value.

    Attributes
    ----------
    names : tuple of str, length d
    kinds : tuple of ColumnKind, length d
    indices : frozenset of str
    numeric : tuple of bool, length d
        Which columns hold numbers, or nothing at all.
    rows : int

    Raises
    ------
    DataError
        Rows have too few or too many values, there are too many columns, or the disk is full.

    Sees
    ----
    Nobody but the caller.
    """

    def __init__(
        self,
        source: str,
        names: Sequence[str],
        batches: Iterator[Sequence[tuple[Any, ...]]],
        *,
        kinds: Sequence[ColumnKind] = (),
        indices: frozenset[str] = frozenset(),
        key: str | None = None,
        cap: Cap | None = None,
        form: Form = PLAIN,
    ) -> None:
        self.names, self.indices = tuple(names), indices
        self.kinds = tuple(kinds) or (ANY,) * len(self.names)
        if len(self.names) > _MOST_COLUMNS:
            raise DataError(
                f"{source}: {format_count(len(names), 'column')}, expected at most {_MOST_COLUMNS}; name those to use "
                "in --query"
            )
        self._source, self._form = source, form
        named = [name for name in self.names if name == key] or list(filter(is_identifier, self.names))
        self._key = self.names.index(named[0]) if named else None
        self._store = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._store.close)
        self._found: list[set[type]] = [set() for _ in self.names]
        self._large = [False] * len(self.names)
        try:
            self.rows = self._keep(batches, cap)
        except sqlite3.Error as error:
            raise DataError(
                f"{source}: its rows cannot be kept on the disk ({error}); make room there, or name a folder of "
                "another disk in TMPDIR"
            ) from error
        self.numeric = tuple(
            kind.is_number if kind.words else found <= {type(None)} or bool(found & {int, float})
            for kind, found in zip(self.kinds, self._found, strict=True)
        )

    def _keep(self, batches: Iterator[Sequence[tuple[Any, ...]]], cap: Cap | None) -> int:
        """Check all rows and store them, sorted."""
        width, taken = len(self.names), 0
        columns = ", ".join(f"c{at}" for at in range(width))
        self._store.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        for pragma in ("journal_mode = OFF", "synchronous = OFF"):
            self._store.execute(f"PRAGMA {pragma}")
        self._store.execute("BEGIN")  # otherwise each row would be a separate transaction
        self._store.execute(f"CREATE TABLE taken ({columns})")
        insert = f"INSERT INTO taken VALUES ({', '.join('?' * width)})"  # noqa: S608
        for batch in batches:
            taken += len(batch)
            if cap is not None:
                cap.check(self._source, taken)
            if any(len(row) != width for row in batch):
                raise DataError(
                    f"{self._source}: expected {format_count(width, 'value')} in each row, as its columns say, got a "
                    "row with another number of them; try another driver"
                )
            own = [self._checked(at, values) for at, values in enumerate(zip(*batch, strict=True))]
            self._store.executemany(insert, zip(*own, strict=True))
        self._store.execute(f"CREATE TABLE sorted AS SELECT * FROM taken ORDER BY {columns}")  # noqa: S608
        self._store.execute("DROP TABLE taken")
        self._store.execute("COMMIT")
        (rows,) = self._store.execute("SELECT count(*) FROM sorted").fetchone()
        return int(rows)

    def _checked(self, at: int, values: Sequence[Any]) -> Sequence[Any]:
        """Return some values of a column as they are stored, and note their types; what nobody reads is not stored."""
        if not self.kinds[at].is_read:
            return [None] * len(values)
        kinds = set(map(type, values))
        odd = not kinds <= _PLAIN
        if int in kinds:
            whole = values if len(kinds) == 1 else [value for value in values if type(value) is int]
            odd |= min(whole) < _LEAST or max(whole) > _MOST
        if str in kinds:
            odd |= max(len(value) for value in values if type(value) is str) > MOST_TEXT
        kept = list(map(_cell, values)) if odd else values
        self._found[at] |= {int if _is_large(value) else type(value) for value in kept} if odd else kinds
        self._large[at] |= odd and any(map(_is_large, kept))
        return kept

    def chunks(
        self, numbers: Sequence[int], texts: Sequence[int] = (), height: int | None = None, *, loose: int = 0
    ) -> Iterator[Cells]:
        """Read columns of numbers and of text, some rows at a time; NaN where a number is missing.

        The last `loose` columns of text may hold any numbers.

        Raises
        ------
        DataError
            A value is no number, and its row is named; or one is neither a whole number nor text.
        """
        columns = ", ".join(f"c{at}" for at in numbers) or "rowid"
        most = max(1, _READ_VALUES // max(1, len(numbers)))
        cursor = self._store.execute(f"SELECT {columns} FROM sorted ORDER BY rowid")  # noqa: S608
        names = [self.texts(at, any_number=place >= len(texts) - loose) for place, at in enumerate(texts)]
        odd = any(self._large[at] or self._found[at] & {str, bytes} for at in numbers)
        done = 0
        while rows := cursor.fetchmany(most if height is None else min(height, most)):
            if odd:
                rows = [self._numbers(done + at, row, numbers) for at, row in enumerate(rows)]
            values: NDArray[np.float64] = np.array(rows, dtype=np.float64)[:, : len(numbers)]
            done += len(rows)
            yield Cells(values, tuple(list(islice(column, len(rows))) for column in names))

    def _numbers(self, row: int, values: Sequence[Any], chosen: Sequence[int]) -> list[float | None]:
        """Return a row's numbers where some columns hold other cells too."""
        numbers: list[float | None] = []
        for at, cell in zip(chosen, values, strict=True):
            value = None if isinstance(cell, str) and self._form.is_missing(cell) else _whole(cell)
            if isinstance(value, int):
                value = _real(value)
            if isinstance(value, str | bytes):
                raise DataError(
                    f"{self._source}, {self.row(row)}, column {self.names[at]!r}: expected a number, got "
                    f"{_described(value)}; {IN_QUERY}"
                )
            numbers.append(value)
        return numbers

    def texts(self, column: int, *, any_number: bool = False) -> Iterator[str]:
        """Read a column as text, without the spaces around it; empty where a value is null.

        Raises
        ------
        DataError
            A value is neither text nor a whole number, or with `any_number` no number.
        """
        where, kind = f"{self._source}, column {self.names[column]!r}", self.kinds[column]
        values = self._store.execute(f"SELECT c{column} FROM sorted ORDER BY rowid")  # noqa: S608
        while batch := values.fetchmany(_READ_NAMES):
            cells = [_whole(cell) for (cell,) in batch]
            if odd := next((cell for cell in cells if isinstance(cell, bytes)), None):
                check_kind(
                    self._source,
                    self.names[column],
                    ColumnKind(_described(odd)),
                    "beside" if any_number else "name",
                    IN_QUERY,
                )
            yield from name_cells(cells, kind, where, IN_QUERY, any_number=any_number)

    def named(self, column: str) -> Names:
        """Return a column of names that can be iterated many times and takes no memory."""
        return Names(self, self.names.index(column))

    def row(self, at: int) -> str:
        """Name a row, counted from 0, by its key; by its number where no column is a key."""
        if self._key is None:
            return f"row {at + 1} in the order of its columns (--id COLUMN names rows)"
        found = self._store.execute(f"SELECT c{self._key} FROM sorted WHERE rowid = ?", (at + 1,))  # noqa: S608
        (value,) = found.fetchone()
        name = self.names[self._key]
        if value is None:
            return f"the row without {name!r}"
        text = repr(_whole(value))
        return f"the row of {name!r} {text if len(text) <= _SHOWN else text[:_SHOWN] + '..'}"


@dataclass(frozen=True, slots=True)
class Names:
    """A column of names; each iteration reads the stored rows again."""

    answer: Answer
    column: int

    def __iter__(self) -> Iterator[str]:
        return self.answer.texts(self.column)


def _cell(value: Any) -> int | float | str | bytes | None:
    """Return a value as it is stored; bytes describe what is neither a number nor short text."""
    kind = type(value)
    if value is None or kind is float:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return _stored(value)
    if kind is Decimal:
        value = plain_number(value)
        return _stored(value) if type(value) is int else value
    if kind is UUID:
        return str(value)
    if kind is _NoText:
        return b"text that is not UTF-8"
    if kind is not str:
        return kind.__name__.encode()[:_SHOWN]
    return value if len(value) <= MOST_TEXT else b"text of more than " + str(MOST_TEXT).encode() + b" characters"


def _stored(value: int) -> int | float | bytes:
    """Return a whole number as it is stored: digits where it has more than 64 bits."""
    if _LEAST <= value <= _MOST:
        return value
    return _LARGE + str(value).encode() if abs(value) < 10**MOST_DIGITS else _real(value)


def _is_large(value: object) -> bool:
    """Whether a value is stored as digits."""
    return isinstance(value, bytes) and value.startswith(_LARGE)


def _whole(value: Any) -> Any:
    """Return the whole number that is stored as digits, and any other value as it is."""
    return int(value[1:]) if _is_large(value) else value


def _real(value: int) -> float:
    """Return the nearest float of a whole number, an infinite one if there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _described(value: str | bytes) -> str:
    """Describe a value without showing it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else "text"


@contextlib.contextmanager
def ask(
    kind: str, place: str, query: str | None, table: str | None, shown: str, *, wait_s: float = math.inf
) -> Iterator[AskedRows]:
    """Open a database, query it, and close it at the end.

    Parameters
    ----------
    kind, place, query, table
        As `Database` has them.
    shown : str
        The place as errors may name it.
    wait_s : float
        The longest wait for a file that is locked, or a server that does not accept the connection (2 s at least).

    Raises
    ------
    DataError
        It does not exist, or refuses the query.
    SourceError
        It does not answer now, or broke off: to be tried again.
    ConfigError
        The library that reads it is not installed.
    """
    openers: dict[str, Callable[[str, str, str], AbstractContextManager[AskedRows]]] = {
        **{"sqlite": partial(_sqlite, wait_s=wait_s), "duckdb": _duckdb, "parquet": _parquet},
        "postgresql": partial(_postgresql, wait_s=wait_s),
        "mysql": partial(ask_mysql, wait_s=wait_s),
    }
    text = query if query is not None else _of_table(table, "`" if kind == "mysql" else '"')
    with openers[kind](place, text, shown) as asked:
        yield asked


def _of_table(table: str | None, mark: str = '"') -> str:
    """Return the query for all of a table; its name may stand after that of its schema."""
    parts = (table or _WHOLE).split(".")
    return f"SELECT * FROM {'.'.join(_quoted(part, mark) for part in parts)}"  # noqa: S608


def _quoted(name: str, mark: str = '"') -> str:
    """Quote a name, so that nothing in it is read as SQL."""
    return mark + name.replace(mark, 2 * mark) + mark


def _file(place: str, kind: str) -> Path:
    """Refuse what is not a file."""
    path = Path(place)
    if not path.exists():
        raise DataError(f"no file {path}: expected a database of {kind} there; check --data")
    if not path.is_file():
        raise DataError(f"{path} is not a file; name one database of {kind}")
    return path


@contextlib.contextmanager
def _sqlite(place: str, query: str, shown: str, wait_s: float) -> Iterator[AskedRows]:
    """Query a file of SQLite."""
    path = _file(place, "SQLite")
    _refuse_read_only_log(path)
    address = f"{path.absolute().as_uri()}?mode=ro"
    with (
        _sqlite_errors(shown),
        closing(sqlite3.connect(address, min(_SQLITE_BUSY_S, wait_s), uri=True, isolation_level=None)) as connection,
    ):
        connection.text_factory = _utf8
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_CELL_BYTES)
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
            connection.execute(f"PRAGMA {pragma}")
        # VACUUM INTO and ATTACH would write other files, which the open mode does not forbid.
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY)
        # Python handles a signal only when SQLite calls it, so it is called now and then.
        connection.set_progress_handler(lambda: 0, _SQLITE_STEPS)
        cursor = connection.execute(query)
        names = named(cursor.description, shown)
        yield AskedRows(names=names, kinds=(ANY,) * len(names), batches=_sqlite_batches(cursor, shown))


def _refuse_read_only_log(path: Path) -> None:
    """Refuse a database with a write-ahead log where SQLite may not write: it shares memory in a file beside it.

    Raises
    ------
    DataError
    """
    beside = [Path(f"{path}{end}") for end in ("-wal", "-shm")]
    writes = os.access(path.parent, os.W_OK, effective_ids=True) or all(
        other.exists() and os.access(other, os.R_OK, effective_ids=True) for other in beside
    )
    if writes or not os.access(path, os.R_OK, effective_ids=True):
        return
    with path.open("rb") as file:
        start = file.read(_SQLITE_HEAD)
    if start.startswith(b"SQLite format 3") and start.endswith(_SQLITE_WAL):
        raise DataError(
            f"{path} has a write-ahead log (WAL), so reading it makes files beside it, and {path.parent} may not be "
            "written to; ask for that right, or read a copy in a folder of yours (sqlite3 FILE '.backup COPY')"
        )


def _utf8(text: bytes) -> str | _NoText:
    """Return the text of a cell; other bytes may stand in a column that nobody uses."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return _NoText()


class _NoText:
    """A cell that is called text and is none."""


def _sqlite_batches(cursor: sqlite3.Cursor, shown: str) -> Iterator[Sequence[Row]]:
    """Fetch some rows at a time; errors are caught here, because `Answer` uses SQLite too."""
    with _sqlite_errors(shown):
        yield from batches(cursor.fetchmany)


@contextlib.contextmanager
def _sqlite_errors(shown: str) -> Iterator[None]:
    """Turn an error of SQLite into one sentence."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise Interrupted("told to stop while a database was read") from error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise away(shown, error) from error
        wrote = "authorized" in str(error) or "one statement" in str(error)
        raise refused(shown, error, f"; {ONE_SELECT}" if wrote else "") from error


def _duckdb(place: str, query: str, shown: str) -> AbstractContextManager[AskedRows]:
    """Query a file of DuckDB, which may read no other file."""
    with needs("duckdb", _DUCKDB, "sql"):
        import duckdb
    return _in_duckdb(duckdb, str(_file(place, "DuckDB")), query, shown, lambda _: frozenset(), read_only=True)


def _parts(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, or those of its parts KEY=VALUE/, perhaps in one another."""
    own = sorted(folder.glob("*.parquet"))
    if own:
        return own
    inner = [path for path in sorted(folder.iterdir()) if path.is_dir() and "=" in path.name]
    return [part for path in inner for part in _parts(path)]


def _parquet_indices(connection: Any, part: Path) -> frozenset[str]:
    """Return the columns that the metadata of pandas call row labels."""
    asked = "SELECT value FROM parquet_kv_metadata($1) WHERE key = 'pandas'"
    rows = connection.execute(asked, [str(part.resolve())]).fetchall()
    return frozenset().union(*(pandas_indices(bytes(value)) for (value,) in rows))


_WHOLE = "records"
"""The table of a folder whose Parquet files form one table."""


def _parquet(place: str, query: str, shown: str) -> AbstractContextManager[AskedRows]:
    """Query a folder of Parquet files, and no file outside it."""
    with needs("duckdb", _DUCKDB, "sql"):
        import duckdb
    folder = Path(place)
    tables = {path.stem: [path] for path in sorted(folder.glob("*.parquet"))}
    inner = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    tables |= {path.name: parts for path in inner if (parts := _parts(path))}
    if parts := _parts(folder):
        tables.setdefault(_WHOLE, parts)
    if not tables:
        deep = next(folder.rglob("*.parquet"), None)
        hint = "" if deep is None else f"; they lie deeper, in {deep.parent.relative_to(folder)}/"
        raise DataError(
            f"{folder}: expected Parquet files in this folder, or folders of them, got none{hint}; check --data"
        )
    if _WHOLE not in tables and query == _of_table(None):
        raise DataError(
            f"{folder}: expected Parquet files in this folder, got folders of them, each of which is a table; name one "
            f"with --table ({listed(sorted(tables), _SHOWN_TABLES)})"
        )

    def prepare(connection: Any) -> frozenset[str]:
        for name, parts in tables.items():
            paths = ", ".join("'" + str(part.resolve()).replace("'", "''") + "'" for part in parts)
            connection.execute(
                f"CREATE VIEW {_quoted(name)} AS SELECT * FROM read_parquet([{paths}], "  # noqa: S608
                f"hive_partitioning = {parts[0].parent != folder and '=' in parts[0].parent.name}, "
                "hive_types_autocast = false)"
            )
        # A link is to that file alone, and not to those beside it.
        found = [path.resolve() for parts in tables.values() for path in parts]
        connection.execute("SET allowed_directories = $1", [[f"{folder.resolve()}/"]])
        connection.execute("SET allowed_paths = $1", [[str(path) for path in found]])
        return frozenset().union(*(_parquet_indices(connection, parts[0]) for parts in tables.values()))

    return _in_duckdb(duckdb, ":memory:", query, shown, prepare)


@contextlib.contextmanager
def _in_duckdb(
    duckdb: Any,
    database: str,
    query: str,
    shown: str,
    prepare: Callable[[Any], frozenset[str]],
    *,
    read_only: bool = False,
) -> Iterator[AskedRows]:
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
                _bounded_memory(),
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

                indices = prepare(connection)
                connection.execute("SET enable_external_access = false")
                connection.execute("SET lock_configuration = true")
                statements = connection.extract_statements(query)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    kinds = ", ".join(statement.type.name for statement in statements) or "none"
                    number = format_count(len(statements), "statement")
                    raise DataError(f"{shown}: {ONE_SELECT}; got {number} ({kinds})")
                query = statements[0].query.rstrip().rstrip(";")
                columns = [row[:2] for row in apart(connection.execute, f"DESCRIBE {query}").fetchall()]
                found = tuple(_duckdb_kind(kind) for _, kind in columns)
                apart(connection.execute, _read_only_what_is_used(query, found))
                yield AskedRows(
                    names=tuple(str(name) for name, _ in columns),
                    kinds=found,
                    batches=batches(partial(apart, connection.fetchmany)),
                    indices=indices,
                )
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise refused(shown, error, f"; {_LESS}") from error
        except duckdb.Error as error:
            # While another process writes, DuckDB opens no file; it has no error class for that.
            locked = isinstance(error, duckdb.IOException) and "lock on file" in str(error)
            raise (away if locked else refused)(shown, error) from error


_DUCKDB_KINDS = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "DECIMAL", '"NULL"'), NUMBERS),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), NUMBERS),
    **dict.fromkeys(("VARCHAR", "ENUM", "UUID"), TEXT),
    **{
        "FLOAT": SINGLE,
        "BOOLEAN": TRUTH,
        "DATE": ColumnKind("dates"),
        "INTERVAL": ColumnKind("durations"),
        "BLOB": ColumnKind("bytes"),
    },
    **dict.fromkeys(("TIME", "TIME WITH TIME ZONE", "TIME_NS"), ColumnKind("times of day")),
    **{"STRUCT": ColumnKind("structures"), "MAP": ColumnKind("structures"), "UNION": ColumnKind("structures")},
}


def _duckdb_kind(name: str) -> ColumnKind:
    """Return what a column of a type of DuckDB holds."""
    if name.endswith("]"):
        return ColumnKind("lists")
    if name.startswith("TIMESTAMP"):
        return ColumnKind("points in time")
    return _DUCKDB_KINDS.get(name.partition("(")[0], ColumnKind(name[:_SHOWN]))


def _read_only_what_is_used(query: str, kinds: Sequence[ColumnKind]) -> str:
    """Return a query that converts no column that nobody reads: the driver may have no value for it."""
    columns = ", ".join(f"c{at}" for at in range(len(kinds)))
    chosen = ", ".join(f"c{at}" if kind.is_read else "NULL" for at, kind in enumerate(kinds))
    return f"SELECT {chosen} FROM ({query}\n) AS asked({columns})"  # noqa: S608


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    """Keep this process from taking much more memory: DuckDB's limit does not count long text and lists.

    What exceeds it fails as if the machine had no more. Other threads of this process share the limit meanwhile; it is
    far above what a party needs while it reads its records.
    """
    used = _data_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = used + _DUCKDB_PROCESS_BYTES
    if not used or (soft != resource.RLIM_INFINITY and soft < bound):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Return the memory that RLIMIT_DATA counts for this process (Linux); 0 where that is not known."""
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return 0
    found = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    return 1024 * int(found[1]) if found else 0


_POSTGRESQL_KINDS = {
    **dict.fromkeys(("int2", "int4", "int8", "float8", "numeric", "oid"), NUMBERS),
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name", "uuid", "unknown"), TEXT),
    **{
        "float4": SINGLE,
        "bool": TRUTH,
        "date": ColumnKind("dates"),
        "interval": ColumnKind("durations"),
        "bytea": ColumnKind("bytes"),
    },
    **dict.fromkeys(("time", "timetz"), ColumnKind("times of day")),
    **dict.fromkeys(("timestamp", "timestamptz"), ColumnKind("points in time")),
}


def _postgresql_kinds(connection: Any) -> dict[int, ColumnKind]:
    """Return what columns hold, by the type's number; convert no other types, for Python may have no value of them.

    A type of the database itself, such as an ENUM, is text.
    """
    kinds: dict[int, ColumnKind] = {}
    for info in connection.adapters.types:
        kinds[info.oid] = _POSTGRESQL_KINDS.get(info.name, ColumnKind(info.name))
        if info.array_oid:
            kinds[info.array_oid] = ColumnKind("lists")
    adapt = _psycopg().adapt
    unread = type("Unread", (adapt.Loader,), {"load": lambda *_: None})
    for oid, kind in kinds.items():
        if not kind.is_read:
            connection.adapters.register_loader(oid, unread)
    return kinds


@contextlib.contextmanager
def _postgresql(place: str, query: str, shown: str, wait_s: float) -> Iterator[AskedRows]:
    """Query a server of PostgreSQL, in one read-only transaction."""
    psycopg = _psycopg()
    try:
        settings = {"connect_timeout": max(2, int(min(CONNECT_TIMEOUT_S, wait_s))), "application_name": "fastlloyd"}
        settings |= psycopg.conninfo.conninfo_to_dict(place) | {"client_encoding": "utf8"}
        connection = psycopg.connect(**settings)
    except psycopg.Error as error:
        # libpq says whether the server is there at all, or starts and stops; the text may be in any language.
        if psycopg.pq.PGconn.ping(psycopg.conninfo.make_conninfo(**settings).encode()) != psycopg.pq.Ping.OK:
            raise away(shown, error) from error
        raise refused(
            shown, error, "; check --data, and that the password is in PGPASSWORD or in the file ~/.pgpass"
        ) from error
    with closing(connection):
        connection.read_only = True
        kinds = _postgresql_kinds(connection)
        try:
            # One row at a time in memory, and by the protocol that takes one statement: after a second one, such as
            # COMMIT, a third would no longer be in the read-only transaction.
            with connection.cursor() as cursor, closing(cursor.stream(query)) as rows:
                first = next(rows, None)
                if first is None:
                    raise DataError(f"{shown}: the answer has no rows; {NO_RECORDS}")
                yield AskedRows(
                    names=named(cursor.description, shown),
                    kinds=tuple(kinds.get(column.type_code, TEXT) for column in cursor.description or ()),
                    batches=batches(partial(islice, chain([first], rows))),
                )
        except (psycopg.Error, UnicodeError) as error:
            if connection.broken or str(getattr(error, "sqlstate", None) or "").startswith(_PASSING):
                raise away(shown, error) from error
            raise refused(shown, error, _fix(error)) from error


def _psycopg() -> Any:
    with needs("psycopg", "PostgreSQL", "sql"):
        import psycopg
    return psycopg


def _fix(error: Exception) -> str:
    """Return what to do about a refusal of PostgreSQL; empty if the query is wrong."""
    if getattr(error, "sqlstate", None) == "42501":
        return "; let this account SELECT there (GRANT SELECT ON .. TO ..), or ask other tables"
    if getattr(error, "sqlstate", None) == "25006" or "multiple commands" in str(error):
        return f"; {ONE_SELECT}"
    return ""
