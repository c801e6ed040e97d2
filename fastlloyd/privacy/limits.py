"""Limits of the public numbers that several protocols have."""

from __future__ import annotations

import math

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import SAMPLER_DELTA

MOST_EPSILON = 100.0


def check_numbers(*, n_total: int, epsilon: float, delta: float | None) -> None:
    """Check the public N, epsilon and delta (None: automatic).

    Raises
    ------
    ConfigError
        One of them is out of range.
    """
    if n_total < 3:
        raise ConfigError(f"--n-total: expected at least 3 records, got {n_total}")
    if not (math.isfinite(epsilon) and 0 < epsilon <= MOST_EPSILON):
        raise ConfigError(f"--epsilon: expected a number in (0, {MOST_EPSILON:g}], got {epsilon:g}")
    if delta is not None and not 2 * SAMPLER_DELTA < delta < 1:
        raise ConfigError(f"--delta: expected 'auto' or a number in (1e-11, 1), got {delta:g}")


def check_clients(clients: int, least: int | None = None) -> None:
    """Check the number of clients, and how many of them a round needs (None: all).

    Raises
    ------
    ConfigError
        One of them is out of range.
    """
    if clients < 1:
        raise ConfigError("expected at least one client, got none; start with -n 2 or more (rank 0 serves)")
    if least is not None and not 1 <= least <= clients:
        raise ConfigError(f"--min-clients: expected 1 to {clients} (the clients), got {least}")


def check_clusters(k: int, n_total: int, *, most: int = 10_000) -> None:
    """Check the number of clusters.

    Raises
    ------
    ConfigError
        There are none, more than `most`, or more than records.
    """
    if not 1 <= k <= most:
        raise ConfigError(f"--k: expected 1 to {most} clusters, got {k}")
    if k > n_total:
        raise ConfigError(
            f"--k: expected at most the public N = {n_total} clusters, got {k}; lower --k or check --n-total"
        )


def check_rounds(rounds: int | None, *, least: int = 1, what: str = "") -> None:
    """Check the number of rounds (None: automatic); `what` names them where they are no plain rounds.

    Raises
    ------
    ConfigError
        It is out of range.
    """
    if rounds is not None and not least <= rounds <= 1000:
        raise ConfigError(f"--rounds: expected 'auto' or {least} to 1000{what}, got {rounds}")
