"""What a run of vertical-he costs: processor seconds, seconds, bytes and memory, by records, clusters and columns.

    python benchmarks/vertical_he_cost.py [N:K:WIDTH+WIDTH[:ROUNDS[:SCHEME]] ...]

Both parties and two worker processes on one machine, messages through memory; alignment and the agreement on the plan
are left out, as is their network. Processor seconds are those of all processes. Memory is the largest of a worker and
of this process, in which both parties are. Each case runs in a fresh process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

import numpy as np

CASES = ("10000:8:2+2", "10000:16:2+2", "100000:5:1+1", "1000000:5:1+1")
WORKERS = 2


def measure(case: str) -> str:
    """Run one case and say what it took."""
    from fastlloyd.bench.vertical_he.run import Case, run_case

    n, k, widths, *more = case.split(":")
    columns = tuple(map(int, widths.split("+")))
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.8, 0.8, (int(k), sum(columns)))
    points = np.clip(centers[rng.integers(0, int(k), int(n))] + rng.normal(0, 0.1, (int(n), sum(columns))), -1.0, 1.0)
    rounds, scheme = int(more[0]) if more else 10, more[1] if len(more) > 1 else "auto"
    begin, used = time.perf_counter(), processor_seconds()
    found = run_case(Case(k=int(k), widths=columns, rounds=rounds, scheme=scheme, shrink=True), points, WORKERS)
    seconds, used = time.perf_counter() - begin, processor_seconds() - used
    peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    sent = (found["setup_bytes"] + rounds * found["round_bytes"]) / 1e6
    return (
        f"| {case} | {found['scheme']} | {rounds} | {used:.2f} | {seconds:.2f} | {found['round_seconds']:.3f} | "
        f"{sent:.1f} | {peaks[0]:.0f} + {WORKERS} x {peaks[1]:.0f} |"
    )


def processor_seconds() -> float:
    """Return what this process and those that it has ended have used."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(measure(sys.argv[2]), flush=True)
        return
    print(
        "| case | scheme | rounds | processor s | s | s a round | MB sent | MiB |\n|---|---|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    for case in sys.argv[1:] or CASES:
        subprocess.run(
            [sys.executable, __file__, "--one", case],
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )


if __name__ == "__main__":
    main()
