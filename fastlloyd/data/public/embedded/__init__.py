"""Data sets that travel with the package; ATTRIBUTION.md beside this file says whose they are.

The photograph is stored without loss: red and blue as differences to green, every value as the
difference to its left neighbour (all modulo 256), then zlib.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).parent
PHOTO = FOLDER / "photo.npz"
IRIS = FOLDER / "iris.csv.gz"


def unpack_photo(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn the stored planes of differences into pixels: green, red less green, blue less green.

    Parameters
    ----------
    packed : uint8 array, shape (3, height, width)

    Returns
    -------
    uint8 array, shape (height, width, 3)
    """
    green, red, blue = np.cumsum(packed, axis=2, dtype=np.uint8)
    return np.stack([red + green, green, blue + green], axis=2)


def load_photo() -> NDArray[np.uint8]:
    """Return the embedded photograph, uint8 array, shape (427, 640, 3)."""
    with np.load(PHOTO, allow_pickle=False) as archive:
        return unpack_photo(archive["packed"])
