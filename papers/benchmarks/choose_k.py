"""How often `--k auto:KMAX` finds the number of clusters of generated mixtures, and what it costs not to know it.

    python papers/benchmarks/choose_k.py [--mixtures 120]

The parties' own arithmetic on pooled records, with noise from numpy's generator. The constants of the rule were chosen on
other seeds of such mixtures.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastlloyd.kmeans import merging
from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.privacy.calibration import paper_delta
from fastlloyd.protocols.fastlloyd.rounds import choose_k
from fastlloyd.protocols.feddp.math import stage
from fastlloyd.protocols.feddp.math.stage import margin
from fastlloyd.protocols.feddp.plan import PublicParameters
from fastlloyd.protocols.feddp.proposal import make_plan
from fastlloyd_papers.engine.tables import markdown_table
from fastlloyd_papers.feddp.central import run_central
from fastlloyd_papers.utility.cluster_generation import ClusterData, generate_clusters, rising_sizes
from fastlloyd_papers.utility.run import generator_noise, plan_run, simulate

CLUSTERS, FEATURES, RECORDS = (2, 3, 5, 8, 12, 16, 20), (2, 4, 8, 16), (2000, 10_000, 50_000)
SEPARATIONS, EPSILONS, MOST = (0.2, 0.4), (0.5, 1.0), 30
_SEED = 2000
_SERVER_SHARE = 0.02

Row = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixtures", type=int, default=120)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    kinds = list(itertools.product(CLUSTERS, FEATURES, RECORDS, SEPARATIONS, (False, True)))
    order = np.random.default_rng(_SEED).permutation(len(kinds))[: arguments.mixtures]
    rows = [row for place in tqdm(order) for row in measure(*kinds[place])]
    text = report(rows)
    (arguments.output / "choose_k.md").write_text(text)
    print(text)


def measure(k: int, d: int, n: int, separation: float, rising: bool) -> list[Row]:
    """Choose k of one mixture: with each protocol and epsilon, at most twice k (6 at least) and at most 30."""
    about = {"k": k, "d": d, "n": n, "separation": separation, "rising": rising}
    rng = np.random.default_rng([_SEED, k, d, n, round(100 * separation), rising])
    server = max(10 * k, round(_SERVER_SHARE * n))
    data = mixture(k, d, n + server, separation, rising=rising, seed=int(rng.integers(1 << 30)))
    points = data.scaled()
    found: list[Row] = []
    for epsilon, most in itertools.product(EPSILONS, (max(6, 2 * k), MOST)):
        common = {**about, "epsilon": epsilon, "tight": most == max(6, 2 * k)}
        chosen, ratio, step = by_plus(points[server:], k, most, epsilon, rng)
        found.append({**common, "protocol": "fastlloyd-plus", "chosen": chosen, "ratio": ratio, "step": step})
        if not common["tight"]:
            continue
        shown = np.concatenate([points[:server], rng.uniform(-1, 1, (server // 2, d))])
        chosen, depth = by_feddp(points[server:], shown, most, epsilon, rng)
        found.append({**common, "protocol": "feddp", "chosen": chosen, "step": depth})
    return found


def mixture(k: int, d: int, n: int, separation: float, *, rising: bool, seed: int) -> ClusterData:
    """Generate clusters of equal sizes, or of sizes 1:2:..:k with 1 % outliers."""
    outliers = n // 100 if rising else 0
    sizes = rising_sizes(n - outliers, k) if rising else tuple(n // k + (j < n % k) for j in range(k))
    return generate_clusters(sizes, d, separation=separation, outliers=outliers, seed=seed)


def by_plus(
    points: NDArray[np.float64], k: int, most: int, epsilon: float, rng: np.random.Generator
) -> tuple[int, float, float]:
    """Return the k that fastlloyd-plus chooses, its NICV over that of a run with the true k, and how it stands out."""
    errors, seed, chosen = [], int(rng.integers(1000)), None
    for count, choose in ((most, True), (k, False)):
        # A run that chooses k has no rounds with more than KMAX clusters.
        settings = {"wide": 1.0} if choose else {}
        plan = plan_run("fastlloyd-plus", epsilon, k=count, d=points.shape[1], n=len(points), settings=settings)
        plan = dataclasses.replace(plan, seed=seed, choose_k=choose)
        centers = simulate(quantise(points, plan.fraction_bits), plan, generator_noise(plan, rng))
        left = choose_k(plan, centers)
        chosen = left or chosen
        errors.append(nearest(points, centers.exact if left is None else left.exact)[1])
    assert chosen is not None
    return len(chosen.exact), errors[0] / errors[1], chosen.merging.step


def by_feddp(
    points: NDArray[np.float64], shown: NDArray[np.float64], most: int, epsilon: float, rng: np.random.Generator
) -> tuple[int, float]:
    """Return the k that feddp chooses, and how much deeper the curve is at its elbow than elsewhere.

    There are three clients, and a third of the server's points are no records of theirs.
    """
    names = tuple(f"x{h + 1}" for h in range(points.shape[1]))
    public = PublicParameters(
        protocol="feddp",
        known_shares=1,
        clients=3,
        min_clients=3,
        k=most,
        choose_k=True,
        n_total=len(points),
        epsilon=epsilon,
        delta=paper_delta(len(points)),
        rounds=0,
        seed=int(rng.integers(1000)),
        ring_bits=64,
    )
    plan = make_plan(public, d=len(names), names=names, server_points=shown)
    found = run_central(points, shown, plan)
    return len(found.centers.exact), margin(found.costs.tolist())


def report(rows: Sequence[Row]) -> str:
    """Write the tables."""
    plus = [row for row in rows if row["protocol"] == "fastlloyd-plus"]
    fed = [row for row in rows if row["protocol"] == "feddp"]
    parts = [
        "# Choosing k on generated mixtures",
        f"{len(plus)} runs of `fastlloyd-plus` and {len(fed)} of `feddp` on {len(fed) // len(EPSILONS)} mixtures, drawn from all "
        f"of: k of {_listed(CLUSTERS)}; d of {_listed(FEATURES)}; "
        f"N of {_listed(RECORDS)}; separation {_listed(SEPARATIONS)}; epsilon {_listed(EPSILONS)}; delta = 1 / (N ln N); equal "
        "sizes, or sizes 1:2:..:k with 1 % outliers. Share of runs that chose k exactly / at most one off. Made by "
        "`python papers/benchmarks/choose_k.py`.",
        "KMAX is twice k, and at least 6; the columns *of 30* have KMAX = 30. *NICV* is the mean of the error over that of a run "
        "that was given k. `feddp` has 2 % of the records (10 k at least) at the server, and half as many uniform points; "
        "three clients.",
        _table(plus, fed, "sizes", lambda row: "1:2:..:k" if row["rising"] else "equal"),
        _table(plus, fed, "k", lambda row: row["k"]),
        _table(plus, fed, "N", lambda row: row["n"]),
        _table(plus, fed, "features", lambda row: row["d"]),
        _table(plus, fed, "epsilon", lambda row: row["epsilon"]),
        "## Does it know?\n\nBoth warn where the number does not stand out: `fastlloyd-plus` where the next merge costs less than "
        f"{merging.CLEAR:g} times the last one, `feddp` where the curve at its elbow is less than {stage.CLEAR:g} deeper than at any "
        "other number; there it merges.",
        _known(plus, "factor", (2.0, merging.CLEAR, 10.0), merging.CLEAR),
        _known(fed, "deeper by", (stage.CLEAR / 3, stage.CLEAR, 3 * stage.CLEAR), stage.CLEAR),
    ]
    return "\n\n".join(parts) + "\n"


def _table(plus: Sequence[Row], fed: Sequence[Row], name: str, group: Callable[[Row], Any]) -> str:
    """Write hit rates by group, and of all."""
    lines = []
    for value in (*sorted({group(row) for row in plus}, key=lambda found: (isinstance(found, str), found)), "all"):
        own, other = ([row for row in side if value in (group(row), "all")] for side in (plus, fed))
        tight = [row for row in own if row["tight"]]
        wide = [row for row in own if not row["tight"]]
        ratios = [f"{np.mean([row['ratio'] for row in side]):.2f}" for side in (tight, wide)]
        lines.append([str(value), _hits(tight), _hits(wide), *ratios, _hits(other)])
    header = [name, "fastlloyd-plus", "of 30", "NICV", "NICV, of 30", "feddp"]
    return markdown_table(header, lines)


def _known(rows: Sequence[Row], name: str, edges: Sequence[float], clear: float) -> str:
    lines = []
    for low, high in pairwise((0.0, *edges, np.inf)):
        part = [row for row in rows if low <= row["step"] < high]
        words = f"{low:g} to {high:g}" if np.isfinite(high) else f"above {low:g}"
        lines.append([f"{words}{'' if low >= clear else ' (warned)'}", f"{len(part) / len(rows):.0%}", _hits(part)])
    return markdown_table([name, "runs", "right"], lines)


def _hits(rows: Sequence[Row]) -> str:
    away = np.array([abs(row["chosen"] - row["k"]) for row in rows])
    return f"{np.mean(away == 0):.0%} / {np.mean(away <= 1):.0%}" if len(rows) else ""


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,}" for value in values)


if __name__ == "__main__":
    main()
