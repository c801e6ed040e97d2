"""Limits of the public numbers that every private protocol has."""

from __future__ import annotations

import math

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.accountant import SAMPLER_DELTA


def check_numbers(*, n_total: int, epsilon: float, delta: float | None) -> None:
    """Check the public N, epsilon and delta (None: automatic).

    Raises
    ------
    ConfigError
        One of them is out of range.
    """
    if n_total < 3:
        raise ConfigError(f"--n-total: expected at least 3 records, got {n_total}")
    if not (math.isfinite(epsilon) and 0 < epsilon <= 100):
        raise ConfigError(f"--epsilon: expected a number in (0, 100], got {epsilon:g}")
    if delta is not None and not 2 * SAMPLER_DELTA < delta < 1:
        raise ConfigError(f"--delta: expected 'auto' or a number in (1e-11, 1), got {delta:g}")
