"""The mixed Gaussian data of the vertical experiments: demonstration data, made on one machine.

Source: Vertical DP, §6, "Synthetic mixed Gaussian dataset".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.dataset import Dataset
from fastlloyd.errors import ConfigError

DEFAULT_SPREAD = 0.1


def gaussian_mixture(
    n: int = 20_000, d: int = 8, k: int = 5, *, spread: float = DEFAULT_SPREAD, seed: int = 0
) -> Dataset:
    """Draw k centres uniformly in [-1, 1]^d, then n points around them, clipped to [-1, 1].

    Parameters
    ----------
    n, d, k : int
        The paper's: 20,000 points, 8 features, 5 centres.
    spread : float
        Standard deviation of each coordinate around its centre. The paper does not state its own.
    seed : int
        Public.

    Returns
    -------
    Dataset
        Features x1..xd, labels (which centre), bounds -1 and 1. Each centre has n / k points, but for rounding;
        their order is random.

    Notes
    -----
    numpy's generator is good enough here: the data are made by one process and then are data like any other.
    """
    if not (1 <= k <= n and d >= 1 and spread > 0.0):
        raise ConfigError(f"expected 1 <= k <= n, d >= 1 and a positive spread, got n={n}, d={d}, k={k}, {spread=}")
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-1.0, 1.0, (k, d))
    labels: NDArray[np.int64] = rng.permutation(np.arange(n, dtype=np.int64) % k)
    values = np.clip(centers[labels] + rng.normal(0.0, spread, (n, d)), -1.0, 1.0)
    names = tuple(f"x{i + 1}" for i in range(d))
    return Dataset(
        name=f"vertical_mixture_{n}_{d}_{k}",
        values=values,
        names=names,
        labels=labels,
        bounds=Bounds(np.full(d, -1.0), np.full(d, 1.0), names),
        k=k,
        licence="made by fastlloyd",
    )
