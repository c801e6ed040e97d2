"""Limits of public numbers that several protocols share."""

from __future__ import annotations

from fastlloyd.errors import ConfigError, ProcessesError
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.wire.decode import Within

MOST_EPSILON = 100.0
LEAST_RECORDS = Within(3)
"""The public N of a run with noise."""


def check_numbers(*, n_total: int, epsilon: float, delta: float | None) -> None:
    """Check the public N, epsilon and delta (None: automatic).

    Raises
    ------
    ConfigError
        One of them is out of range.
    """
    LEAST_RECORDS.check("--n-total", n_total)
    Within(above=0, most=MOST_EPSILON).check("--epsilon", epsilon, "a number")
    if delta is not None:
        Within(above=2 * SAMPLER_DELTA, below=1).check("--delta", delta, "'auto' or a number")


def check_clients(clients: int, least: int | None = None) -> None:
    """Check the number of clients, and how many of them a round needs (None: all).

    Raises
    ------
    ConfigError
        One of them is out of range.
    """
    if clients < 1:
        raise ProcessesError("expected at least one client, got none", 2, serves=True)
    if least is not None:
        Within(1, clients).check("--min-clients", least, "a number of clients")


def check_clusters(k: int, n_total: int, *, most: int = 10_000) -> None:
    """Check the number of clusters.

    Raises
    ------
    ConfigError
        There are none, more than `most`, or more than records.
    """
    Within(1, most).check("--k", k)
    if k > n_total:
        raise ConfigError(
            f"--k: expected at most the public N = {n_total} clusters, got {k}; lower --k or check --n-total"
        )


def check_rounds(rounds: int | None, *, least: int = 1, what: str = "") -> None:
    """Check the number of rounds (None: automatic); `what` says of what where they are no plain rounds.

    Raises
    ------
    ConfigError
        It is out of range.
    """
    if rounds is not None:
        Within(least, 1000).check("--rounds", rounds, f"'auto' or a number{what}")
