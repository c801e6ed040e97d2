import contextlib
import io
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun
from fastlloyd.report import announcer
from fastlloyd.supervise import environment, supervisor
from fastlloyd.supervise.process import Process, marked_processes
from fastlloyd.supervise.supervisor import supervise
from tests.unit.supervise.programs.watching import PROGRAM, NotedProcess

WATCHING = str(Path(PROGRAM).with_name("watching.py"))

FAKE_MPIRUN = """#!/bin/sh
shift 2
for rank in 0 1 2; do FAKE_RANK=$rank "$@" & done
status=0
wait %1 || status=$?; wait %2 || status=$?; wait %3 || status=$?
exit $status
"""

# A run here takes a second on an idle machine; ranks that nobody ends wait for 600.
LIMIT_S = 60

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def mpirun():
    try:
        return find_mpirun()
    except ConfigError:
        pytest.skip("no mpirun in this environment")


@pytest.fixture(autouse=True)
def watched(tmp_path, monkeypatch):
    folder = tmp_path / "watched"
    folder.mkdir()
    monkeypatch.setenv("FAKE_FOLDER", str(folder))
    monkeypatch.setattr(supervisor, "Process", NotedProcess)
    return folder


@pytest.fixture
def fake_mpirun(tmp_path):
    return make_mpirun(tmp_path, FAKE_MPIRUN)


def make_mpirun(folder, text):
    script = folder / "mpirun"
    script.write_text(text)
    script.chmod(stat.S_IRWXU)
    return Mpirun(script, "mpich", "0")


def run(acts, launcher, **options):
    out, err = io.StringIO(), io.StringIO()
    started = time.monotonic()
    code = supervise(3, [acts], program=[PROGRAM], mpirun=launcher, out=out, err=err, **options)
    return code, out.getvalue(), err.getvalue(), time.monotonic() - started


def test_good_run_shows_progress_and_passes_text(mpirun):
    code, out, err, _ = run("ok,ok,ok", mpirun)
    assert (code, err) == (0, "")
    assert out.splitlines() == ["set-up: 10 ms", "round 1 of 2: 2 clients, 4 ms, 96 B", "text of a rank"]


def test_quiet_run_still_passes_text(mpirun):
    assert run("ok,ok,ok", mpirun, quiet=True)[1] == "text of a rank\n"


@pytest.mark.parametrize("code", [2, 3, 4, 70])
def test_agreed_code_comes_back_without_further_words(mpirun, code):
    found, out, err, _ = run(f"exit:{code},exit:{code},exit:{code}", mpirun)
    assert found == code
    assert "fastlloyd:" not in err and "prterun" not in err and "BAD TERMINATION" not in out


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_rank_is_named_and_nothing_is_left(mpirun, victim):
    acts = ",".join("kill" if rank == victim else "wait" for rank in range(3))
    code, out, err, seconds = run(acts, mpirun)
    part = "the server" if victim == 0 else f"client {victim}"
    assert code == 3
    assert f"fastlloyd: rank {victim} ({part}) died: killed by signal 9" in err
    assert "BAD TERMINATION" not in out + err and "prterun" not in out + err
    assert seconds < LIMIT_S


def test_debug_shows_the_launchers_words(mpirun):
    _, out, err, _ = run("wait,kill,wait", mpirun, debug=True)
    assert "BAD TERMINATION" in out + err or "prterun noticed" in out + err


def test_stopped_rank_is_killed_after_the_grace(mpirun):
    code, _, err, seconds = run("ok,stop,ok", mpirun, grace_s=0.5)
    assert code == 3
    assert "rank 1 (client 1) was stopped and outlived the run: killed" in err
    assert seconds < LIMIT_S


def test_stopped_rank_does_not_change_the_agreed_code(fake_mpirun):
    code, _, err, seconds = run("exit:4,stop,exit:4", fake_mpirun, grace_s=0.5)
    assert code == 4
    assert err.count("fastlloyd:") == 1 and "outlived the run" in err
    assert seconds < LIMIT_S


def test_survivors_of_a_dead_rank_do_not_wait_for_ever(fake_mpirun):
    code, _, err, seconds = run("wait,kill,wait", fake_mpirun, grace_s=0.5)
    assert code == 3
    assert "rank 1 (client 1) died: killed by signal 9" in err
    assert seconds < LIMIT_S


@pytest.mark.parametrize("acts", ["kill,wait,wait", "crash:139,wait,wait"])
def test_a_server_that_crashed_is_named_and_not_those_it_left_behind(fake_mpirun, acts):
    code, _, err, _ = run(acts, fake_mpirun, grace_s=0.5)
    assert code in (3, 70)  # 3 where the kernel no longer reports how it ended
    assert "rank 0 (the server)" in err
    assert err.count("fastlloyd:") == 1 and "outlived" not in err


def test_who_does_not_end_with_a_failed_run_is_killed_and_the_failure_is_named(fake_mpirun):
    code, _, err, _ = run("exit:70,wait,wait", fake_mpirun, grace_s=0.5)
    assert code == 70
    assert "rank 0 (the server) ended with exit code 70; rank 1 (client 1) outlived the run: killed" in err


def test_rank_that_crashes_is_a_bug(fake_mpirun):
    code, _, err, _ = run("wait,crash:1,wait", fake_mpirun, grace_s=0.2)
    assert "rank 1 (client 1) ended" in err and "before the run was over" in err
    assert code in (70, 3)  # 3 where the kernel no longer reports how it ended


def test_refusal_of_all_ranks_before_the_start_keeps_its_code(mpirun):
    code, _, err, _ = run("mute:2,mute:2,mute:2", mpirun)
    assert (code, err) == (2, "")


def test_ranks_that_are_late_are_named_once(tmp_path, monkeypatch):
    monkeypatch.setattr(announcer, "FIRST_S", 0.1)
    late = FAKE_MPIRUN.replace("FAKE_RANK=$rank", "{ [ $rank = 2 ] && sleep 0.7; FAKE_RANK=$rank").replace(
        '"$@" & done', '"$@"; } & done'
    )
    code, _, err, _ = run("ok,ok,ok", make_mpirun(tmp_path, late))
    assert code == 0
    assert err.count("set-up: 0.1 s so far; waiting for ") == 1 and "rank 2 (client 2)" in err
    code, _, err, _ = run("ok,ok,ok", make_mpirun(tmp_path, late), quiet=True)
    assert (code, err) == (0, "")


def test_run_that_never_starts_says_so(mpirun):
    code, _, err, _ = run("mute:1,mute:1,mute:1", mpirun)
    assert code == 2
    assert "before any rank had started" in err and "doctor" in err


def test_missing_launcher_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot start"):
        run("ok", Mpirun(tmp_path / "nothing", "mpich", "0"))


def test_single_process_is_refused(fake_mpirun):
    with pytest.raises(ConfigError, match="at least 2"):
        supervise(1, [], mpirun=fake_mpirun)


def test_ranks_start_here_whatever_a_scheduler_says(mpirun, monkeypatch):
    # As in a container in a job of Slurm or PBS, with neither srun nor the job's files.
    host = socket.gethostname()
    said = {"SLURM_JOB_ID": "77", "SLURM_JOBID": "77", "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1"}
    said |= {"SLURM_NODELIST": host, "SLURM_JOB_NODELIST": host, "SLURM_TASKS_PER_NODE": "4"}
    said |= {"PBS_ENVIRONMENT": "PBS_BATCH", "PBS_JOBID": "7", "PBS_NODEFILE": "/nowhere"}
    said |= {"LSB_JOBID": "5", "LSB_MCPU_HOSTS": "nowhere 4", "LSB_DJOB_HOSTFILE": "/nowhere"}
    said |= {"HYDRA_HOST_FILE": "/nowhere", "HYDRA_LAUNCHER": "slurm"}
    # A step of the job in which somebody has a shell: a world of one rank.
    said |= {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "9"}
    said |= {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.77.0", "PMIX_SERVER_URI2": "a;tcp4://127.0.0.1:9"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert run("ok,ok,ok", mpirun, start_s=LIMIT_S / 2)[0] == 0


@pytest.mark.parametrize(
    ("shared", "transport", "named"), [(16 << 20, "shm", True), (1 << 30, "shm", False), (16 << 20, "tcp", False)]
)
def test_little_shared_memory_is_named_where_ranks_died_of_it(tmp_path, monkeypatch, shared, transport, named):
    monkeypatch.setattr(environment, "_shared_memory", lambda: shared)
    dies = make_mpirun(tmp_path, "#!/bin/sh\nkill -SEGV $$\n")
    code, _, err, _ = run("ok,ok,ok", dies, transport=transport)
    said = "16.8 MB of shared memory free (/dev/shm), which is little for MPI with 3 ranks"
    assert code == 2 and "before any rank had started" in err
    assert (f"; {said}: in a container give --shm-size=1g, or use --transport tcp" in err) == named


def test_a_launcher_that_starts_nothing_is_ended_at_the_deadline(tmp_path):
    code, _, err, seconds = run("ok,ok,ok", make_mpirun(tmp_path, "#!/bin/sh\nexec sleep 600\n"), start_s=0.3)
    assert code == 2 and seconds < LIMIT_S
    assert "mpirun has started no rank within 0.3 s (--setup-deadline): killed" in err


def test_works_outside_the_main_thread(fake_mpirun):
    codes = []
    thread = threading.Thread(target=lambda: codes.append(run("ok,ok,ok", fake_mpirun)[0]))
    thread.start()
    thread.join(LIMIT_S)
    assert codes == [0]


def start_supervisor(acts):
    # With so long a grace nothing but signals ends a run.
    child = subprocess.Popen(
        [sys.executable, WATCHING, acts, str(2 * LIMIT_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while "text of a rank" not in child.stdout.readline():
        assert child.poll() is None
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_reaches_the_ranks_and_they_may_speak(mpirun, number):
    child = start_supervisor("wait,wait,wait")
    child.send_signal(number)
    _, err = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 3
    assert f"{number.name} passed on" in err
    if mpirun.vendor == "mpich":  # Open MPI drops what ranks print once the first of them has failed
        assert err.count(f"got signal {int(number)}") >= 1


def test_second_signal_kills(mpirun, watched):
    child = start_supervisor("stop,stop,stop")
    ranks = [Process(int(path.name)) for path in watched.iterdir()]
    while {rank.state for rank in ranks} != {"T"}:
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    while "passed on" not in child.stderr.readline():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=LIMIT_S)
    assert child.returncode == 3
    assert all(rank.ended for rank in ranks)
    for rank in ranks:
        rank.close()


def test_nothing_is_left_when_the_launcher_itself_is_killed(tmp_path, watched):
    wait = 'while [ "$(ls "$FAKE_FOLDER" | wc -l)" -lt 3 ]; do sleep 0.01; done; kill -9 $$'
    launcher = make_mpirun(tmp_path, FAKE_MPIRUN.replace("status=0", wait))
    code, _, err, seconds = run("wait,wait,wait", launcher, grace_s=0.5)
    assert code == 3
    assert "mpirun was killed by signal 9" in err
    assert seconds < LIMIT_S
    assert len(list(watched.iterdir())) == 3
    assert marked_processes(f"FAKE_FOLDER={watched}") == []


def test_nothing_is_left_when_the_launcher_is_killed_while_it_starts_ranks(tmp_path, watched):
    launcher = make_mpirun(tmp_path, FAKE_MPIRUN.replace("status=0", "kill -9 $$"))
    for _ in range(5):
        code, _, err, _ = run("wait,wait,wait", launcher)
        assert code in (2, 3)  # 2 if no rank has started yet
        assert "killed by signal 9" in err
        assert marked_processes(f"FAKE_FOLDER={watched}") == []


def test_ranks_that_start_while_what_the_launcher_left_is_ended_are_not_its_cause(tmp_path, watched, monkeypatch):
    real, mark = supervisor.kill_marked, f"FAKE_FOLDER={watched}"

    def ended():
        """Return the ranks whose start was read before the launcher's end: they are killed first."""
        return {int(path.name) for path in watched.iterdir()}

    def kill_late(run_mark):
        end = time.monotonic() + LIMIT_S
        while len(started := {pid for pid in marked_processes(mark) if holds_lifelines(pid)} | ended()) < 3:
            assert time.monotonic() < end, started
            time.sleep(0.01)
        time.sleep(0.1)  # from there to the word of its start
        monkeypatch.setattr(supervisor, "kill_marked", real)
        return real(run_mark)

    monkeypatch.setattr(supervisor, "kill_marked", kill_late)
    launcher = make_mpirun(tmp_path, FAKE_MPIRUN.replace("status=0", "kill -9 $$"))
    code, _, err, _ = run("wait,wait,wait", launcher)
    assert code == 3
    assert "mpirun was killed by signal 9" in err
    assert marked_processes(mark) == []


def holds_lifelines(pid):
    with contextlib.suppress(OSError):
        return "fastlloyd-run-" in str(Path(f"/proc/{pid}/fd/0").readlink())
    return False
