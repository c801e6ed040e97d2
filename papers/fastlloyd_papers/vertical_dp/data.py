"""The data of the vertical DP benchmarks: the mixed Gaussian, the letters, and two sets that the user may give.

Taxi and loan are not shipped. `fastlloyd datasets make taxi` (`loan`) makes them of Kaggle's files: see
sets/kaggle.py for what of them, and which columns. Each column is scaled to [-1, 1] by its least and largest
value, which is fit for public data only; the letters have their own bounds, 0 to 15.

Source: Vertical DP, §6 "Datasets".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.mixture import gaussian_mixture
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd_papers.sets.kaggle import LOAN_COLUMNS, TAXI_NUMBERS, TAXI_TIMES
from fastlloyd_papers.sets.origin import ORIGINS
from fastlloyd_papers.vertical_dp.baselines import central_kmeans

Array = NDArray[np.float64]

K = 5
MIXTURE, LETTER, TAXI, LOAN = "mixture", "letter", "taxi", "loan"
TITLES: Mapping[str, str] = {
    MIXTURE: "mixed Gaussian",
    LETTER: "letter",
    TAXI: "New York taxi",
    LOAN: "loan",
}
# Other sets are the same in every repetition.
DRAWN_ANEW = (MIXTURE, LOAN)
WIDTHS: Mapping[str, int] = {MIXTURE: 8, LETTER: 16, TAXI: 8, LOAN: 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One data set and how its columns are dealt out.

    Attributes
    ----------
    name : str
        One of `TITLES`.
    sizes : tuple of int
        Columns of each party.
    n : int
        Records of the mixture; other sets have their own.
    """

    name: str
    sizes: tuple[int, ...]
    n: int = 20_000

    @property
    def parties(self) -> int:
        """Paper: S."""
        return len(self.sizes)

    @property
    def label(self) -> str:
        """A name that differs between sources."""
        size = f"-{self.n}" if self.name == MIXTURE else ""
        return f"{self.name}{size}-{'+'.join(map(str, self.sizes))}"

    @property
    def title(self) -> str:
        """What stands above a table."""
        return f"{TITLES[self.name]}, S = {self.parties} ({'+'.join(map(str, self.sizes))} columns)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Records ready to be clustered.

    Attributes
    ----------
    columns : tuple of float64 arrays, shape (n, d_i), scaled to [-1, 1]
    labels : int64 array, shape (n,)
        The mixture's components, else the clusters of central k-means without privacy, as in the paper.
    """

    source: Source
    columns: tuple[Array, ...] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)

    @property
    def n(self) -> int:
        """Records."""
        return len(self.labels)

    @property
    def points(self) -> Array:
        """All columns, party by party; shape (n, d)."""
        return np.hstack(self.columns)


def even(name: str, parties: int) -> Source:
    """Deal a set's columns out evenly."""
    return Source(name=name, sizes=tuple(len(part) for part in np.array_split(np.arange(WIDTHS[name]), parties)))


def missing(source: Source, data_dir: str | None) -> str:
    """Say what is not there, or nothing."""
    if source.name == MIXTURE:
        return ""
    try:
        _find(source.name, data_dir)
    except ConfigError as error:
        return str(error)
    return ""


def load_problem(source: Source, data_dir: str | None, run: int) -> Problem:
    """Generate or read the records.

    Parameters
    ----------
    source : Source
    data_dir : str or None
    run : int
        The mixture is drawn anew for each, and the columns of loan are dealt anew.

    Raises
    ------
    ConfigError
        A file is not there.
    DataError
        It does not fit.

    Notes
    -----
    Columns of letter and taxi that go together are given to different parties, the worst case for this setting; those
    of mixture and loan are dealt at random (the mixture's are alike already).
    """
    labels: NDArray[np.int64] | None = None
    if source.name == MIXTURE:
        made = gaussian_mixture(source.n, seed=run)
        points, labels, order = made.values, made.labels, np.arange(made.values.shape[1])
    else:
        points = _read(source.name, data_dir)
        if source.name == LOAN:
            order = np.random.default_rng([run, 60]).permutation(points.shape[1])
        else:
            order = np.concatenate(part_correlated(points, source.sizes))
    if sum(source.sizes) != points.shape[1]:
        raise DataError(f"{source.name}: expected {sum(source.sizes)} columns, got {points.shape[1]}")
    cuts = np.cumsum(source.sizes)[:-1]
    columns = tuple(np.ascontiguousarray(points[:, part]) for part in np.split(order, cuts))
    if labels is None:
        pooled = np.hstack(columns)
        labels = nearest(pooled, central_kmeans(pooled, K, seed=0))[0]
    return Problem(source=source, columns=columns, labels=labels)


def part_correlated(points: Array, sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Deal columns so that those that correlate are apart; column numbers, party by party.

    Notes
    -----
    Columns with the strongest partner come first; each goes to the party with room to whose columns it is least tied.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        tie = np.abs(np.nan_to_num(np.corrcoef(points, rowvar=False)))
    np.fill_diagonal(tie, 0.0)
    parts: list[list[int]] = [[] for _ in sizes]
    for column in np.argsort(-tie.max(axis=1), kind="stable").tolist():
        open_parties = [party for party, size in enumerate(sizes) if len(parts[party]) < size]
        best = min(open_parties, key=lambda party: (tie[column, parts[party]].sum(), len(parts[party])))
        parts[best].append(column)
    return [np.array(sorted(part), dtype=np.int64) for part in parts]


def _read(name: str, data_dir: str | None) -> Array:
    """Read and scale one set; shape (n, d)."""
    path = _find(name, data_dir)
    if name == LETTER:
        dataset = load_named(name, data_dir)
        return scale(dataset.values, dataset_bounds(dataset, None))
    names = (*TAXI_TIMES, *TAXI_NUMBERS) if name == TAXI else LOAN_COLUMNS
    table = read_table(path, columns=names)
    return scale(table.values, auto_public(table.values, table.names))


def _find(name: str, data_dir: str | None) -> Path:
    """Find a set's file."""
    how = (
        f"fetch it by `fastlloyd datasets download {name}`" if name in ORIGINS else f"`fastlloyd datasets make {name}`"
    )
    if data_dir is None:
        raise ConfigError(f"no folder for {name}.csv.gz; give --data-dir, and {how}")
    path = Path(data_dir) / f"{name}.csv.gz"
    if not path.is_file():
        raise ConfigError(f"no {name}.csv.gz in --data-dir; {how}")
    return path
