"""What a run of kfed computes at most, for `plan`: a client's local clustering, its steps measured on made-up records.

The records decide when labels repeat, which ends a start; the plan counts the most steps that a start may take.

Compared with runs: tests/unit/run/test_work.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastlloyd.kmeans.weighted import MOST_STEPS, nearest, refine, seed_centers
from fastlloyd.protocol.work import SAMPLE_UNITS
from fastlloyd.protocols.kfed.plan import Plan
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import share_caps
from fastlloyd.run.work import Work, measured_linear

_MADE_UP = "made-up points for plan"


def estimate_work(config: RunConfig, plan: Plan) -> Work:
    """Estimate what a run of N records computes at most."""
    caps = share_caps(config, plan.clients, plan.n_total)
    k, d, rank = plan.local_k, plan.d, min(plan.local_k, plan.d)
    sample = max(1, min(max(caps), max(2 * k, SAMPLE_UNITS // (8 * k * d))))
    random = np.random.default_rng(0)

    def stepped(width: int) -> Callable[[int], Callable[[], object]]:
        """Return what makes one step of Lloyd on n records of some features."""

        def prepare(n: int) -> Callable[[], object]:
            points = random.uniform(-0.5, 0.5, (n, width))
            return lambda: refine(points, points[:k], max_steps=1)

        return prepare

    def seeded(n: int) -> Callable[[], object]:
        points = random.uniform(-0.5, 0.5, (n, rank))
        return lambda: seed_centers(points, min(k, n), PublicStream(0, _MADE_UP))

    def labelled(n: int) -> Callable[[], object]:
        points = random.uniform(-0.5, 0.5, (n, d))
        return lambda: nearest(points, points[: plan.k])

    near, full, start, labels = (measured_linear(job, sample) for job in (stepped(rank), stepped(d), seeded, labelled))
    # One measured step labels twice, before it and after it.
    each = [
        plan.restarts * (start.of(n) + MOST_STEPS * near.of(n) / 2) + MOST_STEPS * full.of(n) / 2 + labels.of(n)
        for n in caps
    ]
    return Work(
        rounds=1,
        setup=0.0,
        round=sum(each),
        setup_wait=0.0,
        round_wait=max(each),
        most="the records decide how many steps of Lloyd each client takes",
    )
