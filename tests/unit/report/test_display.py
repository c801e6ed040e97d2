"""Text from outside: nothing that a terminal obeys, nothing that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError, PeerError, printable
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.display import csv_cell, csv_text, with_names
from fastlloyd.report.files import centroids_csv
from fastlloyd.run.rank import PlainFormatter
from fastlloyd.wire.header import PartyId

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def test_printable_text_stays_as_it_is() -> None:
    for text in ("", "age", "Größe in m²", "体重", "a b"):
        assert printable(text) == text


@pytest.mark.parametrize("bad", ["\x1b[31m", "\x07", "\r", "\x9b2J", "\u202e", "\u2028", "\udc80", "\x7f", "\0"])
def test_what_does_not_print_becomes_an_escape(bad: str) -> None:
    shown = printable(f"a{bad}b")
    assert shown.isprintable() and shown[0] == "a" and shown[-1] == "b"
    assert shown.encode()


def test_ends_of_lines_stay_only_where_lines_are_wanted() -> None:
    assert printable("a\nb\r\n", lines=True) == "a\nb\\r\n"
    assert printable("a\nb") == "a\\nb"


def test_every_error_is_printable() -> None:
    assert str(ConfigError(f"feature {ESCAPE}")) == "feature \\x1b]0;owned\\x07\\x1b[2J"
    assert "\x1b" not in str(PeerError(f"client 1 sent {ESCAPE}", rank=1))


def test_what_is_told_and_complained_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer(PartyId(0), own_terminal=True)
    announcer.note(f"two\nlines {ESCAPE}")
    announcer.complain(f"one\nline {ESCAPE}")
    out, err = capsys.readouterr()
    assert out == "two\nlines \\x1b]0;owned\\x07\\x1b[2J\n"
    assert err == "fastlloyd: one\\nline \\x1b]0;owned\\x07\\x1b[2J\n"


def test_a_name_cannot_write_a_line_of_the_log() -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "column %s", (f"x\nrank 0 ERROR {ESCAPE}",), None)
    assert PlainFormatter("%(levelname)s %(message)s").format(record) == (
        "INFO column x\\nrank 0 ERROR \\x1b]0;owned\\x07\\x1b[2J"
    )


def test_a_trace_in_the_log_keeps_its_lines() -> None:
    try:
        raise ValueError(ESCAPE)
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("n", logging.ERROR, "p", 1, "unforeseen", (), info)
    text = PlainFormatter("%(message)s").format(record)
    assert text.startswith("unforeseen\nTraceback") and "\x1b" not in text


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@A1", "\tx", "\rx", "=cmd|' /C calc'!A0"])
def test_a_name_is_no_formula_in_a_table(name: str) -> None:
    text = centroids_csv([name, "age"], np.array([[-1.5, 2.0]]))
    header, row = csv.reader(io.StringIO(text, newline=""))
    assert header[0][0] == "'" and row == ["-1.5", "2.0"]
    assert [csv_text(cell) for cell in header] == [name, "age"]


@given(st.text())
def test_every_name_reads_back(name: str) -> None:
    assert csv_text(csv_cell(name)) == name
    assert csv_cell(name)[:1] not in ("=", "+", "-", "@", "\t", "\r")


def test_the_server_s_own_things_need_no_name() -> None:
    assert with_names("the server's sum of round 3; the server is gone", {0: "Hub"}) == (
        "the server's sum of round 3; the server (Hub) is gone"
    )
