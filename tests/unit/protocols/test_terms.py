"""What all parties state before a run and its plan repeats is declared once, in a base of both."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import pytest

from fastlloyd.protocols.registry import ROWS

# What the public parameters may leave to a formula, and the plan settles: another type, or another unit.
SETTLED = {"delta", "rounds", "min_clients"}


@pytest.mark.parametrize("package", sorted({row.package for row in ROWS}))
def test_no_field_of_a_plan_is_declared_twice(package: str) -> None:
    where = "parameters" if find_spec(f"{package}.parameters") else "plan"
    public = import_module(f"{package}.{where}").PublicParameters
    plan = import_module(f"{package}.plan").Plan
    assert public.__annotations__.keys() & plan.__annotations__.keys() <= SETTLED
    base = {name for kind in set(public.__mro__) & set(plan.__mro__) for name in getattr(kind, "__annotations__", {})}
    assert {"k", "n_total", "seed"} <= base
