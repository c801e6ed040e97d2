"""How low the error could be: fastlloyd-plus beside oracles that are told, for free, what it has to find out.

    python papers/benchmarks/plus_bound.py --data-dir DIR [--only SET,...]

All have the epsilon and delta of the run, and its ledger's calibration: the whole budget is mu-GDP.

- *labels free*: every record's cluster in the best clustering, the number of records in each, and how large (not where) the
  centres' mean and their differences are in each feature. Paid for are sums of shortened vectors about the centres so far, at
  first about 0, in T equal rounds; steps are weighed by the best linear rule. T and the radius are the best in hindsight.
- *places free*: besides, the true centres are what the vectors are taken about, in one round with the best radius for each
  cluster. Only the noise is left that it takes to notice if a centre were elsewhere.
- *settings*: fastlloyd-plus itself, with the settings that turn out best on this very set and budget.

Figures of fastlloyd-plus and of the best without privacy come from the committed CSV files of `fastlloyd-plus` and
`utility-league`. Needs the folder of data sets (`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, paper_delta
from fastlloyd.protocols.fastlloyd.plus_plan import GRID_FEATURES
from fastlloyd_papers.engine.tables import csv_table, markdown_table
from fastlloyd_papers.utility.data import REAL, load_points, real_source
from fastlloyd_papers.utility.league import read_results
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

SETS, EPSILONS = (*REAL, "letter"), (0.1, 0.25, 0.5, 1.0)
NAME, BUDGET = "fastlloyd-plus-bound", "mu"
PLUS, PLACES, LABELS, SETTINGS = "fastlloyd-plus", "places free", "labels free", "settings"
ROUNDS, RADII = (1, 2, 3, 5, 10), (0.35, 0.5, 0.75, 1.0, 1.5)
FEW_ROUNDS, FEW_RADII = (1, 3, 10), (0.5, 1.0)
_QUANTILES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_RUNS, _FEW_RUNS, _SETTINGS_RUNS = 40, 3, 20
_MANY_VALUES, _STARTED_ON, _STARTS, _FEW_STARTS = 100_000, 5000, 100, 10
# Settings are compared at the ends of the range, where a run takes a fraction of a second.
_SETTINGS_EPSILONS, _SETTINGS_SETS = (0.1, 1.0), ("iris", "lsun", "s1", "house", "wine", "breast", "yeast")
_LEAST_RESPONSE = 1e-3
_SEED = 7000

Floats = NDArray[np.float64]
Row = tuple[str, float, str, float, str]


@dataclasses.dataclass(frozen=True)
class Told:
    """What an oracle is told of a set: records (n, d), labels (n,), counts (k,), centres (k, d)."""

    points: Floats
    labels: NDArray[np.int64]
    counts: Floats
    centers: Floats

    @property
    def prior(self) -> Floats:
        """Second moments of the centres about 0, feature by feature, shape (d, k, k): one size for their mean, one for
        their differences."""
        share = self.counts / self.counts.sum()
        mean = share @ self.centers
        between = share @ (self.centers - mean) ** 2
        k = len(self.counts)
        found: Floats = (mean**2)[:, None, None] * np.ones((k, k)) + between[:, None, None] * np.eye(k)
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--only", help="these sets alone, separated by commas; the others' rows stay as they are")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else SETS
    best, ours = read_known(arguments.output)
    table = arguments.output / f"{NAME}.csv"
    rows = [row for row in read_rows(table) if row[0] not in chosen] if arguments.only else []
    for name in tqdm(chosen):
        rows += measure(name, arguments.data_dir, best[name], ours)
        rows.sort(key=lambda row: (SETS.index(row[0]), row[1]))
        table.write_text(csv_table(["dataset", "epsilon", "method", "nicv over the best", "with"], rows))
    text = report(rows)
    (arguments.output / f"{NAME}.md").write_text(text)
    print(text)


def read_known(folder: Path) -> tuple[dict[str, float], dict[tuple[str, float], float]]:
    """Return the best NICV without privacy of each set, and that of fastlloyd-plus by set and epsilon."""
    league = read_results(folder / "utility-league.csv")
    best = {name: values[0] for (name, method, _), values in league.items() if method == "kmeans"}
    runs: dict[tuple[str, float], list[float]] = {}
    for row in csv.DictReader((folder / "fastlloyd-plus.csv").read_text().splitlines()):
        if row["protocol"] == PLUS:
            runs.setdefault((row["dataset"], float(row["epsilon"])), []).append(float(row["nicv"]))
    for (name, method, epsilon), values in league.items():
        if method == PLUS and epsilon is not None:
            runs.setdefault((name, epsilon), values)
    return best, {key: statistics.fmean(values) for key, values in runs.items()}


def read_rows(path: Path) -> list[Row]:
    """Read the rows of an earlier measurement, if there was one."""
    lines = list(csv.reader(path.read_text().splitlines()))[1:] if path.exists() else []
    return [(name, float(epsilon), method, float(value), words) for name, epsilon, method, value, words in lines]


def measure(name: str, data_dir: str, best: float, ours: Mapping[tuple[str, float], float]) -> list[Row]:
    """Return all figures of one set: mean NICV over the best without privacy."""
    source = real_source(name)
    points = load_points(source, data_dir)
    told, rows = tell(points, source.k), []
    few = points.size > _MANY_VALUES
    runs, plans = (_FEW_RUNS, (FEW_ROUNDS, FEW_RADII)) if few else (_RUNS, (ROUNDS, RADII))
    for epsilon in EPSILONS:
        mu = 1.0 / gaussian_noise_multiplier(epsilon, paper_delta(len(points)))
        rng = np.random.default_rng([_SEED, round(100 * epsilon)])
        found: list[tuple[str, float, str]] = [(PLUS, ours[name, epsilon], "")]
        found.append((PLACES, _mean(partial(with_places, told, mu, rng), told, runs), ""))
        tries = []
        for rounds, radius in product(*plans):
            draw = partial(with_labels, told, mu, rng, rounds=rounds, radius=radius)
            tries.append((_mean(draw, told, runs), f"T={rounds} radius={radius:g}"))
        found.append((LABELS, *min(tries)))
        if name in _SETTINGS_SETS and epsilon in _SETTINGS_EPSILONS:
            found.append((SETTINGS, *best_settings(points, source.k, epsilon, rng)))
        rows += [(name, epsilon, method, value / best, words) for method, value, words in found]
        rows.append((name, epsilon, BUDGET, mu, f"{len(points)} {points.shape[1]}"))
    return rows


def _mean(draw: Callable[[], Floats], told: Told, runs: int) -> float:
    """Return the mean NICV of several draws of centres."""
    return statistics.fmean(nearest(told.points, np.clip(draw(), -1.0, 1.0))[1] for _ in range(runs))


def tell(points: Floats, k: int) -> Told:
    """Cluster without privacy: k-means++ on at most some thousand records, then Lloyd's method on all."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(_SEED)
    part = points if points.size <= _MANY_VALUES else points[rng.permutation(len(points))[:_STARTED_ON]]
    begin = KMeans(k, n_init=_STARTS if part is points else _FEW_STARTS, random_state=_SEED).fit(part).cluster_centers_
    found = KMeans(k, init=begin, n_init=1, max_iter=500, tol=1e-6).fit(points)
    labels = found.labels_.astype(np.int64)
    return Told(points, labels, np.bincount(labels, minlength=k).astype(np.float64), found.cluster_centers_)


def with_places(told: Told, mu: float, rng: np.random.Generator) -> Floats:
    """Release sums of shortened vectors about the true centres, and weigh them; return centres.

    Notes
    -----
    A sum of vectors shortened to r has noise r / mu. If a centre were elsewhere by a little, the mean shortened vector
    would differ by D of that, D the mean of its derivative; so the noise on a place is r / (mu n D). It does not vanish
    with r: the least is of the order of deviation sqrt(d) / (mu n).
    """
    k, d = told.centers.shape
    away = np.linalg.norm(told.points - told.centers[told.labels], axis=1)
    noise = np.empty(k)
    for j in range(k):
        own = np.maximum(away[told.labels == j], 1e-12)
        radii = np.maximum(np.quantile(own, _QUANTILES), 1e-9)
        response = [float(np.where(own <= r, 1.0, (r / own) * (d - 1) / d).mean()) for r in radii]
        noise[j] = min(r / max(w, _LEAST_RESPONSE) for r, w in zip(radii, response, strict=True))
    noise /= mu * told.counts
    step = told.centers + noise[:, None] * rng.standard_normal((k, d))
    return _weigh(step, told.prior, noise**2)[0]


def with_labels(told: Told, mu: float, rng: np.random.Generator, *, rounds: int, radius: float) -> Floats:
    """Release sums of shortened vectors about the centres so far, round by round; return centres.

    Parameters
    ----------
    radius : float
        Over the root mean squared distance of a cluster's records from where its centre is so far.
    """
    k, d = told.centers.shape
    centers, known = np.zeros((k, d)), told.prior
    order = np.argsort(told.labels, kind="stable")
    points, labels = told.points[order], told.labels[order]
    begins = np.concatenate([[0], np.cumsum(told.counts.astype(np.int64))[:-1]])
    for _ in range(rounds):
        away = points - centers[labels]
        squared = np.einsum("ij,ij->i", away, away)
        reach = radius * np.sqrt(np.add.reduceat(squared, begins) / told.counts)
        part = np.minimum(1.0, reach[labels] / np.sqrt(np.maximum(squared, 1e-24)))
        held = np.maximum(np.add.reduceat(part, begins), 1e-12)
        noise = reach * math.sqrt(rounds) / mu
        sums = np.add.reduceat(away * part[:, None], begins, axis=0) + noise[:, None] * rng.standard_normal((k, d))
        step, known = _weigh(sums / held[:, None], known, (noise / held) ** 2)
        centers = centers + step
    return centers


def _weigh(step: Floats, known: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Weigh noisy steps, shape (k, d), by the best linear rule; return them and what is left to doubt, (d, k, k)."""
    gain = np.linalg.solve(known + np.diag(np.maximum(noise, 1e-18)), known).transpose(0, 2, 1)
    return np.einsum("hij,jh->ih", gain, step), known - gain @ known


def best_settings(points: Floats, k: int, epsilon: float, rng: np.random.Generator) -> tuple[float, str]:
    """Return the least mean NICV over the settings of fastlloyd-plus, and which settings have it."""
    n, d = points.shape
    found = []
    for settings in list_settings(d):
        plan = plan_run(PLUS, epsilon, k=k, d=d, n=n, settings=settings)
        grid, values = quantise(points, plan.fraction_bits), []
        for seed in range(_SETTINGS_RUNS):
            seeded = dataclasses.replace(plan, seed=seed)
            values.append(nearest(points, simulate(grid, seeded, generator_noise(seeded, rng)).exact)[1])
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        found.append((statistics.fmean(values), words or "as they are"))
    return min(found)


def list_settings(d: int) -> list[dict[str, Any]]:
    """List combinations of settings: share of the start, wide rounds, number of rounds; and each other one alone."""
    share: Sequence[tuple[str, float]] = [("survey", value) for value in (0.0, 0.05, 0.15, 0.3, 0.5)]
    if d <= GRID_FEATURES:
        share = [("grid", value) for value in (0.3, 0.5, 0.7, 0.85)]
    found: list[dict[str, Any]] = [{}]
    for key, value in share:
        for rounds in (4, 10):
            for wide in (None, 1.0, 2.0):
                more = {} if wide is None else {"wide": wide}
                found.append({key: value, "max_rounds": rounds, **more})
    found += [{"start": "survey"}, {"swap": False}, {"count_ratio": 1.0}, {"count_ratio": 4.0}, {"max_rounds": 20}]
    return found + [{"reach": value} for value in (0.2, 0.35, 0.7, 1.5)]


def report(rows: Sequence[Row]) -> str:
    """Write the tables: excess over the best without privacy."""
    values = {(name, epsilon, method): value - 1.0 for name, epsilon, method, value, _ in rows}
    words = {(name, epsilon, method): text for name, epsilon, method, _, text in rows}
    parts = [
        "# How low the error could be",
        "Mean NICV over the best without privacy, less 1, at the delta of the league, 1 / (N ln N). *labels free*, *places free* and "
        "*settings* are oracles and not private: [what they are told](../../../docs/fastlloyd-plus.md#what-the-budget-allows). *settings* "
        f"is the least of {len(list_settings(2))} or {len(list_settings(4))} settings of fastlloyd-plus, {_SETTINGS_RUNS} runs each, "
        "chosen by the same runs. Where it is not measured its mean takes the figure of fastlloyd-plus. Made by `python "
        "papers/benchmarks/plus_bound.py`.",
    ]
    for epsilon in sorted({row[1] for row in rows}):
        methods = [PLUS, *([SETTINGS] if epsilon in _SETTINGS_EPSILONS else []), LABELS, PLACES]
        lines, columns = [], {method: [] for method in methods}
        for name in (name for name in SETS if (name, epsilon, PLUS) in values):
            line = [name]
            for method in methods:
                value = values.get((name, epsilon, method))
                columns[method].append(values[name, epsilon, PLUS] if value is None else value)
                line.append("" if value is None else _text(value))
            above = _text(values[name, epsilon, PLUS] - values[name, epsilon, LABELS])
            lines.append([*line, above, words.get((name, epsilon, SETTINGS), ""), words[name, epsilon, LABELS]])
        lines.append(["mean", *(_text(statistics.fmean(columns[method])) for method in methods), "", "", ""])
        header = ["set", *methods, "above labels free", "the settings", "labels free with"]
        if epsilon not in _SETTINGS_EPSILONS:
            lines, header = [[*line[:-2], line[-1]] for line in lines], [*header[:-2], header[-1]]
        parts += [f"## epsilon {epsilon:g}", markdown_table(header, lines)]
        if epsilon in _SETTINGS_EPSILONS:
            names = [name for name in SETS if (name, epsilon, PLUS) in values]
            least = [values.get((name, epsilon, SETTINGS), values[name, epsilon, LABELS]) for name in names]
            parts.append(
                f"With *labels free* where *settings* is not measured, its mean is {_text(statistics.fmean(least))}."
            )
    budget = [row for row in rows if row[2] == BUDGET and row[1] == EPSILONS[0]]
    if budget:
        lines = []
        for name, _, _, mu, shape in budget:
            n, d = map(int, shape.split())
            lines.append([name, f"{n:,}", str(d), f"{mu:.3f}", f"{1 / mu:.1f}", f"{math.sqrt(d) / mu / n:.3f}"])
        parts += [
            f"## The whole budget at epsilon {EPSILONS[0]:g}",
            "Standard deviation of the noise on one count of records, and on each feature of the mean of all records, whose domain is [-1, 1].",
            markdown_table(["set", "records", "features", "mu", "on a count", "on the mean"], lines),
        ]
    return "\n\n".join(parts) + "\n"


def _text(value: float) -> str:
    """Write an excess with three decimals, and no minus before a zero."""
    return f"{value:.3f}".replace("-0.000", "0.000")


if __name__ == "__main__":
    main()
