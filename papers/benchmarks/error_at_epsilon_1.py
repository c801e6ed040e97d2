"""NICV at epsilon = 1 on real data sets, beside what the paper's published code gives.

    python papers/benchmarks/error_at_epsilon_1.py --data-dir DIR [--runs 100]

In memory, the same party code as over MPI; data scaled per feature to [-1, 1] by its public range; two
clients; seeds 0, 1, .. for the start. Needs the folder of data sets (`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fastlloyd import FastLloyd
from fastlloyd.data.public.named import dataset_bounds, load_named

# Mean NICV of the published code over 100 seeds at epsilon = 1, measured on a machine of the same kind.
PUBLISHED = {"s1": 0.0177, "iris": 0.312, "wine": 1.82, "breast": 1.57, "house": 0.159, "lsun": 0.202, "yeast": 0.331}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rows = []
    for name, published in PUBLISHED.items():
        dataset = load_named(name, arguments.data_dir)
        bounds = dataset_bounds(dataset, "auto-public")
        values = []
        for seed in tqdm(range(arguments.runs), desc=name, leave=False):
            model = FastLloyd(dataset.k, epsilon=1.0, delta="paper", bounds=bounds, random_state=seed)
            model.fit_federated(np.array_split(np.random.default_rng(seed).permutation(dataset.values), 2))
            values.append(-model.score(dataset.values) / len(dataset.values))
        half = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5
        rows.append(
            f"| {name} | {published:g} | {np.mean(values):.4g} ± {half:.2g} | {np.mean(values) / published:.2f} |"
        )
    text = "\n".join(
        [
            "# Error at epsilon = 1\n",
            f"Mean NICV over {arguments.runs} runs in memory, with its 95 % interval; two clients, delta = 1 / (N ln N).",
            "Published code: mean over 100 seeds.\n",
            "| data set | published code | fastlloyd | ratio |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )
    (arguments.output / "error_at_epsilon_1.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
