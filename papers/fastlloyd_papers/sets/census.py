"""The US census sets of FedDP-KMeans, made of the files of the American Community Survey that folktables reads.

One person, one record: seven categories of the task ACSIncome, each value a feature of 0 and 1, so that each record
has the norm sqrt(7). The features are the codes that the survey's dictionary lists, with one for "no value". Persons
are those that ACSIncome takes (over 16, an income above 100, hours of work, a weight). The clients are the 50 states
and Puerto Rico, as folktables lists them; each holds the first nine tenths of its persons of the class of worker in
question. The server has 20 of these and 1,000 persons of other classes, drawn with repetition from a public stream.
(The authors' code draws without a seed, and the 1,000 state by state in proportion: the same but for chance.)

Source: FedDP-KMeans, App. G.1, and its published code (`load_folktables.py`: 2018, 1-Year, person); folktables.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import DataError
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import PublicStream
from fastlloyd_papers.sets.source import Made, MadeSet, PublicTable, Read, locate, open_text, remember, rows_of

WORKERS: Mapping[str, int] = {"census-federal": 5, "census-nonprofit": 2, "census-self": 6}
"""The class of worker (COW) of each set's clients."""
NEEDS = (
    "the person files csv_pXX.zip of 2018, 1-Year, for the 50 states and Puerto Rico (csv_pal.zip .. csv_pwy.zip, "
    "csv_ppr.zip), or psam_pNN.csv out of them, from https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/"
    ", and PUMS_Data_Dictionary_2018.csv from https://www2.census.gov/programs-surveys/acs/tech_docs/pums/data_dict/ "
    "(folktables' folder data/2018/1-Year has both, the latter as definition.csv)"
)
# By postal code, with the number that names the file: folktables' list, which leaves out the District of Columbia.
STATES: Mapping[str, str] = {
    "AL": "01", "AK": "02", "AZ": "04", "AR": "05", "CA": "06", "CO": "08", "CT": "09", "DE": "10", "FL": "12",
    "GA": "13", "HI": "15", "ID": "16", "IL": "17", "IN": "18", "IA": "19", "KS": "20", "KY": "21", "LA": "22",
    "ME": "23", "MD": "24", "MA": "25", "MI": "26", "MN": "27", "MS": "28", "MO": "29", "MT": "30", "NE": "31",
    "NV": "32", "NH": "33", "NJ": "34", "NM": "35", "NY": "36", "NC": "37", "ND": "38", "OH": "39", "OK": "40",
    "OR": "41", "PA": "42", "RI": "44", "SC": "45", "SD": "46", "TN": "47", "TX": "48", "UT": "49", "VT": "50",
    "VA": "51", "WA": "53", "WV": "54", "WI": "55", "WY": "56", "PR": "72",
}  # fmt: skip
FEATURES = ("SCHL", "MAR", "OCCP", "POBP", "RELP", "SEX", "RAC1P")
PAPER_D = 819
PAPER_ROWS: Mapping[str, int] = {"census-federal": 44_720, "census-nonprofit": 127_491, "census-self": 98_475}
_DICTIONARY, _KEPT_AS = "PUMS_Data_Dictionary_2018.csv", "definition.csv"
# ACSIncome takes persons with more than this (PWGTP: at least 1).
_ABOVE = {"AGEP": 16, "PINCP": 100, "WKHP": 0, "PWGTP": 0}
_COW = "COW"
_BLANK = -1
_INSIDE, _OUTSIDE = 20, 1000

Codes = dict[str, dict[int, int]]


def make_census(folder: Path, states: Mapping[str, str] = STATES) -> Made:
    """Make the three sets.

    Parameters
    ----------
    folder : Path
    states : mapping of str to str
        Postal code to number.

    Raises
    ------
    ConfigError
        A file is missing.
    DataError
        A file is not what it should be, or a state has too few persons.
    """
    read: list[Read] = []
    dictionary = locate(folder, _DICTIONARY, _KEPT_AS, NEEDS)
    paths = {
        state: locate(folder, f"psam_p{number}.csv", f"csv_p{state.lower()}.zip", NEEDS)
        for state, number in states.items()
    }
    codes, names = read_codes(dictionary)
    read.append(remember(dictionary))
    persons = []
    for state, path in paths.items():
        persons.append(read_state(path, f"psam_p{states[state]}.csv", codes))
        read.append(remember(path))
    return Made(tuple(_make_one(name, persons, names, list(states)) for name in WORKERS), tuple(read))


def read_codes(path: Path) -> tuple[Codes, tuple[str, ...]]:
    """Read the values of each category off the dictionary; for each the feature it becomes, and the features' names.

    Raises
    ------
    DataError
        It is no such dictionary.
    """
    found: dict[str, list[int]] = {name: [] for name in FEATURES}
    with open_text(path, _DICTIONARY) as file:
        for line, row in _entries(file):
            if row[:1] != ["VAL"] or len(row) < 2 or row[1] not in found:
                continue
            if len(row) != 7 or row[2] != "C" or row[4] != row[5]:
                raise DataError(
                    f"{path}, line {line}: expected VAL, {row[1]}, C, a width, one code twice, and its meaning"
                )
            code = _code(row[4].strip("b"))
            if code is None or code in found[row[1]]:
                raise DataError(f"{path}, line {line}: expected a code of {row[1]} that stands once, got {row[4]!r}")
            found[row[1]].append(code)
    codes: Codes = {}
    names: list[str] = []
    for feature, values in found.items():
        if not values:
            raise DataError(f"{path}: expected the values of {feature}; is this {_DICTIONARY}?")
        # A category that is never blank has a feature for that all the same, as folktables makes it.
        whole = values if _BLANK in values else [*values, _BLANK]
        codes[feature] = {code: len(names) + place for place, code in enumerate(whole)}
        names += [f"{feature}_{'none' if code == _BLANK else code}" for code in whole]
    return codes, tuple(names)


def _entries(file: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file)
    for row in reader:
        yield reader.line_num, row


def _code(text: str) -> int | None:
    """Read a code; blank is a value of its own."""
    text = text.strip()
    if not text:
        return _BLANK
    return int(text) if text.isascii() and text.isdecimal() else None


def read_state(path: Path, name: str, codes: Codes) -> NDArray[np.int64]:
    """Read the persons of a state that ACSIncome takes: class of worker, then the feature of each category.

    Raises
    ------
    DataError
        A value is no number, or no value that the dictionary knows.
    """
    kept: list[list[int]] = []
    columns = (*_ABOVE, _COW, *FEATURES)
    with open_text(path, name) as file:
        for line, cells in rows_of(path, file, columns):
            values = dict(zip(columns, cells, strict=True))
            if not all(_above(path, line, name, values[name], least) for name, least in _ABOVE.items()):
                continue
            worker = _code(values[_COW])
            row = [_BLANK if worker is None else worker]
            for feature in FEATURES:
                code = _code(values[feature])
                if code is None or code not in codes[feature]:
                    raise DataError(
                        f"{path}, line {line}: {feature} is {values[feature]!r}, which the dictionary does not list; "
                        "are both of 2018?"
                    )
                row.append(codes[feature][code])
            kept.append(row)
    if not kept:
        raise DataError(f"{path}: expected persons with work and an income, got none")
    return np.array(kept, dtype=np.int64)


def _above(path: Path, line: int, name: str, text: str, least: int) -> bool:
    """Whether a number is above a limit; a blank is not."""
    text = text.strip()
    if not text:
        return False
    if not text.removeprefix("-").isdecimal():
        raise DataError(f"{path}, line {line}: expected a whole number or nothing as {name}, got {text!r}")
    return int(text) > least


def _make_one(
    name: str, persons: Sequence[NDArray[np.int64]], names: tuple[str, ...], states: Sequence[str]
) -> MadeSet:
    worker = WORKERS[name]
    own, others = [], []
    for state, rows in zip(states, persons, strict=True):
        inside = rows[rows[:, 0] == worker, 1:]
        if len(inside) < 2:
            raise DataError(f"{name}: expected at least 2 persons of class of worker {worker} in {state}")
        own.append(inside[: max(1, min(len(inside) * 9 // 10, len(inside) - 1))])
        others.append(rows[rows[:, 0] != worker, 1:])
    clients, strangers = np.vstack(own), np.vstack(others)
    if not len(strangers):
        raise DataError(f"{name}: expected persons of other classes of worker, got none")
    stream = PublicStream(0, f"{domains.SERVER_ROWS}{name}")
    server = np.vstack(
        [
            clients[stream.integers(0, len(clients) - 1, _INSIDE)],
            strangers[stream.integers(0, len(strangers) - 1, _OUTSIDE)],
        ]
    )
    owners = np.repeat(np.arange(len(own), dtype=np.int64), [len(part) for part in own])
    d = len(names)
    told = f"{name}: {len(clients):,} records of {len(own)} clients, {d} features"
    if (len(clients), d) != (PAPER_ROWS[name], PAPER_D):
        told += f"; the paper has {PAPER_ROWS[name]:,} of 51, and {PAPER_D}"
    table = np.hstack([owners[:, None].astype(np.uint8), one_hot(clients, d)])
    return MadeSet(
        (PublicTable(name, ("owner", *names), table), PublicTable(f"{name}-server", names, one_hot(server, d))),
        (f"{told}.",),
    )


def one_hot(places: NDArray[np.int64], d: int) -> NDArray[np.uint8]:
    """Set the features of each record; shape (n, d)."""
    found = np.zeros((len(places), d), dtype=np.uint8)
    np.put_along_axis(found, places, 1, axis=1)
    return found
