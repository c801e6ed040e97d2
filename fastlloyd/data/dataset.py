"""A public data set, and how its rows are split among the clients: every party computes it from the public seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.form import SUFFIXES
from fastlloyd.data.source import open_source
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, did_you_mean, format_count
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import NONCE_BYTES, keystream

SPLITS = ("iid", "even", "label")
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
        Where they follow from what is measured (a colour lies in 0..255).
    k : int or None
        Number of clusters in the literature.
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


def public_permutation(n: int, seed: int) -> NDArray[np.int64]:
    """Shuffle 0..n-1 by the public seed: the order of n 64-bit draws of a ChaCha20 stream.

    numpy's generators are not used: their streams may change between versions, and all parties must
    find the same order.

    Parameters
    ----------
    n : int
    seed : int

    Returns
    -------
    int64 array, shape (n,)

    Privacy
    -------
    None: the order is public. Never use it to hide anything.
    """
    key = hashlib.sha256(domains.PERMUTATION + str(int(seed)).encode("ascii")).digest()
    return np.argsort(np.frombuffer(keystream(key, bytes(NONCE_BYTES), 8 * n), dtype="<u8"), kind="stable").astype(
        np.int64
    )


def split_rows(
    n: int, clients: int, how: str, seed: int, *, labels: NDArray[np.int64] | None = None
) -> list[NDArray[np.int64]]:
    """Decide which rows of a public data set each client holds.

    Parameters
    ----------
    n : int
        Rows.
    clients : int
        Number of clients, 1 <= clients <= n.
    how : str
        'iid': shuffled; 'even': blocks in file order; 'label': sorted by label, so that clients hold
        different classes (sizes differ by at most one in all three); or the path of a file with one client
        number (1..clients) per row.
    seed : int
        Public; 'iid' alone depends on it.
    labels : int64 array, shape (n,), optional
        The data set's own labels.

    Returns
    -------
    list of int64 array
        For each client the indices of its rows. Every row stands exactly once.

    Raises
    ------
    ConfigError
        Fewer rows than clients, an unknown split, no labels, or a split file that does not fit.
    DataError
        The split file is unreadable.
    """
    if not 1 <= clients <= n:
        raise ConfigError(
            f"cannot split {format_count(n, 'row')} among {format_count(clients, 'client')}: every client needs a "
            "row; start fewer clients"
        )
    if how == "iid":
        return np.array_split(public_permutation(n, seed), clients)
    if how == "even":
        return np.array_split(np.arange(n, dtype=np.int64), clients)
    if how == "label":
        if labels is None:
            raise ConfigError("--split label needs a data set with labels, and this one has none; use --split iid")
        if labels.shape != (n,):
            raise ConfigError(
                f"--split label: {format_count(n, 'row')} but labels of shape {labels.shape}; give one per row"
            )
        return np.array_split(np.argsort(labels, kind="stable").astype(np.int64), clients)
    return _split_by_file(n, clients, how)


def _split_by_file(n: int, clients: int, how: str) -> list[NDArray[np.int64]]:
    """Read one client number per row."""
    if not how.lower().endswith(SUFFIXES):
        close = did_you_mean(how, SPLITS)
        raise ConfigError(f"--split {how}: expected {', '.join(SPLITS)} or a CSV file with one client per row{close}")
    numbers = _read_owners(how)
    if numbers.size != n:
        raise ConfigError(
            f"--split {how}: {format_count(numbers.size, 'row')}, but the data set has {n}; give one client number "
            "per row"
        )
    rows = [np.flatnonzero(numbers == client).astype(np.int64) for client in range(1, clients + 1)]
    if sum(map(len, rows)) != n:
        stray = int(np.flatnonzero((numbers < 1) | (numbers > clients) | (numbers % 1 != 0))[0])
        raise ConfigError(f"--split {how}, row {stray + 1}: expected a client number from 1 to {clients}")
    idle = [client for client, own in enumerate(rows, 1) if not len(own)]
    if idle:
        raise ConfigError(f"--split {how}: client {idle[0]} gets no row; give it one or start fewer clients")
    return rows


def _read_owners(path: str) -> NDArray[np.float64]:
    """Read the single column of a split file, whatever its name."""
    with open_source(path) as source:
        if len(source.names) != 1:
            raise ConfigError(f"--split {path}: expected one column of client numbers, got {len(source.names)} columns")
        return read_table(source, columns=source.names).values[:, 0]
