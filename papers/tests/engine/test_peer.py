"""Reads what the paper's code writes, and refuses what is not it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun
from fastlloyd_papers.engine.peer import Peer, open_peer, read_peer, time_peer

HEADER = ",delay,iters,elapsed,elapsed_h,comm_size,successes,experiments"


def table(rank: int, *, successes: int = 5, wan: float = 0.025) -> str:
    size = 7 * (96 if rank == 0 else 48)
    lines = [HEADER]
    lines += [
        f"0,{delay},7,{7 * seconds},0.001,{size},{successes},5" for delay, seconds in ((wan, 0.06), (1.25e-4, 0.008))
    ]
    return "\n".join(lines) + "\n"


def test_time_and_bytes_of_a_round_are_read() -> None:
    measured = read_peer([table(rank) for rank in range(3)])
    assert measured["lan_seconds"] == pytest.approx(0.008)
    assert measured["wan_seconds"] == pytest.approx(0.06)
    assert (measured["bytes_per_round"], measured["rounds"]) == (192, 7)


def test_other_delays_and_failed_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"expected the delays 0\.000125 and 0\.025 s, got \[0\.000125, 0\.05\]"):
        read_peer([table(rank, wan=0.05) for rank in range(3)])
    with pytest.raises(ConfigError, match="4 of 5 runs succeeded"):
        read_peer([table(rank, successes=4) for rank in range(3)])


def test_a_folder_without_the_program_and_a_bare_interpreter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a checkout of https://github.com/D-Diaa/FastLloyd"):
        open_peer(tmp_path, sys.executable)
    (tmp_path / "experiments.py").write_text("")
    with pytest.raises(ConfigError, match="cannot be run"):
        open_peer(tmp_path, str(tmp_path / "python"))
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(ConfigError, match=r"No module named 'pandas'; that code needs `pip install pandas"):
        open_peer(tmp_path, str(bare))


STAND_IN = """
import os, pathlib, sys
rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
words = sys.argv[1:]
assert words[words.index("--exp_type") + 1] == "timing" and words[words.index("--num_runs") + 1] == "5"
(name,) = pathlib.Path("data").iterdir()
assert [line.split() for line in name.read_text().splitlines()] == [["-1.000000000000", "0.500000000000"]] * 3
folder = pathlib.Path(words[words.index("--results_folder") + 1]) / "timing_2" / name.stem
folder.mkdir(parents=True, exist_ok=True)
if {write}:
    (folder / f"variances_{{rank}}.csv").write_text({tables!r}[int(rank)])
"""


@pytest.mark.mpi
@pytest.mark.parametrize("write", [True, False])
def test_it_runs_in_a_scratch_folder_with_one_data_file(tmp_path: Path, write: bool) -> None:
    program = STAND_IN.format(tables=[table(rank) for rank in range(3)], write=write)
    (tmp_path / "experiments.py").write_text(program)
    peer = Peer(folder=tmp_path, python=sys.executable, mpirun=find_mpirun(), commit="x")
    points = np.array([[-1.0, 0.5]] * 3)
    if write:
        assert time_peer(peer, "timesynth_2_2_3", points, repeats=5)["rounds"] == 7
    else:
        with pytest.raises(ConfigError, match="wrote no result for timesynth_2_2_3"):
            time_peer(peer, "timesynth_2_2_3", points, repeats=5)
    assert [path.name for path in tmp_path.iterdir()] == ["experiments.py"]


def test_the_mpirun_beside_its_interpreter_is_taken(tmp_path: Path) -> None:
    (tmp_path / "experiments.py").write_text("")
    for name, line in (("python", "exit 0"), ("mpirun", "echo 'mpirun (Open MPI) 5.0.9'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    peer = open_peer(tmp_path, str(tmp_path / "python"))
    assert peer.mpirun == Mpirun(tmp_path / "mpirun", "openmpi", "5.0.9")
    assert peer.commit == "unknown"
