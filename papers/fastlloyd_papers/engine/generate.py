"""Public data for benchmarks: generated or read, normalised, and dealt out to clients as files of their own.

Source: FastLloyd, §6.1.3 (TimeSynth; normalisation to [-1, 1]).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.dataset import split_rows
from fastlloyd.data.public.named import load_named
from fastlloyd.errors import ConfigError

_SPREAD = 0.1
_INSIDE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where records come from: generated for (n, k, d), or a public set with that shape.

    Attributes
    ----------
    dataset : str or None
        Name of a public set; None for TimeSynth.
    """

    n: int
    k: int
    d: int
    dataset: str | None = None

    @property
    def label(self) -> str:
        """A name that differs between sources."""
        return self.dataset or f"timesynth_{self.k}_{self.d}_{self.n}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The files of the clients.

    Attributes
    ----------
    template : str
        '{client}' becomes 1..M.
    caps : tuple of int
        Records of each client.
    """

    template: str
    caps: tuple[int, ...]

    @property
    def n(self) -> int:
        """Records of all clients together."""
        return sum(self.caps)


def time_synth(n: int, k: int, d: int, *, seed: int = 1) -> NDArray[np.float64]:
    """Generate k clusters of equal size (they differ by at most one record), normalised to [-1, 1].

    Parameters
    ----------
    n, k, d : int
    seed : int
        Public.

    Returns
    -------
    float64 array, shape (n, d)

    Notes
    -----
    Source: FastLloyd §6.1.3: "balanced cluster sizes (C_avg = N / k)". The paper's own files are not
    published, nor is how its clusters lie; here they are normal around uniform centres.
    """
    generator = np.random.default_rng(seed)
    centers = generator.uniform(-_INSIDE, _INSIDE, (k, d))
    points = centers[np.arange(n) % k]
    points += generator.normal(0.0, _SPREAD, (n, d))
    return normalise(points)


def normalise(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stretch each feature to [-1, 1], in place; a constant one becomes 0.

    Parameters
    ----------
    points : float64 array, shape (n, d)

    Returns
    -------
    float64 array, shape (n, d)
        The same array.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    width = high - low
    constant = width == 0
    points -= low
    # Divided first: the extremes become exactly -1 and 1.
    points /= np.where(constant, 1.0, width)
    points *= 2.0
    points -= np.where(constant, 0.0, 1.0)
    return points


class Workspace:
    """Makes records when they are first asked for and keeps the clients' files of the last source.

    Parameters
    ----------
    folder : Path
        Exists; whoever made it removes it.
    data_dir : str or None
        Where public sets are looked up.
    """

    def __init__(self, folder: Path, data_dir: str | None = None) -> None:
        self.folder = folder
        self._data_dir = data_dir
        self._last: tuple[Source, NDArray[np.float64]] | None = None
        self._shares: dict[tuple[Source, int], Shares] = {}

    def points(self, source: Source) -> NDArray[np.float64]:
        """Return the records of a source, scaled to [-1, 1], shape (n, d).

        Raises
        ------
        ConfigError
            There is no such data set, or it has another shape than the paper's.
        """
        if self._last is None or self._last[0] != source:
            self._last = (source, self._make(source))
        return self._last[1]

    def shares(self, source: Source, clients: int) -> Shares:
        """Deal the records out to `clients` files, shuffled, and give where they stand."""
        key = (source, clients)
        if key not in self._shares:
            points = self.points(source)
            stem = f"{source.label}-{clients}"
            rows = split_rows(len(points), clients, "iid", 0)
            for rank, own in enumerate(rows, start=1):
                np.save(self.folder / f"{stem}-{rank}.npy", points[own])
            template = str(self.folder / f"{stem}-{{client}}.npy")
            self._shares[key] = Shares(template=template, caps=tuple(len(own) for own in rows))
        return self._shares[key]

    def forget(self) -> None:
        """Remove the files made so far: large ones are not kept longer than needed."""
        for path in self.folder.glob("*.npy"):
            path.unlink()
        self._shares.clear()
        self._last = None

    def _make(self, source: Source) -> NDArray[np.float64]:
        if source.dataset is None:
            return time_synth(source.n, source.k, source.d)
        points = load_named(source.dataset, self._data_dir).values
        if points.shape != (source.n, source.d):
            raise ConfigError(
                f"{source.dataset}: expected {source.n} records with {source.d} features as in the paper, got "
                f"{points.shape[0]} with {points.shape[1]}; check --data-dir"
            )
        return normalise(np.array(points, dtype=np.float64))
