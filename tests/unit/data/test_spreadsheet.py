"""Sheets of Excel workbooks, written here as Excel writes them."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastlloyd.data.database import find_place
from fastlloyd.data.form import Form
from fastlloyd.data.table import MemoryLimit, read_table, read_table_within
from fastlloyd.errors import ConfigError, DataError
from tests.reading import column_names, texts_of

DATE, TIME = "date", "time"
"""Numbers that are shown as a date or a time."""
_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if value in (DATE, TIME):
        return f'<c r="{name}" s="{1 if value == DATE else 2}"><v>{43831 if value == DATE else 0.5}</v></c>'
    if isinstance(value, bool):
        return f'<c r="{name}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str) and value.startswith("#"):
        return f'<c r="{name}" t="e"><v>{value}</v></c>'
    if isinstance(value, str):
        return f'<c r="{name}" t="inlineStr"><is><t>{value}</t></is></c>'
    return f'<c r="{name}"><v>{value!r}</v></c>'


def write_book(path: Path, **sheets: list[list[Any]]) -> Path:
    """Write a workbook; a name's underscore stands for a space."""
    parts = {}
    for number, rows in enumerate(sheets.values(), 1):
        lines = (
            f'<row r="{at}">{"".join(cell(f"{chr(65 + column)}{at}", value) for column, value in enumerate(row))}</row>'
            for at, row in enumerate(rows, 1)
        )
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f"<worksheet {_MAIN}><sheetData>{''.join(lines)}</sheetData></worksheet>"
        )
    listed = "".join(
        f'<sheet name="{name.replace("_", " ")}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, 1)
    )
    parts["xl/workbook.xml"] = f'<workbook {_MAIN} xmlns:r="{_REL}"><sheets>{listed}</sheets></workbook>'
    links = "".join(
        f'<Relationship Id="r{at}" Type="{_REL}/worksheet" Target="worksheets/sheet{at}.xml"/>'
        for at in range(1, len(sheets) + 1)
    )
    links += f'<Relationship Id="s" Type="{_REL}/styles" Target="styles.xml"/>'
    parts["xl/_rels/workbook.xml.rels"] = f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'
    formats = "".join(f'<xf numFmtId="{number}"/>' for number in (0, 14, 21))
    parts["xl/styles.xml"] = f'<styleSheet {_MAIN}><cellXfs count="3">{formats}</cellXfs></styleSheet>'
    root = f'<Relationship Id="r" Type="{_REL}/officeDocument" Target="xl/workbook.xml"/>'
    parts["_rels/.rels"] = f'<Relationships xmlns="{_PACKAGE}/relationships">{root}</Relationships>'
    parts["[Content_Types].xml"] = f'<Types xmlns="{_PACKAGE}/content-types"/>'
    with zipfile.ZipFile(path, "w") as book:
        for name, text in parts.items():
            book.writestr(name, text)
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    pytest.importorskip("python_calamine", reason="no python-calamine: pip install 'fastlloyd[excel]'")
    rows = [
        ["id", "age", "dose", "born", "at", "known", "ward", "gap", "wrong", "mixed"],
        [1001, 40, 1.5, DATE, TIME, True, " A ", "NA", 1, 1],
        [1002, 41, "2.25", DATE, None, False, "B", None, "#DIV/0!", DATE],
        [None] * 10,
    ]
    return write_book(tmp_path / "records.xlsx", Ward=rows, plain_2024=[[1, 2], [3, 4.5]], empty=[])


def test_a_sheet_is_a_table(book: Path, tmp_path: Path) -> None:
    table = read_table(book, columns=["age", "dose", "gap", "wrong"], missing="gaps", texts=("id", "ward", "known"))
    np.testing.assert_array_equal(table.values, [[40, 1.5, np.nan, 1], [41, 2.25, np.nan, np.nan]])
    assert table.raw_texts == {"id": ["1001", "1002"], "ward": ["A", "B"], "known": ["true", "false"]}
    assert read_table(book, ignore=["gap", "wrong", "mixed"]).names == ("age", "dose")  # no dates, text or truth values
    other = find_place(f"{book}#plain 2024")
    assert str(other).endswith("records.xlsx#plain 2024") and column_names(other) == ("x1", "x2")
    assert read_table(other).values.tolist() == [[1, 2], [3, 4.5]]
    with pytest.raises(DataError, match="its records need more memory than --memory allows"):
        read_table_within(other, MemoryLimit(1, tmp_path))
    comma = write_book(tmp_path / "comma.xlsx", a=[["dose"], ["1,5"], [2.5]])
    assert read_table(find_place(str(comma), Form(delimiter=";", decimal=","))).values.tolist() == [[1.5], [2.5]]


def test_cells_follow_the_rule_of_types(book: Path, tmp_path: Path) -> None:
    for column, said in (
        ("born", "column 'born': expected numbers, got dates"),
        ("at", "column 'at': expected numbers, got times of day"),
        ("known", r"row 1 \(line 2\), column 'known': expected a number, got a truth value"),
        ("ward", r"row 1 \(line 2\), column 'ward': expected a number, got text"),
        ("mixed", r"row 2 \(line 3\), column 'mixed': expected a number, got (dates|points in time)"),
    ):
        with pytest.raises(DataError, match=said):
            read_table(book, columns=["age", column])
    for column, said in (("born", "got dates"), ("mixed", "got (dates|points in time)")):
        with pytest.raises(DataError, match=f"column '{column}': expected whole numbers or text, {said}"):
            texts_of(book, column)
    large = write_book(tmp_path / "large.xlsx", a=[["id", "age"], [float(2**53), 1]])
    with pytest.raises(DataError, match="floating point number from 9,007,199,254,740,992 on"):
        texts_of(large, "id")


def test_a_cell_far_from_the_table_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine", reason="no python-calamine: pip install 'fastlloyd[excel]'")
    book = write_book(tmp_path / "far.xlsx", a=[["age", "dose"], [1, 2]])
    with zipfile.ZipFile(book) as read:
        parts = {name: read.read(name) for name in read.namelist()}

    def add(cell: bytes) -> Path:
        with zipfile.ZipFile(book, "w", zipfile.ZIP_DEFLATED) as written:
            for name, text in parts.items():
                written.writestr(name, text.replace(b"</sheetData>", b'<row r="1048576">%s</row></sheetData>' % cell))
        return book

    assert read_table(add(b'<c r="XFD1048576" s="1"/>')).values.tolist() == [[1, 2]]  # a format alone
    # Without the refusal this process would end here.
    said = r"the 5 cells of xl/worksheets/sheet1.xml lie in 1,048,576 rows and 16,384 columns, .* delete the cells"
    with pytest.raises(DataError, match=said):
        read_table(add(b" " * 3_000_000 + b'<c s="1" r="XFD1048576"><v>1</v></c>'))


def test_what_is_no_sheet(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in (
        ("#plain", r"no sheet 'plain' \(did you mean 'plain 2024'\?\); it has 'Ward', 'plain 2024', 'empty'; name one"),
        ("#empty", "the sheet is empty"),
    ):
        with pytest.raises(DataError, match=said):
            read_table(find_place(f"{book}{name}"))
    (tmp_path / "no.xlsx").write_bytes(b"PK\3\4 nothing of the kind")
    with pytest.raises(DataError, match="cannot read .*no.xlsx as xlsx .*; save it again, without a password"):
        read_table(tmp_path / "no.xlsx")
    with pytest.raises(DataError, match="no file .*gone.xlsx: expected the records there"):
        read_table(find_place(f"{tmp_path}/gone.xlsx#a"))
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(ConfigError, match=r"needs python-calamine, .* run pip install 'fastlloyd\[excel\]'"):
        read_table(book)
