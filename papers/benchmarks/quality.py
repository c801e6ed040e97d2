"""How exact a release on the quality of clusters is, and whether silhouettes of several k come in the right order.

    python papers/benchmarks/quality.py --data-dir DIR [--draws 1000] [--mixtures 36]

Centres are those of `fastlloyd-plus` at epsilon 1; a draw is the noise of one release at an epsilon of its own. What is
added up, the noise on the grid, and what is read from both are the package's own; true values are computed here. Needs
the folder of data sets (`fastlloyd datasets` says how) for the first table alone.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.data.public.named import load_named
from fastlloyd.describe.quality import QualityVector, SilhouetteVector, middle_of
from fastlloyd.kmeans.grid import quantise
from fastlloyd.privacy.accountant import SAMPLER_DELTA
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, stated_delta
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.rounds import Asked, asked, choose_k, quality_update
from fastlloyd.protocols.fastlloyd.settings import QUALITY_SHARE, PublicParameters
from fastlloyd.randomness.secret import KeyedRandom
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.utility.run import generator_noise, simulate

SETS = {"s1": 15, "letter": 26, "adult": 3, "birch2": 100, "breast": 2}
EPSILONS = (0.05, 0.1, 0.2, 0.5)
CURVE_EPSILONS = (0.05, 0.1, 0.2)
RUNS = 4
CURVE_DRAWS = 50
SEED = 8200
CLOSE, APART = 0.05, 1.05
"""How far off a figure may be, and from which ratio on the order of two silhouettes counts."""
MOST = 8

Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--mixtures", type=int, default=36)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rows = [row for name in SETS for row in measure(name, arguments.data_dir, arguments.draws)]
    curves = [row for at in tqdm(range(arguments.mixtures), "mixtures") for row in measure_curve(at)]
    text = report(rows, curves, arguments.draws, arguments.mixtures)
    (arguments.output / "quality.md").write_text(text)
    print(text)


def plan_of(n: int, d: int, k: int, seed: int, **more: Any) -> Plan:
    """Plan a run of fastlloyd-plus at epsilon 1."""
    values: dict[str, Any] = {
        **{"protocol": "fastlloyd-plus", "clients": 2, "min_clients": 2, "k": k, "n_total": n, "epsilon": 1.0},
        **{"delta": None, "rounds": None, "seed": seed, "ring_bits": 32, "masking": "common", "known_shares": 1},
        **{"settings": {}, **more},
    }
    public = PublicParameters(**values)
    return make_plan(public, d=d, names=tuple(f"x{h + 1}" for h in range(d)))


def noise_of(epsilon: float, n: int) -> float:
    """Return the noise over the sensitivity of a release that has this epsilon to itself."""
    return gaussian_noise_multiplier(epsilon, stated_delta(None, n) - SAMPLER_DELTA)


def draw(scale_: float, width: int, *of: object) -> NDArray[np.int64]:
    """Draw noise in grid units, from keys that follow from what is measured."""
    keys = [hashlib.sha256(f"{SEED} {of} {at}".encode()).digest() for at in range(2)]
    return round_normal(scale_, width, KeyedRandom(*keys))


def measure(name: str, folder: Path, draws: int) -> Iterator[dict[str, Any]]:
    """Release the quality of a set's clusters again and again, for each epsilon."""
    dataset = load_named(name, folder)
    points = scale(dataset.values.copy(), auto_public(dataset.values, dataset.names))
    (n, d), k = points.shape, SETS[name]
    found: dict[float, dict[str, list[bool]]] = {epsilon: {} for epsilon in EPSILONS}
    tight = []
    for run in range(RUNS):
        plan = plan_of(n, d, k, run)
        rng = np.random.default_rng([SEED, run, n])
        ended = simulate(quantise(points, plan.fraction_bits), plan, generator_noise(plan, rng))
        vector, middle = QualityVector(k, d), middle_of(ended.exact, ended.noisy_counts)
        sums = vector.add_up(points, ended.exact, middle, plan.fraction_bits)
        true = truth(points, ended.exact, middle, vector.bound)
        tight.append(vector.bound / true["nicv"])
        for epsilon in EPSILONS:
            noise = noise_of(epsilon, n) * vector.sensitivity
            for at in range(draws // RUNS):
                drawn = draw(noise * 2.0**plan.fraction_bits, vector.width, name, run, epsilon, at)
                noisy = (sums + drawn) / 2.0**plan.fraction_bits
                for one in vector.read(noisy, noise=noise, n_total=n, fraction_bits=plan.fraction_bits):
                    if one.measure in true:
                        note(found[epsilon], one.measure, one.estimate, (one.low, one.high), true[one.measure])
    for epsilon in EPSILONS:
        yield {"name": name, "n": n, "k": k, "d": d, "tight": np.mean(tight), "epsilon": epsilon, **found[epsilon]}


def truth(points: Floats, centers: Floats, middle: Floats, bound: float) -> dict[str, float]:
    """Compute the figures from all distances at once."""
    squares = np.vstack([two_of(block, centers) for block in np.array_split(points, max(1, len(points) // 4096))])
    nicv = float(np.minimum(squares[:, 0], bound).mean())
    about = np.minimum(((points - middle) ** 2).sum(axis=1), points.shape[1]).mean()
    return {
        "silhouette": float((1.0 - np.sqrt(squares[:, 0] / squares[:, 1])).mean()),
        "nicv": nicv,
        "far": float((squares[:, 0] > bound).mean()),
        "explained": float(1.0 - nicv / about),
    }


def two_of(points: Floats, centers: Floats) -> Floats:
    """Return the squared distances to the two nearest centres."""
    found: Floats = np.partition(((points[:, None] - centers) ** 2).sum(axis=2), 1, axis=1)[:, :2]
    return found


def note(
    row: dict[str, list[bool]], measure_: str, value: float | None, ends: tuple[float | None, float | None], true: float
) -> None:
    """Note whether a figure is close, and whether its range holds; one that is not shown is not close."""
    scale_ = true if measure_ == "nicv" else 1.0
    row.setdefault(f"{measure_} close", []).append(value is not None and abs(value - true) <= CLOSE * scale_)
    if ends[0] is not None and ends[1] is not None:
        row.setdefault(f"{measure_} held", []).append(ends[0] - 1e-9 <= true <= ends[1] + 1e-9)


def mixture(seed: int) -> tuple[Floats, int]:
    """Generate 2 to 7 normal clusters, four or six deviations apart, in 2 to 16 features; return them on [-1, 1], and k."""
    rng = np.random.default_rng([SEED, seed])
    d, k = int(rng.choice([2, 4, 8, 16])), 2 + seed % 6
    n, apart = (2000, 5000, 20_000)[seed // 6 % 3], float(rng.choice([4.0, 6.0]))
    sizes = np.arange(1, k + 1) if rng.random() < 0.5 else np.ones(k)
    least = 0.42 * np.sqrt(d / 6.0) * k ** (-1.0 / d)
    for _ in range(200):
        centers = rng.random((k, d))
        distances = np.sqrt(((centers[:, None] - centers) ** 2).sum(axis=2)) + 9.0 * np.eye(k)
        if distances.min() > least:
            break
    of = rng.choice(k, n, p=sizes / sizes.sum())
    values = centers[of] + rng.normal(size=(n, d)) * distances.min() / apart
    return scale(values, auto_public(values)), k


def measure_curve(seed: int) -> Iterator[dict[str, Any]]:
    """Choose k of one mixture with and without the silhouettes, and release these at several epsilons."""
    points, k = mixture(seed)
    n, d = points.shape
    for run in range(RUNS):
        ends = {}
        for share in (0.0, QUALITY_SHARE):
            plan = plan_of(n, d, MOST, run, choose_k=True, quality=share, least_k=2 if share else 0)
            rng = np.random.default_rng([SEED, seed, run])
            on_grid = quantise(points, plan.fraction_bits)
            ended = simulate(on_grid, plan, generator_noise(plan, rng))
            ends[share] = plan, ended, choose_k(plan, ended)
        plan, ended, chosen = ends[QUALITY_SHARE]
        question = asked(plan, ended, chosen)
        assert question is not None
        sums = quality_update(on_grid, question, plan)
        right = {share: len(end[2].exact) == k for share, end in ends.items() if end[2] is not None}
        for epsilon in CURVE_EPSILONS:
            pairs, whole = orders(question, sums, plan, epsilon, (seed, run))
            found = {"pairs": pairs, "all": whole, "auto": right[0.0], "both": right[QUALITY_SHARE]}
            yield {"n": n, "epsilon": epsilon, **found}


def orders(
    question: Asked, sums: NDArray[np.int64], plan: Plan, epsilon: float, of: tuple[int, int]
) -> tuple[list[float], list[bool]]:
    """Return, of each draw, the share of clearly different pairs in the right order, and whether all are."""
    vector, bits = question.vector, plan.fraction_bits
    assert isinstance(vector, SilhouetteVector)
    there = [at for at, held in enumerate(question.sets) if held is not None]
    true = 0.5 + sums[1:][there] / (sums[0] * 4.0)
    one, other = np.triu_indices(len(there), 1)
    clear = np.maximum(true[one], true[other]) > APART * np.minimum(true[one], true[other])
    if not clear.any():
        return [], []
    noise, pairs, whole = noise_of(epsilon, plan.n_total) * vector.sensitivity, [], []
    for at in range(CURVE_DRAWS):
        drawn = draw(noise * 2.0**bits, vector.width, "curve", of, epsilon, at)
        found = vector.read((sums + drawn) / 2.0**bits, question.sets, noise=noise, fraction_bits=bits)
        shown = np.array([-1.0 if found[place].estimate is None else found[place].estimate for place in there])
        same = (np.sign(shown[one] - shown[other]) == np.sign(true[one] - true[other]))[clear]
        pairs.append(float(same.mean()))
        whole.append(bool(same.all()))
    return pairs, whole


def report(rows: Sequence[Mapping[str, Any]], curves: Sequence[Mapping[str, Any]], draws: int, mixtures: int) -> str:
    """Write both tables."""
    head = ["set", "records, k, features", "bound / nicv", "epsilon", "silhouette", "nicv", "far", "explained"]
    lines = [
        [
            row["name"],
            f"{row['n']:,}, {row['k']}, {row['d']}",
            f"{row['tight']:.1f}",
            f"{row['epsilon']:g}",
            *(both(row, measure_) for measure_ in ("silhouette", "nicv", "far", "explained")),
        ]
        for row in rows
    ]
    several = []
    for n in sorted({row["n"] for row in curves}):
        for epsilon in CURVE_EPSILONS:
            of = [row for row in curves if (row["n"], row["epsilon"]) == (n, epsilon)]
            pairs, whole = ([value for row in of for value in row[name]] for name in ("pairs", "all"))
            several.append([f"{n:,}", f"{epsilon:g}", f"{np.mean(pairs):.3f}", f"{np.mean(whole):.3f}"])
    curve_head = ["records", "epsilon", "different pairs in the right order", "all of them in a release"]
    auto, with_curve = (np.mean([row[name] for row in curves]) for name in ("auto", "both"))
    runs = len(curves) // len(CURVE_EPSILONS)
    return "\n".join(
        [
            "# How exact a release on the quality of clusters is",
            "",
            f"Over {draws:,} releases of the clusters of {RUNS} runs of `fastlloyd-plus` at epsilon 1: the share in which "
            f"the figure is close (silhouette, far and explained within {CLOSE:g} of the records' value, nicv within "
            f"{100 * CLOSE:g} % of it), and behind the stroke how many of the ranges that are shown hold it. *nicv* is "
            "the mean squared distance up to the bound, *explained* is by these distances and those to the middle of the "
            "released centres up to d. A figure that is not shown is not close. epsilon is that of the release alone, "
            "delta = 1 / (100 N). *bound / nicv* is 4 for clusters as tight as a plan expects, more for tighter ones. "
            "Bounds of features are the smallest and largest values of these public sets. Made by `python "
            f"papers/benchmarks/quality.py`, seed {SEED}; the result depends on no machine's load.",
            "",
            markdown_table(head, lines),
            "",
            "## Silhouettes of 2 to 8 clusters",
            "",
            f"{mixtures} generated mixtures of 2 to 7 clusters, four or six deviations apart, half of them with sizes "
            f"1:2:..:k; {RUNS} runs of `--k 2..8` at epsilon 1 each, and {CURVE_DRAWS} releases of the silhouettes of each "
            "at an epsilon of their own. Two silhouettes are different where the true ones differ by more than "
            f"{100 * (APART - 1):.0f} %.",
            "",
            markdown_table(curve_head, several),
            "",
            f"k is right in {auto:.3f} of {runs} runs of `--k auto:8`, and in {with_curve:.3f} of `--k 2..8`, which sets "
            f"{QUALITY_SHARE:g} of 1/sigma^2 aside.",
            "",
        ]
    )


def both(row: Mapping[str, Any], measure_: str) -> str:
    """Return how often a figure is close, and how often its range holds."""
    held = row.get(f"{measure_} held")
    return f"{np.mean(row[f'{measure_} close']):.3f} / {'-' if held is None else f'{np.mean(held):.3f}'}"


if __name__ == "__main__":
    main()
