import os
import signal
import subprocess
import sys
import time

import pytest

from fastlloyd.supervise import process
from fastlloyd.supervise.process import Process, adopting_orphans, collect, kill_marked, marked_processes

pytestmark = pytest.mark.process

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
    watched = Process(sleeper.pid)
    assert not watched.ended
    watched.signal(signal.SIGSTOP)
    wait_for(lambda: watched.state == "T")
    watched.signal(signal.SIGKILL)
    wait_for(lambda: watched.ended)
    assert os.WTERMSIG(watched.wait_status()) == signal.SIGKILL
    sleeper.wait()
    assert watched.state == ""
    watched.signal(signal.SIGKILL)
    watched.close()
    watched.close()


def test_process_that_is_gone_already():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    watched = Process(child.pid)
    assert watched.ended and watched.descriptor is None
    assert watched.wait_status() is None


def test_orphans_are_adopted_found_by_their_mark_and_killed():
    mark = f"FASTLLOYD_RUN=test-{os.getpid()}"
    name, _, value = mark.partition("=")
    program = f"import subprocess, sys; print(subprocess.Popen({SLEEP!r}, stdout=-3).pid)"
    with adopting_orphans():
        orphan = int(subprocess.check_output([sys.executable, "-c", program], env={**os.environ, name: value}))
        assert marked_processes(mark) == [orphan]
        assert kill_marked(mark, patience_s=60.0) == 1
        assert Process(orphan).state == ""
    assert kill_marked(mark) == 0


def test_a_process_that_starts_one_program_after_the_other_is_found_every_time():
    mark = f"FASTLLOYD_RUN=exec-{os.getpid()}"
    name, _, value = mark.partition("=")
    again = 'exec /bin/sh -c "$0" "$0"'
    with subprocess.Popen(["/bin/sh", "-c", again, again], env={**os.environ, name: value}) as child:
        try:
            # In some 3 of 100 looks it is between two programs: 300 would miss it but once in 10 000 times.
            assert all(child.pid in marked_processes(mark) for _ in range(300))
        finally:
            child.kill()


def test_a_process_without_an_environment_is_not_waited_for():
    with subprocess.Popen(SLEEP, env={}) as child:
        try:
            wait_for(lambda: not process._may_have_environment(child.pid))
            assert process._environment(child.pid) == b""
        finally:
            child.kill()


def test_strangers_are_not_collected(sleeper):
    collect([1, sleeper.pid])
    assert sleeper.poll() is None
