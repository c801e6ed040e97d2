"""What a database gives, taken cell by cell: hostile values end in a sentence, all others in the numbers they are."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.data.connection import Answer
from fastlloyd.data.form import MISSING
from fastlloyd.data.kinds import MOST_TEXT
from fastlloyd.errors import DataError

NUMBERS = st.none() | st.integers() | st.floats() | st.decimals() | st.sampled_from([Decimal("1E+999999"), 10**400])


def answer(rows: Sequence[tuple[Any, ...]], names: Sequence[str] = ("a", "b"), **rest: Any) -> Answer:
    return Answer("the ward's", names, iter([rows[:1], rows[1:]] if len(rows) > 1 else [rows]), **rest)


def numbers(own: Answer, *columns: int) -> list[list[float]]:
    return [row for cells in own.chunks(columns) for row in cells.values.tolist()]


@given(st.lists(st.tuples(st.integers(0, 1 << 40), NUMBERS), max_size=20, unique_by=lambda row: row[0]), st.randoms())
def test_numbers_are_what_python_makes_of_them(rows: list[tuple[int, Any]], shuffle: random.Random) -> None:
    def expected(value: Any) -> float:
        try:
            none = value is None or (isinstance(value, Decimal) and value.is_nan()) or value != value
            return math.nan if none else float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf

    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    own = answer(shuffled)
    assert own.rows == len(rows) and own.numeric == (True, True)
    wanted = [[row[0], expected(row[1])] for row in sorted(rows, key=lambda row: row[0])]
    np.testing.assert_array_equal(numbers(own, 0, 1), np.array(wanted).reshape(-1, 2).tolist())
    assert list(own.texts(0)) == [str(row[0]) for row in sorted(rows, key=lambda row: row[0])]


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_text_is_kept_as_it_is(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    own = answer([(number, text) for number, text in enumerate(texts)])
    assert list(own.texts(1)) == [text.strip() for text in texts]
    assert own.numeric == (True, False)
    faults = [number for number, text in enumerate(texts) if text.strip().lower() not in MISSING]
    if faults:
        with pytest.raises(DataError, match=f"row {faults[0] + 1} in the order of its columns.*, got text; convert it"):
            numbers(own, 1)
    else:
        assert np.isnan(numbers(own, 1)).all()


def test_text_between_numbers_is_named_and_a_gap_is_a_gap() -> None:
    own = answer([(1, 5), (2, ""), (3, " NA "), (4, None), (5, "7"), (6, 8.5)], ("visit_id", "dose"))
    assert own.numeric == (True, True)
    with pytest.raises(
        DataError, match=r"the ward's, the row of 'visit_id' 5, column 'dose': expected a number, got text"
    ):
        numbers(own, 1)
    own = answer([(1, 5), (2, ""), (3, " NA ")], ("visit_id", "dose"))
    np.testing.assert_array_equal(numbers(own, 1), [[5], [math.nan], [math.nan]])


@pytest.mark.parametrize(
    "odd", [date(1980, 2, 29), b"12", (1, 2), [1.5], {"a": 1}, object(), "9" * (MOST_TEXT + 1), 1j]
)
def test_what_is_no_number_and_no_name(odd: Any) -> None:
    own = answer([(1, odd), (2, odd)], ("id", "b"))
    assert own.numeric == (True, False)
    for read in (lambda: numbers(own, 1), lambda: list(own.texts(1))):
        with pytest.raises(DataError, match=r"column 'b': expected .*, got [\w ]+; convert it in --query") as caught:
            read()
        assert "999" not in str(caught.value) and "1980" not in str(caught.value)


@pytest.mark.parametrize("rows", [[(1,)], [(1, 2, 3)], [(1, 2), (1,)], [(1, 2), ()]])
def test_rows_of_another_width_than_the_columns(rows: list[tuple[int, ...]]) -> None:
    with pytest.raises(DataError, match="expected 2 values in each row, as its columns say, got a row with another"):
        answer(rows)


def test_names_of_columns_are_never_sql() -> None:
    own = answer([(1, 2)], ('a"; DROP TABLE sorted; --', "\x1b[2J"))
    assert numbers(own, 1, 0) == [[2, 1]]
    with pytest.raises(DataError, match="2,001 columns, expected at most 2000"):
        answer([], [f"c{number}" for number in range(2001)])


def test_numbers_that_are_not_whole_name_nobody() -> None:
    assert list(answer([(1.0, 2), (4.0, 2)]).texts(0)) == ["1", "4"]
    for value in (0.5, math.inf):
        with pytest.raises(DataError, match="expected whole numbers or text, got a number that is not whole"):
            list(answer([(value, 2)]).texts(0))
    with pytest.raises(DataError, match="got a floating point number from 9,007,199,254,740,992 on, where several"):
        list(answer([(2.0**53, 2)]).texts(0))


def test_a_whole_number_keeps_all_of_its_digits() -> None:
    """As a name; as a feature it is the nearest float."""
    large = 10**28 + 1
    own = answer([(large, 1), (-large, 2), (Decimal(large), 3), (7, 4)], ("id", "b"))
    assert own.numeric == (True, True)
    assert sorted(own.texts(0)) == sorted([str(large), str(-large), str(large), "7"])
    assert sorted(numbers(own, 0)) == [[-1e28], [7], [1e28], [1e28]]
    assert str(large) in {own.row(at).removeprefix("the row of 'id' ") for at in range(4)}


@pytest.mark.parametrize(
    ("names", "key", "named"),
    [
        (("a", "person_id"), None, "the row of 'person_id' 'x'"),
        (("a", "b"), "b", "the row of 'b' 'x'"),
        (("id", "b"), "gone", "the row of 'id' 3"),
        (("a", "b"), None, "row 1 in the order of its columns (--id COLUMN names rows)"),
    ],
)
def test_the_name_of_a_row(names: tuple[str, ...], key: str | None, named: str) -> None:
    assert answer([(3, "x")], names, key=key).row(0) == named


def test_long_and_missing_keys() -> None:
    assert answer([("x" * 500, 1)], ("id", "b")).row(0) == f"the row of 'id' '{'x' * 59}.."
    assert answer([(None, 1)], ("id", "b")).row(0) == "the row without 'id'"


@pytest.mark.process
def test_many_rows_take_little_memory_and_leave_nothing_on_the_disk(tmp_path: Path) -> None:
    # By itself: SQLite looks for its folder once, and only a new process has used little memory before.
    env = {**os.environ, "SQLITE_TMPDIR": str(tmp_path)}
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    grown_kib, rows, *files = done.stdout.split()
    assert int(rows) == 60_000 and int(grown_kib) < 45_000  # of 60 MB
    assert any(str(tmp_path) in path for path in files)
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import resource
from pathlib import Path
from fastlloyd.data.connection import Answer

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = peak()
batches = ([(n, f"{n:06d}" + "x" * 994) for n in range(start + 999, start - 1, -1)] for start in range(0, 60_000, 1000))
own = Answer("ward", ("a", "b"), batches)
for at, text in enumerate(own.texts(1)):
    assert int(text[:6]) == at
fds = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and int(fd.name) > 2]
print(peak() - before, own.rows, *[text.replace(" (deleted)", "") for text in fds if text.endswith("(deleted)")])
"""


def test_a_disk_that_is_full_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastlloyd.data.connection._CACHE_KIB", 1)
    for variable in ("SQLITE_TMPDIR", "TMPDIR"):
        monkeypatch.setenv(variable, "/nonexistent")
    # Without any place, SQLite takes /var/tmp: a limit on its size stands for a disk that is full.
    import fastlloyd.data.connection as module

    real = module.sqlite3.connect

    def limited(*args: Any, **rest: Any) -> Any:
        connection = real(*args, **rest)
        connection.execute("PRAGMA max_page_count = 20")
        return connection

    monkeypatch.setattr(module.sqlite3, "connect", limited)
    with pytest.raises(DataError, match=r"cannot be kept on the disk \(.*full.*\); make room there, or name a folder"):
        answer([(number, "x" * 900) for number in range(1000)])
