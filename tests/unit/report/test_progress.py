import io

import numpy as np
import pytest

from fastlloyd.report.progress import Progress, encode_event, round_line, split_event
from fastlloyd.report.unit import format_bytes, format_count, format_epsilon, format_left, format_seconds

ROUND = {"event": "round", "round": 0, "rounds": 3, "clients": 2, "seconds": 0.0042, "bytes": 96}


def test_event_survives_its_line():
    line = encode_event("round", round=0, rounds=3, clients=2, seconds=0.0042, bytes=96)
    assert line.endswith("\n") and line.count("\n") == 1
    assert split_event(line) == ("", ROUND)


def test_event_amid_the_text_of_other_ranks_is_taken_out():
    line = encode_event("done", rank=1, code=0)
    rest, event = split_event(f"half a line {line.rstrip()} the other half\n")
    assert event == {"event": "done", "rank": 1, "code": 0}
    assert rest == "half a line  the other half\n"


@pytest.mark.parametrize(
    "line",
    [
        "plain text\n",
        "@fastlloyd not json\n",
        "@fastlloyd [1, 2]\n",
        '@fastlloyd {"event": "unknown"}\n',
        '@fastlloyd {"event": ["done"]}\n',
        '@fastlloyd {"event": "done", "rank": "1", "code": 0}\n',
        '@fastlloyd {"event": "done", "rank": true, "code": 0}\n',
    ],
)
def test_what_is_no_event_passes_whole(line):
    assert split_event(line) == (line, None)


@pytest.mark.parametrize("facts", [{"rank": 1}, {"rank": "1", "code": 0}])
def test_incomplete_event_is_refused_where_it_is_made(facts):
    with pytest.raises(ValueError, match="not an event"):
        encode_event("done", **facts)


def test_lines_one_a_round_off_a_terminal():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.show({"event": "setup", "seconds": 1.25})
    progress.show(ROUND)
    progress.show({"event": "done", "rank": 0, "code": 0})
    progress.close()
    assert stream.getvalue().splitlines() == ["set-up: 1.2 s", "round 1 of 3: 2 clients, 4.2 ms, 96 B"]


def test_quiet_draws_nothing():
    stream = io.StringIO()
    Progress(stream, quiet=True).show(ROUND)
    assert stream.getvalue() == ""


def test_bar_on_a_terminal_and_text_beside_it():
    stream, other = io.StringIO(), io.StringIO()
    progress = Progress(stream, terminal=True)
    for number in range(3):
        progress.show({**ROUND, "round": number})
        progress.write("a rank's words\n", other)
    progress.close()
    progress.close()
    assert "round 3 of 3" in stream.getvalue() and "2 clients" in stream.getvalue() and "96 B" in stream.getvalue()
    assert other.getvalue() == "a rank's words\n" * 3


def test_bar_of_a_resumed_run_starts_where_it_stopped():
    stream = io.StringIO()
    progress = Progress(stream, terminal=True)
    progress.show({**ROUND, "round": 2})
    progress.close()
    assert "round 3 of 3" in stream.getvalue()


def test_units():
    assert [format_bytes(n) for n in (0, 96, 999, 1000, 1_540_000, 2.5e9, 3e13)] == [
        "0 B",
        "96 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "2.5 GB",
        "30.0 TB",
    ]
    assert [format_seconds(s) for s in (2e-5, 0.0042, 0.5, 3.44, 59.9, 125)] == [
        "20 us",
        "4.2 ms",
        "500 ms",
        "3.4 s",
        "59.9 s",
        "2 min 5 s",
    ]
    assert (format_count(1, "client"), format_count(1200, "record")) == ("1 client", "1,200 records")
    assert round_line({**ROUND, "clients": 1}).startswith("round 1 of 3: 1 client, ")


def test_what_is_spent_is_rounded_up_and_what_is_left_down() -> None:
    exact = (0.99999, 0.12346, 1.2345, 12.3451, 123456.0, 1.00001e-7, 0.0)
    assert [format_epsilon(e) for e in exact] == ["1", "0.1235", "1.235", "12.35", "1.235e+05", "1.001e-07", "0"]
    assert [format_left(e) for e in exact] == ["0.9999", "0.1234", "1.234", "12.34", "1.234e+05", "1e-07", "0"]
    for value in np.random.default_rng(7).lognormal(0.0, 3.0, 2000):
        assert float(format_left(value)) <= value <= float(format_epsilon(value)), value
