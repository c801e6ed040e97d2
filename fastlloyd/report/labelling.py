"""Labels for new records, by the released centroids of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, parse_bounds, scale
from fastlloyd.data.categories import Categories
from fastlloyd.data.merge import Unit
from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import quantise, round_centers
from fastlloyd.kmeans.weighted import ordered_distances
from fastlloyd.report.display import csv_text
from fastlloyd.report.document import load as load_report

_BLOCK_VALUES = 1 << 18
_MOST_BITS = 24


def match_bounds(bounds: Bounds | None, names: tuple[str, ...], centroids: Path, given: bool) -> Bounds | None:
    """Return the bounds of the features by which records are labelled."""
    try:
        return None if bounds is None else bounds.match(names)
    except ConfigError as error:
        if given:
            raise
        raise ConfigError(
            f"{centroids.with_name('bounds.csv')} is of another run than the centroids beside it: give the bounds of "
            "their run with --bounds"
        ) from error


def check_centroids(path: Path) -> None:
    """Refuse a path that is not a file of centroids."""
    if path.is_dir():
        raise ConfigError(f"--centroids {path} is a folder: name the file in it, {path / 'centroids.csv'}")
    if not path.exists():
        raise ConfigError(f"--centroids {path}: no such file; expected centroids.csv in the --output folder of a run")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredView:
    """How the run saw records, from the files beside its centroids."""

    bounds: Bounds | None = None
    categories: Categories = field(default_factory=Categories)
    unit: Unit | None = None
    fraction_bits: int | None = None


def read_stored(centroids: Path) -> StoredView:
    """Read the files beside the centroids; version 0.1 wrote none of them."""
    path = centroids.with_name("bounds.csv")
    if not path.is_file():
        return StoredView()
    read = parse_bounds(str(path))
    bounds = Bounds(read.lo, read.hi, None if read.names is None else tuple(map(csv_text, read.names)))
    path = centroids.with_name("report.json")
    if not path.is_file():
        return StoredView(bounds=bounds)
    parameters = load_report(path)["parameters"]
    if ("unit" in parameters) != ("per_unit" in parameters):
        raise ConfigError(f"{path}: expected unit and per_unit together; give the folder as the run wrote it")
    return StoredView(
        bounds=bounds,
        categories=Categories.from_json(parameters.get("categories", {})),
        unit=Unit(parameters["unit"], parameters["per_unit"]) if "unit" in parameters else None,
        fraction_bits=grid_of(parameters),
    )


def grid_of(parameters: Mapping[str, Any]) -> int | None:
    """Return the bits of the grid on which a run compared records with centres; None if its report names none."""
    bits = parameters.get("fraction_bits")
    return bits if bits in range(1, _MOST_BITS + 1) else None


def keep_columns(
    names: tuple[str, ...], centroids: NDArray[np.float64], columns: Sequence[str]
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Keep the features that the file has."""
    present = set(columns)
    kept = [at for at, name in enumerate(names) if name in present]
    if not kept:
        raise ConfigError("--own-columns: the file has none of the centroids' features; check --data")
    return tuple(names[at] for at in kept), centroids[:, kept]


def label_records(
    points: NDArray[np.float64], centers: NDArray[np.float64], bounds: Bounds | None, fraction_bits: int | None
) -> NDArray[np.int64]:
    """Label points on the run's grid if that is known, otherwise in floating point; overwrites `points`."""
    if bounds is None:
        return nearest(points, centers)
    return label_scaled(scale(points, bounds, out=points), centers, bounds, fraction_bits)


def label_scaled(
    points: NDArray[np.float64], centers: NDArray[np.float64], bounds: Bounds, fraction_bits: int | None
) -> NDArray[np.int64]:
    """Label points that are scaled already by centres in original units; as `label_records`."""
    centers = scale(centers, bounds)
    if fraction_bits is None:
        return nearest(points, centers)
    # Scaling back may move a centre by its last digit off the middle between two places of the grid.
    settled = np.round(centers * 2.0**fraction_bits, 6) / 2.0**fraction_bits
    return assign(quantise(points, fraction_bits), round_centers(settled, fraction_bits))


def nearest(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.int64]:
    """Label each point with its nearest centre; ties go to the lowest index.

    Parameters
    ----------
    points : float64 array, shape (n, d)
    centers : float64 array, shape (k, d)

    Returns
    -------
    int64 array, shape (n,)

    Notes
    -----
    Privacy: a description counts records by these labels. A label follows from its point and the centres alone:
    distances are added feature by feature. With a product of matrices, whose last bits depend on how many points there
    are, one record more could move others that lie as near to two centres.
    """
    labels = np.empty(len(points), dtype=np.int64)
    step = max(1, _BLOCK_VALUES // max(centers.shape))
    for start in range(0, len(points), step):
        labels[start : start + step] = ordered_distances(points[start : start + step], centers).argmin(axis=1)
    return labels
