"""What landmarks cost in quality: vertical-he's loss beside that of exact Lloyd's steps with the same noise, and the circuit's.

    python papers/benchmarks/vertical_he_landmarks.py [--starts N] [--data-dir DIR] [--output papers/benchmarks/results]

Rounds in clear, by the plan that the parties would make: only the encryption's errors are left out. *Exact* has the landmarks' plan
and noise, but each record goes to its nearest centre. A pair of runs has the same start and noise, and yet may end in another
optimum, so look at the median.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from collections.abc import Callable
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import auto_public, scale
from fastlloyd.errors import RangeError
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.protocols.vertical_he.parameters import PublicParameters
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd_papers.engine.machine import describe_commit, describe_machine
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.vertical_he.clear import hard_sums, run_in_clear
from fastlloyd_papers.vertical_he.weighing import load_points

Array = NDArray[np.float64]
# A number behind the name: so many leading principal components, as in the paper's runs of HAR. The last five are those
# that the number of landmarks, their width and the rounds in which they are drawn were chosen on.
SETS = (
    ("digits, 10", 10, (5, 5)),
    ("mnist, 16", 10, (8, 8)),
    ("mnist, 6", 4, (3, 3)),
    ("yeast", 10, (4, 4)),
    ("mnist, 10", 6, (5, 5)),
    ("breast", 3, (5, 4)),
    ("adult", 3, (3, 3)),
    ("letter", 5, (8, 8)),
    ("letter", 8, (8, 8)),
)
CHOSEN_ON = 5
EPSILONS = (0.1, 1.0)


def points_of(name: str, data_dir: str | None) -> Array:
    """Return a set's points, scaled to [-1, 1]."""
    base, _, components = name.partition(", ")
    if base == "digits":
        from sklearn.datasets import load_digits

        points = load_digits().data
    else:
        points = load_points(base, data_dir)
    if components:
        points = points - points.mean(axis=0)
        _, vectors = np.linalg.eigh(points.T @ points)
        points = points @ vectors[:, ::-1][:, : int(components)]
        points = scale(points, auto_public(points, tuple(f"x{h}" for h in range(points.shape[1]))))
    return np.ascontiguousarray(points)


def plan_of(n: int, k: int, widths: tuple[int, ...], epsilon: float, scheme: str) -> Plan:
    """Return the plan that two parties would make."""
    settings = {"scheme": scheme}
    public = PublicParameters(
        parties=2, k=k, n_total=n, epsilon=epsilon, delta=None, rounds=None, seed=0, settings=settings
    )
    return make_plan(public, [[f"x{party}{h}" for h in range(width)] for party, width in enumerate(widths)])


def exact(plan: Plan, points: Array, centers: Array, t: int) -> Array:
    """Return the sums of a round in which each record goes to its nearest centre."""
    return hard_sums(plan, points, centers, nearest(points, centers)[0].astype(np.int16))


def measure(case: tuple[str, int, tuple[int, ...], float, int, str | None]) -> list[str]:
    """Run one set at one epsilon; give a row of the table."""
    name, k, widths, epsilon, starts, data_dir = case
    points = points_of(name, data_dir)
    plan = plan_of(len(points), k, widths, epsilon, "landmarks")
    ways: list[tuple[Plan, Callable[..., Array] | None]] = [(plan, exact), (plan, None)]
    with contextlib.suppress(RangeError):
        ways.append((plan_of(len(points), k, widths, epsilon, "pairwise"), None))
    losses = [[_loss(points, way, sums, start) for start in range(starts)] for way, sums in ways]
    reference, *others = np.array(losses)
    shown = [
        f"{np.median(one / reference):.3f} ({(one / reference).min():.2f} to {(one / reference).max():.2f})"
        for one in others
    ]
    columns = " + ".join(map(str, widths))
    return [
        name,
        f"{len(points):,}",
        str(k),
        columns,
        f"{epsilon:g}",
        f"{reference.mean():.4g}",
        *shown,
        *["-"] * (2 - len(shown)),
    ]


def _loss(points: Array, plan: Plan, sums: Callable[..., Array] | None, start: int) -> float:
    seeded, rng = dataclasses.replace(plan, seed=start), np.random.default_rng(start)
    state = run_in_clear(seeded, points, rng, sums) if sums else run_in_clear(seeded, points, rng)
    return nearest(points, state.centers)[1]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--data-dir")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    cases = [(*each, epsilon, arguments.starts, arguments.data_dir) for each in SETS for epsilon in EPSILONS]
    with Pool(min(len(cases), os.cpu_count() or 1)) as pool:
        rows = pool.map(measure, cases, chunksize=1)
    header = ("set, components", "records", "k", "columns", "epsilon", "exact, NICV", "landmarks", "circuit")
    text = f"""# Vertical HE: what landmarks cost in quality

{describe_machine()}, commit {describe_commit(Path(__file__).parent, Path(__file__).name)}. Rounds in clear, {arguments.starts} starts (seeds from 0 on, for
start, landmarks and noise); NICV on [-1, 1], mean over starts. *Landmarks* and *circuit*: NICV over that of exact Lloyd's steps with the
landmarks' noise and the same start, median (least to largest). Number of landmarks, width and rounds were chosen on the last
{CHOSEN_ON} sets (adult with other columns) and not changed after. Made by `python papers/benchmarks/vertical_he_landmarks.py --starts {arguments.starts}`.

{markdown_table(header, rows)}
"""
    print(text)
    if arguments.output:
        (arguments.output / "vertical_he_landmarks.md").write_text(text)


if __name__ == "__main__":
    main()
