"""A program that is forked sees what it sees in a fresh interpreter, and ends as there (`tests.forks`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forks

pytestmark = pytest.mark.process
SHOWN = str(forks.HERE / "shown.py")
LIMIT_S = 60.0


def started(*words: str, forked: bool, **options: Any) -> subprocess.Popen[str]:
    """Start the program, fresh or forked, with the same environment but for the name of the server."""
    environment = os.environ | forks.environment() | ({} if forked else {forks.VARIABLE: ""})
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *words], env=environment, text=True, **pipes, **options)


def shown(process: subprocess.Popen[str], given: str = "") -> tuple[bool, Any, str, int]:
    """Return whether the process itself ran the program, what that saw, what it complained of, and its exit code."""
    out, err = process.communicate(given, timeout=LIMIT_S)
    pid, facts = json.loads(out)
    return pid == process.pid, facts, err, process.returncode


@pytest.mark.parametrize(("what", "code"), [("farther", 1), ("raise", 1), ("die", -signal.SIGUSR2)])
def test_a_fork_sees_what_a_fresh_process_sees_and_ends_as_it_does(tmp_path: Path, what: str, code: int) -> None:
    with (tmp_path / "passed").open("w") as file:
        options = {"cwd": tmp_path, "pass_fds": [file.fileno()], "umask": 0o31}
        fresh, fork = (shown(started(SHOWN, what, "ä", forked=forked, **options), "read") for forked in (False, True))
    assert (fresh[0], fork[0]) == (True, False)
    assert fork[1:] == fresh[1:]
    assert fork[-1] == code


def test_a_signal_reaches_the_fork(tmp_path: Path) -> None:
    with started(SHOWN, "wait", forked=True) as process:
        process.stdin.close()
        fork = json.loads(process.stdout.readline())[0]
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 41 and fork != process.pid


def test_a_fork_ends_with_the_process_that_was_started() -> None:
    with started(SHOWN, "wait", forked=True) as process:
        process.stdin.close()
        fork = json.loads(process.stdout.readline())[0]
        process.kill()
        end = time.monotonic() + LIMIT_S
        while Path("/proc", str(fork)).exists():
            assert time.monotonic() < end, "the fork still runs"
            time.sleep(0.005)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        pytest.param(["-P", SHOWN, "end"], {}, id="an option of the interpreter"),
        pytest.param([SHOWN, "end"], {"PYTHONHASHSEED": "1"}, id="a variable of it"),
        pytest.param([SHOWN, "end"], {"PYTHONPATH": str(forks.ROOT)}, id="no path"),
        pytest.param(["-m", "shown", "end"], {}, id="not of fastlloyd"),
    ],
)
def test_what_a_fork_would_not_obey_runs_in_a_fresh_process(
    monkeypatch: pytest.MonkeyPatch, words: list[str], more: dict[str, str]
) -> None:
    own = forks.environment()
    monkeypatch.setattr(forks, "environment", lambda: own | more)
    assert shown(started(*words, forked=True))[0]
