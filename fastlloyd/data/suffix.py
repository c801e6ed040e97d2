"""How names of data files end; by itself, for run files and flags need no more to be read."""

from __future__ import annotations

SUFFIXES = (".csv", ".csv.gz", ".npy", ".npz", ".parquet")


def names_file(text: str) -> bool:
    """Whether a text names a file of records, not a data set or a way to split one.

    Examples
    --------
    >>> names_file("iris"), names_file("data/iris.csv")
    (False, True)
    """
    return "/" in text or text.lower().endswith(SUFFIXES)
