"""What a round costs beyond the network: the protocol, TLS and masks, and the arithmetic.

    python papers/benchmarks/round_cost.py [--output papers/benchmarks/results]

Ratios are taken side by side: the variants run in turn, several times, and medians are compared. Run it
alone: three ranks on two cores are oversubscribed, as the table says.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fastlloyd.net.mpi.launcher import find_mpirun
from fastlloyd_papers.engine.generate import Shares, Source, Workspace
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly
from fastlloyd_papers.engine.runner import CLIENT_PROGRAM, Job, run_job

BARE = [str(Path(__file__).parent / "programs" / "bare_rank.py")]
OURS = list(CLIENT_PROGRAM)
ROUNDS = 200
REPEATS = 5


def round_seconds(shares: Shares, k: int, program: list[str]) -> list[float]:
    """Run once and give the seconds of each round but the first, as the server saw them."""
    job = Job(shares=shares, k=k, rounds=ROUNDS, epsilon=1.0)
    return run_job(job, find_mpirun(), program=program)["seconds"]


def plain_seconds(points: np.ndarray, k: int) -> float:
    """Time the plain assignment with counts and weighted bincounts, on all records in one thread."""
    centers = points[:k]  # one of each generated cluster
    times = []
    for _ in range(15):
        start = time.perf_counter()
        labels = (points @ centers.T * -2 + (centers**2).sum(1)).argmin(1)
        np.bincount(labels, minlength=k)
        for h in range(points.shape[1]):
            np.bincount(labels, weights=points[:, h], minlength=k)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    output: Path = parser.parse_args().output
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable) != "1":
            os.environ[variable] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
    before = begin_quietly()
    with tempfile.TemporaryDirectory() as scratch:
        work = Workspace(Path(scratch))
        small, large = Source(n=10_000, k=2, d=2), Source(n=100_000, k=5, d=5)
        cases = {
            "two ranks": (work.shares(small, 1), 2, OURS),
            "two ranks, no TLS, no masks": (work.shares(small, 1), 2, BARE),
            "three ranks": (work.shares(small, 2), 2, OURS),
            "three ranks, no TLS, no masks": (work.shares(small, 2), 2, BARE),
            "large": (work.shares(large, 2), 5, OURS),
        }
        points = work.points(large)
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        plain = []
        for _ in range(REPEATS):
            for name, (shares, k, program) in cases.items():
                seconds[name].append(statistics.median(round_seconds(shares, k, program)))
            plain.append(plain_seconds(points, 5))
    report(seconds, plain, before, output)


def report(seconds: dict[str, list[float]], plain: list[float], before: float, output: Path) -> None:
    def line(name: str) -> str:
        values = sorted(1e3 * value for value in seconds[name])
        return f"{statistics.median(values):.2f} ms ({values[0]:.2f} to {values[-1]:.2f})"

    def share(ranks: str) -> str:
        ratios = [bare / ours for ours, bare in zip(seconds[ranks], seconds[f"{ranks}, no TLS, no masks"], strict=True)]
        return f"{1 - statistics.median(ratios):.0%}"

    ratio = statistics.median(a / b for a, b in zip(seconds["large"], plain, strict=True))
    text = f"""# Cost of a round

{describe_machine()}, load before the first run {before:.1f}. Localhost TCP ({find_mpirun().vendor}), one BLAS thread per rank, {ROUNDS}
rounds a run, {REPEATS} runs of each variant in turn; medians of the runs' medians, smallest and largest in brackets.

| what | time of a round |
|---|---|
| N = 10,000, k = d = 2, two ranks (one client) | {line("two ranks")} |
| the same without TLS and masks | {line("two ranks, no TLS, no masks")} |
| N = 10,000, k = d = 2, three ranks (two clients; oversubscribed on two cores) | {line("three ranks")} |
| the same without TLS and masks | {line("three ranks, no TLS, no masks")} |
| N = 100,000, k = d = 5, three ranks | {line("large")} |
| plain assignment, counts and sums on all 100,000, one thread | {1e3 * statistics.median(plain):.2f} ms |

TLS and masks together: {share("two ranks")} of a round with two ranks, {share("three ranks")} with three.
N = 100,000: {ratio:.2f} times the plain computation on all records in one thread.
"""
    output.mkdir(parents=True, exist_ok=True)
    (output / "round_cost.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
