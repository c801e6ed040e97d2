"""How often the 95 % ranges of centres and sizes hold what they are about, against the records themselves.

    python papers/benchmarks/ranges.py --data-dir DIR [--runs 20]

A cluster's range of centre should hold the mean of the records with its label, and its range of size their number. The
parties' own arithmetic on pooled records. What shortening is allowed for in the ranges of fastlloyd-plus was chosen on
other seeds of such sets. Needs the folder of data sets (`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from choose_k import mixture
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.data.bounds import scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.calibration import paper_delta
from fastlloyd.protocols.fastlloyd import quality
from fastlloyd.protocols.fastlloyd.rounds import choose_k
from fastlloyd.protocols.feddp import plan_lines as feddp_noise
from fastlloyd.protocols.feddp.plan import PublicParameters
from fastlloyd.protocols.feddp.proposal import make_plan
from fastlloyd.report.quality import ResultNoise, judge
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.feddp.central import run_central
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

REAL = ("iris", "lsun", "s1", "house", "wine", "breast", "yeast", "adult", "birch2")
CLUSTERS, FEATURES, RECORDS, SEPARATIONS = (
    (3, 5, 8, 12),
    (2, 3, 5, 10, 20),
    (1000, 3000, 10_000, 50_000),
    (0.0, 0.2, 0.4),
)
EPSILONS = (0.25, 1.0, 4.0)
PROTOCOLS = ("fastlloyd-plus", "fastlloyd", "feddp")
CHOOSING = "fastlloyd-plus, k chosen"
MADE = 24
_SEED = 7000
_LARGE = 20_000

Points = NDArray[np.float64]
Row = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for group, name, points, k in tqdm(list(sources(arguments.data_dir))):
        several = arguments.runs if group == "real" and len(points) < _LARGE else max(1, arguments.runs // 10)
        for protocol, epsilon in itertools.product((*PROTOCOLS, CHOOSING), EPSILONS):
            if protocol != CHOOSING or (epsilon == 1.0 and group != "real"):
                runs = max(1, several // 4) if protocol == "feddp" else several
                rows += [measure(group, name, points, k, protocol, epsilon, run) for run in range(runs)]
    text = report(rows, arguments.runs)
    (arguments.output / "ranges.md").write_text(text)
    print(text)


def sources(folder: Path) -> Iterator[tuple[str, str, Points, int]]:
    """Return kind, name, records on [-1, 1] and k of each set."""
    for name in REAL:
        dataset = load_named(name, folder)
        assert dataset.k is not None
        yield "real", name, scale(dataset.values.copy(), dataset_bounds(dataset, "auto-public")), dataset.k
    rng = np.random.default_rng(_SEED)
    for place in range(MADE):
        k, d, n = int(rng.choice(CLUSTERS)), int(rng.choice(FEATURES)), int(rng.choice(RECORDS))
        separation, skew = float(rng.choice(SEPARATIONS)), float(rng.uniform(0.5, 1.5))
        made = mixture(k, d, n, separation, rising=place % 2 == 1, seed=_SEED + place).scaled()
        yield "mixtures", f"mixture {place}", made, k
        yield "skewed mixtures", f"skewed {place}", unit(np.exp(skew * made)), k
        yield "no separate clusters", f"factors {place}", factors(n, d, rng), k


def factors(n: int, d: int, rng: np.random.Generator) -> Points:
    """Make records of one to three common factors, each feature through an exponential map: no separate clusters."""
    count = int(rng.integers(1, 4))
    made = rng.standard_normal((n, count)) @ rng.standard_normal((count, d)) + 0.5 * rng.standard_normal((n, d))
    return unit(np.exp(rng.uniform(0.4, 1.0) * made / made.std(axis=0)))


def unit(points: Points) -> Points:
    """Scale each feature to [-1, 1]."""
    low, high = points.min(axis=0), points.max(axis=0)
    scaled: Points = 2.0 * (points - low) / (high - low) - 1.0
    return scaled


def measure(group: str, name: str, points: Points, k: int, protocol: str, epsilon: float, run: int) -> Row:
    """Run once; return which part of sizes and coordinates the ranges hold, and how wide they are."""
    centers, sizes, noise = cluster_by(protocol, points, k, epsilon, run)
    labels = nearest(points, centers)[0]
    counts = np.bincount(labels, minlength=len(centers)).astype(float)
    held = counts > 0
    sums = np.stack([np.bincount(labels, column, len(centers)) for column in points.T], axis=1)
    means = sums[held] / counts[held, None]
    within = np.sqrt(np.mean((points - (sums / np.maximum(counts, 1.0)[:, None])[labels]) ** 2))
    edge = np.ones(points.shape[1])
    quality = judge(noise, centroids=centers, sizes=sizes.tolist(), lo=-edge, hi=edge)
    alone = judge(dataclasses.replace(noise, unsettled=None), centroids=centers, sizes=None, lo=-edge, hi=edge)
    found = {"group": group, "name": name, "protocol": protocol, "epsilon": epsilon, "verdict": quality.verdict}
    if quality.centre_margins is None or quality.size_ranges is None or alone.centre_margins is None:
        return found
    off = np.abs(centers[held] - means)
    low, high = quality.size_ranges.T
    return found | {
        "centres": np.mean(off <= quality.centre_margins[held]),
        "alone": np.mean(off <= alone.centre_margins[held]),
        "width": np.median(quality.centre_margins[held]) / within,
        "width_alone": np.median(alone.centre_margins[held]) / within,
        "sizes": np.mean((low <= counts) & (counts <= high)),
        "size_width": np.median((high - low) / 2.0) * len(centers) / len(points),
    }


def cluster_by(
    protocol: str, points: Points, k: int, epsilon: float, run: int
) -> tuple[Points, NDArray[np.float64], ResultNoise]:
    """Return centres, sizes and what is told of the noise; three clients with feddp, no data of its server."""
    n, d = points.shape
    rng = np.random.default_rng([_SEED, run, n, d, k, round(100 * epsilon)])
    if protocol == "feddp":
        public = PublicParameters(
            protocol="feddp",
            choose_k=False,
            known_shares=1,
            clients=3,
            min_clients=3,
            k=k,
            n_total=n,
            epsilon=epsilon,
            delta=paper_delta(n),
            rounds=None,
            seed=run,
            ring_bits=64,
            settings={"start": "private"},
        )
        made = make_plan(public, d=d, names=tuple(f"x{h + 1}" for h in range(d)), server_points=None)
        found = run_central(points, None, made)
        return (
            found.centers.exact,
            found.centers.noisy_counts,
            feddp_noise.noise_of(made, found.centers, n, found.costs),
        )
    choose = protocol == CHOOSING
    settings = {"wide": 1.0} if choose else {}
    most = max(6, 2 * k) if choose else k
    plan = plan_run(protocol.partition(",")[0], epsilon, k=most, d=d, n=n, settings=settings)
    plan = dataclasses.replace(plan, seed=run, choose_k=choose)
    centers = simulate(quantise(points, plan.fraction_bits), plan, generator_noise(plan, rng))
    chosen = choose_k(plan, centers)
    told = quality.noise_of(plan, centers, chosen)
    left = centers if chosen is None else chosen
    return left.exact, left.noisy_counts, told


def report(rows: Sequence[Row], runs: int) -> str:
    """Write the tables."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    parts = [
        "# What the 95 % ranges hold",
        f"Share of coordinates whose range holds the mean of the records with that label, and share of clusters whose range holds "
        f"their number; mean over sets of the mean over runs, clusters without any record left out of centres. {len(REAL)} real sets "
        f"({runs} runs each, {max(1, runs // 10)} from {_LARGE:,} records on) and {MADE} generated ones of each kind "
        f"({max(1, runs // 10)} runs), with `feddp` a quarter of these runs: mixtures, equal sizes or 1:2:..:k with 1 % outliers; the same through an exponential map; "
        "one to three common factors through an exponential map, which have no separate clusters. delta = 1 / (N ln N). `feddp`: "
        "three clients, `feddp.start=private`. Made by `python papers/benchmarks/ranges.py`.",
        "*Width* is the median half-width of the ranges of centres over the standard deviation within clusters (root mean "
        "square over features), *of sizes* over an equal share of the records. *Noise alone* is what the ranges of `fastlloyd-plus` would hold "
        "without what is allowed for shortening and for the last step.",
        *(_table([row for row in rows if row["protocol"] == protocol], protocol, groups) for protocol in PROTOCOLS),
        "## fastlloyd-plus where k is chosen (KMAX twice k), epsilon 1",
        _choosing([row for row in rows if row["protocol"] == CHOOSING], groups),
        "## Real sets one by one, fastlloyd-plus, epsilon 1",
        _by_set([r for r in rows if r["protocol"] == PROTOCOLS[0] and r["group"] == "real" and r["epsilon"] == 1.0]),
    ]
    return "\n\n".join(parts) + "\n"


def _mean(rows: Sequence[Row], key: str) -> tuple[float, float]:
    """Return the mean over sets, and the least, of the mean over runs."""
    names = dict.fromkeys(row["name"] for row in rows if key in row)
    means = [float(np.mean([row[key] for row in rows if row["name"] == name and key in row])) for name in names]
    return (float(np.mean(means)), min(means)) if means else (np.nan, np.nan)


def _share(rows: Sequence[Row], key: str) -> str:
    mean, least = _mean(rows, key)
    return f"{100 * mean:.0f} % ({100 * least:.0f})"


def _cells(rows: Sequence[Row], *, alone: bool) -> list[str]:
    before = [f"{100 * _mean(rows, 'alone')[0]:.0f} %", f"{_median(rows, 'width_alone'):.2f}"] if alone else []
    return [
        *before,
        _share(rows, "centres"),
        f"{_median(rows, 'width'):.2f}",
        _share(rows, "sizes"),
        f"{_median(rows, 'size_width'):.2f}",
    ]


def _median(rows: Sequence[Row], key: str) -> float:
    return float(np.median([row[key] for row in rows if key in row]))


_HEAD = ["centres (worst set)", "width", "sizes (worst set)", "of sizes"]


def _table(rows: Sequence[Row], protocol: str, groups: Sequence[str]) -> str:
    alone = protocol == PROTOCOLS[0]
    lines = []
    for group, epsilon in itertools.product(groups, EPSILONS):
        of = [row for row in rows if row["group"] == group and row["epsilon"] == epsilon]
        lines.append([group, f"{epsilon:g}", *_cells(of, alone=alone)])
    head = ["sets", "epsilon", *(["noise alone", "width"] if alone else []), *_HEAD]
    return f"## {protocol}\n\n{markdown_table(head, lines)}"


def _choosing(rows: Sequence[Row], groups: Sequence[str]) -> str:
    lines = [
        [group, *_cells(of, alone=True)] for group in groups if (of := [row for row in rows if row["group"] == group])
    ]
    return markdown_table(["sets", "noise alone", "width", *_HEAD], lines)


def _by_set(rows: Sequence[Row]) -> str:
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        of = [row for row in rows if row["name"] == name]
        verdicts = [row["verdict"] for row in of]
        told = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
        lines.append([name, *_cells(of, alone=True), told])
    return markdown_table(["set", "noise alone", "width", *_HEAD, "verdicts"], lines)


if __name__ == "__main__":
    main()
