"""Loss and accuracy of vertical-he beside plain k-means and vertical-dp on the same records and columns.

Vertical-dp runs its parties' own steps (local clusters, sketches, the server's estimate, the final k-means) without the
messages between them.

Source: Vertical HE, §5.4; Vertical DP (Li, Wang, Li), §4.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.metrics import accuracy, nearest
from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.math.grid import cluster_cells
from fastlloyd.protocols.vertical_dp.math.local import GRID, cluster_locally
from fastlloyd.protocols.vertical_dp.math.weights import noisy_count
from fastlloyd.protocols.vertical_dp.plan import PublicParameters, make_plan
from fastlloyd.protocols.vertical_dp.server import weigh
from fastlloyd.protocols.vertical_he.rounds import first_centers
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd_papers.vertical_dp.run import make_sketches, party_features
from fastlloyd_papers.vertical_he.run import Case, plain_lloyd, plan_case, run_case

PLAIN_ROUNDS = 100

Array = NDArray[np.float64]
Classes = NDArray[np.int64] | None


def judge(points: Array, classes: Classes, centers: Array) -> tuple[float, float | None]:
    """Return the loss, data scaled to [0, 1], and the accuracy where there are classes."""
    labels, loss = nearest(points, centers)
    return loss / 4.0, None if classes is None else accuracy(labels, classes)


def measure_private(points: Array, classes: Classes, case: Case, workers: int) -> dict[str, Any]:
    """Run vertical-he, plain k-means from the same start, and vertical-dp at the same epsilon and delta."""
    value = run_case(case, points, workers)
    plain = plain_lloyd(points, first_centers(plan_case(case, len(points))), PLAIN_ROUNDS)
    loss, share = judge(points, classes, np.array(value["centers"]))
    plain_loss, plain_share = judge(points, classes, plain)
    dp_loss, dp_share = judge(points, classes, vertical_dp_centers(points, case))
    return {
        "scheme": value["scheme"],
        "rounds": value["rounds"],
        "seconds": value["setup_seconds"] + value["rounds"] * value["round_seconds"],
        "loss": loss,
        "accuracy": share,
        "plain_loss": plain_loss,
        "plain_accuracy": plain_share,
        "dp_loss": dp_loss,
        "dp_accuracy": dp_share,
    }


def measure_quiet(points: Array, case: Case, workers: int) -> dict[str, Any]:
    """Run vertical-he, and plain k-means from the same start for as many rounds."""
    value = run_case(case, points, workers)
    plain = plain_lloyd(points, first_centers(plan_case(case, len(points))), value["rounds"])
    return {
        "scheme": value["scheme"],
        "rounds": value["rounds"],
        "loss": value["loss"],
        "plain_loss": judge(points, None, plain)[0],
    }


def vertical_dp_centers(points: Array, case: Case) -> Array:
    """Cluster by vertical-dp with its defaults; shape (k, d), columns owner by owner."""
    n, secret = len(points), SecretRandom()
    public = PublicParameters(
        protocol="vertical-dp",
        clients=len(case.widths),
        k=case.k,
        n_total=n,
        epsilon=case.epsilon,
        delta=1.0 / n,
        seed=case.seed,
        settings={},
    )
    plan = make_plan(public, [party_features(party, width) for party, width in enumerate(case.widths, 1)])
    columns = np.split(points, np.cumsum(case.widths)[:-1], axis=1)
    local = [
        cluster_locally(np.ascontiguousarray(own), plan.local_plan(place), noise_for(plan.local_plan(place), secret))
        for place, own in enumerate(columns)
    ]
    sketches = make_sketches([found.raw_labels for found in local], plan, secret)
    noisy_total = max(noisy_count(n, plan.total_scale, secret), 1.0)
    centers = [found.noisy_centers / GRID for found in local]
    return cluster_cells(weigh(sketches, noisy_total, plan), centers, case.k, seed=case.seed).centers


def mean(values: Sequence[Mapping[str, Any]], key: str) -> float | None:
    """Return the mean, None where nothing was measured."""
    found = [value[key] for value in values if value[key] is not None]
    return statistics.fmean(found) if found else None
