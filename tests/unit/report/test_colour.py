"""Colour on a real terminal, and none in a pipe, on a dumb terminal or where NO_COLOR is set."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from fastlloyd.report.display import paint
from fastlloyd.report.progress import Progress

TABLE = """fastlloyd-plus: k = 3, 2 clients, 10 rounds

cluster  noisy size         age
      0       2,000          25

verdict   poor: noise of 40 % of the range on a centre
          WARNING: cluster 0 cannot be told from an empty one
privacy   none: epsilon is infinite
          NOT PRIVATE: nothing carries noise
"""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    controller, screen = pty.openpty()
    with os.fdopen(screen, "w") as stream:
        yield stream
    os.close(controller)


def test_headings_verdict_warnings_and_errors_stand_out_on_a_terminal(terminal: TextIO) -> None:
    painted = paint(TABLE, terminal)
    assert "\033[1mfastlloyd-plus: k = 3, 2 clients, 10 rounds\033[0m\n" in painted
    assert "\033[1mverdict\033[0m   \033[1;31mpoor\033[0m: noise" in painted
    assert "\033[1;33m          WARNING:\033[0m cluster 0" in painted
    assert "\033[1mprivacy\033[0m   none" in painted
    assert "\033[1;31m          NOT PRIVATE:\033[0m" in painted
    assert "      0       2,000          25\n" in painted
    assert "\033[1;32mgood\033[0m" in paint("verdict   good: noise of 0.1 %\n", terminal)
    assert paint("fastlloyd: client 2 is gone\n", terminal) == "\033[1;31mfastlloyd:\033[0m client 2 is gone\n"


def test_the_words_are_the_same_with_colour_and_without(terminal: TextIO) -> None:
    bare = paint(TABLE, terminal)
    for style in ("1", "1;31", "1;32", "1;33", "0"):
        bare = bare.replace(f"\033[{style}m", "")
    assert bare == TABLE


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_variable_turns_it_off(terminal: TextIO, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert paint(TABLE, terminal) == TABLE


def test_a_pipe_gets_none() -> None:
    stream = io.StringIO()
    assert paint(TABLE, stream) == TABLE
    Progress(stream).write(TABLE, stream)
    assert stream.getvalue() == TABLE


@pytest.mark.process
def test_an_error_of_the_command_line_is_red_on_its_terminal() -> None:
    controller, screen = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    command = [sys.executable, "-m", "fastlloyd", "plna"]
    try:
        subprocess.run(command, stderr=screen, env=environment, timeout=60, check=False)
        assert os.read(controller, 1000).startswith(b"\x1b[1;31mfastlloyd:\x1b[0m unknown command 'plna'")
    finally:
        os.close(controller)
        os.close(screen)
