"""The data of the SecFC benchmarks: Gaussian mixtures and rotated digits, dealt out by clusters.

Source: SecFC, §5.1 (mixtures, k' clusters at one client), §5.2 (rotated MNIST).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.data.public.mixture import Mixture, make_mixture
from fastlloyd.data.public.named import load_named
from fastlloyd.errors import ConfigError

HALF_WIDTH = 7.2
"""Centres are uniform on [-7.2, 7.2]^d. The paper does not say; see `secfc_table2.py` for how this was chosen."""

_DIGITS = "mnist"
_SIDE = 28
_TURNS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the records of some columns of a table come from.

    Attributes
    ----------
    title : str
    k : int
    clients : int
    records : int
        Of all clients together; 0 for a digit: as many as there are.
    d : int
    sigma : float
        Standard deviation of a mixture's components.
    digit : int or None
        Which MNIST digit is rotated, if it is no mixture.
    """

    title: str
    k: int
    clients: int
    records: int = 0
    d: int = _SIDE * _SIDE
    sigma: float = 0.0
    digit: int | None = None

    @property
    def label(self) -> str:
        """A name that differs between sources."""
        if self.digit is not None:
            return f"digit-{self.digit}-n{self.clients}"
        return f"mixture-m{self.records}-d{self.d}-k{self.k}-sigma{self.sigma:g}-n{self.clients}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Records ready to be clustered.

    Attributes
    ----------
    points : float64 array, shape (m, d)
        Scaled to [-1, 1] by one pair of public bounds for all features, which keeps all proportions.
    truth : int64 array, shape (m,)
    seed : int
        Of the records, and of who gets which.
    """

    source: Source
    seed: int
    points: NDArray[np.float64] = field(repr=False)
    truth: NDArray[np.int64] = field(repr=False)

    def deal(self, local: int) -> list[NDArray[np.int64]]:
        """Return the rows of each client, none with records of more than `local` clusters."""
        return deal_rows(self.truth, self.source.clients, local, self.seed)


def load_problem(source: Source, data_dir: str | None, seed: int) -> Problem:
    """Generate or read the records of a source.

    Parameters
    ----------
    source : Source
    data_dir : str or None
    seed : int
        Digits do not depend on it, but who gets which does.

    Raises
    ------
    ConfigError
        The digits are not there, or are no pictures of 28 x 28.
    """
    if source.digit is None:
        points, truth = gaussian_mixture(source.records, source.d, source.k, source.sigma, seed)
        return Problem(source=source, seed=seed, points=points, truth=truth)
    found = load_named(_DIGITS, data_dir)
    if found.labels is None or found.values.shape[1] != _SIDE**2:
        raise ConfigError(f"{_DIGITS}: expected labelled pictures of {_SIDE} x {_SIDE} pixels; check --data-dir")
    pictures, truth = rotate_pictures(found.values[found.labels == source.digit])
    bounds = Bounds(np.array([0.0]), np.array([255.0])).match(found.names)
    return Problem(source=source, seed=seed, points=scale(pictures, bounds), truth=truth)


def gaussian_mixture(
    records: int, d: int, k: int, sigma: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Generate the paper's mixture, scaled, and its true labels.

    Notes
    -----
    The true label of a record is the centre nearest to it (§5.1), not the component it was drawn from.
    """
    # The generator's centres are uniform on a cube of side 1.
    deviation = sigma / (2.0 * HALF_WIDTH)
    made = make_mixture(Mixture(clients=1, points=records, d=d, k=k, variance=deviation**2, server=0, uniform=1), seed)
    scores = (made.means**2).sum(axis=1) - 2.0 * made.points @ made.means.T
    return scale(made.points, made.mixture.bounds), scores.argmin(axis=1)


def rotate_pictures(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Turn pictures by 0, 90, 180 and 270 degrees.

    Parameters
    ----------
    values : float64 array, shape (n, pixels)

    Returns
    -------
    float64 array, shape (4 n, pixels)
    int64 array, shape (4 n,)
        Quarter turns: the true clusters.
    """
    side = round(values.shape[1] ** 0.5)
    pictures = values.reshape(-1, side, side)
    turned = [np.rot90(pictures, turn, axes=(1, 2)).reshape(len(values), -1) for turn in range(_TURNS)]
    return np.concatenate(turned), np.repeat(np.arange(_TURNS, dtype=np.int64), len(values))


def deal_rows(truth: NDArray[np.int64], clients: int, local: int, seed: int) -> list[NDArray[np.int64]]:
    """Deal rows out so that each client has records of at most `local` clusters, and every row has an owner.

    Parameters
    ----------
    truth : int64 array, shape (m,)
    clients : int
    local : int
        Paper: k'.
    seed : int
        Public.

    Returns
    -------
    list of int64 array
        For each client its rows.

    Raises
    ------
    ConfigError
        Fewer than k places for k clusters.
    """
    random = np.random.default_rng(seed)
    clusters = np.unique(truth)
    if clients * local < len(clusters):
        raise ConfigError(f"{clients} clients with {local} clusters each cannot hold {len(clusters)} clusters")
    order = random.permutation(clusters)
    owned = [{int(order[(client * local + i) % len(order)]) for i in range(local)} for client in range(clients)]
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(clients)]
    for cluster in clusters:
        owners = [client for client in range(clients) if int(cluster) in owned[client]]
        rows = random.permutation(np.flatnonzero(truth == cluster))
        for owner, own in zip(owners, np.array_split(rows, len(owners)), strict=True):
            parts[owner].append(own)
    return [np.concatenate([np.arange(0), *own]) for own in parts]
