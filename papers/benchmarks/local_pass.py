"""One pass over a client's records, beside one step of scikit-learn's Lloyd on the same.

    python papers/benchmarks/local_pass.py [--output papers/benchmarks/results] [--seconds 20]

Variants run in turn, so that what else the machine does falls on all of them; ratios are taken within a turn, and
their median is what counts. scikit-learn's step is the one that its KMeans calls: assignment, sums, counts, one thread.
All start from the centres of the generated clusters. Run it alone: without free cores two threads gain nothing.

Where faiss-cpu or scikit-learn-intelex (its daal4py) is installed, ten of its steps in one thread stand beside, divided
by ten: neither offers a single step. faiss computes in float32, and its labels near a tie may be others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

CASES = ((100_000, 5, 5), (1_000_000, 5, 5), (1_000_000, 16, 32), (300_000, 64, 64))
OTHERS_STEPS = 10
NUMPY, COMPILED, RADIUS, SHORTENED, THREADS = "numpy", "compiled", "with a radius", "shortened", "two threads"


def scikit_step(points: np.ndarray, centers: np.ndarray) -> Callable[[], None]:
    """Return one step of scikit-learn's Lloyd, in one thread, with what it needs allocated."""
    from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense

    n, k = len(points), len(centers)
    weights, labels, shift = np.ones(n), np.full(n, -1, np.int32), np.empty(k)
    new, held = np.empty_like(centers), np.empty(k)
    return lambda: lloyd_iter_chunked_dense(points, weights, centers, new, held, labels, shift, 1)


def faiss_steps(points: np.ndarray, centers: np.ndarray) -> Callable[[], int]:
    """Return ten steps of faiss's k-means in one thread; the call returns how many it made."""
    import faiss

    faiss.omp_set_num_threads(1)
    n, d = points.shape
    single, start = points.astype(np.float32), centers.astype(np.float32)

    def run() -> int:
        found = faiss.Kmeans(d, len(start), niter=OTHERS_STEPS, max_points_per_centroid=n, min_points_per_centroid=1)
        found.train(single, init_centroids=start)
        return len(found.obj)

    return run


def intel_steps(points: np.ndarray, centers: np.ndarray) -> Callable[[], int]:
    """Return ten steps of the k-means behind scikit-learn-intelex in one thread; the call returns how many it made."""
    import daal4py

    daal4py.daalinit(1)
    algorithm = daal4py.kmeans(len(centers), OTHERS_STEPS, accuracyThreshold=0.0, assignFlag=False)
    return lambda: int(algorithm.compute(points, centers).nIterations[0, 0])


def others(points: np.ndarray, centers: np.ndarray) -> dict[str, Callable[[], int]]:
    """Return the steps of those libraries that are installed."""
    made = {}
    for name, module, make in (("faiss", "faiss", faiss_steps), ("intelex", "daal4py", intel_steps)):
        if find_spec(module) is not None:
            made[name] = make(points, centers)
    return made


def steps(n: int, d: int, k: int) -> dict[str, Callable[[], object]]:
    """Return all variants for one generated set; records lie off their centres by 0.2 per feature."""
    from fastlloyd.kmeans.assign import accumulate
    from fastlloyd.kmeans.grid import quantise, round_centers
    from fastlloyd.kmeans.passes import Passes

    rng = np.random.default_rng(0)
    middles = rng.uniform(-0.8, 0.8, (k, d))
    points = np.clip(middles[rng.integers(k, size=n)] + rng.normal(0.0, 0.2, (n, d)), -1.0, 1.0)
    plain = quantise(points, 16, Passes(patience=np.inf))
    compiled = replace(plain, passes=Passes(patience=0.0))
    threaded = replace(plain, passes=Passes(2, patience=0.0))
    centers, radius = round_centers(middles, 16), int(0.2 * np.sqrt(d) * 2**16)  # every other record lies beyond
    return {
        "scikit-learn": scikit_step(points, middles),
        NUMPY: lambda: accumulate(plain, centers, radius=None, relative=True),
        COMPILED: lambda: accumulate(compiled, centers, radius=None, relative=True),
        RADIUS: lambda: accumulate(compiled, centers, radius=radius, relative=True),
        SHORTENED: lambda: accumulate(compiled, centers, radius=radius, relative=True, shorten=True),
        THREADS: lambda: accumulate(threaded, centers, radius=None, relative=True),
        **others(points, middles),
    }


def take_turns(variants: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Time the variants in turn for so long, at least five times; the first turn only warms up.

    A variant that returns a whole number made so many steps.
    """
    taken: dict[str, list[float]] = {name: [] for name in variants}
    begun, turn = time.perf_counter(), 0
    while turn < 6 or time.perf_counter() - begun < seconds:
        for name, step in variants.items():
            start = time.perf_counter()
            made = step()
            if turn:
                taken[name].append((time.perf_counter() - start) / (made if isinstance(made, int) else 1))
        turn += 1
    return taken


def ratio(taken: dict[str, list[float]], ours: str, theirs: str) -> float:
    """Return the median of the ratios within each turn."""
    return statistics.median(a / b for a, b in zip(taken[ours], taken[theirs], strict=True))


def _others_words(installed: list[str]) -> str:
    """Say which versions stood beside."""
    packages = {"faiss": "faiss-cpu", "intelex": "scikit-learn-intelex"}
    beside = " and ".join(f"{packages[name]} {version(packages[name])}" for name in installed)
    return f" {beside}: a tenth of ten steps." if beside else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each case")
    chosen = parser.parse_args()
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable) != "1":
            os.environ[variable] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
    from fastlloyd_papers.engine.machine import describe_machine
    from fastlloyd_papers.engine.quiet import begin_quietly

    before = begin_quietly()
    lines, names = [], []
    for n, d, k in CASES:
        taken = take_turns(steps(n, d, k), chosen.seconds)
        names = list(taken)
        times = [f"{1e3 * statistics.median(values):.2f}" for values in taken.values()]
        own = [ratio(taken, NUMPY, "scikit-learn")]
        own += [
            ratio(taken, COMPILED, name) for name in names if name not in (NUMPY, COMPILED, RADIUS, SHORTENED, THREADS)
        ]
        ratios = [f"{value:.2f}" for value in (*own, ratio(taken, THREADS, COMPILED))]
        lines.append(f"| {n:,}, d = {d}, k = {k} | {' | '.join(times + ratios)} |")
    installed = names[6:]
    heads = [*names, f"{NUMPY} over scikit-learn", f"{COMPILED} over scikit-learn"]
    heads += [*(f"{COMPILED} over {name}" for name in installed), f"{THREADS} over one"]
    text = f"""# One pass over a client's records

{describe_machine()}; load before the first run {before:.1f}. One thread but where it says two. Milliseconds, medians of turns of all
variants; ratios within a turn, medians. Half of the records lie beyond the radius.{_others_words(installed)}

| records | {" | ".join(heads)} |
|---|{"---:|" * len(heads)}
{chr(10).join(lines)}
"""
    chosen.output.mkdir(parents=True, exist_ok=True)
    (chosen.output / "local_pass.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
