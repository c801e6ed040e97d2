"""What a site hears about its records: each sentence where it is due, and none where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.findings import NOTHING, Intake, find
from fastlloyd.data.table import read_table
from fastlloyd.report.announcer import Announcer
from fastlloyd.report.lines import Journal
from fastlloyd.run.config import RunConfig
from fastlloyd.run.execute import RECORDS, _Execution
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId

NAMES = ("age", "cost")
BOUNDS = Bounds(np.array([0.0, 0.0]), np.array([100.0, 1000.0]), NAMES)
RNG = np.random.default_rng(1)
CLEAN = np.column_stack([RNG.integers(20, 80, 400), RNG.uniform(10, 900, 400)])


def spoilt(column: int, share: float, value: float | None = None) -> np.ndarray:
    """Return clean records of which a share has another value in a column."""
    values, count = CLEAN.copy(), int(share * len(CLEAN))
    values[:count, column] = RNG.uniform(2000, 9000, count) if value is None else value
    return values


def test_clean_records_get_no_sentence() -> None:
    assert find([CLEAN], BOUNDS, NAMES).said == () and NOTHING.said == ()
    assert find([CLEAN], BOUNDS, NAMES).text == "all columns and values are used\n"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (spoilt(1, 0.7), "more than half of the values of cost would be clipped"),
        (spoilt(1, 0.2), "more than 5 % of the values of cost (20 %) would be clipped"),
        (spoilt(0, 0.03, -999.0), "column 'age': -999 in 12 rows, far from all others"),
        (spoilt(0, 0.03, 150.0), "column 'age': 150 in 12 rows, far from all others"),
        (np.column_stack([CLEAN[:, 0], np.arange(400) * 7 % 400]), "'cost' is a feature although all values are"),
    ],
)
def test_what_is_perhaps_not_meant_is_one_warning(values: np.ndarray, words: str) -> None:
    found = find([values], BOUNDS, NAMES)
    assert [warning for warning in found.warnings if warning.startswith(words)], found.warnings
    assert bool(found.unfit) == ("half" in words)
    python = find([values], BOUNDS, NAMES, python=True).warnings
    assert "--" not in " ".join(python)
    if "clipped" in words:
        assert python == found.warnings


def test_blocks_count_together_and_less_than_a_twentieth_is_only_a_fact() -> None:
    found = find(iter(np.array_split(spoilt(1, 0.04), 7)), BOUNDS, NAMES)
    assert found.warnings == () and found.facts == ("16 values outside the bounds, of 800: 16 in 'cost'",)


def test_columns_and_rows_that_are_not_used_are_named_with_their_cause(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "id,age,share,low,note,Unnamed: 0\n1,40,12%,<5,x,1\n2,,13%,<7,y,2\n3,50,9%,<6,z,3\n"
    )
    table = read_table(tmp_path / "t.csv", missing="drop", ignore=())
    found = find([table.values], None, table.names, table.intake)
    assert found.facts == (
        "5 columns not used: 'id' (its name says that it names rows), 'share' (numbers with '%'), 'low' (numbers with "
        "'<'), 'note' (text), 'Unnamed: 0' (its name says that it names rows)",
        "1 record without a value dropped (missing: 1 in 'age')",
    )
    assert "3 of the columns ('share': numbers with '%', 'low': numbers with '<', 'note': text)" in found.warnings[0]


def test_what_was_filled_in_is_no_code_of_the_file(tmp_path: Path) -> None:
    rows = [f"{'' if row % 9 == 0 else 20 + row % 7},{-999 if row % 9 == 1 else row % 50}" for row in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(["age,cost", *rows]))
    table = read_table(tmp_path / "t.csv", missing="midpoint", bounds=BOUNDS)
    assert np.count_nonzero(table.values[:, 0] == 50) == 10
    said = find([table.values], BOUNDS, table.names, table.intake).warnings
    assert [sentence for sentence in said if "far from all others" in sentence] == [
        "column 'cost': -999 in 10 rows, far from all others: if that means missing, add --na -999"
    ]


def test_the_owner_hears_it_and_keeps_it_and_a_common_terminal_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Here:
        me = PartyId(1)

    findings = find([spoilt(1, 0.7)], BOUNDS, NAMES, Intake(left_out=(("note", "text"),)))
    for own, journal in ((True, Journal.TEXT), (False, Journal.TEXT), (True, Journal.LOG)):
        heard = own and journal is Journal.TEXT
        announcer = Announcer(PartyId(1), own_terminal=own, journal=journal)
        party = _Execution(Here(), announcer, None)  # type: ignore[arg-type]
        party.state = StateDir(str(tmp_path / f"state-{own}-{journal.name}"), PartyId(1), new=True)
        party._say_of_records(RunConfig(output=str(tmp_path / "out")), findings)
        sys.stderr.flush()
        said = capsys.readouterr().err
        assert ("of these records, 1 column not used: 'note' (text)" in said) == heard
        assert ("more than half of the values of cost" in said) == heard
        kept = party.state.path / RECORDS
        assert kept.stat().st_mode & 0o777 == 0o600 and "'note' (text)" in kept.read_text()
    assert not (tmp_path / "out").exists()
    # Neither a terminal nor a state folder: beside the labels.
    party = _Execution(Here(), Announcer(PartyId(1), own_terminal=False), None)  # type: ignore[arg-type]
    party._say_of_records(RunConfig(output=str(tmp_path / "out")), findings)
    kept = tmp_path / "out" / "records_1.txt"
    assert kept.stat().st_mode & 0o777 == 0o600 and "'note' (text)" in kept.read_text()
    assert capsys.readouterr().err == ""
