"""What an owner joins labels by: each row of its file, in order, with the label of its record."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.data import records as module
from fastlloyd.data.records import RawRows


def label(labels, **own):
    return list(RawRows(**own).label(np.array(labels, dtype=np.int64)))


def test_each_row_its_own_record():
    assert label([2, 0]) == [(1, 2), (2, 0)]
    assert label([]) == []


def test_rows_of_one_person_and_rows_that_were_dropped():
    records = np.array([0, -1, 1, 0])
    assert label([5, 7], raw_records=records) == [(1, 5), (2, ""), (3, 7), (4, 5)]
    assert label([5, 7], raw_records=records, raw_ids=("a", "b", "c", "a"))[1] == (2, "b", "")


def test_rows_of_a_part_of_a_public_set():
    assert label([1, 0], raw_numbers=np.array([9, 4])) == [(9, 1), (4, 0)]


def test_rows_that_were_dropped_over_many_blocks(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ROWS", 3)
    kept = np.random.default_rng(0).random(50) < 0.6
    labels = np.arange(kept.sum())
    records = np.where(kept, np.cumsum(kept) - 1, -1)
    assert label(labels, raw_kept=kept) == label(labels, raw_records=records)
    assert label(labels) == [(i + 1, i) for i in range(len(labels))]


def test_ids_that_are_not_as_many_as_rows():
    with pytest.raises(ValueError, match="zip"):
        label([1, 2, 3], raw_ids=("a", "b"))
