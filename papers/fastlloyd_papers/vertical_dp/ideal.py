"""Draws the sketches of vertical DP as an ideal hash function gives them, without hashing any user.

All users of one grid cell are in the same clusters, so of a row only the largest word of each cell matters, and an
ideal hash function makes these independent. The largest of N words, each floor(2^w u) with u uniform on (0, 1), is
floor(2^w u^(1/N)): one number for each row and cell in place of one for each row and user. Phantoms and floor are the
product's own. The distribution is that of `make_sketch` under an ideal hash function in place of ChaCha20
(tests/unit/bench/vertical_dp/test_ideal.py compares both with it), which is what the paper's theorems assume.

Source: Vertical DP, Algorithms 2 and 3; the head of fastlloyd/protocols/vertical_dp/sketch/sketch.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_dp.sketch.sketch import (
    PAPER_PHANTOMS,
    Levels,
    SketchShape,
    join_levels,
    party_phantoms,
)
from fastlloyd.randomness.secret import SecretRandom

Labels = NDArray[np.int64]

# Grids with more cells than this are hashed: there are hardly fewer cells than users.
MOST_CELLS = 4096


def draw_group(labels: Sequence[Labels], shape: SketchShape, secret: SecretRandom) -> list[Levels]:
    """Draw the sketches of all parties that share a key.

    Parameters
    ----------
    labels : per party of the group, int64 array, shape (n,)
        Local cluster 0..k'-1 of each user.
    shape : SketchShape
        With the paper's phantoms the group may have more parties than `shape.parties`.
    secret : SecretRandom

    Returns
    -------
    list of int64 arrays, shape (M, k')
        As of `make_sketch`, party by party.
    """
    rng = np.random.default_rng(int.from_bytes(secret.bytes(32), "little"))
    axes = (shape.clusters,) * len(labels)
    counts = np.bincount(np.ravel_multi_index(tuple(labels), axes), minlength=shape.clusters ** len(labels))
    there = np.flatnonzero(counts)
    words = np.zeros((shape.rows, len(counts)), dtype=np.uint32)
    largest = rng.random((shape.rows, len(there))) ** (1.0 / counts[there]) * 2.0**shape.word_bits
    # A power near 1 may round to it.
    words[:, there] = np.minimum(largest, 2.0**shape.word_bits - 1.0)
    users = [_along(words, axes, place) for place in range(len(labels))]
    if shape.scheme == PAPER_PHANTOMS:
        phantoms = [_phantom_words(rng, (shape.rows, shape.clusters)) for _ in labels]
    else:
        cells = _phantom_words(rng, (shape.rows, shape.cells))
        phantoms = [party_phantoms(cells, place, shape) for place in range(len(labels))]
    return [join_levels(own, entered, shape) for own, entered in zip(users, phantoms, strict=True)]


def _along(words: NDArray[np.uint32], axes: tuple[int, ...], place: int) -> NDArray[np.uint32]:
    """Return the largest word of each cluster of one party; shape (M, k')."""
    others = tuple(axis + 1 for axis in range(len(axes)) if axis != place)
    return np.asarray(words.reshape(len(words), *axes).max(axis=others))


def _phantom_words(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.uint64]:
    return rng.integers(0, 2**64, shape, dtype=np.uint64)
