"""What the number of clients costs: a client's masks in a round, and a round of all parties in one thread.

    python papers/benchmarks/many_clients.py [--output papers/benchmarks/results]

Sizes are measured in turn, several times; the table has medians, smallest and largest. Masks are measured in processor
time; a round in time, so run it alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY, MaskGenerator, MaskStream
from fastlloyd.protocols.fastlloyd.plan import make_plan
from fastlloyd.protocols.fastlloyd.settings import PublicParameters
from fastlloyd.randomness import domains
from fastlloyd.wire.header import PartyId, clients
from fastlloyd_papers.engine.machine import describe_machine
from fastlloyd_papers.engine.memory import run_in_memory
from fastlloyd_papers.engine.quiet import begin_quietly

COUNTS = (10, 100, 1_000)
N, K, D = 100_000, 5, 5
ROUNDS = 10
MASK_ROUNDS = 500
REPEATS = 5
SEED, RUN = bytes(32), bytes(16)


def masks_of(count: int, lost: int) -> Callable[[int], None]:
    """Make what one of `count` clients does with masks in a round, where evenly spread clients are `lost`."""
    masks = MaskGenerator(SEED, Ring(32), K * (D + 1), RUN)
    me, everybody = PartyId(count // 2), clients(count)
    gaps = {PartyId(1 + (2 * gap + 1) * count // (2 * lost)) for gap in range(lost)}
    included = tuple(party for party in everybody if party not in gaps)

    def one_round(t: int) -> None:
        masks.mask(t, me, NO_HISTORY)
        masks.total(t, everybody, NO_HISTORY)
        if lost:
            masks.total(t, included, NO_HISTORY)

    return one_round


def separate_masks(count: int) -> Callable[[int], None]:
    """Make what `count` separate masks would cost: a key stream for each client."""
    stream, length = MaskStream(SEED, domains.MASK, RUN), K * (D + 1) * 4
    blocks = -(-length // 64)

    def one_round(t: int) -> None:
        total = np.zeros(K * (D + 1), dtype=np.uint32)
        for i in range(count):
            total += np.frombuffer(stream.read(t, NO_HISTORY, length, block=i * blocks), dtype=np.uint32)

    return one_round


def microseconds(one_round: Callable[[int], None], rounds: int) -> float:
    """Return the processor time of a round."""
    start = time.process_time()
    for t in range(rounds):
        one_round(t)
    return 1e6 * (time.process_time() - start) / rounds


def round_milliseconds(points: NDArray[np.float64], count: int) -> float:
    """Return the time of a round of all parties in this thread."""
    public = PublicParameters(
        protocol="fastlloyd",
        clients=count,
        min_clients=count,
        k=K,
        n_total=N,
        epsilon=1.0,
        delta=None,
        rounds=ROUNDS,
        seed=0,
        ring_bits=32,
        masking="common",
        known_shares=1,
        settings={},
    )
    plan = make_plan(public, d=D, names=tuple(f"x{i + 1}" for i in range(D)))
    return 1e3 * run_in_memory(points, plan)["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    output: Path = parser.parse_args().output
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable) != "1":
            os.environ[variable] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
    before = begin_quietly()
    points = np.random.default_rng(0).uniform(-1, 1, (N, D))
    kinds = ("all take part", "one misses the round", "separate masks", "round")
    values: dict[tuple[str, int], list[float]] = {(kind, count): [] for kind in kinds for count in COUNTS}
    for _ in range(REPEATS):
        for count in COUNTS:
            values["all take part", count].append(microseconds(masks_of(count, 0), MASK_ROUNDS))
            values["one misses the round", count].append(microseconds(masks_of(count, 1), MASK_ROUNDS))
            values["separate masks", count].append(microseconds(separate_masks(count), MASK_ROUNDS // 50))
            values["round", count].append(round_milliseconds(points, count))
    report(values, before, output)


def report(values: dict[tuple[str, int], list[float]], before: float, output: Path) -> None:
    """Write the page."""

    def cell(kind: str, count: int) -> str:
        own = sorted(values[kind, count])
        return f"{statistics.median(own):,.1f} ({own[0]:,.1f} to {own[-1]:,.1f})"

    lines = "\n".join(
        f"| {count:,} | {cell('all take part', count)} | {cell('one misses the round', count)} | "
        f"{cell('separate masks', count)} | {cell('round', count)} |"
        for count in COUNTS
    )
    text = f"""# Cost of many clients

{describe_machine()}, load before the first run {before:.1f}; k = d = 5, 32-bit ring, {REPEATS} measurements of each in turn:
median, smallest and largest in brackets. Masks: processor time of one client in one round, for its own mask and the sum of
the masks of all (and, where one client misses the round, of the others). Separate masks: the same sum if each client had a
key stream of its own. A round: all parties in one thread, without links, N = {N:,}, {ROUNDS} rounds, set-up left out.

| clients | masks, all take part, us | one misses the round, us | separate masks, us | a round, ms |
|---:|---:|---:|---:|---:|
{lines}
"""
    output.mkdir(parents=True, exist_ok=True)
    (output / "many_clients.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
