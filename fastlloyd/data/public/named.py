"""Public data sets by name: embedded ones, a folder of NAME.csv.gz files, or any file.

Labels, where a set has them, stand beside it in NAME.labels.csv.gz (or NAME.labels.csv): one column of
integers in the same row order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import AUTO_PUBLIC, Bounds, auto_public, count_outside, parse_bounds
from fastlloyd.data.dataset import UNKNOWN_LICENCE, Dataset
from fastlloyd.data.form import DATA_DIR_VARIABLE, SUFFIXES, DataFile, names_file
from fastlloyd.data.public.embedded import IRIS, load_photo
from fastlloyd.data.source import array_source, open_source
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError, did_you_mean

DEFAULT_DATASET = "photo"


@dataclass(frozen=True, slots=True)
class Fact:
    """Public facts about a set besides its values: clusters, natural bounds, licence.

    Attributes
    ----------
    k : int or None
        Clusters the literature uses.
    limits : pair of float or None
        Lowest and highest value a feature can have, known without looking.
    licence : str
    """

    k: int | None
    limits: tuple[float, float] | None
    licence: str


_CC_BY_4 = "CC BY 4.0 (UCI)"
_RESEARCH = "research use (clustering benchmarks)"

FACTS: dict[str, Fact] = {
    "photo": Fact(8, (0.0, 255.0), "CC BY 2.0, photograph by danielbuechele"),
    "iris": Fact(3, None, _CC_BY_4),
    "adult": Fact(3, None, _CC_BY_4),
    "birch2": Fact(100, None, _RESEARCH),
    "breast": Fact(2, (1.0, 10.0), _CC_BY_4),
    "house": Fact(3, (0.0, 255.0), _RESEARCH),
    "letter": Fact(26, (0.0, 15.0), _CC_BY_4),
    "lsun": Fact(3, None, _RESEARCH),
    "mnist": Fact(10, (0.0, 255.0), "not stated (LeCun, Cortes, Burges)"),
    "s1": Fact(15, None, _RESEARCH),
    "wine": Fact(3, None, _CC_BY_4),
    "yeast": Fact(10, None, _CC_BY_4),
    **{f"g2_{d}_30": Fact(2, None, _RESEARCH) for d in (2, 4, 8, 16, 32, 64, 128, 256)},
}

_UNKNOWN = Fact(None, None, UNKNOWN_LICENCE)


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `fastlloyd datasets`."""

    name: str
    rows: int
    features: int
    k: int | None
    has_labels: bool
    licence: str
    embedded: bool


def load_named(
    name_or_path: str,
    data_dir: str | Path | None = None,
    *,
    columns: Sequence[str] = (),
    missing: str = "refuse",
) -> Dataset:
    """Load a public data set.

    Parameters
    ----------
    name_or_path : str
        'photo' or 'iris' (embedded), else NAME for DATA_DIR/NAME.csv.gz, else the path of a file that
        `read_table` knows.
    data_dir : str or Path, optional
    columns : sequence of str
        Features to use; empty for all numeric ones.
    missing : {'refuse', 'drop', 'midpoint'}
        As for `read_table`; 'drop' is refused for a set with labels, whose rows would no longer match.

    Returns
    -------
    Dataset

    Raises
    ------
    ConfigError
        No such set; says where it looked and how to point elsewhere.
    DataError
        The file does not fit, or its labels do not fit it.
    """
    if name_or_path == "photo":
        return _photo(columns)
    if name_or_path == "iris":
        return _iris(tuple(columns), missing)
    if names_file(name_or_path):
        # The facts about a name hold for the set of that name, not for another file with the same name.
        path = Path(name_or_path)
        return _from_file(_stem(path), path, columns, missing, fact=_UNKNOWN)
    return _from_file(name_or_path, _find(name_or_path, data_dir), columns, missing)


def dataset_bounds(dataset: Dataset, text: str | None) -> Bounds:
    """Return the bounds to use for a public data set.

    Parameters
    ----------
    dataset : Dataset
    text : str or None
        'LO,HI' or a CSV file, see `parse_bounds`; 'auto-public' for the smallest and largest values; None
        for the bounds that are public by nature, else as 'auto-public'.

    Raises
    ------
    ConfigError
        The bounds do not fit the set.
    """
    if text is None and dataset.bounds is not None:
        return dataset.bounds
    if text is None or text == AUTO_PUBLIC:
        return auto_public(dataset.values, dataset.names)
    return parse_bounds(text).match(dataset.names)


def list_named(data_dir: str | Path | None = None) -> list[Listed]:
    """List the embedded sets, then those of a folder, by name.

    Raises
    ------
    ConfigError
        `data_dir` is given and is no folder.
    DataError
        One of its files is unreadable.
    """
    height, width, channels = load_photo().shape
    photo = FACTS["photo"]
    found = [
        Listed("photo", height * width, channels, photo.k, False, photo.licence, True),
        _listed(IRIS, True),
    ]
    if data_dir is None:
        return found
    folder = Path(data_dir)
    if not folder.is_dir():
        raise ConfigError(f"no folder {folder}: expected data sets there; set ${DATA_DIR_VARIABLE}")
    paths = sorted(path for path in folder.glob("*.csv.gz") if not path.name.endswith(".labels.csv.gz"))
    return found + [_listed(path, False) for path in paths if _stem(path) not in ("photo", "iris")]


@lru_cache(maxsize=4)
def _iris(columns: tuple[str, ...], missing: str) -> Dataset:
    dataset = _from_file("iris", IRIS, columns, missing)
    for array in (dataset.values, dataset.labels):
        if array is not None:
            array.flags.writeable = False
    return dataset


def _photo(columns: Sequence[str]) -> Dataset:
    pixels = load_photo()
    height, width, channels = pixels.shape
    source = array_source(DataFile(Path("photo")), pixels.reshape(-1, channels), ("red", "green", "blue"))
    table, fact = read_table(source, columns=columns), FACTS["photo"]
    bounds = Bounds(np.array([0.0]), np.array([255.0])).match(table.names)
    shape = (height, width, channels) if table.names == source.names else None
    return Dataset("photo", table.values, table.names, None, bounds, fact.k, fact.licence, shape)


def _from_file(name: str, path: Path, columns: Sequence[str], missing: str, *, fact: Fact | None = None) -> Dataset:
    fact = FACTS.get(name, _UNKNOWN) if fact is None else fact
    limits = None if fact.limits is None else Bounds(np.array(fact.limits[:1]), np.array(fact.limits[1:]))
    table = read_table(path, columns=columns, missing=missing, bounds=limits)
    labels = _labels(path)
    if labels is not None and missing == "drop" and table.missing_rows:
        raise ConfigError(f"{path} has labels, whose rows would not match after --missing drop; fill the values in")
    if labels is not None and len(labels) != len(table.values):
        raise DataError(f"{path} has {len(table.values)} rows but its labels have {len(labels)}; give one each")
    bounds = None if limits is None else limits.match(table.names)
    if bounds is not None and count_outside(table.values, bounds).any():
        bounds = None
    numbers = None if table.raw_records is None else np.flatnonzero(table.raw_records >= 0) + 1
    return Dataset(name, table.values, table.names, labels, bounds, fact.k, fact.licence, numbers=numbers)


def _labels(path: Path) -> NDArray[np.int64] | None:
    """Read the labels beside a file, if there are any."""
    beside = _labels_path(path)
    if beside is None:
        return None
    with open_source(beside) as source:
        names = source.names
        if len(names) != 1:
            raise DataError(f"{beside}: expected one column of labels, got {len(names)} columns")
        values = read_table(source, columns=names).values[:, 0]
    if (values % 1 != 0).any():
        raise DataError(f"{beside}: expected whole numbers as labels; number the classes from 0")
    return values.astype(np.int64)


def _labels_path(path: Path) -> Path | None:
    for suffix in (".labels.csv.gz", ".labels.csv"):
        beside = path.with_name(_stem(path) + suffix)
        if beside.is_file():
            return beside
    return None


def _stem(path: Path) -> str:
    """Return a file's name without the suffix that decides how to read it."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return path.name[: -len(suffix)]
    return path.name


def _find(name: str, data_dir: str | Path | None) -> Path:
    """Find the file of a set in the folder."""
    looked = "nowhere else, since no folder of data sets is given"
    if data_dir is not None:
        path = Path(data_dir) / f"{name}.csv.gz"
        if path.is_file():
            return path
        looked = f"then {path}"
    known = ["photo", "iris", *FACTS]
    if data_dir is not None:
        known += [_stem(path) for path in sorted(Path(data_dir).glob("*.csv.gz"))]
    raise ConfigError(
        f"no data set {name!r}{did_you_mean(name, known)}: looked among the embedded ones (photo, iris), {looked}; "
        f"give the path of a file, or set ${DATA_DIR_VARIABLE} to a folder of NAME.csv.gz files (`fastlloyd datasets` "
        "lists them)"
    )


def _listed(path: Path, embedded: bool) -> Listed:
    """Count rows and features without parsing the values."""
    name = _stem(path)
    fact = FACTS.get(name, _UNKNOWN)
    with open_source(path) as source:
        rows, features = sum(len(cells.values) for cells in source.chunks((), (), None)), len(source.names)
    return Listed(name, rows, features, fact.k, _labels_path(path) is not None, fact.licence, embedded)
