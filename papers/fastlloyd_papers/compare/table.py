"""Tables to compare on: public sets by name, files, or a folder of files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import AUTO_PUBLIC, scale
from fastlloyd.data.form import SUFFIXES, names_file
from fastlloyd.data.public.named import FACTS, dataset_bounds, load_named
from fastlloyd.errors import ConfigError
from fastlloyd_papers.sets.present import find_sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Records to be clustered.

    Attributes
    ----------
    points : float64 array, shape (n, d), scaled to [-1, 1]
    k : int
    public : bool
        Whether anybody may see them, and noise on them be repeated.
    """

    name: str
    points: NDArray[np.float64] = field(repr=False)
    k: int
    public: bool

    @property
    def word(self) -> str:
        """How results record it: name, records and the SHA-256 of the scaled values."""
        digest = hashlib.sha256(np.ascontiguousarray(self.points, dtype="<f8").tobytes()).hexdigest()
        return f"{self.name.replace(' ', '_')}:{len(self.points)}:{digest[:16]}"


def load_tables(
    data: str, *, k: int | None, bounds: str | None, public: bool, data_dir: str | None = None
) -> list[Table]:
    """Read all tables.

    Parameters
    ----------
    data : str
        Names of public sets or paths of files with commas between, or a folder: each table in it.
    k : int or None
        None: what the literature uses for a public set.
    bounds : str or None
        'LO,HI', a CSV of bounds, or 'auto-public'; None: known ones, or of public data their least and largest values.
    public : bool
        Whether the user says so of files.
    data_dir : str or None
        Folder of public sets.

    Raises
    ------
    ConfigError
        A table is not there, is not the public set of its name, or k or bounds are not known.
    DataError
        A file is unreadable.
    """
    folder = Path(data)
    if folder.is_dir():
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(tuple(SUFFIXES)))
        words = [str(path) for path in paths if ".labels." not in path.name]
        if not words:
            raise ConfigError(f"--data {data}: no table in it; expected files that end in {', '.join(SUFFIXES)}")
    else:
        words = data.split(",")
    return [_load(word, k, bounds, public, data_dir) for word in words]


def _load(word: str, k: int | None, bounds: str | None, public: bool, data_dir: str | None) -> Table:
    named = not names_file(word)
    if named:
        find_sets([word], data_dir)
    there = load_named(word, data_dir)
    open_ = public or (named and word in FACTS)
    wanted = k or (there.k if named else None)
    if wanted is None:
        raise ConfigError(f"--data {word}: expected --k, the number of clusters")
    if bounds is None and there.bounds is None and not open_:
        raise ConfigError(
            f"--data {word}: expected --bounds LO,HI or a CSV, as for a run; of public data (--public) the least and "
            "largest values are taken"
        )
    if bounds == AUTO_PUBLIC and not open_:
        raise ConfigError(f"--bounds {AUTO_PUBLIC} is for public data: give --public to say that {word} is, or bounds")
    box = dataset_bounds(there, bounds)
    return Table(name=there.name, points=scale(there.values, box), k=wanted, public=open_)
