"""A public data set as the rest of the package sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds

UNKNOWN_LICENCE = "see its owner"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A public data set.

    Attributes
    ----------
    name : str
    values : float64 array, shape (n, d)
    names : tuple of str, length d
    labels : int64 array, shape (n,), or None
        True classes, for evaluation only.
    bounds : Bounds or None
        Where they are public by nature (a colour lies in 0..255).
    k : int or None
        Clusters the literature uses.
    licence : str
    image_shape : triple of int or None
        (height, width, channels) where the rows are the pixels of a picture.
    numbers : int64 array, shape (n,), or None
        Each record's row in its file, from 1, where some were dropped. None: 1, 2, ..
    """

    name: str
    values: NDArray[np.float64] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    labels: NDArray[np.int64] | None = field(default=None, repr=False)
    bounds: Bounds | None = field(default=None, repr=False)
    k: int | None = None
    licence: str = UNKNOWN_LICENCE
    image_shape: tuple[int, int, int] | None = None
    numbers: NDArray[np.int64] | None = field(default=None, repr=False)
