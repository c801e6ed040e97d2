"""When a pass is compiled, and how it is spread over threads."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise

import pytest

from fastlloyd.kmeans import passes
from fastlloyd.kmeans.passes import Passes


class Kernels:
    """Stands for the module of kernels, with or without machine code."""

    def __init__(self, ready: bool) -> None:
        self.is_ready = lambda kernel: ready


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has not loaded the kernels, on a machine that has numba."""
    monkeypatch.delitem(sys.modules, passes._FUSED, raising=False)
    monkeypatch.setattr(passes, "find_spec", lambda name: name)
    return monkeypatch


def passes_until_compiled(most: int, work: Passes, n: int) -> int:
    """Count the passes that numpy does before compiled code is taken up."""
    return next((done for done in range(most) if work.compiled("sweep", n, 5, 4) is not None), most)


def test_compiled_code_is_taken_up_when_numpy_has_cost_as_much_as_loading_it(cold: pytest.MonkeyPatch) -> None:
    kernels = Kernels(ready=True)
    cold.setattr(passes, "import_module", lambda name: kernels)
    assert passes_until_compiled(200, Passes(), 1_000_000) == 59  # the 60th makes 6e9: 100 a record
    assert passes_until_compiled(200, Passes(2), 1_000_000) == 119  # two threads do it in half of the time
    assert passes_until_compiled(200, Passes(), 1_000) == 200
    assert passes_until_compiled(200, Passes(), 10**9) == 0
    assert passes_until_compiled(200, Passes(patience=0), 1) == 0


def test_compiling_costs_more_than_loading(cold: pytest.MonkeyPatch) -> None:
    kernels = Kernels(ready=False)
    cold.setattr(passes, "import_module", lambda name: kernels)
    assert passes_until_compiled(1000, Passes(), 1_000_000) == 599


def test_without_numba_numpy_does_all(cold: pytest.MonkeyPatch) -> None:
    cold.setattr(passes, "find_spec", lambda name: None)
    assert Passes(patience=0).compiled("sweep", 10**9, 5, 5) is None


def test_a_numba_that_does_not_load_is_asked_once(cold: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str) -> None:
        asked.append(name)
        raise ImportError("Numba needs NumPy 2.4 or less")

    cold.setattr(passes, "import_module", load)
    work = Passes()
    assert work.compiled("sweep", 10**12, 5, 5) is None
    assert work.compiled("sweep", 10**12, 5, 5) is None
    assert asked == [passes._FUSED]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 11, 1000])
def test_ranges_are_all_records_in_order(threads: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_LEAST", 1.0)
    ranges = Passes(threads).over(n, 5, 5, lambda start, stop: (start, stop))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert len(ranges) == (1 if threads == 1 or n < 2 else min(n, 2 * threads))


def test_two_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=60)
    Passes(2).over(10**7, 5, 5, lambda start, stop: meeting.wait())


def test_little_work_stays_in_this_thread() -> None:
    assert Passes(8).over(10_000, 5, 5, lambda start, stop: threading.get_ident()) == [threading.get_ident()]


def test_what_a_thread_raises_is_raised() -> None:
    def fail(start: int, stop: int) -> None:
        raise ValueError(f"at {start}")

    with pytest.raises(ValueError, match="at 0"):
        Passes(2).over(10**7, 5, 5, fail)


def test_no_threads_is_no_number_of_threads() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        Passes(0)
