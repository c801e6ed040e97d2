"""A process of a party: the signals that stop it."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fastlloyd.errors import Interrupted
from fastlloyd.run.config import RunConfig
from fastlloyd.run.rank import catch_signals, start_log, stop_signals


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (signal.SIGTERM, "by a person, or by the launcher"),
        (signal.SIGINT, "by a person, or by the launcher"),
        (signal.SIGHUP, "its terminal or ssh session ended; nohup, tmux or a service"),
    ],
)
def test_a_signal_stops_a_party_with_a_sentence(number: signal.Signals, why: str) -> None:
    catch_signals()
    with pytest.raises(Interrupted, match=f"told to stop by {number.name}: {why}"):
        signal.raise_signal(number)
    signal.raise_signal(number)  # a second one does not disturb the clean-up


def test_nohup_keeps_a_run_going() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    catch_signals()
    signal.raise_signal(signal.SIGHUP)
    assert signal.SIGHUP not in stop_signals()


@pytest.mark.process
def test_the_collector_passes_over_all_that_a_party_has_imported() -> None:
    program = """
import gc, sys
from fastlloyd.run import rank
def carry_out(*_, **__):
    print(gc.get_freeze_count() > len(gc.get_objects()), "fastlloyd.run.execute" in sys.modules, gc.isenabled())
    sys.exit()
rank.carry_out = carry_out
rank.run_party(None, None, None)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True True True\n"


def test_a_log_on_a_full_disk_is_said_once_and_without_traces(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("fastlloyd")
    before = list(log.handlers)
    start_log(RunConfig(log_file="/dev/full"), 1)
    try:
        for _ in range(3):
            log.error("x" * 10)
    finally:
        for handler in [handler for handler in log.handlers if handler not in before]:
            log.removeHandler(handler)
            with contextlib.suppress(OSError):
                handler.close()
    assert capsys.readouterr().err == "fastlloyd: --log-file /dev/full cannot be written (No space left on device)\n"
