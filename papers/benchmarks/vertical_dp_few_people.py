"""Loss of vertical-dp on few people, with both kinds of local clusters: two parties with half of the columns each.

    python papers/benchmarks/vertical_dp_few_people.py --data-dir DIR [--runs 10] [--output papers/benchmarks/results]

In memory, by the estimator: the parties' own lives, with their default delta. Loss is the mean squared distance on columns
scaled to [-1, 1], over that of the best of 100 starts of k-means++ (letter: 30). breast-10 is scikit-learn's
`load_breast_cancer`, its first ten features.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from tqdm import tqdm

from fastlloyd import FastLloyd
from fastlloyd.data.public.named import load_named
from fastlloyd_papers.engine.machine import describe_commit, describe_machine
from fastlloyd_papers.engine.tables import markdown_table

SETS = {"breast-10": 2, "breast": 2, "iris": 3, "wine": 3, "letter": 5}
EPSILONS = (0.1, 0.5, 1.0)
KINDS = ("lloyd", "shortened")
STARTS, FEW_STARTS = 100, 30


def columns(name: str, data_dir: Path) -> NDArray[np.float64]:
    """Return a set's columns, scaled to [-1, 1] by their public range."""
    found = load_breast_cancer().data[:, :10] if name == "breast-10" else load_named(name, data_dir).values
    low, high = found.min(axis=0), found.max(axis=0)
    scaled: NDArray[np.float64] = 2.0 * (found - low) / (high - low) - 1.0
    return scaled


def losses(points: NDArray[np.float64], k: int, epsilon: float, kind: str, runs: int) -> list[float]:
    """Return the loss of each run."""
    half, found = points.shape[1] // 2, []
    for seed in range(runs):
        model = FastLloyd(
            n_clusters=k,
            epsilon=epsilon,
            bounds=(-np.ones(points.shape[1]), np.ones(points.shape[1])),
            protocol="vertical-dp",
            settings={"local": kind},
            random_state=seed,
        )
        model.fit_federated([points[:, :half], points[:, half:]])
        found.append(-float(model.score(points)) / len(points))
    return found


def main() -> None:
    """Write a row for each set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, k in tqdm(SETS.items()):
        points = columns(name, arguments.data_dir)
        starts = FEW_STARTS if name == "letter" else STARTS
        best = KMeans(k, n_init=starts, random_state=0).fit(points).inertia_ / len(points)
        row = [f"{name} ({len(points):,}, {points.shape[1]}, {k})"]
        for epsilon in EPSILONS:
            for kind in KINDS:
                over = [loss / best for loss in losses(points, k, epsilon, kind, arguments.runs)]
                error = statistics.stdev(over) / len(over) ** 0.5
                row.append(f"{statistics.fmean(over):.2f} ({round(100 * error)})")
        rows.append(row)
    header = ["data (n, d, k)", *(f"{kind}, epsilon {epsilon:g}" for epsilon in EPSILONS for kind in KINDS)]
    commit = describe_commit(Path(__file__).parent, Path(__file__).name)
    text = f"""# Vertical DP: few people

{describe_machine()}, commit {commit}. Loss over the best of {STARTS} k-means++ starts (letter: {FEW_STARTS}), mean of {arguments.runs} runs; in
brackets the standard error in the last digits. Two parties with half of the columns each, default delta, k' chosen by the rule. Made by
`python papers/benchmarks/vertical_dp_few_people.py`.

{markdown_table(header, rows)}
"""
    print(text)
    if arguments.output is not None:
        (arguments.output / "vertical_dp_few_people.md").write_text(text)


if __name__ == "__main__":
    main()
