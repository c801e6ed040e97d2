"""Intervals and tables."""

from __future__ import annotations

import csv
import math

import pytest

from fastlloyd.bench.engine.tables import csv_table, markdown_table, summarise


def test_the_interval_is_students() -> None:
    summary = summarise([1.0, 2.0, 3.0])
    # t(0.975, 2) = 4.302653 (any table), standard error 1 / sqrt(3).
    assert summary.half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert (summary.mean, summary.median, summary.least, summary.largest, summary.count) == (2, 2, 1, 3, 3)
    assert summary.text() == "2.00 ± 2.48"


def test_no_interval_from_fewer_than_three() -> None:
    assert summarise([1.0, 2.0]).half_width is None
    assert summarise([1.25]).text(1) == "1.2"
    with pytest.raises(ValueError, match="at least one"):
        summarise([])


def test_markdown_and_csv_hold_the_same_cells() -> None:
    table = markdown_table(["a", "b"], [["x", "1"], ["y", ""]])
    assert table.splitlines() == ["| a | b |", "|---|---:|", "| x | 1 |", "| y |  |"]
    rows = list(csv.reader(csv_table(["a", "b"], [["x, z", 0.5], ["y", None]]).splitlines()))
    assert rows == [["a", "b"], ["x, z", "0.5"], ["y", ""]]
