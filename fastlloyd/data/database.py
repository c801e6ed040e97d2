"""Names records in a database instead of a file: the address, and the query.

An address holds no password: it would appear in the list of processes, in the run file and in the results of the
run. It is where the database's own programs look: in PGPASSWORD, PGPASSFILE or ~/.pgpass; in MYSQL_PWD or ~/.my.cnf.

Source: docs/data-sources.md.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from fastlloyd.data.form import PLAIN, Cap, DataFile, Form
from fastlloyd.errors import ConfigError, SourceError
from fastlloyd.wire.regular import read_regular

if TYPE_CHECKING:
    from fastlloyd.data.connection import Answer

Kind = Literal["sqlite", "duckdb", "postgresql", "mysql", "parquet"]
RETRY_S = 60.0
"""How long to ask a database that does not answer, if nobody waits for its records."""
_FIRST_PAUSE_S = 1.0
_LOG = logging.getLogger(__name__)
CLIENT = "{client}"
STANDARD_INPUT = "-"
QUERY_SUFFIX = ".sql"
ADDRESSES = "sqlite:///FILE, duckdb:///FILE, postgresql://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE"
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)
_FILES: dict[str, Kind] = {"sqlite:///": "sqlite", "duckdb:///": "duckdb"}
_SERVERS: dict[str, Kind] = {
    **dict.fromkeys(("postgresql://", "postgres://"), "postgresql"),
    **dict.fromkeys(("mysql://", "mariadb://"), "mysql"),
}
_SECRET = re.compile(r"pass(word|wd|phrase)?\b|pwd|secret|token", re.IGNORECASE)
_WRITTEN_SECRET = re.compile(r"(password|passwd|pwd)\s*=", re.IGNORECASE)
_REFUSED = (
    "--data: the address of the database has a password in it, which others on this machine can read and files would "
    "keep; leave it out, and put the password into PGPASSWORD or the file ~/.pgpass (MySQL: MYSQL_PWD or ~/.my.cnf; "
    "docs/data-sources.md)"
)


@dataclass(frozen=True, kw_only=True)
class Database:
    """Records that a database holds, or a folder of Parquet files.

    Attributes
    ----------
    kind : {'sqlite', 'duckdb', 'postgresql', 'mysql', 'parquet'}
    place : str
        A path, or the address of a server.
    query : str or None
        One SELECT.
    table : str or None
        A whole table instead; neither: all Parquet files of the folder, as one table.
    key : str or None
        The column that names rows in errors; None: the first column that looks like one.
    patience_s : float
        How long to ask it while it does not answer.
    form : Form
        Which cells stand for a missing value, and columns' other names; nothing else of it counts.
    """

    kind: Kind
    place: str
    query: str | None = None
    table: str | None = None
    key: str | None = None
    patience_s: float = RETRY_S
    form: Form = PLAIN

    def __str__(self) -> str:
        if self.kind not in _SERVERS.values():
            return self.place
        return urlsplit(self.place)._replace(query="", fragment="").geturl()

    @cached_property
    def answer(self) -> Answer:
        """The result of the query, which runs once, at the first use.

        Raises
        ------
        DataError
            It refuses the query, or the answer does not fit.
        SourceError
            It did not answer for `patience_s`.
        ConfigError
            What reads it is not installed.
        """
        return self._ask(None)

    def answer_within(self, cap: Cap | None) -> Answer:
        """Return the result of the query; at its first use, refuse more rows than the cap as soon as they come.

        Raises
        ------
        DataError, SourceError, ConfigError
            As for `answer`; or there are more rows.
        """
        if "answer" not in self.__dict__:
            self.__dict__["answer"] = self._ask(cap)  # where `cached_property` looks for it
        return self.answer

    def _ask(self, cap: Cap | None) -> Answer:
        """Run the query, again and again while the database does not answer."""
        from fastlloyd.data.connection import Answer, ask

        end, pause, left = time.monotonic() + self.patience_s, _FIRST_PAUSE_S, self.patience_s
        while True:
            try:
                asked = ask(self.kind, self.place, self.query, self.table, str(self), wait_s=max(left, 0.0))
                with asked as found:
                    kinds, indices = found.kinds, found.indices
                    return Answer(
                        str(self),
                        self.form.renamed(tuple(found.names), self),
                        found.batches,
                        kinds=kinds,
                        indices=indices,
                        key=self.key,
                        cap=cap,
                        form=self.form,
                    )
            except SourceError as error:
                left = end - time.monotonic()
                if left < pause:
                    raise
                _LOG.warning("%s; tried again for %.0f s", error, left)
            time.sleep(pause)
            pause, left = 2 * pause, end - time.monotonic()

    @property
    def cell_form(self) -> Form:
        """How a number stands in its columns as text."""
        return self.form

    def row(self, at: int) -> str:
        """Name a row, counted from 0, by its key."""
        return self.answer.row(at)


Place = DataFile | Database
"""Where a party's own records are."""


def place_of(path: str | Path | Place) -> Place:
    """Return the place that a caller named; text names a plain file."""
    return path if isinstance(path, DataFile | Database) else DataFile(Path(path))


def find_place(
    data: str,
    form: Form = PLAIN,
    *,
    number: int | str | None = None,
    query: str | None = None,
    table: str | None = None,
    key: str | None = None,
    patience_s: float = RETRY_S,
) -> Place:
    """Return the place that `--data` names, with the query.

    Parameters
    ----------
    data : str
        The path of a file or of a folder of Parquet files, the address of a database, or '-' for standard input.
    form : Form
        How the text of a file is written.
    number : int or str, optional
        A party's number, which stands for '{client}' in all of these, and in the file of a query.
    query : str or None
        SQL, or the path of a file of it, which ends in .sql.
    table, key, patience_s
        As `Database` has them.

    Raises
    ------
    ConfigError
        These do not go together, the address has a password in it, or the file of the query cannot be read.
    """
    check_question(data, query, table)
    if data == STANDARD_INPUT and query is None and table is None:
        return DataFile(Path("standard input"), form, standard_input=True)
    kind, place = _split(_put(data, number))
    if kind is None and place and Path(place).is_dir():
        kind = "parquet"
    if kind is None:
        if query is not None or table is not None:
            flag = "--query" if table is None else "--table"
            raise ConfigError(
                f"{flag} asks a database, and --data {place} is no folder; expected {ADDRESSES}, or a folder of "
                "Parquet files"
            )
        return DataFile(Path(place), form)
    asked = None if query is None else _put(read_query(_put(query, number)), number)
    whole = None if table is None else _put(table, number)
    own = Form(na=form.na, rename=form.rename)
    return Database(kind=kind, place=place, query=asked, table=whole, key=key, patience_s=patience_s, form=own)


def _put(text: str, number: int | str | None) -> str:
    """Put a party's number into a text."""
    return text if number is None else text.replace(CLIENT, str(number))


def names_client(data: str, query: str | None, table: str | None) -> bool:
    """Whether each party has its own query: '{client}' stands somewhere, the file of a query included."""
    if any(CLIENT in text for text in (data, query or "", table or "")):
        return True
    return query is not None and CLIENT in read_query(query)


def check_question(data: str, query: str | None, table: str | None) -> None:
    """Check an address, and that there is one query; opens nothing.

    Raises
    ------
    ConfigError
    """
    refuse_password(data)
    kind, place = _split(data)
    if query is not None and table is not None:
        raise ConfigError("--query and --table exclude each other: part of a database, or all of one table")
    if kind is None:
        return
    if query is None and table is None:
        raise ConfigError(f"--data {place}: say what of the database, with --query SQL, --query FILE.sql or --table")
    for flag, text in (("--query", query), ("--table", table)):
        if text is not None and (not text.strip() or "\0" in text):
            raise ConfigError(f"{flag}: expected {'SQL' if text is query else 'the name of a table'}, got {text!r}")


def refuse_standard_input(data: str | None, why: str) -> None:
    """Refuse '-' where there is no standard input to read; `why` says so.

    Raises
    ------
    ConfigError
    """
    if data == STANDARD_INPUT:
        raise ConfigError(
            f"--data -: {why}; name a file, a named pipe or a database ('{{client}}' stands for the number of a client)"
        )


def refuse_password(data: str) -> None:
    """Refuse an address with a password in it, without showing it.

    Raises
    ------
    ConfigError
    """
    if _WRITTEN_SECRET.search(unquote(data)):
        raise ConfigError(_REFUSED)
    if not _SCHEME.match(data) or data.startswith(tuple(_FILES)):
        return
    # Search before the last '@', not only in the name that urlsplit finds: a password may hold '/' and '#'.
    rest = data.partition("://")[2]
    if ":" in rest.rpartition("@")[0] or any(_SECRET.search(name) for name, _ in parse_qsl(urlsplit(data).query, True)):
        raise ConfigError(_REFUSED)


def _split(data: str) -> tuple[Kind | None, str]:
    """Return what kind of database an address names, and its place there; None for a path."""
    scheme = _SCHEME.match(data)
    if scheme is None:
        return None, data
    for start, kind in _FILES.items():
        if data.startswith(start) and data != start:
            return kind, data.removeprefix(start)
    for start, kind in _SERVERS.items():
        if data.startswith(start):
            return kind, data
    raise ConfigError(
        f"--data: expected {ADDRESSES}, or the path of a file or folder, got an address that begins with "
        f"{scheme[1] + '://'!r}"
    )


def move_address(data: str) -> tuple[str, str | None]:
    """Return the part of `--data` that stays where a run file moves, and the path that moves with it, if there is one.

    Examples
    --------
    >>> move_address("sqlite:///omop.db"), move_address("postgresql://me@db/omop")
    (('sqlite:///', 'omop.db'), ('postgresql://me@db/omop', None))
    """
    for start in _FILES:
        if data.startswith(start):
            return start, data.removeprefix(start)
    return (data, None) if data == STANDARD_INPUT or _SCHEME.match(data) else ("", data)


def read_query(query: str) -> str:
    """Return the SQL of `--query`, or of the file that it names.

    Raises
    ------
    ConfigError
        The file cannot be read, or is empty.
    """
    if not names_query_file(query):
        return query
    try:
        text = read_regular(Path(query)).removeprefix("\ufeff").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "other bytes"
        raise ConfigError(f"--query {query}: cannot be read ({why}); expected a file of SQL in UTF-8") from error
    if not text or "\0" in text:
        raise ConfigError(f"--query {query}: expected SQL in that file, got none")
    return text


def names_query_file(query: str) -> bool:
    """Whether `--query` names a file, and is no SQL itself."""
    return query.lower().endswith(QUERY_SUFFIX) and "\n" not in query
