"""For all tests: no test fails because the machine is busy, or because this run draws what no other run has drawn."""

import atexit
import gc
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import none

from fastlloyd.errors import format_count
from tests.same_bits import SameBits

# Hundreds of processes start here; without this, each compiles the package anew where the environment says so.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A worker per core runs tests: further BLAS threads would spin on the others' cores (a sixth of the processor time of
# the numerical tests). Before NumPy is imported, else it is too late.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# No test fails because its examples are drawn slowly, or because this run draws an example that no other run has drawn:
# `make test` draws the same ones each time, `make test-fast` the first few of them, and `make test-all` fresh ones.
_calm = settings(settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fresh", parent=_calm, derandomize=False)
settings.register_profile("same", parent=_calm, derandomize=True, database=None)
settings.register_profile("few", parent=settings.get_profile("same"), max_examples=15)
settings.load_profile("same")


_bits = SameBits()


def _leave(worker: int) -> None:
    """End a worker of pytest-xdist, not what it forked, without freeing all that it has piece by piece."""
    if os.getpid() == worker:
        os._exit(0)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Fix what is drawn, unless it is to be fresh, as Hypothesis' examples are; by now it knows its profile."""
    if hasattr(config, "workerinput"):
        atexit.register(_leave, os.getpid())
    if settings.get_current_profile_name() in ("same", "few"):
        os.urandom = _bits


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that long tests were left out, above all to somebody who has named a file that holds no others."""
    if config.option.markexpr == "not slow":
        left = [item for item in terminalreporter.stats.get("deselected", ()) if item.get_closest_marker("slow")]
        if left or config.getoption("numprocesses", None):  # the workers of pytest-xdist do not say what they leave out
            count = format_count(len(left), "test") if left else "tests"
            terminalreporter.write_line(f"left out: {count} marked slow; -m '' runs all")


@given(none())
def _first_example(_: None) -> None:
    """Let Hypothesis make its random numbers, NumPy's too: it warns where the collector does not see who holds them.

    It has the collector pass over all that there is: before tests are collected, that is little.
    """


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not look for garbage in what is collected, which lasts to the end: that took two fifths of the time."""
    import numpy.random  # noqa: F401  # not before the threads are set

    _first_example()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Nor after each few hundred objects of a test: that took a twentieth of the processor time of whole runs.
        gc.set_threshold(50_000, 20, 100)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give each test bits of its own."""
    with _bits.drawn_for(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Give what tests share bits of its own, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    with _bits.drawn_for(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)
