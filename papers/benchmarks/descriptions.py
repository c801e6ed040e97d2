"""How often the ranges of a description of clusters hold, against the records themselves.

    python papers/benchmarks/descriptions.py --data-dir DIR [--runs 200]

Three sites hold 60, 30 and 10 % of the records. Centres are those of `fastlloyd-plus` at epsilon 1 (20 runs); a draw is
the noise of one description. What the sites add up, the noise, and what is made of both, are the protocol's own; labels,
counts, means and quartiles of the records are counted here. Needs the folder of data sets (`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.data.bounds import Bounds, scale, unscale
from fastlloyd.data.public.named import load_named
from fastlloyd.describe.coding import code
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.describe.estimates import QUARTILES, Described, describe
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.describe.protocol import PROTOCOL, settle
from fastlloyd.protocols.describe.rounds import PART
from fastlloyd.randomness.secret import KeyedRandom
from fastlloyd.run.config import RunConfig
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

SITES = (0.6, 0.3, 0.1)
CENTRES = 20
SEED = 8100
LEAST_SHARE = 0.02
"""Shares below are left out: their ranges end at 0, and hold more."""

Floats = NDArray[np.float64]
Held = Mapping[str, list[bool]]


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Records, and what is public about them."""

    name: str
    digest: str
    values: Floats
    columns: tuple[DescribedColumn, ...]
    k: int
    epsilon: float

    @property
    def bounds(self) -> Bounds:
        """Of the features, which are the described columns, too."""
        ends = np.array([(column.bottom, column.top) for column in self.columns])
        return Bounds(ends[:, 0], ends[:, 1], tuple(column.name for column in self.columns))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rows = [
        measure(table, masking, arguments.runs)
        for table in tables(arguments.data_dir)
        for masking in ("common", "pairwise")
    ]
    text = report(rows, arguments.runs)
    (arguments.output / "descriptions.md").write_text(text)
    print(text)


def tables(folder: Path) -> Iterator[Table]:
    """Return adult, breast, and a table like measures of cells: skewed, with common factors."""
    adult = load_named("adult", folder)
    bounds = {
        "age": {"lo": 0, "hi": 100},
        "fnlwgt": {"lo": 0, "hi": 1_500_000},
        "education_num": {"lo": 1, "hi": 16, "whole": True},
        "capital_gain": {"lo": 0, "hi": 100_000},
        "capital_loss": {"lo": 0, "hi": 5_000},
        "hours_per_week": {"lo": 0, "hi": 100},
    }
    columns = tuple(DescribedColumn(name=name, **bounds[name]) for name in adult.names)
    yield Table("adult", _digest(folder, "adult"), adult.values[:30_000], columns, 5, 0.2)
    breast = load_named("breast", folder)
    whole = tuple(DescribedColumn(name=name, lo=1, hi=10, whole=True) for name in breast.names)
    yield Table("breast", _digest(folder, "breast"), breast.values, whole, 2, 1.0)
    rng = np.random.default_rng(SEED)
    group = rng.random(569) < 0.37
    factors = rng.normal(size=(569, 3)) + group[:, None] * np.array([1.6, 0.8, 0.0])
    made = factors @ (rng.normal(size=(3, 10)) * np.array([[1.0], [0.7], [0.5]])) + 0.4 * rng.normal(size=(569, 10))
    values = np.clip(np.exp(0.35 * made / made.std(axis=0)), 0.0, 5.0)
    numbers = tuple(DescribedColumn(name=f"measure {at}", lo=0, hi=5) for at in range(1, 11))
    yield Table("wdbc-like", f"generated, seed {SEED}", values, numbers, 2, 1.0)


def _digest(folder: Path, name: str) -> str:
    return "sha256 " + hashlib.sha256((folder / f"{name}.csv.gz").read_bytes()).hexdigest()[:16]


def measure(table: Table, masking: str, runs: int) -> dict[str, Any]:
    """Describe the clusters again and again; return how often ranges hold, by what they are about."""
    n = len(table.values)
    config = RunConfig(
        protocol="describe", k=table.k, n_total=n, epsilon=table.epsilon, bounds="0,1", masking=masking, described="-"
    )
    one = {"describe": {"columns": '[{"name": "x", "lo": 0, "hi": 1, "bins": 2}]', "run": "00"}}
    public = PROTOCOL.public_parameters(dataclasses.replace(config, settings=one), len(SITES), n, table.k)
    settings = {"describe": {"columns": settle(table.columns, public), "run": "00"}}
    plan = PROTOCOL.planned(dataclasses.replace(config, settings=settings), len(SITES), len(table.columns))
    layout = PROTOCOL.layout(plan)
    assert layout is not None
    noise = plan.noise_on(PART, 0)
    row: dict[str, Any] = {"table": table, "masking": masking, "noise": noise, "held": {}, "errors": [], "sizes": []}
    exact, truths = [], []
    for run in range(min(CENTRES, runs)):
        labels = cluster(table, run)
        cuts = np.cumsum([round(part * n) for part in SITES])[:-1]
        sites = np.split(np.random.default_rng([SEED, run]).permutation(n), cuts)
        sums = 0
        for site in sites:
            placed = [column.place(table.values[site, at]) for at, column in enumerate(layout.columns)]
            sums = sums + layout.add_up(code(layout.columns, placed), labels[site], table.k, plan.fraction_bits)
        exact.append(sums)
        truths.append(truth(table.values, labels, layout.columns, table.k))
        row["sizes"].append(sorted(np.bincount(labels, minlength=table.k).tolist()))
    for run in tqdm(range(runs), desc=f"{table.name}, {masking}"):
        keys = [hashlib.sha256(f"{SEED} {table.name} {masking} {run} {at}".encode()).digest() for at in range(6)]
        secrets = [KeyedRandom(one, other) for one, other in zip(keys[:3], keys[3:], strict=True)]
        if masking == "common":
            drawn = PROTOCOL.noise(plan, 0, secrets[0])
        else:
            drawn = sum(PROTOCOL.noise_parts(plan, 0, [plan.share], [secret])[0] for secret in secrets)
        noisy = (exact[run % len(exact)] + drawn.reshape(exact[0].shape)) / 2.0**plan.fraction_bits
        lines = describe(layout, noisy, noise=noise, n_total=n, fraction_bits=plan.fraction_bits)
        judge(lines, truths[run % len(truths)], row)
    return row


def cluster(table: Table, run: int) -> NDArray[np.int64]:
    """Return the labels of all records by the centres of one run of fastlloyd-plus at epsilon 1."""
    points = scale(table.values.copy(), table.bounds)
    n, d = points.shape
    plan = dataclasses.replace(plan_run("fastlloyd-plus", 1.0, k=table.k, d=d, n=n, settings={}), seed=run)
    rng = np.random.default_rng([SEED, run, n])
    centers = simulate(quantise(points, plan.fraction_bits), plan, generator_noise(plan, rng)).exact
    return nearest(points, scale(unscale(centers, table.bounds), table.bounds))[0]


def truth(
    values: Floats, labels: NDArray[np.int64], columns: Sequence[DescribedColumn], k: int
) -> dict[tuple[int, str, str, str], float]:
    """Count in the records what a description states, by cluster, column, measure and value."""
    found: dict[tuple[int, str, str, str], float] = {}
    for cluster_ in range(k):
        own = values[labels == cluster_]
        found[cluster_, "", "size", ""] = float(len(own))
        for at, column in enumerate(columns):
            of = own[:, at]
            edges = np.append(column.all_edges, column.top + 1.0) if column.whole else column.all_edges
            counts = np.histogram(of, bins=edges)[0] / max(len(of), 1)
            found |= {
                (cluster_, column.name, "share", value): float(share)
                for value, share in zip(column.labels, [*counts, 0.0], strict=True)
            }
            if len(of):
                found[cluster_, column.name, "mean", ""] = float(of.mean())
                for measure_, share in QUARTILES.items():
                    quantile = float(np.quantile(of, share, method="inverted_cdf"))
                    found[cluster_, column.name, measure_, ""] = quantile
    return found


def judge(lines: Iterator[Described], known: Mapping[tuple[int, str, str, str], float], row: dict[str, Any]) -> None:
    """Note which ranges hold, and how far off shown shares are."""
    for line in lines:
        value = known.get((line.cluster, line.column, line.measure, line.value))
        if line.shown == "nothing" or value is None:
            continue
        assert line.low is not None and line.high is not None and line.estimate is not None
        if line.measure == "share":
            row["errors"].append(abs(line.estimate - value))
            if value <= LEAST_SHARE:
                continue
        slack = 1e-9 * max(1.0, abs(value))
        row["held"].setdefault(line.measure, []).append(line.low - slack <= value <= line.high + slack)


def report(rows: Sequence[Mapping[str, Any]], runs: int) -> str:
    """Write the table."""
    head = [
        "table",
        "records, k, columns",
        "epsilon",
        "noise by",
        "s",
        "sizes",
        "shares",
        "means",
        "medians",
        "quartiles",
        "error of a share",
    ]
    cells = []
    for row in rows:
        table, held = row["table"], row["held"]

        def rate(*measures: str, held: Held = held) -> str:
            found = [one for measure_ in measures for one in held.get(measure_, [])]
            return f"{np.mean(found):.3f} ({len(found):,})" if found else "-"

        cells.append(
            [
                table.name,
                f"{len(table.values):,}, {table.k}, {len(table.columns)}",
                f"{table.epsilon:g}",
                "the server" if row["masking"] == "common" else "3 clients",
                f"{row['noise']:.1f}",
                rate("size"),
                rate("share"),
                rate("mean"),
                rate("median"),
                rate("quartile 1", "quartile 3"),
                f"{np.mean(row['errors']):.4f}",
            ]
        )
    sets = "; ".join(
        f"{row['table'].name}: {row['table'].digest}, clusters of run 1 {', '.join(f'{size:,}' for size in row['sizes'][0])}"
        for row in rows
        if row["masking"] == "common"
    )
    parts = [
        "# What the ranges of a description hold",
        f"Share of 95 % ranges that hold the value of the records, among those that are shown, over {runs} descriptions of the "
        f"clusters of {min(CENTRES, runs)} runs of `fastlloyd-plus` at epsilon 1 (in brackets: how many ranges). Shares are those "
        f"above {100 * LEAST_SHARE:.0f} % in the records: ranges of smaller ones end at 0. Ranges of medians and quartiles are whole bins, so they hold "
        "more. *Error* is the mean of |shown share less that of the records| over all shown shares, the small ones too. *s* is the "
        "standard deviation of the noise on each number. Three sites hold 60, 30 and 10 % of the records. delta = 1 / (100 N). "
        f"Made by `python papers/benchmarks/descriptions.py`, seed {SEED}; the result depends on no machine's load.",
        markdown_table(head, cells),
        f"Data: {sets}. Adult: the first 30,000 records. *wdbc-like* is generated: 10 skewed measures with common factors.",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
