"""The program on ranges of descriptions runs on the package as it is, and its ranges hold as often as they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fastlloyd.describe.columns import DescribedColumn


@pytest.fixture(scope="module")
def program() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "descriptions.py"
    spec = importlib.util.spec_from_file_location("descriptions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("masking", ["common", "pairwise"])
def test_ranges_of_a_small_table_hold(program: ModuleType, masking: str) -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(2, 0.5, (300, 2)), rng.normal(7, 0.5, (300, 2))])
    columns = tuple(DescribedColumn(name=name, lo=0, hi=10) for name in ("a", "b"))
    table = program.Table("small", "made here", values, columns, 2, 3.0)
    row = program.measure(table, masking, 20)  # with fixed keys
    assert set(row["held"]) == {"size", "share", "mean", "quartile 1", "median", "quartile 3"}
    assert 0.9 < np.mean([one for held in row["held"].values() for one in held]) <= 1.0
    assert "| small |" in program.report([row], 20)
