"""Intervals and tables."""

from __future__ import annotations

import csv
import math
from statistics import stdev

import pytest
from scipy.stats import ttest_ind

from fastlloyd_papers.engine.tables import csv_table, markdown_table, summarise, welch_half_width


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


def test_the_interval_of_a_difference_is_welchs() -> None:
    first, second = [1.0, 2.0, 4.0, 4.5], [2.0, 2.5, 3.0]
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    made = welch_half_width((stdev(first), len(first)), (stdev(second), len(second)))
    assert 2 * made == pytest.approx(interval.high - interval.low)
    assert welch_half_width((0.0, 5), (0.0, 10)) == 0.0
    assert welch_half_width((1.0, 1), (1.0, 10)) == math.inf
