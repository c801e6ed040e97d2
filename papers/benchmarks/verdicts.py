"""How often bad results go without a warning, fine and right ones have one; and the verdict on the demonstration's picture.

    python papers/benchmarks/verdicts.py --data-dir DIR [--seeds 6] [--demos 10]

A result is bad if its NICV is above 1.1 times the best of many starts of k-means++. It is right if it finds generated groups
(adjusted Rand index above 0.98) and is not bad. The parties' own arithmetic on pooled
records. Needs the folder of data sets (`fastlloyd datasets` says how) and scikit-learn.
"""

from __future__ import annotations

import argparse
import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from choose_k import mixture
from numpy.typing import NDArray
from ranges import factors, unit
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import adjusted_rand_score
from tqdm import tqdm

from fastlloyd.data.bounds import scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.quality import noise_of
from fastlloyd.report.quality import Quality, judge
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.data import ablation_sources, fresh_sources, g2_source, load_points, real_source
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

BAD = 1.1
EPSILONS, FEW = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0), (0.25, 1.0, 4.0)
REAL = ("iris", "lsun", "s1", "house", "wine", "breast", "yeast")
BREAST_RUNS = 300
MADE = 30
RIGHT, APART, APART_SETS, APART_EPSILONS = 0.98, 960, 320, (0.5, 1.0, 2.0)
SIGNS = ("cut in two", "without structure", "less than a tenth", "still moved")
NOISE = ("told from empty", "made this result worse")
_SEED = 8000
_STARTS, _LARGE = 100, 4_000_000

Points = NDArray[np.float64]
Set = tuple[str, str, Points, int, Sequence[float], int]
Count = tuple[str, str, bool, bool]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--demos", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    counts: list[Count] = []
    for group, name, points, k, epsilons, seeds in tqdm(list(sets(arguments.data_dir, arguments.seeds))):
        best = best_of(points, k)
        for protocol in ("fastlloyd-plus", "fastlloyd")[: 2 if group == "generated" else 1]:
            for epsilon in epsilons:
                plan = plan_run(protocol, epsilon, k=k, d=points.shape[1], n=len(points), settings={})
                quantised = quantise(points, plan.fraction_bits)
                for seed in range(seeds):
                    centers, found = judged(quantised, plan, seed, name)
                    bad = nearest(points, centers)[1] > BAD * best
                    counts.append((f"{group}, `{protocol}`", name, bad, bool(found.warnings)))
    found = [one for place in tqdm(range(APART, APART + APART_SETS)) for one in separate_groups(place)]
    text = report(counts, found, demonstrations(arguments.demos), arguments.seeds, arguments.demos)
    (arguments.output / "verdicts.md").write_text(text)
    print(text)


def sets(folder: Path, seeds: int) -> Iterator[Set]:
    """Return kind, name, records on [-1, 1], k, epsilons and number of seeds of each set."""
    for source in (*fresh_sources(), *ablation_sources()[::2], g2_source(2), g2_source(8)):
        yield "generated", source.name, load_points(source, str(folder)), source.k, EPSILONS, seeds
    rng = np.random.default_rng(_SEED)
    for place in range(MADE):
        k, d, n = (int(rng.choice(of)) for of in ((2, 3, 5, 8, 12), (2, 3, 4, 6, 10, 20), (600, 1500, 5000, 20_000)))
        skew, separation = float(rng.uniform(0.5, 1.5)), float(rng.choice((0.0, 0.2, 0.4)))
        made = mixture(k, d, n, separation, rising=place % 2 == 1, seed=_SEED + place).scaled()
        yield "mixtures", f"mixture {place}", made, k, FEW, seeds
        yield "skewed mixtures", f"skewed {place}", unit(np.exp(skew * made)), k, FEW, seeds
        yield "no separate clusters", f"factors {place}", factors(n, d, rng), k, FEW, seeds
    for name in REAL:
        source = real_source(name)
        yield "real", name, load_points(source, str(folder)), source.k, EPSILONS[:-1], seeds
    yield "diagnoses of breasts", "breasts", unit(load_breast_cancer().data[:, :10]), 2, (1.0,), BREAST_RUNS


def apart(place: int) -> tuple[Points, NDArray[np.int64], int]:
    """Return records on [-1, 1], groups and k of normal groups that lie 5 to 14 mean deviations apart, if there is room.

    k is 2 to 20, d 2 to 20; half of the sets have groups of unequal size, half of unequal width, a third are no spheres.
    """
    rng = np.random.default_rng([77, place])
    k, d = int(rng.integers(2, 21)), int(rng.choice([2, 3, 5, 8, 10, 20]))
    n = max(int(rng.choice([3000, 6000, 20_000, 50_000])), 400 * k)
    style, separation = int(rng.integers(0, 4)), float(rng.uniform(5.0, 14.0))
    widths = rng.uniform(2.0, 4.0) * (np.ones(k) if style % 2 == 0 else np.exp(rng.normal(0.0, 0.35, k)))
    middles: list[Points] = []
    need, tries = separation * widths.mean(), 0
    while len(middles) < k:
        middle, tries = rng.uniform(12.0, 88.0, d), tries + 1
        need *= 0.9 if tries % 200 == 0 else 1.0
        if all(np.linalg.norm(middle - other) >= need for other in middles):
            middles.append(middle)
    shares = np.full(k, 1.0 / k) if style < 2 else rng.dirichlet(np.full(k, 5.0))
    shapes = np.ones((k, d)) if place % 3 else np.exp(rng.normal(0.0, 0.5, (k, d)))
    groups = rng.choice(k, n, p=shares)
    values = np.array(middles)[groups] + rng.normal(0.0, 1.0, (n, d)) * widths[groups][:, None] * shapes[groups]
    return np.clip(values, 0.0, 100.0) / 50.0 - 1.0, groups, k


def separate_groups(place: int) -> Iterator[tuple[str, bool, bool, Quality]]:
    """Run on such groups; return the protocol, whether the result is right, whether it is bad, and what is said of it."""
    points, groups, k = apart(place)
    best = float(KMeans(k, n_init=20, random_state=0).fit(points).inertia_) / len(points)
    for protocol in ("fastlloyd-plus", "fastlloyd"):
        for epsilon in APART_EPSILONS:
            plan = plan_run(protocol, epsilon, k=k, d=points.shape[1], n=len(points), settings={})
            centers, found = judged(quantise(points, plan.fraction_bits), plan, 0, f"apart {place}")
            labels, cost = nearest(points, centers)
            bad = cost > BAD * best
            yield protocol, not bad and adjusted_rand_score(groups, labels) > RIGHT, bad, found


def best_of(points: Points, k: int) -> float:
    """Return the least NICV of many starts of k-means++."""
    starts = _STARTS if points.size * k < _LARGE else _STARTS // 5
    return float(KMeans(k, n_init=starts, random_state=0).fit(points).inertia_) / len(points)


def judged(points: GridPoints, plan: Plan, seed: int, name: str) -> tuple[Points, Quality]:
    """Run once; return the centres and what is said of them."""
    drawn = dataclasses.replace(plan, seed=seed)
    rng = np.random.default_rng([_SEED, seed, zlib.crc32(f"{name} {plan.epsilon}".encode())])
    centers = simulate(points, drawn, generator_noise(drawn, rng))
    edge = np.ones(plan.d)
    told = judge(
        noise_of(drawn, centers), centroids=centers.exact, sizes=centers.noisy_counts.tolist(), lo=-edge, hi=edge
    )
    return centers.exact, told


def demonstrations(demos: int) -> list[list[str]]:
    """Run the demonstration with each public seed from 0 to 9; return a row of the table for each."""
    photo = load_named("photo", None)
    assert photo.k is not None
    points = scale(photo.values.copy(), dataset_bounds(photo, "auto-public"))
    best = KMeans(photo.k, n_init=10, random_state=0).fit(points).inertia_ / len(points)
    plan = plan_run("fastlloyd-plus", 1.0, k=photo.k, d=3, n=len(points), settings={})
    quantised, rows = quantise(points, plan.fraction_bits), []
    for seed in tqdm(range(10), desc="demonstrations"):
        runs = [judged(quantised, plan, seed, f"demonstration {run}") for run in range(demos)]
        ratios = [nearest(points, centers)[1] / best for centers, _ in runs]
        good, empty = sum(found.verdict == "good" for _, found in runs), sum(bool(found.empty) for _, found in runs)
        rows.append([str(seed), f"{good} of {demos}", str(empty), f"{np.mean(ratios):.3f}", f"{max(ratios):.3f}"])
    return rows


def right_rows(found: Sequence[tuple[str, bool, bool, Quality]]) -> list[list[str]]:
    """Return a row of the table of right results for each protocol."""

    def having(results: list[Quality], words: Sequence[str]) -> str:
        count = sum(any(word in " ".join(result.warnings) for word in words) for result in results)
        return f"{count} ({100 * count / len(results):.1f} %)" if results else "0"

    rows = []
    for protocol in dict.fromkeys(one[0] for one in found):
        right = [quality for name, is_right, _, quality in found if name == protocol and is_right]
        bad = [quality for name, _, is_bad, quality in found if name == protocol and is_bad]
        unwarned = sum(not quality.warnings for quality in bad)
        said = [having(right, signs) for signs in (SIGNS[:2], SIGNS[2:], NOISE)]
        rows.append([f"`{protocol}`", str(len(right)), *said, str(len(bad)), str(unwarned)])
    return rows


def report(
    counts: Sequence[Count],
    found: Sequence[tuple[str, bool, bool, Quality]],
    demos: list[list[str]],
    seeds: int,
    runs: int,
) -> str:
    """Write the tables."""
    rows = []
    for group in dict.fromkeys(count[0] for count in counts):
        of = [count[2:] for count in counts if count[0] == group]
        bad, fine = [warned for is_bad, warned in of if is_bad], [warned for is_bad, warned in of if not is_bad]
        rows.append([group, str(len(bad)), str(len(bad) - sum(bad)), str(len(fine)), str(sum(fine))])
    parts = [
        "# Warnings: whom they miss, and whom they reach for nothing",
        f"A result is bad if its NICV is above {BAD} times the best of {_STARTS} starts of k-means++ ({_STARTS // 5} where there is much "
        f"data). *Generated*: 42 sets, epsilon {_listed(EPSILONS)}. {MADE} each of mixtures, the same through an exponential map, and one "
        f"to three common factors: epsilon {_listed(FEW)}. Real sets: epsilon {_listed(EPSILONS[:-1])}. {seeds} seeds of each. "
        f"Diagnoses of breasts (scikit-learn's, 569 records, ten features, k = 2): epsilon 1, {BREAST_RUNS} runs. delta = 1 / (N ln N). "
        "Made by `python papers/benchmarks/verdicts.py`.",
        markdown_table(["sets", "bad results", "without a warning", "fine results", "with a warning"], rows),
        f"## Right clusterings\n\n{APART_SETS} sets of normal groups 5 to 14 deviations apart, k = 2 to 20, 2 to 20 features, on which "
        f"no limit was chosen; epsilon {_listed(APART_EPSILONS)}, one run each. A result is right if it finds the groups (adjusted Rand "
        f"index above {RIGHT}) and is not bad.",
        markdown_table(
            [
                "protocol",
                "right results",
                "cut in two, or no structure",
                "tiny, or still moving",
                "noise",
                "bad results",
                "no warning",
            ],
            right_rows(found),
        ),
        f"## The demonstration\n\nThe picture of `make demo`, k = 8, epsilon 1; {runs} runs of each public seed. NICV over the best of ten "
        "starts of k-means++ without privacy.",
        markdown_table(["seed", "good", "with an empty cluster", "NICV, mean", "NICV, worst"], demos),
    ]
    return "\n\n".join(parts) + "\n"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


if __name__ == "__main__":
    main()
