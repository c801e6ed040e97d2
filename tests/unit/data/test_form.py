"""Tables that are written otherwise: recognised with the flag that reads them, and read with it."""

from __future__ import annotations

import contextlib
import gzip
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.cli.check import main
from fastlloyd.data.database import Place, find_place
from fastlloyd.data.findings import find
from fastlloyd.data.form import DataFile, Form
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError, FormError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import load_config
from tests.reading import texts_of

VALUES = np.array([[63.0, 1.5], [41.0, -2.25], [58.0, 3.0]])
ROWS = [("63", "1,5"), ("41", "-2,25"), ("58", "3")]


def text(mark: str, decimal: str, *, names: tuple[str, ...] = ("Größe", "dose")) -> str:
    rows = [names, *((a, b.replace(",", decimal)) for a, b in ROWS)]
    return "".join(mark.join(row) + "\n" for row in rows)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "clinic.csv"


@pytest.mark.parametrize(
    ("mark", "decimal", "mend", "flags"),
    [
        (";", ",", "--delimiter ';' and --decimal ','", ("--delimiter", ";", "--decimal", ",")),
        (";", ".", "--delimiter ';'", ("--delimiter", ";")),
        ("\t", ",", "--delimiter tab and --decimal ','", ("--delimiter", "tab", "--decimal", ",")),
        ("|", ".", "--delimiter '|'", ("--delimiter", "|")),
    ],
)
def test_another_delimiter_is_named_and_read(
    table: Path, mark: str, decimal: str, mend: str, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(text(mark, decimal), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_table(table)
    assert str(caught.value).endswith(f"expected a comma; add {mend}")
    assert main(["--data", str(table), *flags]) == 0  # the sentence is enough to go on
    assert "2 used: Größe, dose" in capsys.readouterr().out
    read = read_table(DataFile(table, Form(delimiter=mark, decimal=decimal)))
    assert np.array_equal(read.values, VALUES)


def test_the_careful_way_reads_the_same(table: Path) -> None:
    table.write_text('name;dose;note\n"a;b";"1,5";x\nc;;"y, z"\nd;-2,25;q\n')
    form = Form(delimiter=";", decimal=",")
    read = read_table(DataFile(table, form), missing="drop")
    assert (read.names, read.ignored, read.missing_in) == (("dose",), ("name", "note"), {"dose": 1})
    assert read.values.tolist() == [[1.5], [-2.25]]
    assert texts_of(DataFile(table, form), "name") == ("a;b", "c", "d")


def test_a_column_of_decimal_commas_is_not_taken_for_text(table: Path) -> None:
    table.write_text('age,dose\n63,"1,5"\n41,"2,25"\n')
    with pytest.raises(DataError, match=r"column 'dose': numbers with ',' before their fraction.* --decimal ','"):
        read_table(table)
    assert read_table(table, columns=["age"]).names == ("age",)
    with pytest.raises(DataError, match=r"row 1 \(line 2\), column 'dose': .*add --decimal ','"):
        read_table(table, columns=["dose"])
    table.write_text("age;dose\n63;1.5\n41;2.25\n")
    with pytest.raises(DataError, match=r"column 'dose': numbers with '.' before their fraction.* --decimal '.'"):
        read_table(DataFile(table, Form(delimiter=";", decimal=",")))


def test_marks_that_may_stand_between_thousands_are_never_called_decimal(table: Path) -> None:
    for separator, form in ((";", Form(delimiter=";")), (";", Form())):
        table.write_text(separator.join(["age", "cost"]) + "\n30;20,000\n40;30,000\n")
        with pytest.raises(FormError) as caught:
            read_table(DataFile(table, form))
        sentence = str(caught.value)
        assert "thousands" in sentence or "--decimal" not in sentence
    for rows in ("30;20,000\n40;30,000\n", "30;950\n40;-1,200\n"):
        table.write_text("age;cost\n" + rows)
        for columns in ((), ("cost",)):
            with pytest.raises(FormError, match="add --thousands none if .*, or --decimal '.' --thousands ','"):
                read_table(DataFile(table, Form(delimiter=";", decimal=",")), columns=columns)
    table.write_text("age;cost\n30;20,000\n40;30,5\n")  # a fraction for sure
    with pytest.raises(FormError, match="--delimiter ';' and --decimal ','"):
        read_table(table)


@pytest.mark.parametrize(
    ("cells", "decimal", "thousands", "values", "said"),
    [
        (["20,000", "5"], ".", ",", [20000, 5], "',' between their thousands or ',' before their fraction"),
        (["20,000", "5"], ",", "none", [20, 5], "--decimal ',' --thousands none for the second"),
        (["1.234,5", "-7"], ",", ".", [1234.5, -7], "',' before their fraction and '.' between their thousands"),
        (["1'234.5", "2\u2019000"], ".", "'", [1234.5, 2000], '"\'" between their thousands'),
        (["1\u00a0234,25", "3 000"], ",", "space", [1234.25, 3000], "--decimal ',' --thousands space"),
    ],
)
def test_marks_between_thousands_are_named_and_read(
    table: Path, cells: list[str], decimal: str, thousands: str, values: list[float], said: str
) -> None:
    table.write_text("age;cost\n" + "".join(f"3;{cell}\n" for cell in cells), encoding="utf-8")
    with pytest.raises(FormError, match="column 'cost': numbers with") as caught:
        read_table(DataFile(table, Form(delimiter=";")))
    assert said in str(caught.value)
    form = Form(delimiter=";", decimal=decimal, thousands=thousands)
    assert read_table(DataFile(table, form)).values[:, 1].tolist() == values


@pytest.mark.parametrize("cell", ["12.34,5", "1.2345", ".123", "1234.567", "0.123", "1.234.56"])
def test_a_mark_between_thousands_stands_between_thousands(cell: str) -> None:
    assert Form(delimiter=";", decimal=",", thousands=".").number(cell) is None


def test_points_that_may_stand_between_thousands_are_doubted(table: Path) -> None:
    tens = "".join(f"{at}\n" for at in range(1, 12))
    for cells, doubted in (
        ([f"{at}.{at}00" for at in range(1, 10)] + ["950", "1.200"], True),
        (["950", "1.200"], False),  # too few
        ([f"{at}.{at + 100}" for at in range(1, 12)], False),  # three digits each, as many instruments write
        ([f"{at}.120" for at in range(1, 12)], True),
        ([f"{at}.12" for at in range(1, 12)], False),
    ):
        table.write_text("cost\n" + "".join(f"{cell}\n" for cell in cells))
        for thousands in (None, "none"):
            own = read_table(DataFile(table, Form(thousands=thousands)))
            said = "the points in column 'cost' may stand between thousands: if so, add --decimal ',' --thousands '.'"
            assert own.intake.doubt.startswith(said) is (doubted and thousands is None)
    table.write_text("cost\n" + tens)
    assert read_table(DataFile(table, Form(delimiter=";", decimal=","))).intake.doubt == ""


@pytest.mark.parametrize(
    "content", ["a,b\n1;x,2\n3;y,4\n", "note\nx;y\n", "a,t\n1,p;q\n2,r;s\n", 'a,b\n"x, y;z",2\n"q;r",3\n']
)
def test_marks_inside_text_divide_nothing(table: Path, content: str) -> None:
    table.write_text(content)
    try:
        read_table(table)
    except DataError as error:
        assert "--delimiter '" not in str(error)


def test_another_encoding_is_named_and_read(table: Path) -> None:
    table.write_text(text(",", "."), encoding="cp1252")
    with pytest.raises(DataError, match="is not UTF-8 text; add --encoding cp1252"):
        read_table(table)
    assert read_table(DataFile(table, Form(encoding="cp1252"))).names == ("Größe", "dose")
    table.write_text(text(",", "."), encoding="utf-16")
    with pytest.raises(DataError, match="add --encoding utf-16"):
        read_table(table)
    assert np.array_equal(read_table(DataFile(table, Form(encoding="utf-16"))).values, VALUES)
    for encoding in ("utf-16-le", "utf-16-be"):  # no mark, and valid UTF-8 full of NUL
        table.write_bytes("age,dose\n63,1.5\n41,-2.25\n58,3\n".encode(encoding))
        with pytest.raises(FormError, match=f"is not UTF-8 text; add --encoding {encoding}"):
            read_table(table)
        assert np.array_equal(read_table(DataFile(table, Form(encoding=encoding))).values, VALUES)
    table.write_text(text(",", "."), encoding="utf-8-sig")
    assert read_table(table).names == ("Größe", "dose")
    zipped = table.with_name("clinic.csv.gz")
    zipped.write_bytes(gzip.compress(text(",", ".").encode("cp1252")))
    with pytest.raises(DataError, match="add --encoding cp1252"):
        read_table(zipped)


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    for values, sentence in (
        ({"decimal": ","}, "--decimal ',': it stands between the cells already"),
        ({"thousands": "."}, "--thousands '.': it stands before a fraction already"),
        ({"delimiter": "ab"}, "--delimiter: expected one character"),
        ({"delimiter": "1"}, "--delimiter: expected one character"),
        ({"encoding": "utf-9"}, "--encoding: expected a name such as"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Form(**values)
        with pytest.raises(ConfigError, match=sentence):
            RunConfig(**values)
    (tmp_path / "run.toml").write_text('delimiter = "tab"\ndecimal = ","\nencoding = "latin-1"\n')
    assert load_config(tmp_path / "run.toml").form == Form(delimiter="\t", decimal=",", encoding="latin-1")


@pytest.mark.parametrize("name", ["hex", "rot13", "undefined", "a\0b", "no-such"])
def test_an_encoding_that_makes_no_text_of_bytes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--encoding: expected a name such as utf-8"):
        Form(encoding=name)


@pytest.mark.parametrize(
    ("header", "names", "rows"),
    [(None, ("x1", "x2"), 3), (False, ("x1", "x2"), 3), (True, ("2019", "2020"), 2)],
)
def test_a_first_row_of_numbers_is_doubted_until_somebody_decides(
    header: bool | None, names: tuple[str, ...], rows: int, tmp_path: Path
) -> None:
    path = tmp_path / "own.csv"
    path.write_text("2019,2020\n1,2\n3,4\n")
    own = read_table(DataFile(path, Form(header=header)))
    assert (own.names, len(own.values)) == (names, rows)
    said = find([own.values], None, own.names, own.intake).warnings
    assert [line.partition(":")[0] for line in said] == (["no header"] if header is None else [])


@pytest.mark.parametrize("first", ["2019.5,2020", "7,7", "2019,"])
def test_other_first_rows_are_not_doubted(first: str, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"{first}\n1,2\n")
    own = read_table(DataFile(path, Form(header=False if first.endswith(",") else None)), missing="gaps")
    assert (len(own.values), own.intake.doubt) == (2, "")


@pytest.mark.parametrize("kind", ["csv", "npy", "db"])
def test_columns_have_the_names_that_all_sites_use(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"own.{kind}"
    if kind == "csv":
        path.write_text("x1,x2\n1,2\n")
    elif kind == "npy":
        np.save(path, [[1.0, 2.0]])
    else:
        with contextlib.closing(sqlite3.connect(path)) as store:
            store.executescript("CREATE TABLE own (x1, x2); INSERT INTO own VALUES (1, 2)")
    data, table = (f"sqlite:///{path}", "own") if kind == "db" else (str(path), None)

    def own(*rename: str) -> Place:
        return find_place(data, Form(rename=rename), table=table)

    found = read_table(own("x1=x2", "x2 = age"), columns=("age", "x2"))
    assert (found.names, found.values.tolist()) == (("age", "x2"), [[2, 1]])
    with pytest.raises(DataError, match="no column 'y' to rename"):
        read_table(own("y=age"))
    with pytest.raises(DataError, match="--rename would make two columns 'x2'"):
        read_table(own("x1=x2"))
    with pytest.raises(ConfigError, match="--rename: expected OLD=NEW, .*, got 'x1='"):
        own("x1=")
