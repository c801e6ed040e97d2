import os
import signal
import subprocess
import sys
import time

import pytest

from fastlloyd.supervise.process import Process, adopting_orphans, collect, kill_marked, marked_processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def sleeper():
    child = subprocess.Popen(SLEEP)
    yield child
    child.kill()
    child.wait()


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end


def test_process_is_watched_to_its_end(sleeper):
    process = Process(sleeper.pid)
    assert not process.ended
    process.signal(signal.SIGSTOP)
    wait_for(lambda: process.state == "T")
    process.signal(signal.SIGKILL)
    wait_for(lambda: process.ended)
    assert os.WTERMSIG(process.wait_status()) == signal.SIGKILL
    sleeper.wait()
    assert process.state == ""
    process.signal(signal.SIGKILL)
    process.close()
    process.close()


def test_process_that_is_gone_already():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    process = Process(child.pid)
    assert process.ended and process.descriptor is None
    assert process.wait_status() is None


def test_orphans_are_adopted_found_by_their_mark_and_killed():
    mark = f"FASTLLOYD_RUN=test-{os.getpid()}"
    name, _, value = mark.partition("=")
    program = f"import subprocess, sys; print(subprocess.Popen({SLEEP!r}, stdout=-3).pid)"
    with adopting_orphans():
        orphan = int(subprocess.check_output([sys.executable, "-c", program], env={**os.environ, name: value}))
        assert marked_processes(mark) == [orphan]
        assert kill_marked(mark) == 1
        assert Process(orphan).state == ""
    assert kill_marked(mark) == 0


def test_strangers_are_not_collected(sleeper):
    collect([1, sleeper.pid])
    assert sleeper.poll() is None
