"""What a run of vertical-he costs: processor seconds, seconds, bytes and memory, by records, clusters and columns.

    python papers/benchmarks/vertical_he_cost.py [N:K:WIDTH+WIDTH[:ROUNDS[:SCHEME]] ...] [--output papers/benchmarks/results]

Both parties and two worker processes on one machine, messages through memory; alignment and the agreement on the plan
are left out, as is their network. Processor seconds are those of all processes. Memory is the largest of a worker and
of this process, in which both parties are. Each case runs in a fresh process. Run it alone; with --output the table is
also written to that folder.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from fastlloyd_papers.engine.machine import describe_commit, describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly
from fastlloyd_papers.engine.tables import markdown_table

# The last five have the shapes of HAR (ten components) and Bank (all rows, and as many as the paper has).
CASES = (
    "10000:8:2+2",
    "10000:16:2+2",
    "100000:5:1+1",
    "1000000:5:1+1",
    "10299:6:5+5",
    "10299:6:5+5:3:pairwise",
    "41188:7:4+3",
    "41188:7:4+3:2:pairwise",
    "30090:7:4+3",
)
WORKERS = 2
HEADER = ("n, k, columns", "scheme", "rounds", "processor s", "s", "s a round", "MB sent", "MiB")


def measure(case: str) -> str:
    """Run one case and write a row of what it took, separated by |."""
    from fastlloyd_papers.vertical_he.run import Case, run_case

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
        f"{int(n):,}, {k}, {widths.replace('+', ' + ')}|{found['scheme']}|{rounds}|{used:.2f}|{seconds:.2f}|"
        f"{found['round_seconds']:.3f}|{sent:.1f}|{peaks[0]:.0f} + {WORKERS} x {peaks[1]:.0f}"
    )


def processor_seconds() -> float:
    """Return what this process and those that it has ended have used."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(measure(sys.argv[2]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    before, rows = begin_quietly(), []
    for case in arguments.cases:
        done = subprocess.run(
            [sys.executable, __file__, "--one", case],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        rows.append(done.stdout.strip().split("|"))
    commit = describe_commit(Path(__file__).parent, Path(__file__).name)
    text = f"""# Vertical HE: what a run costs

{describe_machine()}, commit {commit}; load before the first run {before:.1f}. Both parties and {WORKERS} worker processes on this machine,
messages through memory; alignment, the agreement on the plan and the network are left out. Processor seconds are those of all
processes. MiB: of the process with both parties, and of the largest worker. Made by `python papers/benchmarks/vertical_he_cost.py`.

{markdown_table(HEADER, rows)}
"""
    print(text)
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "vertical_he_cost.md").write_text(text)


if __name__ == "__main__":
    main()
