"""Queries a server of MariaDB or MySQL, read-only; the only module that imports pymysql.

DDL ends a read-only transaction of these servers and goes through, and SELECT .. INTO OUTFILE writes a file of the
server. So the transaction is not all: a statement must begin as a query does, and may not contain INTO, nor a comment
that the server executes. PyMySQL sends one statement at a time, and never a file of this host (LOAD DATA LOCAL).

Its way to TLS is not used: without a file of authorities it checks no name, whatever it is asked for.

Source: docs/data-sources.md.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import ssl
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from fastlloyd.data.asking import CONNECT_TIMEOUT_S, ONE_SELECT, AskedRows, Row, away, batches, named, refused
from fastlloyd.data.form import needs
from fastlloyd.data.kinds import ANY, NUMBERS, SINGLE, TEXT, ColumnKind
from fastlloyd.errors import ConfigError, DataError, Interrupted, did_you_mean
from fastlloyd.wire.regular import read_regular

_QUERY = re.compile(r"(?:[\s(]|#[^\n]*+|--(?=\s)[^\n]*+|/\*(?!M?!).*?\*/)*+(?:select|with|values|table)\b", re.I | re.S)
# A number may stand before INTO without a space.
_WRITES = re.compile(r"(?<![a-z_$\x80-\U0010ffff])into(?![\w$])|/\*M?!", re.I)
_MODES = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_PARAMETERS = ("ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket", "defaults-file")
_HERE = ("localhost", "127.0.0.1", "::1")
# No connection, too many of them, a server that stops, locks, time limits, and what an operator ends.
_PASSING = {1040, 1053, 1077, 1079, 1203, 1205, 1213, 1226, 1317, 1927, 1969, 2002, 2003, 2006, 2013, 3024}
_DENIED = {1045, 1698}
_NO_RIGHT = {1044, 1142, 1143, 1370}
_READ_ONLY = 1792
_NO_TLS = 2026
_PORT = 3306
_BINARY = 63
_MOMENTS = {
    **{"DATE": "dates", "NEWDATE": "dates", "TIME": "times of day"},
    **{"DATETIME": "points in time", "TIMESTAMP": "points in time"},
}
# What a hostile server can make of PyMySQL.
_NONSENSE = (UnicodeError, ValueError, ArithmeticError, LookupError, RuntimeError, AssertionError, struct.error)


@contextlib.contextmanager
def ask_mysql(place: str, query: str, shown: str, wait_s: float) -> Iterator[AskedRows]:
    """Query a server of MariaDB or MySQL, in one read-only transaction.

    Parameters
    ----------
    place : str
        Its address.
    query : str
        One SELECT.
    shown : str
        The place as errors may name it.
    wait_s : float
        The longest wait for the connection.

    Raises
    ------
    DataError
        It refuses the account, its certificate is not valid, or the statement is refused.
    SourceError
        It does not answer now, or broke off.
    ConfigError
        PyMySQL is not installed, or the address is wrong.
    """
    with needs("pymysql", "MariaDB and MySQL", "sql"):
        import pymysql
        import pymysql.cursors
    if not _QUERY.match(query) or _WRITES.search(query):
        raise DataError(
            f"{shown}: {ONE_SELECT}; it begins with SELECT, WITH, VALUES or TABLE, and contains neither the word INTO "
            "nor a comment that the server executes (/*!)"
        )
    settings = _settings(place, shown) | {"connect_timeout": (wait := max(0.1, min(CONNECT_TIMEOUT_S, wait_s)))}
    settings |= {"conv": _conversions(pymysql), "charset": "utf8mb4", "autocommit": None, "local_infile": False}
    with _errors(pymysql, shown):
        connection = pymysql.connect(**settings, read_timeout=wait)  # else a server that is stopped is awaited forever
        connection._read_timeout = None  # a query may take longer
    with closing(connection):
        cursor = connection.cursor(pymysql.cursors.SSCursor)  # one row at a time in memory
        try:
            with _errors(pymysql, shown):
                cursor.execute("START TRANSACTION READ ONLY")
                cursor.execute(query)
            names = named(cursor.description, shown)
            kinds = tuple(_kind(pymysql, column) for column in cursor._result.fields)
            yield AskedRows(names=names, kinds=kinds, batches=_rows(pymysql, cursor, shown))
        except (Interrupted, KeyboardInterrupt):
            with contextlib.suppress(Exception), closing(pymysql.connect(**settings, read_timeout=wait)) as other:
                other.query(f"KILL QUERY {connection.thread_id()}")  # the server would go on
            raise
        finally:
            if cursor._result is not None:
                cursor._result.unbuffered_active = False  # else it would read all the rest


def _rows(pymysql: Any, cursor: Any, shown: str) -> Iterator[Sequence[Row]]:
    """Fetch some rows at a time."""
    with _errors(pymysql, shown):
        yield from batches(cursor.fetchmany)


@contextlib.contextmanager
def _errors(pymysql: Any, shown: str) -> Iterator[None]:
    """Turn an error of PyMySQL into one sentence."""
    try:
        yield
    except pymysql.Error as error:
        code, words = ([*error.args, 0, ""])[:2]
        said = Exception(words or type(error).__name__)
        invalid = isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError)
        if code in _PASSING and not invalid:
            raise away(shown, said) from error
        raise refused(shown, said, _fix(code, invalid)) from error
    except _NONSENSE as error:
        # Its text may hold a value, or a character of a password.
        fix = "; see that a server of MariaDB or MySQL answers there"
        raise refused(shown, Exception(type(error).__name__), fix) from None


def _fix(code: object, invalid: bool) -> str:
    """Return what to do about a refusal; empty if the query is wrong."""
    if invalid:
        return (
            "; name the file of its authority with ?ssl-ca=FILE, or say ?ssl-mode=VERIFY_CA if its certificate names "
            "no host"
        )
    if code == _NO_TLS:
        return "; let the server offer TLS, or say ?ssl-mode=DISABLED if nobody else can read this network"
    if code in _DENIED:
        return "; check --data, and that the password is in MYSQL_PWD or in the file ~/.my.cnf"
    if code in _NO_RIGHT:
        return "; let this account SELECT there (GRANT SELECT ON .. TO ..), or ask other tables"
    return f"; {ONE_SELECT}" if code == _READ_ONLY else ""


def _settings(place: str, shown: str) -> dict[str, Any]:
    """Return what PyMySQL needs to connect to an address.

    Raises
    ------
    ConfigError
        It has a parameter that is not known, or names a file that cannot be read.
    """
    address, own = urlsplit(place), {}
    for name, value in parse_qsl(address.query, keep_blank_values=True):
        if name not in _PARAMETERS:
            raise ConfigError(
                f"--data {shown}: after '?' expected {', '.join(_PARAMETERS)}, got {name!r}"
                f"{did_you_mean(name, _PARAMETERS)}"
            )
        own[name] = value
    user, password = _account(own.get("defaults-file"))
    found: dict[str, Any] = {
        "user": unquote(address.username) if address.username else user,
        "password": password,
        "host": unquote(address.hostname or _HERE[0]),
        "port": _port(address, shown),
        "database": unquote(address.path.removeprefix("/")) or None,
        "unix_socket": own.get("socket"),
    }
    mode = own.get("ssl-mode", "").upper()
    if mode and mode not in _MODES:
        raise ConfigError(f"--data {shown}: ssl-mode: expected {', '.join(_MODES)}, got {mode!r}")
    named_files = any(name in own for name in ("ssl-ca", "ssl-cert"))
    if mode == "DISABLED":
        found["ssl_disabled"] = True
    elif mode or named_files or not (found["unix_socket"] or found["host"] in _HERE):
        found["ssl"] = _tls(mode or _MODES[-1], own, shown)
    return found


def _port(address: SplitResult, shown: str) -> int:
    """Return the port of an address."""
    try:
        return address.port or _PORT
    except ValueError:
        raise ConfigError(f"--data {shown}: expected a port from 1 to 65535 after the host") from None


def _tls(mode: str, own: Mapping[str, str], shown: str) -> ssl.SSLContext:
    """Return how a server is reached by TLS; `own` names files."""
    try:
        context = ssl.create_default_context(cafile=own.get("ssl-ca"))
        if "ssl-cert" in own:
            context.load_cert_chain(own["ssl-cert"], own.get("ssl-key"), password="")
    except OSError as error:
        raise ConfigError(
            f"--data {shown}: a file of ssl-ca, ssl-cert or ssl-key cannot be used ({error.strerror or error}); "
            "expected PEM, and a key without a password"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that MySQL made itself lack what it asks for
    if mode != "VERIFY_IDENTITY":
        context.check_hostname = False
    if mode == "REQUIRED":
        context.verify_mode = ssl.CERT_NONE
    return context


def _account(file: str | None) -> tuple[str | None, bytes]:
    """Return the user and the password that the environment, or a file of options, has.

    MySQL's own programs look in the same places. A file that others can read is refused, like a line in it that is not
    understood, without showing it.
    """
    path = Path(file or "~/.my.cnf").expanduser()
    read = configparser.RawConfigParser(allow_no_value=True, strict=False)
    if file or path.exists():
        try:
            read.read_string(read_regular(path))
            others = stat.S_IMODE(path.stat().st_mode) & 0o077
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); check ?defaults-file") from error
        except (configparser.Error, UnicodeError):
            raise ConfigError(f"{path}: expected [client], and below it lines such as password=..") from None
        if others:
            raise ConfigError(f"{path}: others can read it, and it may hold a password; run chmod 600 {path}")
    own = {name: (value or "").strip("\"'") for name, value in read["client"].items()} if "client" in read else {}
    password = os.environb.get(b"MYSQL_PWD")
    return own.get("user"), own.get("password", "").encode() if password is None else password


def _conversions(pymysql: Any) -> dict[int, Any]:
    """Return what each type of a column becomes; text stays text, and a moment nothing."""
    types = pymysql.constants.FIELD_TYPE
    whole = ("TINY", "SHORT", "LONG", "LONGLONG", "INT24", "YEAR")
    return (
        {getattr(types, name): int for name in whole}
        | {types.FLOAT: float, types.DOUBLE: float, types.DECIMAL: Decimal, types.NEWDECIMAL: Decimal}
        | {getattr(types, name): lambda _: None for name in _MOMENTS}
    )


def _kind(pymysql: Any, column: Any) -> ColumnKind:
    """Return what a column holds; of text and bytes, which have the same types here, each cell decides."""
    types = pymysql.constants.FIELD_TYPE
    moments = {getattr(types, name): ColumnKind(words) for name, words in _MOMENTS.items()}
    found: dict[int, ColumnKind] = dict.fromkeys(_conversions(pymysql), NUMBERS) | {types.FLOAT: SINGLE} | moments
    return found.get(int(column.type_code), TEXT if column.charsetnr != _BINARY else ANY)
