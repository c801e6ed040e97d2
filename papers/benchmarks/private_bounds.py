"""What bounds that were found with noise do to the error of a run, beside the true smallest and largest values.

    python papers/benchmarks/private_bounds.py --data-dir DIR [--draws 100]

The parties' own arithmetic on pooled records: `place`, `count` and `ends` of private-bounds with noise of numpy's
generator, then fastlloyd-plus at epsilon 1. Each run's NICV is compared with the mean NICV of runs whose bounds are the true
minimum and maximum, in two metrics: records scaled by these, and records scaled by and clipped at their 0.5 and 99.5 %
quantiles. Needs the folder of data sets (`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.data.bounds import Bounds, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, stated_delta
from fastlloyd.protocols.private_bounds.plan_lines import GOOD, MOST, split_epsilon
from fastlloyd.protocols.private_bounds.rounds import ALPHA, BINS, cores, count, ends
from fastlloyd.run.config import WIDEST
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

REAL = {"s1": 15, "letter": 8, "house": 3, "breast": 2, "g2_4_30": 2, "g2_16_30": 2, "g2_64_30": 2}
HEAVY = {"adult": 3}
SHARES = (GOOD, MOST)
OF_A_RUN = (0.02, 0.05, 0.1, 0.2, 0.4)
SPLIT = ("s1", "letter", "house", "adult", "3 columns", "10 columns")
_HALF = float(WIDEST.split(",")[1])
ORDINARY, FAR, HEAVY_TAILS = "Ordinary tables", "Columns far from the origin for their spread", "Heavy tails"
# What anybody could say of a body temperature, a year, a blood pressure, a weight, sodium and pH.
_BOXES = (np.array([27.0, 1850.0, 0.0, 0.0, 90.0, 6.4]), np.array([47.0, 2050.0, 300.0, 200.0, 190.0, 8.4]))
_SEED = 9000
MADE = 10
_LARGE = 20_000
_RELEASES = 20_000
_EMPTY_COLUMNS = 10

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Records in original units, the number of clusters, and in which box their bounds are looked for."""

    name: str
    points: Points
    k: int
    kind: str
    digest: str
    box: tuple[Points, Points] = (np.array(-_HALF), np.array(_HALF))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    tables = [table for table in sources(arguments.data_dir) if table.name in (arguments.only or (table.name,))]
    rows = [row for table in tqdm(tables) for row in measure(table, arguments.draws)]
    splits = [row for table in tqdm(tables) if table.name in SPLIT for row in split(table, arguments.draws)]
    text = report(rows, splits, empty_bins(), arguments.draws)
    (arguments.output / "private_bounds.md").write_text(text)
    print(text)


def sources(folder: Path) -> Iterator[Table]:
    """Yield real sets, then generated ones."""
    for name, k in (*REAL.items(), *HEAVY.items()):
        digest = hashlib.sha256((folder / f"{name}.csv.gz").read_bytes()).hexdigest()[:16]
        values = load_named(name, folder).values.copy()
        yield Table(name, values, k, HEAVY_TAILS if name in HEAVY else ORDINARY, digest)
    for name in ("units", "integers", "constants", "outliers", "3 columns", "10 columns", "30 columns"):
        yield from (Table(name, generated(name, at), 4, ORDINARY, "generated") for at in range(MADE))
    for at in range(MADE):
        yield Table("about 0", generated("far from 0", at), 4, FAR, "generated")
        yield Table("about what is usual", generated("far from 0", at), 4, FAR, "generated", _BOXES)
    for name in ("lognormal", "Pareto 1.5"):
        yield from (Table(name, generated(name, at), 4, HEAVY_TAILS, "generated") for at in range(MADE))


def generated(name: str, at: int) -> Points:
    """Make records of four clusters with usual faults of real columns; `at` counts the sets of that name."""
    rng = np.random.default_rng([_SEED, at, *name.encode()])
    d = (
        int(name.split()[0])
        if name.endswith("columns")
        else {"lognormal": 4, "Pareto 1.5": 4, "constants": 4}.get(name, 6)
    )
    n = 2000 if name.endswith("columns") else 5000
    unit = rng.random((4, d))[rng.integers(0, 4, n)] + 0.06 * math.sqrt(d / 2) * rng.standard_normal((n, d))
    if name == "lognormal":
        return np.exp(4 * unit)
    if name == "Pareto 1.5":
        return 10 * unit + rng.pareto(1.5, (n, d))
    if name == "outliers":
        unit[rng.choice(n, 10, replace=False)] *= 1000
        return 50 + 20 * unit
    if name == "constants":
        return np.column_stack([100 * unit, np.zeros(n), np.full(n, 7.0)])
    if name == "integers":
        return np.round(10 * unit)
    if name == "units":
        return (unit + 0.5) * 10.0 ** np.array([-3, -1, 0, 2, 4, 6])
    if name == "far from 0":
        return np.array([36, 1940, 100, 60, 130, 7.2]) + unit * np.array([4, 60, 60, 40, 15, 0.3])
    return 100 * unit


def wide(lo: Points, hi: Points) -> Bounds:
    """Return bounds; a column of one value gets room above."""
    return Bounds(lo, np.where(hi > lo, hi, lo + 1.0))


def cluster(points: Points, k: int, bounds: Bounds, rng: np.random.Generator, epsilon: float = 1.0) -> Points:
    """Run fastlloyd-plus with these bounds; return its centres in original units."""
    n, d = points.shape
    plan = plan_run("fastlloyd-plus", epsilon, k=k, d=d, n=n, settings={})
    centers = simulate(quantise(scale(points, bounds), plan.fraction_bits), plan, generator_noise(plan, rng))
    return centers.exact * bounds.half_width + bounds.middle


class Judge:
    """Measures the error of runs on some columns of a table, in both metrics.

    Attributes
    ----------
    base : float64 array, shape (draws, 2)
        With the true minimum and maximum.
    """

    def __init__(self, points: Points, k: int, draws: int) -> None:
        self._points, self._k = points, k
        true = wide(points.min(axis=0), points.max(axis=0))
        self._metrics = (true, wide(*np.quantile(points, [0.005, 0.995], axis=0)))
        self._scaled = [scale(points, metric) for metric in self._metrics]
        self.base = np.array([self.errors(true, 0, run) for run in range(draws)])

    def errors(self, bounds: Bounds, seed: int, run: int, epsilon: float = 1.0) -> list[float]:
        """Return the NICV of one run in each metric."""
        centers = cluster(self._points, self._k, bounds, np.random.default_rng([_SEED, seed, run]), epsilon)
        centered = (scale(centers, metric) for metric in self._metrics)
        return [float(nearest(points, own)[1]) for points, own in zip(self._scaled, centered, strict=True)]


def measure(table: Table, draws: int) -> Iterator[Mapping[str, Any]]:
    """Compare runs with bounds found with noise and runs with true ones, on the columns that got bounds."""
    n, m = table.points.shape
    draws = max(1, draws // MADE) if table.digest == "generated" else draws if n < _LARGE else max(1, draws // 4)
    middle, half = (table.box[1] + table.box[0]) / 2, (table.box[1] - table.box[0]) / 2
    exact = count(np.clip((table.points - middle) / half, -1.0, 1.0))
    core = np.subtract(*np.quantile(table.points, [0.995, 0.005], axis=0))
    judges: dict[tuple[int, ...], Judge] = {}
    for share in SHARES:
        rng = np.random.default_rng([_SEED, round(1000 * share)])
        ratios, itself, off = [], [], []
        refused = 0.0
        for run in range(draws):
            found = ends(exact + rng.normal(scale=share * n, size=exact.shape), share * n)
            kept = tuple(at for at, pair in enumerate(found) if pair is not None)
            refused += 1.0 - len(kept) / m
            if not kept:
                continue
            columns = list(kept)
            lo, hi = (
                (middle + half * np.array([pair[side] if pair else 0.0 for pair in found]))[columns] for side in (0, 1)
            )
            ratio = ((hi - lo) / np.maximum(core[columns], 1e-300))[core[columns] > 0]
            off.append(np.mean((ratio > 4) | (ratio < 0.25)))
            if kept not in judges:
                judges[kept] = Judge(table.points[:, columns], table.k, draws)
            judge = judges[kept]
            ratios.append(judge.errors(Bounds(lo, hi), 1, run) / judge.base.mean(axis=0))
            itself.append((judge.base <= 1.1 * judge.base.mean(axis=0)).mean(axis=0))
        yield {
            "table": table,
            "share": share,
            "ratio": np.array(ratios).reshape(-1, 2),
            "refused": refused / draws,
            "off": float(np.mean(off)) if off else 0.0,
            "itself": np.mean(itself, axis=0) if itself else np.zeros(2),
        }


def split(table: Table, draws: int) -> Iterator[Mapping[str, Any]]:
    """Compare runs that find their bounds with a share of epsilon 1, and runs with true ones and all of it."""
    n, m = table.points.shape
    draws = max(3, draws // MADE) if table.digest == "generated" else draws if n < _LARGE else max(1, draws // 4)
    exact, delta = count(np.clip(table.points / _HALF, -1.0, 1.0)), stated_delta(None, n)
    judges: dict[tuple[int, ...], Judge] = {}
    for share in OF_A_RUN:
        own, left = split_epsilon(1.0, delta, share)
        noise = gaussian_noise_multiplier(own, delta - SAMPLER_DELTA) * math.sqrt(m)
        rng, ratios, refused = np.random.default_rng([_SEED, 3, round(1000 * share)]), [], 0.0
        for run in range(draws if noise <= MOST * n else 0):
            found = ends(exact + rng.normal(scale=noise, size=exact.shape), noise)
            kept = tuple(at for at, pair in enumerate(found) if pair is not None)
            refused += (1.0 - len(kept) / m) / draws
            if not kept:
                continue
            if kept not in judges:
                judges[kept] = Judge(table.points[:, list(kept)], table.k, draws)
            lo, hi = (np.array([_HALF * pair[side] for pair in found if pair]) for side in (0, 1))
            ratios.append(judges[kept].errors(Bounds(lo, hi), 2, run, left) / judges[kept].base.mean(axis=0))
        yield {
            "table": table,
            "share": share,
            "noise": noise / n,
            "ratio": np.array(ratios).reshape(-1, 2),
            "refused": refused,
        }


def split_report(rows: list[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield a line for each set and share; generated sets of one name stand together."""
    for name, share in dict.fromkeys((row["table"].name, row["share"]) for row in rows):
        own = [row for row in rows if (row["table"].name, row["share"]) == (name, share)]
        table, ratio = own[0]["table"], np.concatenate([row["ratio"] for row in own])
        n, m = table.points.shape
        figures = ["-", "-", "-"]
        if len(ratio):
            mean, core = ratio.mean(axis=0)
            figures = [f"{np.mean([row['refused'] for row in own]):.2f}", f"{mean:.3f}", f"{core:.3f}"]
        yield [name, f"{n:,}", f"{m}", f"{share:g}", f"{own[0]['noise']:.4f}", *figures]


def empty_bins() -> tuple[int, int]:
    """Return in how many releases an empty bin begins or ends a core, and of how many: all bins are empty but one."""
    rng, wrong = np.random.default_rng([_SEED, 1]), 0
    full = BINS // 2 + 20
    for _ in range(_RELEASES // 100):
        drawn = rng.normal(size=(100, _EMPTY_COLUMNS, BINS))
        drawn[:, :, full] += 100.0
        wrong += sum(any(core != (full, full) for core in cores(noisy, 1.0)) for noisy in drawn)
    return wrong, _RELEASES


def together(rows: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Put the generated sets of one name together."""
    names = dict.fromkeys((row["table"].name, row["share"]) for row in rows)
    for name in names:
        own = [row for row in rows if (row["table"].name, row["share"]) == name]
        means = {key: np.mean([row[key] for row in own], axis=0) for key in ("refused", "off", "itself")}
        yield {**own[0], **means, "ratio": np.concatenate([row["ratio"] for row in own])}


def report(rows: list[Mapping[str, Any]], splits: list[Mapping[str, Any]], empty: tuple[int, int], draws: int) -> str:
    """Write the tables."""
    heads = (
        *("set", "records", "columns", "k", "s / N", "refused", "off by 4", "within 1.1", "mean", "itself"),
        *("within 1.1, core", "mean, core", "itself, core", "data"),
    )

    def line(row: Mapping[str, Any]) -> list[str]:
        table, ratio = row["table"], row["ratio"]
        own = ["-"] * 6
        if len(ratio):
            figures = zip((ratio <= 1.1).mean(axis=0), ratio.mean(axis=0), row["itself"], strict=True)
            own = [text for within, mean, base in figures for text in (f"{within:.2f}", f"{mean:.3f}", f"{base:.2f}")]
        n, m = table.points.shape
        first = [table.name, f"{n:,}", f"{m}", f"{table.k}", f"{row['share']:g}"]
        return [*first, f"{row['refused']:.2f}", f"{row['off']:.2f}", *own, table.digest]

    parts = [
        "# Bounds that nobody knows",
        "NICV of `fastlloyd-plus` (epsilon 1) with bounds that `private-bounds` found, over the mean NICV with the true "
        "minimum and maximum: share of runs at most 1.1 times as high, and mean; *itself* is that share of the runs with true "
        f"bounds. {draws} draws of noise, a quarter from {_LARGE:,} records on; {MADE} sets of each generated kind share them. In two metrics: records scaled by minimum and "
        "maximum, and records scaled by and clipped at their 0.5 and 99.5 % quantiles (*core*). *Refused*: columns without "
        "bounds, which are left out of both runs. *Off by 4*: columns whose range is above 4 times, or below a quarter of, "
        "that between these quantiles. s is the noise on a count, chosen so that s / N is as stated; `private-bounds` calls "
        f"0.01 good, 0.02 fair, and refuses more. Seed {_SEED}; *data* begins the SHA-256 of the set's file. Made by "
        "`python papers/benchmarks/private_bounds.py --data-dir DIR`.",
    ]
    for kind in (ORDINARY, FAR, HEAVY_TAILS):
        parts += [
            f"## {kind}",
            markdown_table(heads, [line(row) for row in together(rows) if row["table"].kind == kind]),
        ]
    parts += [
        "## A share of a run",
        "Runs of epsilon 1 in all, bounds included (`--bounds private:SHARE`, common masks' noise), over runs of epsilon 1 "
        "with the true minimum and maximum, on the columns that got bounds: mean NICV. A dash: refused beforehand, for "
        "too much noise.",
        markdown_table(
            ("set", "records", "columns", "share", "s / N", "refused", "mean", "mean, core"), list(split_report(splits))
        ),
        "## Empty bins",
        f"Of {empty[1]:,} releases of {_EMPTY_COLUMNS} columns with all records in one bin, an empty bin began or ended a core "
        f"in {empty[0]} (alpha {ALPHA:g}: at most {ALPHA * empty[1]:g} expected).",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
