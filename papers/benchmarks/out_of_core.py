"""More records than memory: what a pass over a file costs beside reading the file once, and a whole run's memory.

    python papers/benchmarks/out_of_core.py [--rows 100000000] [--folder DIR] [--output papers/benchmarks/results]

Needs the extra `fast`, and room in the folder for 32 bytes a row of input and 64 to 72 of working files (10 GB for 1e8
rows). Times with the system's cache of the file empty are those of the disk. Run it alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastlloyd.kmeans.assign import accumulate, assign
from fastlloyd.kmeans.grid import GridPoints, round_centers
from fastlloyd.kmeans.stored import release
from fastlloyd.report.files import labels_csv, write_atomic
from fastlloyd.run.config import RunConfig
from fastlloyd.run.own_records import load_large
from fastlloyd.run.session import find_protocol
from fastlloyd.wire.header import clients
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.quiet import begin_quietly

D, K, BITS, ROUNDS = 8, 5, 16, 10
REPEATS = 5
_STEP = 1 << 20


def make(path: Path, rows: int, centers: np.ndarray[Any, Any]) -> None:
    """Write records about five centres, float32, as an npy file."""
    random = np.random.default_rng(rows)
    table = np.lib.format.open_memmap(path, "w+", np.float32, (rows, D))
    for start in range(0, rows, _STEP):
        part = table[start : start + _STEP]
        part[:] = random.standard_normal(part.shape, dtype=np.float32) * np.float32(0.1)
        part += centers[random.integers(0, K, len(part))].astype(np.float32)
        release(table)


def config(folder: Path, rows: int, memory: str) -> RunConfig:
    """Return the configuration of a run on the files in the folder."""
    return RunConfig(
        data=str(folder / "site_{client}.npy"),
        bounds="-1,1",
        n_total=2 * rows,
        k=K,
        rounds=ROUNDS,
        ring_bits=64,
        memory=memory,
        output=str(folder / "out"),
    )


def empty_cache() -> None:
    """Let the system forget what it holds of this process's files without a name."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if not entry.stat().st_nlink:
                os.fsync(int(entry.name))
                os.posix_fadvise(int(entry.name), 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError:  # of the listing itself
            continue


def read_once(points: GridPoints) -> None:
    """Add up all coordinates, through the map that passes use."""
    for row in points.raw_coordinates:
        for start in range(0, points.n, _STEP):
            row[start : start + _STEP].sum()
            release(row)


def measure(folder: Path, rows: int, memory: str) -> dict[str, Any]:
    """Time one client's parts in this process, which has done nothing else."""
    settings, common = find_protocol("fastlloyd-plus").gather(config(folder, rows, memory), 2)
    seconds: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        done = work()
        seconds.setdefault(what, []).append(time.perf_counter() - start)
        return done

    own = timed("read and check the table", lambda: load_large(settings, common, clients(2)[0]))
    timed("keyed digest", lambda: own.digest(bytes(32)))
    points = timed("put it on the grid", lambda: own.quantise(BITS))
    centers = round_centers(np.load(folder / "centers.npy"), BITS)

    def one_round() -> None:
        accumulate(points, centers, radius=1 << BITS, relative=True, shorten=True)

    one_round()  # loads compiled code
    for _ in range(REPEATS):
        for name, work in (("read the grid once", lambda: read_once(points)), ("a round's pass", one_round)):
            empty_cache()
            timed(f"{name}, from disk", work)
            timed(f"{name}, cached", work)
    labels = timed("labels", lambda: assign(points, centers))
    timed("write labels", lambda: write_atomic(folder / "labels.csv", labels_csv(labels)))
    return {"seconds": seconds, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def run(folder: Path, rows: int, memory: str) -> dict[str, Any]:
    """Time the command as people type it, with a second client of a thousand records."""
    make(folder / "site_2.npy", 1000, np.load(folder / "centers.npy"))
    command = [sys.executable, "-m", "fastlloyd", "run", "-n", "3", "--data", str(folder / "site_{client}.npy")]
    command += ["--bounds=-1,1", "--n-total", str(2 * rows), "--client-caps", f"{rows},{rows}", "--k", str(K)]
    command += ["--rounds", str(ROUNDS), "--ring-bits", "64", "--memory", memory, "--threads", str(os.cpu_count())]
    command += ["--deadline", "3600", "--setup-deadline", "7200", "--quiet", "--output", str(folder / "out")]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    wall = time.perf_counter() - start
    return {"wall": wall, "mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=100_000_000)
    parser.add_argument("--memory", default="1G")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--part", choices=("parts", "run"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    if options.part is not None:
        measured = (measure if options.part == "parts" else run)(options.folder, options.rows, options.memory)
        print(json.dumps(measured))
        return
    before = begin_quietly()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        centers = np.random.default_rng(0).uniform(-0.7, 0.7, (K, D))
        np.save(folder / "centers.npy", centers)
        make(folder / "site_1.npy", options.rows, centers)
        found = {}
        for part in ("parts", "run"):
            command = [sys.executable, __file__, "--part", part, "--folder", name, "--rows", str(options.rows)]
            done = subprocess.run([*command, "--memory", options.memory], check=True, stdout=subprocess.PIPE)
            found[part] = json.loads(done.stdout.splitlines()[-1])
    report(found, options.rows, options.memory, before, options.output)


def report(found: dict[str, Any], rows: int, memory: str, before: float, output: Path) -> None:
    """Write the page."""
    seconds: dict[str, list[float]] = found["parts"]["seconds"]

    def cell(what: str) -> str:
        own = sorted(seconds[what])
        more = f" ({own[0]:,.2f} to {own[-1]:,.2f})" if own[1:] else ""
        return f"{statistics.median(own):,.2f}{more}"

    def ratio(where: str) -> float:
        pairs = zip(seconds[f"a round's pass, {where}"], seconds[f"read the grid once, {where}"], strict=True)
        return statistics.median(one / other for one, other in pairs)

    lines = "\n".join(f"| {what} | {cell(what)} |" for what in seconds)
    whole = found["run"]
    text = f"""# More records than memory

{describe_machine()}, load before the first run {before:.1f}. {rows:,} records of {D} features (npy, float32), k = {K},
`--memory {memory}`, {os.cpu_count()} threads; medians of {REPEATS}, smallest and largest in brackets. "From disk": the system's cache
of the file was emptied before; reading adds up all coordinates in one thread, through the same map.

| part | seconds |
|---|---:|
{lines}

A round's pass over reading the grid once: {ratio("from disk"):.2f} from disk, {ratio("cached"):.2f} cached. Largest resident memory of
the process: {found["parts"]["mib"]:,.0f} MiB.

The command itself, `fastlloyd run -n 3` with a second client of 1,000 records: {whole["wall"]:,.0f} s, {ROUNDS} rounds; largest
resident memory of any process {whole["mib"]:,.0f} MiB.
"""
    output.mkdir(parents=True, exist_ok=True)
    (output / "out_of_core.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
