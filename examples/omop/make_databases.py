"""Make hospitals' databases of invented people: `python make_databases.py FOLDER`, FOLDER/hospital_1.db and so on.

Each is a database of SQLite with four tables of the OMOP common data model (version 5.4) and the columns that the query
beside this file reads. All people are drawn from three invented kinds of patient by a fixed seed; none is real.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import numpy as np

TABLES = """
CREATE TABLE person (
    person_id INTEGER PRIMARY KEY, gender_concept_id INTEGER NOT NULL, year_of_birth INTEGER NOT NULL);
CREATE TABLE visit_occurrence (
    visit_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, visit_concept_id INTEGER NOT NULL,
    visit_start_date DATE NOT NULL);
CREATE TABLE measurement (
    measurement_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, measurement_concept_id INTEGER NOT NULL,
    measurement_date DATE NOT NULL, value_as_number DOUBLE PRECISION);
CREATE TABLE condition_occurrence (
    condition_occurrence_id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, condition_concept_id INTEGER NOT NULL,
    condition_start_date DATE NOT NULL);
"""
MALE, FEMALE = 8507, 8532
INPATIENT, OUTPATIENT = 9201, 9202
BMI, SYSTOLIC, HBA1C = 3038553, 3004249, 3004410
DIABETES, HYPERTENSION = 201826, 320128
HEART_FAILURE, COPD, DEPRESSION = 316139, 255573, 440383
# Of each kind of patient: age, body mass index, systolic pressure (mmHg), HbA1c (%), visits a year, and the shares
# with diabetes and hypertension.
KINDS = (
    (34, 23.5, 118, 5.2, 1.0, 0.01, 0.02),
    (67, 27.5, 152, 5.7, 4.0, 0.10, 0.90),
    (58, 33.0, 136, 8.1, 7.0, 0.97, 0.45),
)
# And the shares with heart failure, chronic obstructive pulmonary disease and depression, which are no features.
FURTHER = ((0.01, 0.02, 0.15), (0.25, 0.10, 0.08), (0.12, 0.15, 0.20))
SPREAD = (7, 2.0, 8, 0.4)
FIRST_DAY = date(2024, 1, 1)


def main() -> None:
    """Write the databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write them; it is made if need be")
    parser.add_argument("--hospitals", type=int, default=3)
    parser.add_argument("--people", type=int, default=1000, help="of the first hospital; each further one has fewer")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for hospital in range(1, options.hospitals + 1):
        path = options.folder / f"hospital_{hospital}.db"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(TABLES)
            fill(
                database,
                hospital,
                max(1, options.people * (options.hospitals + 2 - hospital) // (options.hospitals + 1)),
            )
            database.commit()
        print(path)


def fill(database: sqlite3.Connection, hospital: int, people: int) -> None:
    """Write one hospital's people."""
    rng, further = (np.random.default_rng([year, hospital]) for year in (2024, 2025))
    # Another mixture at each hospital.
    kinds = rng.choice(len(KINDS), size=people, p=rng.dirichlet([6.0] * len(KINDS)))
    rows: dict[str, list[tuple[object, ...]]] = {
        name: [] for name in ("person", "visit_occurrence", "measurement", "condition_occurrence")
    }
    for number, kind in enumerate(kinds, 1):
        person = 100_000 * hospital + number
        *means, visits, diabetes, hypertension = KINDS[kind]
        age, *levels = rng.normal(means, SPREAD)
        born = 2025 - int(np.clip(round(age), 18, 99))
        rows["person"].append((person, FEMALE if rng.random() < 0.5 else MALE, born))
        for concept, share in ((DIABETES, diabetes), (HYPERTENSION, hypertension)):
            if rng.random() < share:
                rows["condition_occurrence"].append((len(rows["condition_occurrence"]) + 1, person, concept, day(rng)))
        for concept, share in zip((HEART_FAILURE, COPD, DEPRESSION), FURTHER[kind], strict=True):
            if further.random() < share:
                known = rows["condition_occurrence"]
                known.append((len(known) + 1, person, concept, day(further)))
        for _ in range(rng.poisson(visits)):
            where = INPATIENT if rng.random() < 0.15 else OUTPATIENT
            rows["visit_occurrence"].append((len(rows["visit_occurrence"]) + 1, person, where, day(rng)))
        for values in measured(rng, person, levels):
            rows["measurement"].append((len(rows["measurement"]) + 1, *values))
    for name, own in rows.items():
        marks = ", ".join("?" * len(own[0]))
        database.executemany(f"INSERT INTO {name} VALUES ({marks})", own)  # noqa: S608


def measured(rng: np.random.Generator, person: int, levels: list[float]) -> Iterator[tuple[object, ...]]:
    """Yield a person's measurements: each quantity once to three times, and for some people not at all."""
    for concept, level, noise in zip((BMI, SYSTOLIC, HBA1C), levels, (0.3, 5.0, 0.1), strict=True):
        for _ in range(0 if rng.random() < 0.03 else int(rng.integers(1, 4))):
            yield person, concept, day(rng), round(float(level + rng.normal(0, noise)), 1)


def day(rng: np.random.Generator) -> str:
    """Return a day of the year 2024."""
    return (FIRST_DAY + timedelta(days=int(rng.integers(0, 366)))).isoformat()


if __name__ == "__main__":
    main()
