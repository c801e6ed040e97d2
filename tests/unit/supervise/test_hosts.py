"""Ranks on other hosts: who is named when one is lost. A script stands in for ssh, and one for mpirun."""

import io
import stat
import time

import pytest

from fastlloyd.cli import run as command
from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd.supervise import supervisor
from fastlloyd.supervise.lifeline import HostLines
from fastlloyd.supervise.supervisor import supervise
from tests.unit.supervise.programs.watching import PROGRAM, NotedProcess

pytestmark = pytest.mark.process

HOSTS = ("here", "there", "user@elsewhere")

# Takes its options, notes its number under the host's name, and is the command.
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do [ "$1" != -o ] || shift; shift; done
host=${1#*@}; shift
[ "$host" != closed ] || { echo first; echo 'Permission denied (publickey).'; } >&2
[ "$host" != closed ] || exit 255
echo $$ > "$FAKE_FOLDER/../ssh/$host"
exec sh -c "$*"
"""

MPIRUN = """#!/bin/sh
[ "$3 $4" = "-hosts here,there,user@elsewhere" ] || exit 2
shift 4
for rank in 0 1 2; do FAKE_RANK=$rank "$@" & done
ACT
wait
exit 7
"""
ALL_WATCHED = 'while [ "$(ls "$FAKE_FOLDER" | wc -l)" -lt 3 ]; do sleep 0.01; done'
ALL_KILLED = "kill -9 $(ls $FAKE_FOLDER)"
BANNER = """
cat <<'END'

===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 10 RUNNING AT elsewhere
=   EXIT CODE: 9
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
END
"""


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(stat.S_IRWXU)
    return path


@pytest.fixture(autouse=True)
def stand_ins(tmp_path, monkeypatch):
    program(tmp_path / "bin" / "ssh", SSH)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for name in ("watched", "ssh"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path / "watched"))
    monkeypatch.setattr(supervisor, "Process", NotedProcess)


def run(tmp_path, act, acts="wait,wait,wait"):
    launcher = Mpirun(program(tmp_path / "bin" / "mpirun", MPIRUN.replace("ACT", act)), "mpich", "0")
    out, err = io.StringIO(), io.StringIO()
    code = supervise(3, [acts], program=[PROGRAM], mpirun=launcher, out=out, err=err, hosts=HOSTS)
    return code, err.getvalue()


def test_a_good_run_says_nothing_of_hosts(tmp_path):
    assert run(tmp_path, "wait; exit 0", "ok,ok,ok") == (0, "")


def test_the_codes_of_all_ranks_are_the_runs(tmp_path):
    assert run(tmp_path, "", "exit:4,exit:4,exit:4") == (4, "")


@pytest.mark.parametrize(
    "act",
    [
        f'{ALL_WATCHED}; kill $(cat "$FAKE_FOLDER/../ssh/there"); sleep 0.1; {ALL_KILLED}',
        # Apart, for the supervisor ends what is left of its launcher; which names one of those that it killed.
        f"{ALL_WATCHED}{BANNER}{ALL_KILLED}; env -u FASTLLOYD_RUN setsid --fork sh -c "
        """'sleep 0.3; kill $(cat "$FAKE_FOLDER/../ssh/there")' > /dev/null 2>&1; exit 255""",
    ],
    ids=["seen before mpirun ends", "seen after it"],
)
def test_a_lost_host_is_named_not_the_ranks_that_the_launcher_killed(tmp_path, act):
    code, err = run(tmp_path, act)
    assert code == 3
    assert "fastlloyd: rank 1 (client 1) is gone: the connection to its host there broke" in err


def test_of_several_lost_hosts_the_first_is_named(tmp_path):
    lost = 'kill $(cat "$FAKE_FOLDER/../ssh/elsewhere"); sleep 0.5; kill $(cat "$FAKE_FOLDER/../ssh/there")'
    code, err = run(tmp_path, f"{ALL_WATCHED}; {lost}; {ALL_KILLED}")
    assert code == 3
    assert "rank 2 (client 2) is gone: the connection to its host user@elsewhere broke" in err


def test_a_rank_that_was_killed_on_its_host_is_named_after_the_launchers_words(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_LOST_S", 0.1)
    code, err = run(tmp_path, f"{ALL_WATCHED}{BANNER}{ALL_KILLED}")
    assert code == 3
    assert "fastlloyd: rank 2 (client 2) was killed on its host user@elsewhere" in err


def test_nobody_is_blamed_where_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_LOST_S", 0.1)
    code, err = run(tmp_path, f"{ALL_WATCHED}; {ALL_KILLED}; exit 255")
    assert code == 3
    assert "mpirun ended with code 255; not done: rank 0 (the server), rank 1 (client 1), rank 2 (client 2)" in err


def test_a_host_that_lets_nobody_in_is_named_before_anything_starts():
    with pytest.raises(ConfigError, match=r"log in to closed over ssh.*Permission denied \(publickey\).*ssh closed"):
        HostLines(("here", "there", "closed"))


def test_the_connections_end_with_the_run():
    with HostLines(HOSTS) as lines:
        processes = lines._ssh
        assert [ssh.poll() for ssh in processes] == [None, None]
        assert len(list(lines)) == 2
    started = time.monotonic()
    assert all(ssh.poll() is not None for ssh in processes)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "a"], "two hosts or more"),
        (["--hosts", "a,b,a"], "each once"),
        (["--hosts", "a,-oProxyCommand=x"], "expected a host name"),
        (["--hosts", "a,b;c"], "expected a host name"),
        (["--hosts", "a,b", "-n", "3"], "leave out -n"),
        (["--hosts", "a,b", "--network", "wan"], "leave out --network"),
        (["-n", "0"], "at least 2 processes"),
    ],
)
def test_wrong_hosts_are_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        command.main(words)


@pytest.mark.parametrize("own", [["--hosts", "a,b"], ["--hosts=a,b"], ["-n", "2"], ["-n2"]])
def test_the_ranks_are_not_told_what_is_the_launchers(own):
    assert command._for_ranks(["--k", "3", *own, "--epsilon", "2"]) == ["--k", "3", "--epsilon", "2"]
