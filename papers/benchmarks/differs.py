"""How often a description says that a cluster differs from the rest where it does not, and where it does.

    python papers/benchmarks/differs.py --data-dir DIR [--draws 200]

*Null*: adult's clusters with the labels of its records permuted anew for each draw: no column has anything to do with a
cluster. *Real*: the labels as they are, every column compared as if none had made the clusters. *One cloud*: normal
records without clusters, cut in four by k-means, described by the four features that made the clusters and by two columns
that have nothing to do with them. Vector, noise and rule are the protocol's own. Needs the folder of data sets
(`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from descriptions import Table, cluster, tables
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.data.public.named import load_named
from fastlloyd.describe.coding import Layout, code
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.describe.difference import ALARMS, Difference, Key, compare, count_cells
from fastlloyd.protocol.sums import SumsPlan
from fastlloyd.protocols.describe.protocol import PROTOCOL, settle
from fastlloyd.protocols.describe.rounds import PART
from fastlloyd.randomness.secret import KeyedRandom
from fastlloyd.run.config import RunConfig
from fastlloyd_papers.engine.tables import markdown_table

EPSILONS = (0.2, 1.0, 3.0)
SEED = 8300
_CLOUD, _FEATURES, _PARTS = 30_000, 4, 4
# A real difference to be found: twice what is taken for none.
_TWICE = 2.0

Found = Mapping[Key, Difference]
Codes = tuple[tuple[NDArray[np.int64], NDArray[np.float64]], ...]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    features, cloud = next(tables(arguments.data_dir)), one_cloud()
    adult, labels = with_categories(features, arguments.data_dir), cluster(features, 0)
    parts = dataclasses.replace(cloud, values=cloud.values[:, :_FEATURES], columns=cloud.columns[:_FEATURES])
    pieces, made_by = cluster(parts, 0), tuple(column.name for column in parts.columns)
    rows = []
    for epsilon in EPSILONS:
        rows.append(measure("null", adult, labels, epsilon, arguments.draws, permuted=True))
        rows.append(measure("real", adult, labels, epsilon, arguments.draws))
        rows.append(measure("one cloud", cloud, pieces, epsilon, arguments.draws, made_by=made_by))
        rows.append(measure("one cloud, features compared as well", cloud, pieces, epsilon, arguments.draws))
    text = report(rows, arguments.draws, adult)
    (arguments.output / "differs.md").write_text(text)
    print(text)


def one_cloud() -> Table:
    """Return normal records without clusters; the last two columns have nothing to do with the others."""
    values = np.clip(np.random.default_rng(SEED).normal(0.5, 0.12, (_CLOUD, _FEATURES + 2)), 0.0, 1.0)
    columns = tuple(DescribedColumn(name=f"x{at}", lo=0, hi=1) for at in range(_FEATURES + 2))
    return Table("one cloud", f"generated, seed {SEED}", values, columns, _PARTS, 1.0)


def with_categories(table: Table, folder: Path) -> Table:
    """Return adult with its years of education as categories, and its two classes as another column."""
    classes = load_named(table.name, folder).labels
    assert classes is not None
    (place,) = (at for at, column in enumerate(table.columns) if column.name == "education_num")
    values = np.column_stack([table.values, np.unique(classes[: len(table.values)], return_inverse=True)[1]])
    values[:, place] -= table.columns[place].bottom
    columns = list(table.columns)
    columns[place] = DescribedColumn(name="education", categories=tuple(map(str, range(1, 17))))
    columns.append(DescribedColumn(name="income", categories=("low", "high")))
    return dataclasses.replace(table, values=values, columns=tuple(columns))


def measure(
    what: str,
    table: Table,
    labels: NDArray[np.int64],
    epsilon: float,
    draws: int,
    *,
    permuted: bool = False,
    made_by: Collection[str] = (),
) -> dict[str, Any]:
    """Describe the clusters again and again; return what the rule says."""
    plan = planned(table, epsilon)
    layout = PROTOCOL.layout(plan)
    assert layout is not None
    codes = tuple(place(column, table.values[:, at]) for at, column in enumerate(layout.columns))
    generator = np.random.default_rng([SEED, round(100 * epsilon)])
    cells = count_cells(layout, table.k, made_by)
    narrow = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf(1.0 - ALARMS / (2.0 * cells))
    exact = None if permuted else add_up(layout, codes, labels, plan)
    true = {} if exact is None else compare(layout, exact, noise=0.0, made_by=made_by, fraction_bits=plan.fraction_bits)
    row: dict[str, Any] = {"what": what, "table": table, "epsilon": epsilon, "cells": cells}
    row |= {"words": [], "missed": [], "narrow": [], "found": [], "wrong": [], "noise": plan.noise_on(PART, 0)}
    for draw in tqdm(range(draws), desc=f"{what}, epsilon {epsilon:g}"):
        counts = add_up(layout, codes, generator.permutation(labels), plan) if exact is None else exact
        key = hashlib.sha256(f"{SEED} {what} {epsilon} {draw}".encode()).digest()
        noise = PROTOCOL.noise(plan, 0, KeyedRandom(key, key[::-1])).reshape(counts.shape) / 2.0**plan.fraction_bits
        said = compare(layout, counts + noise, noise=row["noise"], made_by=made_by, fraction_bits=plan.fraction_bits)
        judge(said, true, narrow, row)
    return row


def place(column: DescribedColumn, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return bin and scaled value of each record."""
    return column.place(values) if column.is_number else (values.astype(np.int64), np.zeros(len(values)))


def planned(table: Table, epsilon: float) -> SumsPlan:
    """Return the plan of a description of all records by all columns of a table."""
    config = RunConfig(
        protocol="describe", k=table.k, n_total=len(table.values), epsilon=epsilon, bounds="0,1", described="-"
    )
    one = {"describe": {"columns": '[{"name": "x", "lo": 0, "hi": 1, "bins": 2}]', "run": "00"}}
    public = PROTOCOL.public_parameters(dataclasses.replace(config, settings=one), 3, len(table.values), table.k)
    settings = {"describe": {"columns": settle(table.columns, public), "run": "00"}}
    return PROTOCOL.planned(dataclasses.replace(config, settings=settings), 3, len(table.columns))


def add_up(layout: Layout, codes: Codes, labels: NDArray[np.int64], plan: SumsPlan) -> NDArray[np.float64]:
    """Return the vector without noise."""
    sums = layout.add_up(code(layout.columns, codes), labels, plan.k, plan.fraction_bits)
    return sums / 2.0**plan.fraction_bits


def judge(said: Found, true: Found, narrow: float, row: dict[str, Any]) -> None:
    """Note whether one description has a word, and whether its ranges hold; without `true` all differences are 0."""
    real = {key: (one.low + one.high) / 2.0 for key, one in true.items()}
    off = {key: abs((one.low + one.high) / 2.0 - real.get(key, 0.0)) for key, one in said.items()}
    half = {key: (one.high - one.low) / 2.0 for key, one in said.items()}
    row["words"].append(sum(one.differs for one in said.values()))
    row["missed"].append(any(off[key] > half[key] for key in said))
    row["narrow"].append(any(off[key] > narrow * half[key] for key in said))
    for key, one in said.items():
        value = real.get(key, 0.0)
        if abs(value) > _TWICE * one.least:
            row["found"].append(one.differs and (one.low > 0.0) == (value > 0.0))
        if one.differs:
            row["wrong"].append((one.low > 0.0) != (value > 0.0) or value == 0.0)


def report(rows: Sequence[Mapping[str, Any]], draws: int, adult: Table) -> str:
    """Write the table."""
    head = ["clusters", "epsilon", "s", "compared", "descriptions with a word", "words in one", "wrong words"]
    head += ["descriptions of which a range misses", "the same with 1.96 deviations", "real differences found"]
    cells = [
        [
            row["what"],
            f"{row['epsilon']:g}",
            f"{row['noise']:.1f}",
            f"{row['cells']}",
            f"{np.mean([count > 0 for count in row['words']]):.3f}",
            f"{np.mean(row['words']):.1f}",
            f"{sum(row['wrong'])}",
            f"{np.mean(row['missed']):.3f}",
            f"{np.mean(row['narrow']):.3f}",
            f"{np.mean(row['found']):.2f} ({len(row['found']) / draws:.1f} in one)" if row["found"] else "-",
        ]
        for row in rows
    ]
    parts = [
        "# Where a description says that a cluster differs",
        f"{draws} descriptions in each line. *Compared* is the number of means and shares that are compared with the rest. A *word* is a "
        "number that differs by the rule of `fastlloyd/describe/difference.py`; it is wrong where there is no difference, or one of the "
        "other sign. The ranges of a description should all hold in 0.95 of descriptions. *With 1.96 deviations* is what ranges "
        "of each difference alone would do: of those that are picked for a sentence, such a range holds far less than 95 %. A real "
        "difference is one of more than 0.4 standard deviations or 10 points in the records. *s* is the standard deviation of the noise on each "
        f"number. delta = 1 / (100 N). Made by `python papers/benchmarks/differs.py`, seed {SEED}; the result depends on no machine's load.",
        markdown_table(head, cells),
        f"*Null* and *real*: adult ({adult.digest}), the first {len(adult.values):,} records, {len(adult.columns)} columns of which two hold categories, k {adult.k}, centres of `fastlloyd-plus` at epsilon 1; in *null* the "
        f"labels are permuted anew for each description, in *real* all columns are compared as if none had made the clusters. *One cloud*: {_CLOUD:,} normal "
        f"records, cut in {_PARTS} by {_FEATURES} features, and described by these and by two columns that have nothing to do with them.",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
