"""The MPI transport under a real mpirun: the one beside the interpreter that runs these tests."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun, mpirun_command
from tests import forks
from tests.contracts import transport as contract

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")
LIMIT_S = 40.0
# A second on an idle machine; whoever waits for a rank that hangs waits for the limit.
SOON_S = 20.0
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# A separate network namespace: no other traffic is counted there.
ISOLATED = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@dataclass(frozen=True)
class Ended:
    """What a command left."""

    code: int
    out: str
    err: str
    seconds: float
    left: tuple[int, ...]


@cache
def mpirun() -> Mpirun:
    return find_mpirun()


@cache
def can_isolate() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0


def marked(marker: str) -> Iterator[int]:
    """Find the processes that carry this run's mark; launchers start them in separate sessions."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes():
                yield int(entry.name)


def execute(command: list[str], env: dict[str, str] | None = None) -> Ended:
    """Run to the end, within the limit; what is still running ten seconds later is reported and killed."""
    marker = f"fastlloyd-test-{uuid.uuid4().hex}"
    full_env = os.environ | forks.environment() | {"FASTLLOYD_TEST_MARK": marker} | (env or {})
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env=full_env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
        seconds = time.monotonic() - started
        while any(marked(marker)) and time.monotonic() < started + seconds + 10:
            time.sleep(0.02)
    finally:
        left = tuple(marked(marker))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    return Ended(process.returncode, out, err, seconds, left)


def launch(program: str, *args: str, n: int = 3, prefix: tuple[str, ...] = (), **options: object) -> Ended:
    """Run a program of ours under mpirun."""
    argv = [sys.executable, str(PROGRAMS / program), *args]
    command, env = mpirun_command(mpirun(), n, argv, **options)
    return execute([*prefix, *command], env | (AS_ROOT if prefix else {}))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_contract(transport: str) -> None:
    ended = launch("contract.py", transport)
    assert (ended.code, ended.out.strip()) == (0, f"passed {len(contract.CASES)}"), ended.err


@pytest.mark.parametrize("set_by", ["mpirun", "rank"])
def test_tcp_moves_its_bytes_over_the_interface(set_by: str) -> None:
    prefix = ISOLATED if can_isolate() else ()
    if set_by == "mpirun":
        ended = launch("counting.py", "shm", prefix=prefix, transport="tcp")
    else:
        ended = launch("counting.py", "tcp", prefix=prefix)
    found = re.fullmatch(r"moved (\d+) for (\d+)", ended.out.strip())
    assert ended.code == 0 and found, ended
    moved, payload = map(int, found.groups())
    assert moved >= payload
    if prefix:
        assert moved < 1.2 * payload


def test_shm_moves_nothing_over_the_interface() -> None:
    if not can_isolate():
        pytest.skip("needs a network namespace: the host's loopback carries others' bytes too")
    ended = launch("counting.py", "shm", prefix=ISOLATED)
    found = re.fullmatch(r"moved (\d+) for (\d+)", ended.out.strip())
    assert ended.code == 0 and found, ended
    assert int(found[1]) < 0.01 * int(found[2])


def test_last_frames_are_flushed_by_close() -> None:
    ended = launch("fault.py", "flushed")
    assert (ended.code, ended.out.split()) == (0, ["whole", "whole"]), ended.err


def test_a_rank_that_never_starts_ends_the_others() -> None:
    ended = launch("fault.py", "absent")
    assert ended.code != 0
    assert "MPI did not start within 0.5 s" in ended.err
    assert ended.seconds < SOON_S and not ended.left


def test_a_rank_that_never_closes_ends_the_others() -> None:
    ended = launch("fault.py", "unfinished")
    assert ended.code != 0
    assert "MPI did not finalise within 0.5 s" in ended.err
    assert ended.seconds < SOON_S and not ended.left


def test_a_rank_stopped_within_a_frame_holds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    monkeypatch.setenv("FASTLLOYD_TEST_SAID", str(said))
    ended = launch("fault.py", "stopped")
    assert ended.code != 0
    assert "client 2 did not take its last frames within 0.5 s" in said.read_text(), ended
    assert ended.seconds < SOON_S and not ended.left


def test_survivors_hear_of_a_death_once_and_go_on() -> None:
    if mpirun().vendor != "openmpi":
        pytest.skip("only Open MPI lets survivors go on (mpirun --with-ft ulfm)")
    ended = launch("fault.py", "died", ulfm=True)
    assert ended.code != 0
    for name in ("the server", "client 1"):
        assert f"{name}: client 2 is gone" in ended.out, ended
    assert ended.out.count("refused") == 2
    assert ended.out.count("b'still here'") == 2


def test_one_process_is_refused() -> None:
    command, env = mpirun_command(mpirun(), 2, [sys.executable, str(PROGRAMS / "fault.py"), "alone"])
    command[command.index("2")] = "1"
    ended = execute(command, env)
    assert ended.code == 2
    assert "ConfigError" in ended.err and "asked for 1 process" in ended.err


def test_no_launcher_is_refused_with_the_command() -> None:
    ended = execute([sys.executable, str(PROGRAMS / "fault.py"), "alone"])
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "mpirun -n 3 python -m fastlloyd.client" in ended.err and "fastlloyd run -n 3" in ended.err


def test_a_foreign_launcher_is_refused_with_the_right_mpirun() -> None:
    foreign = {
        "mpich": {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "3"},
        "openmpi": {"PMI_RANK": "0", "PMI_SIZE": "3"},
    }[mpirun().vendor]
    ended = execute([sys.executable, str(PROGRAMS / "fault.py"), "alone"], foreign)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "mpirun of another MPI" in ended.err and "fastlloyd run -n 3" in ended.err
