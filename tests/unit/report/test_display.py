"""Text from outside: nothing that a terminal obeys, nothing that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import logging
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.bounds import Bounds
from fastlloyd.errors import ConfigError, PeerError, printable
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.display import csv_cell, csv_text, with_names
from fastlloyd.report.files import bounds_csv, centroids_csv, read_centroids
from fastlloyd.report.labelling import read_stored
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


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@A1", "=cmd|' /C calc'!A0", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff201"]
)
def test_a_name_is_no_formula_in_a_table(name: str) -> None:
    text = centroids_csv([name, "age"], np.array([[-1.5, 2.0]]))
    header, row = csv.reader(io.StringIO(text, newline=""))
    assert header[0][0] == "'" and row == ["-1.5", "2.0"]
    assert [csv_text(cell) for cell in header] == [name, "age"]


@pytest.mark.parametrize(
    "name", [f"dose {ESCAPE}", "a\u202eb", "a\u2066", "\tx", "\rx", "a\nb", "\x00", "\u200b", "\U000e0001"]
)
def test_what_a_terminal_obeys_is_an_escape_in_every_table(name: str, tmp_path: Path) -> None:
    bounds = Bounds(np.zeros(2), np.ones(2), (name, "age"))
    texts = centroids_csv([name, "age"], np.array([[1.0, 2.0]])), bounds_csv([name, "age"], bounds)
    assert all(line.isprintable() for text in texts for line in text.split("\n"))
    (tmp_path / "bounds.csv").write_text(texts[1])
    (tmp_path / "centroids.csv").write_text(texts[0])
    stored = read_stored(tmp_path / "centroids.csv").bounds
    assert stored is not None and stored.names == (name, "age")
    centroids = read_centroids(tmp_path / "centroids.csv", {"features": [name, "age"], "noisy_sizes": None})
    assert centroids is not None and centroids.tolist() == [[1.0, 2.0]]


_PARTS = ["\\", "\\\\", "x1b", "u202e", "\x1b", "'", "=", "\uff1d", "\t", "U000e0001", "\U000e0001", "a", "\n"]


@given(st.text() | st.lists(st.sampled_from(_PARTS), max_size=6).map("".join))
def test_every_name_reads_back(name: str) -> None:
    assert csv_text(csv_cell(name)) == name
    assert all(unicodedata.category(each)[0] != "C" for each in csv_cell(name))
    assert csv_cell(name)[:1] not in ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def test_cells_of_an_earlier_version_are_read_as_they_were_meant() -> None:
    assert [csv_text(cell) for cell in ("'=1", "'\tx", "'\rx", "a\nb", "C:\\new")] == [
        "=1",
        "\tx",
        "\rx",
        "a\nb",
        "C:\\new",
    ]


def test_the_server_s_own_things_need_no_name() -> None:
    assert with_names("the key of client 1 (North)", {1: "North"}) == "the key of client 1 (North)"
    assert with_names("the server's sum of round 3; the server is gone", {0: "Hub"}) == (
        "the server's sum of round 3; the server (Hub) is gone"
    )
