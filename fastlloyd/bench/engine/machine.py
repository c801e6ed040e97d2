"""Says on which machine, with which versions and under which load figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np

from fastlloyd.net.mpi.launcher import Mpirun
from fastlloyd.version import __version__

_VENDORS = {"mpich": "MPICH", "openmpi": "Open MPI"}
_BUSY_SHARE = 0.25


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


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


def busy(before: float) -> bool:
    """Whether the load before the first run was more than a quarter of the cores."""
    return before > _BUSY_SHARE * cores()


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
