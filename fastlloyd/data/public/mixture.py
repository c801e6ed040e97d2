"""Gaussian mixtures for demonstrations: with server data of another distribution, and for vertical protocols.

The clients' records come from k equally likely normal components around uniform means; the server's from the same
components and, as data that are related but of another distribution, uniformly from the cube of the means. The
whole is a function of the public seed. numpy's generator is used, so another version of numpy may give other records:
parties on several machines should be given files instead.

Source: FedDP-KMeans, App. G.1 (mixture and server data), App. H.2 (components that the server data lack).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.dataset import Dataset
from fastlloyd.errors import ConfigError
from fastlloyd.wire.decode import Within

MIXTURE = "mixture"
DEFAULT_SPREAD = 0.1

_LEAST = {"clients": 1, "points": 1, "d": 1, "k": 1, "server": 0, "uniform": 0, "missing": 0, "local": 0}
_MAX_VALUES = 1 << 28
# A coordinate leaves mean +- 6 standard deviations once in 10^9; it then counts as the bound.
_DEVIATIONS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The mixture to generate; the defaults are the paper's.

    Attributes
    ----------
    clients : int
        Owners of records: organisations at record level, users at client level.
    points : int
        Records of each of them.
    d, k : int
        Features and components.
    variance : float
        Of each component along each axis.
    server : int
        Server records of each component.
    uniform : int
        Further server records, uniform on [0, 1]^d.
    missing : int
        Components of which the server has none (H.2).
    local : int
        Components that one client's records come from; 0 for all of them (independent draws).

    Raises
    ------
    ConfigError
        A number is out of range.
    """

    clients: int = 100
    points: int = 1000
    d: int = 100
    k: int = 10
    variance: float = 0.5
    server: int = 20
    uniform: int = 100
    missing: int = 0
    local: int = 0

    def __post_init__(self) -> None:
        for name, low in _LEAST.items():
            most = self.k if name in ("missing", "local") else math.inf
            Within(low, most).check(f"--dataset mixture: {name}", getattr(self, name))
        Within(above=0).check("--dataset mixture: variance", self.variance, "a number")
        if self.server_rows < 1:
            raise ConfigError("--dataset mixture: the server has no record; give server or uniform above 0")
        values = (self.n + self.server_rows) * self.d
        if values > _MAX_VALUES:
            raise ConfigError(
                f"--dataset mixture: expected at most {_MAX_VALUES} values in all, got {values}; lower clients, "
                "points or d"
            )

    @property
    def n(self) -> int:
        """Records of all clients together."""
        return self.clients * self.points

    @property
    def server_rows(self) -> int:
        """Records of the server."""
        return (self.k - self.missing) * self.server + self.uniform

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names x1..xd."""
        return tuple(f"x{h + 1}" for h in range(self.d))

    @property
    def bounds(self) -> Bounds:
        """Public bounds that follow from the parameters alone: [-6 s, 1 + 6 s], s the standard deviation."""
        margin = _DEVIATIONS * math.sqrt(self.variance)
        return Bounds(np.array([-margin]), np.array([1.0 + margin])).match(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class MixtureData:
    """Generated records.

    Attributes
    ----------
    mixture : Mixture
    points : float64 array, shape (n, d)
        Owner by owner.
    owners : int64 array, shape (n,)
        Which client or user a record belongs to, 0..clients - 1.
    labels : int64 array, shape (n,)
        Components, for evaluation.
    means : float64 array, shape (k, d)
    server_points : float64 array, shape (s, d)
        Component by component, then the uniform ones.
    """

    mixture: Mixture
    points: NDArray[np.float64] = field(repr=False)
    owners: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    means: NDArray[np.float64] = field(repr=False)
    server_points: NDArray[np.float64] = field(repr=False)

    def rank_rows(self, ranks: int) -> list[NDArray[np.int64]]:
        """Split whole owners among the clients of a run, as evenly as possible; return each one's rows.

        Raises
        ------
        ConfigError
            More ranks than owners.
        """
        owners = self.mixture.clients
        if not 1 <= ranks <= owners:
            raise ConfigError(
                f"cannot deal {owners} owners of records out to {ranks} clients: start fewer, or give "
                f"--dataset mixture:clients={ranks}"
            )
        size = self.mixture.points
        parts = np.array_split(np.arange(owners, dtype=np.int64), ranks)
        return [np.arange(part[0] * size, (part[-1] + 1) * size, dtype=np.int64) for part in parts]


def parse_mixture(text: str) -> Mixture:
    """Read `mixture` or `mixture:clients=2000,points=50,...`.

    Raises
    ------
    ConfigError
        An unknown or repeated name, or not a number.

    Examples
    --------
    >>> parse_mixture("mixture:clients=5,missing=2").missing
    2
    """
    if text.partition(":")[0] != MIXTURE:
        raise ConfigError(f"--dataset {text}: expected mixture or mixture:NAME=NUMBER,...")
    return Mixture(**read_numbers(text, dict.fromkeys(_LEAST, int) | {"variance": float}))


def read_numbers(text: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Read the numbers of `SET:NAME=NUMBER,...`, each at most once.

    Raises
    ------
    ConfigError
        An unknown or repeated name, or not a number.
    """
    chosen: dict[str, Any] = {}
    for pair in filter(None, text.partition(":")[2].split(",")):
        name, _, value = (part.strip() for part in pair.partition("="))
        if name not in kinds or name in chosen:
            raise ConfigError(f"--dataset {text}: expected each of {', '.join(kinds)} at most once, got {pair!r}")
        try:
            chosen[name] = kinds[name](value)
        except ValueError as error:
            raise ConfigError(f"--dataset {text}: expected {name}=NUMBER, got {pair!r}") from error
    return chosen


def make_mixture(mixture: Mixture, seed: int) -> MixtureData:
    """Generate the records of clients and server.

    Parameters
    ----------
    mixture : Mixture
    seed : int
        Public. The clients' records do not depend on what the server has, so that figures with more or fewer
        components missing are about the same records.

    Notes
    -----
    Source: App. G.1.
    """
    means_random, clients_random, server_random = (
        np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(3)
    )
    means = means_random.uniform(0.0, 1.0, (mixture.k, mixture.d))
    owners = np.repeat(np.arange(mixture.clients, dtype=np.int64), mixture.points)
    labels = _draw_labels(mixture, clients_random)
    points = _around(means, labels, mixture.variance, clients_random)
    components = np.repeat(np.arange(mixture.k, dtype=np.int64), mixture.server)
    inside = _around(means, components, mixture.variance, server_random)
    outside = server_random.uniform(0.0, 1.0, (mixture.uniform, mixture.d))
    kept = components < mixture.k - mixture.missing
    return MixtureData(
        mixture=mixture,
        points=points,
        owners=owners,
        labels=labels,
        means=means,
        server_points=np.concatenate([inside[kept], outside]),
    )


def _draw_labels(mixture: Mixture, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw each record's component, from all or from those of its client."""
    if mixture.local == 0:
        return random.integers(0, mixture.k, mixture.n)
    keys = random.random((mixture.clients, mixture.k))
    owners = np.arange(mixture.clients)
    # One component of each client in turn, so that none is left out while there are k clients or more.
    keys[owners, random.permutation(mixture.k)[owners % mixture.k]] = -1.0
    order = np.argsort(keys, axis=1)[:, : mixture.local]
    places = random.integers(0, mixture.local, (mixture.clients, mixture.points))
    chosen: NDArray[np.int64] = np.take_along_axis(order, places, axis=1).ravel().astype(np.int64)
    return chosen


def _around(
    means: NDArray[np.float64], labels: NDArray[np.int64], variance: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """Draw one record around the mean of each label."""
    points = random.standard_normal((len(labels), means.shape[1]))
    points *= math.sqrt(variance)
    points += means[labels]
    return points


def gaussian_mixture(
    n: int = 20_000, d: int = 8, k: int = 5, *, spread: float = DEFAULT_SPREAD, seed: int = 0
) -> Dataset:
    """Draw the data of the vertical experiments: k centres uniform in [-1, 1]^d, n points around them, clipped to that.

    Parameters
    ----------
    n, d, k : int
        The paper's: 20,000 points, 8 features, 5 centres.
    spread : float
        Standard deviation of each coordinate around its centre. The paper states none.
    seed : int
        Public.

    Returns
    -------
    Dataset
        Features x1..xd, labels (which centre), bounds -1 and 1. Each centre has n / k points, but for rounding;
        their order is random.

    Source
    ------
    Vertical DP, §6, "Synthetic mixed Gaussian dataset".
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
