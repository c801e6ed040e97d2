"""Log lines as JSON: one object a line, whatever is said."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime

import pytest

from fastlloyd.report.announcer import Announcer
from fastlloyd.report.lines import Journal, JsonFormatter, json_line, speaks_json
from fastlloyd.wire.header import SERVER

ROUND = {"round": 0, "rounds": 3, "clients": 2, "seconds": 0.0042, "bytes": 96}


@pytest.fixture
def log():
    """The program's log as JSON in memory."""
    text, root = io.StringIO(), logging.getLogger("fastlloyd")
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonFormatter(2))
    before = root.level, list(root.handlers)
    root.handlers[:] = [handler]
    root.setLevel("INFO")
    yield text
    root.setLevel(before[0])
    root.handlers[:] = before[1]


def read(text):
    return [json.loads(line) for line in text.getvalue().splitlines()]


def test_a_line_says_when_who_and_what(log):
    logging.getLogger("fastlloyd.net").warning("%s is late\nand \x1b[2J odd", "client 1")
    (line,) = read(log)
    assert datetime.fromisoformat(line.pop("time")).year >= 2024
    assert line == {
        "level": "warning",
        "rank": 2,
        "logger": "fastlloyd.net",
        "message": "client 1 is late\nand \\x1b[2J odd",
    }


def test_a_trace_stays_in_its_line(log):
    try:
        raise ZeroDivisionError("no\nway")
    except ZeroDivisionError:
        logging.getLogger("fastlloyd").exception("unforeseen error")
    (line,) = read(log)
    assert line["level"] == "error" and "ZeroDivisionError: no" in line["trace"]


def test_no_fact_takes_another_s_place():
    line = json.loads(
        json_line(
            "info",
            "m",
            rank=1,
            values={
                "rank": 7,
                "message": "other",
                "odd": {
                    1,
                },
                "round": 3,
            },
        )
    )
    assert (line["rank"], line["message"], line["round"]) == (1, "m", 3) and line["odd"] == "{1}"
    assert "rank" not in json.loads(json_line("error", "m"))
    assert json.loads(json_line("info", "m", when=1.9996))["time"] == "1970-01-01T00:00:01.999Z"


def test_events_notes_and_complaints_are_lines(log, capsys):
    announcer = Announcer(SERVER, journal=Journal.STDERR, names={2: "St Mary"})
    announcer.event("round", **ROUND)
    announcer.event("progress", stage="encrypting", fraction=0.5)
    announcer.note("client 1 joined")
    announcer.note("a table\nof two lines")
    announcer.remark("set-up: 10 s so far")
    announcer.complain("client 2 is gone")
    found = [(line["level"], line["message"]) for line in read(log)]
    assert found == [
        ("info", "round 1 of 3: 2 clients, 4.2 ms, 96 B"),
        ("info", "client 1 joined"),
        ("warning", "set-up: 10 s so far"),
        ("error", "client 2 (St Mary) is gone"),
    ]
    assert {name: read(log)[0][name] for name in ROUND} == ROUND and read(log)[0]["event"] == "round"
    shown = capsys.readouterr()
    assert shown.err == "" and "round 1 of 3" in shown.out and "of two lines" in shown.out


def test_beside_a_file_people_still_read_sentences(log, capsys):
    Announcer(SERVER, journal=Journal.FILE).complain("no")
    assert capsys.readouterr().err == "fastlloyd: no\n" and read(log)[0]["message"] == "no"


def test_a_command_knows_whether_it_speaks_json(log):
    assert speaks_json()
    logging.getLogger("fastlloyd").handlers[0].setFormatter(logging.Formatter())
    assert not speaks_json()
