"""How passes over a party's records are carried out: in threads, and compiled once that pays.

A pass adds integers and labels each record by itself, so neither threads nor compiled code change a result.

Compiled code costs before it brings anything: importing numba, and on a machine's first use compiling. So passes go on
in numpy until they have cost about as much as that (the rule of ski rental): a run never takes more than about twice
what the better choice would have taken, and a small run never pays for what it does not need. Work is counted, not
timed: n (k d + 80) for a pass over n records, which numpy does at some 0.2 ns a unit, compiled code at half of that or
less.
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
# A second of numpy's work beyond the compiled one's, in units: what importing numba costs, and importing and compiling.
_IMPORT, _COMPILE = 6e9, 6e10
# Less work than this is done sooner than a thread begins.
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
        Times the work after which compiled code is taken up: 0 for at once, infinity for never (benchmarks, tests).
    """

    __slots__ = ("_done", "_patience", "_threads")

    def __init__(self, threads: int = 1, *, patience: float = 1.0) -> None:
        if threads < 1:
            raise ValueError(f"expected at least one thread, got {threads}")
        self._threads = threads
        self._patience = patience
        self._done = 0.0

    def compiled(self, kernel: str, n: int, k: int, d: int) -> ModuleType | None:
        """Count a pass that begins now, and return `fused.py` if `kernel` is worth its price by now, else None."""
        if self._patience == _NEVER:
            return None
        self._done += _work(n, k, d) / self._threads
        loaded = sys.modules.get(_FUSED)
        if loaded is None:
            if self._done < _IMPORT * self._patience or find_spec("numba") is None:
                return None
            try:
                loaded = import_module(_FUSED)
            except ImportError:  # a numba that does not fit this numpy
                self._patience = _NEVER
                return None
        if self._done < _COMPILE * self._patience and not loaded.is_ready(kernel):
            return None
        return loaded

    def new_labels(self, n: int) -> NDArray[np.int64]:
        """Return room for a label of each record."""
        return np.empty(n, dtype=np.int64)

    def over(self, n: int, k: int, d: int, run: Callable[[int, int], T]) -> Iterable[T]:
        """Call `run(start, stop)` for ranges that together are 0 to n, in threads if there is enough to do.

        Returns
        -------
        iterable
            What the calls returned, in the order of the ranges; at least one. Go through it: a call may be made only
            then.
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
