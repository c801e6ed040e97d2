"""What a round and the set-up cost in this checkout, over what they cost in another one, side by side in one run.

    git worktree add --detach /tmp/before COMMIT
    python papers/benchmarks/beside_another.py --other /tmp/before [--output papers/benchmarks/results]

Both are run in turn with the same flags, records and interpreter; each pair gives one ratio, and the median of the ratios
counts. Run it alone.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastlloyd.net.mpi.launcher import find_mpirun
from fastlloyd_papers.engine.generate import Source, Workspace
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly
from fastlloyd_papers.engine.runner import Job, run_job

HERE = Path(__file__).parents[2]
ROUNDS = 200
REPEATS = 15


def check(checkout: Path) -> None:
    """Refuse a folder whose package the ranks would not import: `python -m` looks into the working directory first."""
    probe = [sys.executable, "-c", "import fastlloyd.client as module; print(module.__file__)"]
    found = subprocess.check_output(probe, cwd=checkout, text=True).strip()
    if not Path(found).is_relative_to(checkout):
        raise SystemExit(f"{checkout}: expected its own package, got {found}; give a checkout of fastlloyd")


def commit(checkout: Path) -> str:
    """Return the commit that a checkout is at, and whether it was changed since."""
    return subprocess.check_output(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], text=True
    ).strip()


def times(job: Job, checkout: Path) -> tuple[float, float]:
    """Run once; return the seconds of the median round and of the set-up, as the server saw them."""
    found: dict[str, Any] = run_job(job, find_mpirun(), cwd=checkout)
    return statistics.median(found["seconds"]), found["setup_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    other: Path = options.other.resolve()
    for checkout in (HERE, other):
        check(checkout)
    load = begin_quietly()
    with tempfile.TemporaryDirectory() as scratch:
        work = Workspace(Path(scratch))
        small, large = Source(n=10_000, k=2, d=2), Source(n=100_000, k=5, d=5)
        jobs = {
            "N = 10,000, k = d = 2, one client": (work.shares(small, 1), 2),
            "N = 10,000, k = d = 2, two clients": (work.shares(small, 2), 2),
            "N = 100,000, k = d = 5, two clients": (work.shares(large, 2), 5),
        }
        rows = []
        for name, (shares, k) in jobs.items():
            job = Job(shares=shares, k=k, rounds=ROUNDS, epsilon=1.0)
            pairs = []
            for turn in range(REPEATS):  # who begins changes, so that neither always runs on a warmer machine
                order = (HERE, other) if turn % 2 else (other, HERE)
                found = {checkout: times(job, checkout) for checkout in order}
                pairs.append((found[HERE], found[other]))
            rows.append(line(name, pairs))
    text = "\n".join(
        [
            "# A round and the set-up beside another commit",
            "",
            f"{describe_machine()}, load before the first run {load:.1f}. Localhost TCP ({find_mpirun().vendor}), protocol "
            f"fastlloyd, one BLAS thread per",
            f"rank, {ROUNDS} rounds a run, {REPEATS} runs of each in turn. This commit {commit(HERE)}, the other {commit(other)}. Times: "
            "medians of the runs' medians.",
            "Ratios: this over the other, median of the pairs, quartiles in brackets.",
            "",
            "| what | round, other | this | ratio | set-up, other | this | ratio |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *rows,
            "",
        ]
    )
    (options.output / "beside_another.md").write_text(text)
    print(text)


def line(name: str, pairs: list[tuple[tuple[float, float], tuple[float, float]]]) -> str:
    """Write one job's row."""
    cells = [name]
    for at in (0, 1):
        here, other = [pair[0][at] for pair in pairs], [pair[1][at] for pair in pairs]
        low, middle, high = statistics.quantiles([a / b for a, b in zip(here, other, strict=True)], n=4)
        cells += [f"{1e3 * statistics.median(other):.2f} ms", f"{1e3 * statistics.median(here):.2f} ms"]
        cells.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
