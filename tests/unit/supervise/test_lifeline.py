"""The order in which processes end, seen through the pipes that they held."""

import os
import select
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fastlloyd.supervise.lifeline import VARIABLE, Lifelines, hold_lifelines

HOLD = """
import signal, sys
from fastlloyd.supervise.lifeline import hold_lifelines
hold_lifelines(int(sys.argv[1]))
print("held", flush=True)
signal.pause()
"""

RANKS = 3


def start(lines, rank, **options):
    env = {**os.environ, **lines.environment}
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(rank)], env=env, stdout=subprocess.PIPE, **options)
    assert child.stdout.readline() == b"held\n"
    return child


def hang_ups(lines, poll, count):
    while len(lines.fallen) < count:
        for descriptor, event in poll.poll(10):
            assert event & select.EPOLLHUP
            poll.unregister(descriptor)
            lines.broke(descriptor)


def watch(lines):
    poll = select.epoll()
    for descriptor in lines:
        poll.register(descriptor, select.EPOLLIN)
    return poll


@pytest.mark.process
def test_the_first_to_fall_is_the_first_that_was_killed_even_if_the_next_dies_of_it():
    for first in range(RANKS):
        with Lifelines(RANKS) as lines, watch(lines) as poll:
            children = [start(lines, rank) for rank in range(RANKS)]
            assert poll.poll(0) == []
            assert not Path(lines.environment[VARIABLE]).exists()
            children[first].send_signal(signal.SIGKILL)
            # Like a launcher: as soon as a descriptor of the first one breaks, kill the others.
            assert children[first].stdout.read() == b""
            for child in children:
                child.kill()
            hang_ups(lines, poll, RANKS)
            assert lines.fallen[0] == first
            assert sorted(lines.fallen) == list(range(RANKS))
            for child in children:
                child.wait()
                child.stdout.close()


@pytest.mark.process
def test_what_a_rank_starts_does_not_hold_its_lines():
    code = HOLD.replace("signal.pause()", "import subprocess\nsubprocess.Popen(['sleep', '30'], stdout=2)")
    with Lifelines(1) as lines, watch(lines) as poll:
        env = {**os.environ, **lines.environment}
        child = subprocess.Popen(
            [sys.executable, "-c", code, "0"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
        try:
            child.wait()
            hang_ups(lines, poll, 1)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()


def test_files_are_private_and_leave_nothing():
    with Lifelines(2) as lines:
        folder = Path(lines.environment[VARIABLE])
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert len(list(folder.iterdir())) == len(list(lines)) == 4
        descriptors = list(lines)
        assert all(descriptor in lines for descriptor in descriptors) and -1 not in lines
    assert not folder.exists()
    assert list(lines) == [] and lines.environment == {}
    lines.close()


def test_too_many_ranks_do_without():
    with Lifelines(1000) as lines:
        assert list(lines) == [] and lines.environment == {}


def test_a_rank_without_a_supervisor_or_on_another_host_goes_on(tmp_path):
    before = os.fstat(0)
    hold_lifelines(0, {})
    hold_lifelines(0, {VARIABLE: str(tmp_path / "elsewhere")})
    assert os.fstat(0) == before
