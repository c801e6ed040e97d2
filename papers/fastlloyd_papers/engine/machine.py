"""Says on which machine, with which versions and under which load figures were measured."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np

from fastlloyd.net.cores import cores
from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd.version import __version__

_VENDORS = {"mpich": "MPICH", "openmpi": "Open MPI"}
_LIMIT_S = 20


def describe_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name processor, cores in use and memory: `AMD EPYC 7B13, 2 cores, 23 GiB, Linux`.

    Parameters
    ----------
    cpuinfo : Path
        Where the kernel names the processor.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    plural = "" if cores() == 1 else "s"
    return f"{_processor(cpuinfo)}, {cores()} core{plural}, {memory:.0f} GiB, {platform.system()}"


def describe_software(mpirun: Mpirun) -> str:
    """Name the versions that matter for a timing."""
    mpi = f"{_VENDORS[mpirun.vendor]} {mpirun.version}"
    return f"fastlloyd {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {mpi}"


def load() -> float:
    """Return how many processes wanted a core over the last minute."""
    return os.getloadavg()[0]


def describe_commit(folder: Path, file: str) -> str | None:
    """Name the commit of a checkout; a plus follows where tracked files differ from it.

    Parameters
    ----------
    folder : Path
    file : str
        In that folder, and tracked by git: else the folder merely lies within another's checkout.

    Returns
    -------
    str or None
        None where there is no such checkout.
    """
    if _git(folder, "ls-files", "--error-unmatch", file) is None:
        return None
    commit, changes = (
        _git(folder, "rev-parse", "--short=12", "HEAD"),
        _git(folder, "status", "--porcelain", "-uno", "."),
    )
    return None if commit is None else commit + ("+" if changes else "")


@lru_cache  # the code that runs is that of the start
def describe_code(checkout: Path) -> str | None:
    """Name the commit of a checkout of fastlloyd; a plus and a digest of the changes follow where code differs from it.

    Parameters
    ----------
    checkout : Path
        Holds `fastlloyd/` and, with the benchmarks, `papers/`.

    Returns
    -------
    str or None
        None where there is no such checkout.
    """
    if _git(checkout, "ls-files", "--error-unmatch", "fastlloyd/version.py") is None:
        return None
    commit = _git(checkout, "rev-parse", "--short=12", "HEAD")
    changes = _git(checkout, "diff", "HEAD", "--", "fastlloyd", "papers/fastlloyd_papers")
    if commit is None or not changes:
        return commit
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}"


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.machine() or "unknown processor"
