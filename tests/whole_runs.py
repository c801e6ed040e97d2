"""Which lines run in whole runs: a plugin of `make coverage` that gives them a context of their own.

A whole run is what a party does from its inputs to its closing exchange, or to the error that ends it: all that
`run_together` or `execute` runs. What a test calls by itself is outside. Lines that run when a module is imported have
no context, so all modules are imported before the first test.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import threading
from collections.abc import Callable
from typing import Any

import pytest
from coverage import Coverage

RUN, OUTSIDE = "whole run", "outside a run"


class Switch:
    """Lets coverage note what runs while one party lives or more, in whichever thread."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._lock = threading.Lock()
        self._living = 0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap what lets a party live."""

        @functools.wraps(call)
        def lives(*args: Any, **kwargs: Any) -> Any:
            self._count(1)
            try:
                return call(*args, **kwargs)
            finally:
                self._count(-1)

        return lives

    def _count(self, change: int) -> None:
        with self._lock:
            before, self._living = self._living, self._living + change
            if not before or not self._living:
                self._coverage.switch_context(RUN if self._living else OUTSIDE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Import what is covered, then wrap what lets parties live, before a test module asks for it by name."""
    coverage = Coverage.current()
    if coverage is None:
        return
    import fastlloyd.protocols
    from fastlloyd.run import execute
    from fastlloyd.run import simulation as in_memory

    for module in pkgutil.walk_packages(fastlloyd.protocols.__path__, "fastlloyd.protocols."):
        importlib.import_module(module.name)
    switch = Switch(coverage)
    in_memory.run_together = switch.around(in_memory.run_together)
    execute.execute = switch.around(execute.execute)
    coverage.switch_context(OUTSIDE)
