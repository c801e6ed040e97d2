"""Limits of public numbers that several protocols share."""

from __future__ import annotations

from fastlloyd.errors import ConfigError, ProcessesError
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.shares import spread
from fastlloyd.wire.decode import Within

MOST_EPSILON = 100.0


def check_numbers(*, n_total: int, epsilon: float, delta: float | None) -> None:
    """Check the public N, epsilon and delta (None: automatic).

    Raises
    ------
    ConfigError
        One of them is out of range.
    """
    Within(3).check("--n-total", n_total)
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


def check_masking(masking: str, clients: int, min_clients: int, known_shares: int, *, noisy: bool = True) -> None:
    """Check how vectors are masked, and of how many clients an observer may know the shares of noise.

    Raises
    ------
    ConfigError
        There is no such masking, or pairwise masks cannot do what is asked.
    """
    if masking == "common":
        if known_shares != 1:
            raise ConfigError("--known-shares is for noise in shares: add --masking pairwise, or leave it out")
        return
    if masking != "pairwise":
        raise ConfigError(f"--masking: expected 'common' or 'pairwise', got {masking!r}")
    if clients < 2:
        problem = "--masking pairwise: expected at least 2 clients, got 1"
        raise ProcessesError(problem, 3, more=" or more, or use common")
    if min_clients < clients:
        raise ConfigError(
            f"--min-clients {min_clients} does not go with --masking pairwise: its masks cancel only in the sum of all "
            f"{clients} clients; leave --min-clients out (a run that lost a client ends, and goes on with --state-dir "
            "and --resume), or use --masking common"
        )
    if noisy:
        spread(clients, known_shares)
