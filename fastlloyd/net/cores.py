"""The cores of the host that this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of cores that this process may use; all of the host's if the system has no affinity (macOS)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
