"""The error of feddp without data of the server, beside feddp with them and fastlloyd-plus.

    python papers/benchmarks/feddp_private_start.py --data-dir DIR [--mixtures 24] [--runs 3]

The parties' own arithmetic on pooled records. The constants of the start were chosen on other seeds of such mixtures, and
on no real set. Needs the folder of data sets (`fastlloyd datasets` says how).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from choose_k import mixture
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.data.bounds import scale
from fastlloyd.data.public.named import dataset_bounds, load_named
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.kmeans.weighted import cluster
from fastlloyd.protocols.feddp.plan import PublicParameters
from fastlloyd.protocols.feddp.proposal import make_plan
from fastlloyd.randomness.prg import PublicStream
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.feddp.central import run_central
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

CLUSTERS, FEATURES, RECORDS, SEPARATIONS = (3, 5, 8, 12), (2, 4, 8, 16), (2000, 10_000, 20_000), (0.0, 0.2, 0.4)
EPSILONS = (0.5, 1.0)
SETS = ("s1", "lsun", "house", "iris", "wine", "breast", "yeast", "adult", "letter")
SERVER_SHARE = 0.05
ROWS_OF_USER = 20
WAYS = ("private", "sphere-packing", "server data", "fastlloyd-plus")
_SEED = 5000

Row = tuple[str, float, Mapping[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--mixtures", type=int, default=24)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    kinds = list(itertools.product(CLUSTERS, FEATURES, RECORDS, SEPARATIONS, (False, True)))
    chosen = np.random.default_rng(_SEED).permutation(len(kinds))[: arguments.mixtures]
    made: list[Row] = []
    people: list[Row] = []
    for place in tqdm(chosen, desc="mixtures"):
        k, d, n, separation, rising = kinds[place]
        points = mixture(k, d, n, separation, rising=rising, seed=_SEED + int(place)).scaled()
        made += measure(f"{d} features", points, k, 1, WAYS)
        if n > RECORDS[0]:
            people += measure(f"{n // ROWS_OF_USER:,} users", points, k, 1, WAYS[:3], by_user=True)
    real: list[Row] = []
    for name in tqdm([name for name in SETS if is_there(name, arguments.data_dir)], desc="sets"):
        dataset = load_named(name, arguments.data_dir)
        points = scale(dataset.values.copy(), dataset_bounds(dataset, "auto-public"))
        real += measure(name, points, dataset.k, arguments.runs, WAYS)
    text = report(made, people, real, arguments.mixtures, arguments.runs)
    (arguments.output / "feddp_private_start.md").write_text(text)
    print(text)


def is_there(name: str, folder: Path) -> bool:
    """Whether the folder has a set."""
    return any(folder.glob(f"{name}*"))


def measure(
    name: str, points: NDArray[np.float64], k: int, runs: int, ways: Sequence[str], *, by_user: bool = False
) -> list[Row]:
    """Return the mean NICV of each way over that of the best of ten starts of k-means, at each epsilon."""
    best = cluster(points, k, PublicStream(_SEED, "best"), restarts=10).cost
    found = []
    for epsilon in EPSILONS:
        values: dict[str, list[float]] = {way: [] for way in ways}
        for run, way in itertools.product(range(runs), ways):
            rng = np.random.default_rng([_SEED, run, round(100 * epsilon)])
            centers = cluster_by(way, points, k, epsilon, run, rng, by_user=by_user)
            values[way].append(nearest(points, centers)[1] * len(points) / best)
        found.append((name, epsilon, {way: float(np.mean(of)) for way, of in values.items()}))
    return found


def cluster_by(
    way: str,
    points: NDArray[np.float64],
    k: int,
    epsilon: float,
    seed: int,
    rng: np.random.Generator,
    *,
    by_user: bool,
) -> NDArray[np.float64]:
    """Return the centres of one run; three clients."""
    n, d = points.shape
    if way == "fastlloyd-plus":
        plan = plan_run(way, epsilon, k=k, d=d, n=n, settings={})
        return simulate(quantise(points, plan.fraction_bits), plan, generator_noise(plan, rng)).exact
    own = rng.permutation(n)
    held = max(k, round(SERVER_SHARE * n)) if way == "server data" else 0
    settings = {
        "start": {"server data": "feddp"}.get(way, way),
        "privacy_level": "client" if by_user else "record",
    }
    public = PublicParameters(
        protocol="feddp",
        choose_k=False,
        known_shares=1,
        clients=3,
        min_clients=3,
        k=k,
        n_total=n - held,
        epsilon=epsilon,
        delta=1.0 / (100 * n),
        rounds=None,
        seed=seed,
        ring_bits=64,
        settings=settings,
    )
    server = points[own[:held]] if held else None
    made = make_plan(public, d=d, names=tuple(f"x{h + 1}" for h in range(d)), server_points=server)
    users = np.arange(n - held) // ROWS_OF_USER if by_user else None
    return run_central(points[own[held:]], server, made, users=users).centers.exact


def report(made: Sequence[Row], people: Sequence[Row], real: Sequence[Row], mixtures: int, runs: int) -> str:
    """Write the tables."""
    parts = [
        "# FedDP-KMeans without data of the server",
        f"Mean NICV over that of the best of ten starts of k-means without privacy; delta = 1 / (100 N), three clients. *private* is "
        f"`feddp.start=private`; *sphere-packing* that start (ours, not the paper's SpherePacking) and two Lloyd steps; *server data* is the "
        f"paper's start, with {SERVER_SHARE:.0%} of the records at the server; default settings. Made by `python papers/benchmarks/feddp_private_start.py`.",
        f"## {mixtures} generated mixtures\n\nOne run of each: k of {_listed(CLUSTERS)}; d of {_listed(FEATURES)}; N of "
        f"{_listed(RECORDS)}; separation {_listed(SEPARATIONS)}; equal sizes, or sizes 1:2:..:k with 1 % outliers.",
        _table(made, WAYS),
        f"## The same at client level\n\nEach user has {ROWS_OF_USER} records, drawn at random. `fastlloyd-plus` protects records.",
        _table(people, WAYS[:3]),
        f"## Real sets\n\nMean of {runs} runs.",
        _table(real, WAYS),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], ways: Sequence[str]) -> str:
    lines = []
    names = sorted({row[0] for row in rows}, key=lambda name: (len(name), name))
    for name, epsilon in itertools.product((*names, "all"), EPSILONS):
        of = [row[2] for row in rows if name in (row[0], "all") and row[1] == epsilon]
        lines.append([name, f"{epsilon:g}", *(f"{np.mean([values[way] for values in of]):.3f}" for way in ways)])
    return markdown_table(["records", "epsilon", *ways], lines)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,}" for value in values)


if __name__ == "__main__":
    main()
