"""What this process may use of the host that it runs on."""

from __future__ import annotations

import os


def cores() -> int:
    """Return how many cores this process may use; all of the host's where the system does not tell (macOS)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
