"""The data of the FedDP-KMeans benchmarks: Gaussian mixtures, and files that the user has.

The paper's census and Stack Overflow data are not shipped; `fastlloyd datasets make census` (`stackoverflow`) makes
them of public files. Each is two files in --data-dir, ending in .csv, .csv.gz or .parquet::

    NAME.csv           the clients' records: one row each; a column `owner` (a whole number: the state, or the user)
    NAME-server.csv    the server's records: the same features, no `owner`

with NAME out of `FILES`. All other numeric columns are features. Bounds are one pair for all features, the smallest and
largest value of the server's file; values of clients outside count as the bound.

Source: FedDP-KMeans, App. G.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.data.public.mixture import Mixture, make_mixture
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.metrics import nearest

OWNER = "owner"
FILES: Mapping[str, str] = {
    "census-federal": "US census, federal employees",
    "census-nonprofit": "US census, not-for-profit employees",
    "census-self": "US census, self-employed",
    "stackoverflow-github-pdf": "Stack Overflow (github, pdf)",
    "stackoverflow-facebook-hibernate": "Stack Overflow (facebook, hibernate)",
    "stackoverflow-machine-learning-math": "Stack Overflow (machine-learning, math)",
    "stackoverflow-plotting-cookies": "Stack Overflow (plotting, cookies)",
}
_SUFFIXES = (".csv.gz", ".csv", ".parquet")
_K = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the records of one panel come from.

    Attributes
    ----------
    title : str
    level : {'record', 'client'}
        What is protected.
    k : int
    mixture : Mixture or None
    file : str or None
        One of `FILES`, if it is no mixture.
    """

    title: str
    level: str
    k: int = _K
    mixture: Mixture | None = None
    file: str | None = None

    @property
    def label(self) -> str:
        """A name that differs between sources."""
        if self.mixture is None:
            return str(self.file)
        made = self.mixture
        return f"mixture-{self.level}-{made.clients}x{made.points}-d{made.d}-k{made.k}-missing{made.missing}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Records ready to be clustered, scaled to [-1, 1]^d by one pair of public bounds.

    Attributes
    ----------
    points : float64 array, shape (n, d)
    owners : int64 array, shape (n,)
    server_points : float64 array, shape (s, d)
    half_width : float
        Original units in one scaled unit.
    """

    source: Source
    points: NDArray[np.float64] = field(repr=False)
    owners: NDArray[np.int64] = field(repr=False)
    server_points: NDArray[np.float64] = field(repr=False)
    half_width: float

    @property
    def clients(self) -> int:
        """Owners of records; each adds a share of the noise."""
        return len(np.unique(self.owners))

    def cost(self, centers: NDArray[np.float64]) -> float:
        """Return the mean squared distance to the nearest of scaled centres, shape (k, d), in original units (§5)."""
        return nearest(self.points, centers)[1] * self.half_width**2


def mixture_source(level: str, clients: int, points: int, *, missing: int = 0) -> Source:
    """Describe the paper's mixture with so many owners and records of each."""
    made = Mixture(clients=clients, points=points, missing=missing)
    word = "clients" if level == "record" else "users"
    lacking = f", server lacks {missing} of {made.k}" if missing else ""
    return Source(title=f"Gaussian mixture, {clients} {word}{lacking}", level=level, k=made.k, mixture=made)


def file_source(name: str) -> Source:
    """Describe one of the paper's real data sets."""
    return Source(title=FILES[name], level="record" if name.startswith("census") else "client", file=name)


def load_problem(source: Source, data_dir: str | None, seed: int) -> Problem:
    """Generate or read the records.

    Parameters
    ----------
    source : Source
    data_dir : str or None
    seed : int
        Of a mixture; files do not depend on it.

    Raises
    ------
    ConfigError
        A file is not there or does not fit.
    """
    if source.mixture is not None:
        made = make_mixture(source.mixture, seed)
        return _problem(source, made.points, made.owners, made.server_points, source.mixture.bounds)
    name = str(source.file)
    own, server = _find(name, data_dir), _find(f"{name}-server", data_dir)
    server_table = read_table(server)
    table = read_table(own, columns=(OWNER, *server_table.names))
    values = server_table.values
    low, high = float(values.min()), float(values.max())
    if low == high:
        raise ConfigError(
            f"{server}: all values are {low:g}; expected a range, for the bounds are taken from it; make the set again"
        )
    bounds = Bounds(np.array([low]), np.array([high])).match(server_table.names)
    return _problem(source, table.values[:, 1:], table.values[:, 0].astype(np.int64), values, bounds)


def is_there(source: Source, data_dir: str | None) -> str:
    """Say what is missing, or nothing."""
    if source.mixture is not None:
        return ""
    for name in (str(source.file), f"{source.file}-server"):
        try:
            _find(name, data_dir)
        except ConfigError as error:
            return str(error)
    return ""


def _find(name: str, data_dir: str | None) -> Path:
    if data_dir is None:
        raise ConfigError(f"no folder for {name}.csv; give --data-dir")
    for suffix in _SUFFIXES:
        path = Path(data_dir) / f"{name}{suffix}"
        if path.is_file():
            return path
    maker = name.partition("-")[0]
    raise ConfigError(f"no {name}.csv, .csv.gz or .parquet in --data-dir; `fastlloyd datasets make {maker}` makes it")


def _problem(
    source: Source,
    points: NDArray[np.float64],
    owners: NDArray[np.int64],
    server_points: NDArray[np.float64],
    bounds: Bounds,
) -> Problem:
    return Problem(
        source=source,
        points=scale(points, bounds),
        owners=owners,
        server_points=scale(server_points, bounds),
        half_width=float(bounds.half_width[0]),
    )
