"""One pass over a client's records, beside one step of scikit-learn's Lloyd on the same.

    python benchmarks/local_pass.py [--output benchmarks/results] [--seconds 20]

Variants run in turn, so that what else the machine does falls on all of them; ratios are taken within a turn, and
their median is what counts. scikit-learn's step is the one that its KMeans calls: assignment, sums, counts, one thread.
Both start from the centres of the generated clusters. Run it alone: without free cores two threads gain nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

CASES = ((100_000, 5, 5), (1_000_000, 5, 5), (1_000_000, 16, 32), (300_000, 64, 64))
NUMPY, COMPILED, RADIUS, SHORTENED, THREADS = "numpy", "compiled", "with a radius", "shortened", "two threads"


def scikit_step(points: np.ndarray, centers: np.ndarray) -> Callable[[], None]:
    """Return one step of scikit-learn's Lloyd, in one thread, with what it needs allocated."""
    from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense

    n, k = len(points), len(centers)
    weights, labels, shift = np.ones(n), np.full(n, -1, np.int32), np.empty(k)
    new, held = np.empty_like(centers), np.empty(k)
    return lambda: lloyd_iter_chunked_dense(points, weights, centers, new, held, labels, shift, 1)


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
    }


def take_turns(variants: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Time the variants in turn for so long, at least five times; the first turn only warms up."""
    taken: dict[str, list[float]] = {name: [] for name in variants}
    begun, turn = time.perf_counter(), 0
    while turn < 6 or time.perf_counter() - begun < seconds:
        for name, step in variants.items():
            start = time.perf_counter()
            step()
            if turn:
                taken[name].append(time.perf_counter() - start)
        turn += 1
    return taken


def ratio(taken: dict[str, list[float]], ours: str, theirs: str) -> float:
    """Return the median of the ratios within each turn."""
    return statistics.median(a / b for a, b in zip(taken[ours], taken[theirs], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each case")
    chosen = parser.parse_args()
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable) != "1":
            os.environ[variable] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
    lines = []
    for n, d, k in CASES:
        taken = take_turns(steps(n, d, k), chosen.seconds)
        times = " | ".join(f"{1e3 * statistics.median(values):.2f}" for values in taken.values())
        to_scikit = " | ".join(f"{ratio(taken, name, 'scikit-learn'):.2f}" for name in (NUMPY, COMPILED))
        lines.append(f"| {n:,}, d = {d}, k = {k} | {times} | {to_scikit} | {ratio(taken, THREADS, COMPILED):.2f} |")
    names = ("scikit-learn", NUMPY, COMPILED, RADIUS, SHORTENED, THREADS)
    text = f"""# One pass over a client's records

{len(os.sched_getaffinity(0))} cores; one thread but where it says two. Milliseconds, medians of turns of all variants. The last
three columns are ratios within a turn, medians: numpy and compiled over scikit-learn, two threads over one. Half of the records
lie beyond the radius.

| records | {" | ".join(names)} | numpy, ratio | compiled, ratio | two threads, ratio |
|---|{"---|" * 9}
{chr(10).join(lines)}
"""
    chosen.output.mkdir(parents=True, exist_ok=True)
    (chosen.output / "local_pass.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
