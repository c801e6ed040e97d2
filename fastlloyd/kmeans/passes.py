"""Execution of passes over a party's records: in threads, and in compiled code once that is worthwhile.

A pass adds integers and labels each record by itself, so neither threads nor compiled code change a result.

Compiled code has initial costs: importing numba, and compiling at a machine's first use. So passes use numpy until they
have cost about as much as that (the ski rental rule): a run never takes more than about twice the time of the better
choice, and a small run never has the initial costs. Work is counted, not timed: n (k d + 80) for a pass over n records,
which takes numpy some 0.2 ns per unit, and compiled code at most half of that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_FUSED = "fastlloyd.kmeans.fused"
# Cost of importing numba, and of importing and compiling, in units of work that compiled code saves.
_IMPORT, _COMPILE = 6e9, 6e10
# Less work than this takes less time than starting a thread.
_LEAST = 1e7
# More pieces than threads: a thread whose core is busy with something else takes fewer of them.
_PIECES = 2
_NEVER = float("inf")


class Passes:
    """Carries out passes over one party's records.

    Parameters
    ----------
    threads : int
        At least 1.
    patience : float
        Factor on the work before compiled code is used: 0 for at once, infinity for never (benchmarks, tests).
    """

    __slots__ = ("_done", "_patience", "_threads")

    def __init__(self, threads: int = 1, *, patience: float = 1.0) -> None:
        if threads < 1:
            raise ValueError(f"expected at least one thread, got {threads}")
        self._threads = threads
        self._patience = patience
        self._done = 0.0

    def compiled(self, kernel: str, n: int, k: int, d: int) -> ModuleType | None:
        """Count a pass that begins now; return `fused.py` if `kernel` is worthwhile by now, else None."""
        if self._patience == _NEVER:
            return None
        self._done += _work(n, k, d) / self._threads
        loaded = sys.modules.get(_FUSED)
        if loaded is None:
            if self._done < _IMPORT * self._patience or find_spec("numba") is None:
                return None
            try:
                loaded = import_module(_FUSED)
            except ImportError:  # a numba that is incompatible with this numpy
                self._patience = _NEVER
                return None
        if self._done < _COMPILE * self._patience and not loaded.is_ready(kernel):
            return None
        return loaded

    def new_labels(self, n: int) -> NDArray[np.int64]:
        """Return an array for the labels of all records."""
        return np.empty(n, dtype=np.int64)

    def over(self, n: int, k: int, d: int, run: Callable[[int, int], T]) -> Iterable[T]:
        """Call `run(start, stop)` for ranges that together are 0 to n, in threads if there is enough to do.

        Returns
        -------
        iterable
            The results of the calls, in the order of the ranges; at least one. Iterate over all: calls may be lazy.
        """
        pieces = min(self._threads * _PIECES, n, int(_work(n, k, d) / _LEAST))
        if self._threads == 1 or pieces < 2:
            return [run(0, n)]
        edges = [n * piece // pieces for piece in range(pieces + 1)]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda edge: run(*edge), pairwise(edges)))


def _work(n: int, k: int, d: int) -> float:
    """Return the work of a pass over n records of d features with k centres, in units."""
    return float(n) * (k * d + 80)
