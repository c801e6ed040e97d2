"""Times the FastLloyd authors' own code from the user's checkout, unchanged, in turn with ours.

It runs as its README says (`mpirun -n 3 python experiments.py --exp_type timing`) in a scratch folder: the
program reads `data/NAME.txt` below the folder it is started in and skips names without a file, so the
one file there decides what is timed. Nothing is written into the checkout, and nothing is taken from it.

Source: https://github.com/D-Diaa/FastLloyd.
"""

from __future__ import annotations

import csv
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.net.mpi.launcher import Mpirun, find_mpirun, mpirun_command
from fastlloyd_papers.engine.machine import describe_commit
from fastlloyd_papers.engine.runner import run_program

LAN_DELAY_S = 0.000125
WAN_DELAY_S = 0.025
PROGRAM = "experiments.py"
_NEEDS = "pandas diffprivlib 'scikit-learn<1.7' seaborn scipy matplotlib tqdm Jinja2 mpi4py mpich"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A checkout, its interpreter, and the mpirun that belongs to it.

    Attributes
    ----------
    commit : str
        Of the checkout; 'unknown' if it is not one of git.
    """

    folder: Path
    python: str
    mpirun: Mpirun
    commit: str


def open_peer(folder: Path, python: str) -> Peer:
    """Check a checkout and its interpreter before anything is timed.

    Raises
    ------
    ConfigError
        The program is not there, or its imports are not.
    """
    folder = folder.resolve()
    if not (folder / PROGRAM).is_file():
        raise ConfigError(
            f"--peer {folder}: expected a checkout of https://github.com/D-Diaa/FastLloyd with {PROGRAM}, found none; "
            "give the folder of one"
        )
    check = "import pandas, diffprivlib, sklearn, scipy, matplotlib, tqdm, mpi4py"
    try:
        done = subprocess.run([python, "-c", check], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--peer-python {python}: cannot be run; give the path of an interpreter") from error
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        raise ConfigError(f"--peer-python {python}: {words}; that code needs `pip install {_NEEDS}` there")
    return Peer(
        folder=folder, python=python, mpirun=find_mpirun(python), commit=describe_commit(folder, PROGRAM) or "unknown"
    )


def time_peer(peer: Peer, name: str, points: NDArray[np.float64], *, repeats: int) -> dict[str, Any]:
    """Time one data set with two clients and give what its server wrote.

    Parameters
    ----------
    peer : Peer
    name : str
        As that code calls it: `timesynth_K_D_N`, `s1` or `lsun`.
    points : float64 array, shape (n, d)
    repeats : int
        Its own repetitions within one mpirun; it writes down their mean.

    Returns
    -------
    dict
        `lan_seconds`, `wan_seconds` per round, `bytes_per_round`, `rounds`.

    Raises
    ------
    ConfigError
        It failed, or wrote no result.
    """
    with tempfile.TemporaryDirectory(prefix="fastlloyd-peer-") as scratch:
        folder = Path(scratch)
        (folder / "data").mkdir()
        np.savetxt(folder / "data" / f"{name}.txt", points, fmt="%.12f")
        words = [peer.python, str(peer.folder / PROGRAM), "--exp_type", "timing", "--num_runs", str(repeats)]
        command, env = mpirun_command(peer.mpirun, 3, [*words, "--results_folder", "results"])
        # Its bytecode would otherwise be written into the checkout.
        env = {**env, "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}
        said = run_program(command, env, what=f"{PROGRAM} of --peer", cwd=folder)
        tables = [folder / "results" / "timing_2" / name / f"variances_{rank}.csv" for rank in range(3)]
        if not all(path.is_file() for path in tables):
            words = said.strip().splitlines()[-3:]
            raise ConfigError(f"{PROGRAM} of --peer wrote no result for {name}: {' | '.join(words)}")
        return read_peer([path.read_text(encoding="utf-8") for path in tables])


def read_peer(tables: list[str]) -> dict[str, Any]:
    """Read the tables that the three ranks wrote, the server's first.

    Raises
    ------
    ConfigError
        A delay is missing, or a run failed.
    """
    ranks = [{float(row["delay"]): row for row in csv.DictReader(text.splitlines())} for text in tables]
    for rows in ranks:
        if set(rows) != {LAN_DELAY_S, WAN_DELAY_S}:
            raise ConfigError(
                f"{PROGRAM} of --peer: expected the delays {LAN_DELAY_S} and {WAN_DELAY_S} s, got "
                f"{sorted(rows)}; take the published version"
            )
        for row in rows.values():
            if int(row["experiments"]) < 1 or row["successes"] != row["experiments"]:
                raise ConfigError(f"{PROGRAM} of --peer: {row['successes']} of {row['experiments']} runs succeeded")
    lan, wan = ranks[0][LAN_DELAY_S], ranks[0][WAN_DELAY_S]
    rounds = int(lan["iters"])
    return {
        "lan_seconds": _per_round(lan),
        "wan_seconds": _per_round(wan),
        "bytes_per_round": sum(int(rows[LAN_DELAY_S]["comm_size"]) for rows in ranks) / rounds,
        "rounds": rounds,
    }


def _per_round(row: Mapping[str, str]) -> float:
    return float(row["elapsed"]) / int(row["iters"])
