"""What a run of feddp computes, for `plan`: a client's statistics and the server's steps measured on made-up records.

Compared with runs: papers/benchmarks/planned_work.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastlloyd.kmeans.assign import assign
from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.kmeans.spectral import leading_subspace
from fastlloyd.kmeans.weighted import cluster
from fastlloyd.protocol.work import SAMPLE_UNITS, exchange_seconds, setup_seconds, written_seconds
from fastlloyd.protocols.feddp.client import noisy_elements, statistics_of
from fastlloyd.protocols.feddp.inputs import most_users
from fastlloyd.protocols.feddp.math.projection import MATRIX_BITS, Projection
from fastlloyd.protocols.feddp.math.stage import start_centers
from fastlloyd.protocols.feddp.plan import Plan
from fastlloyd.protocols.feddp.settings import OUTER, START, WEIGHTS, settings_from
from fastlloyd.randomness.prg import PublicStream
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import share_caps
from fastlloyd.run.work import Linear, Work, machine_factor, measured, measured_linear

# The calibration of a plan; a number that the server divides.
_PLAN_S, _DIVIDED_S = 0.06, 1e-7
# Eigenvectors of larger matrices are not measured: they take the cube of the features.
_MOST_FEATURES = 300
_MADE_UP = "made-up points for plan"


def estimate_work(config: RunConfig, plan: Plan) -> Work:
    """Estimate what a run of N records computes."""
    caps = share_caps(config, plan.clients, plan.n_total)
    sample = max(1, min(max(caps), max(64, SAMPLE_UNITS // (plan.d * max(plan.k, plan.d // 8) + 80))))
    made_up = _MadeUp(config, plan)
    total, waits = 0.0, []
    for t, step in enumerate(plan.rounds):
        own, client, server = Linear(0.0, 0.0), 0.0, made_up.server_seconds(step.kind)
        if step.kind != START:
            own = measured_linear(made_up.statistic(step.kind), sample)
            releases, counts = plan.releases(t), noisy_elements(plan, t, plan.elements(t))
            noises = list(zip(releases, [count for count in counts if count], strict=True))
            client, sums = exchange_seconds(plan, noises)
            server += sums + machine_factor() * _DIVIDED_S * plan.elements(t)
        total += sum(own.of(n) + client for n in caps) + server
        waits.append(own.of(max(caps)) + client + server)
    setup = [setup_seconds(plan, n, plan.all_releases()) for n in caps]
    labels = measured_linear(made_up.labels, sample)
    planning = machine_factor() * _PLAN_S
    return Work(
        rounds=len(plan.rounds),
        setup=sum(setup) + planning,
        round=total / len(plan.rounds),
        setup_wait=max(setup) + planning,
        round_wait=max(waits),
        ending=sum(labels.of(n) + written_seconds(plan.k * plan.d) for n in (*caps, 0)),
        messages=4 if plan.masking == "threshold" else 2,
    )


class _MadeUp:
    """Records, projection and centres that a run may have, to measure steps on."""

    def __init__(self, config: RunConfig, plan: Plan) -> None:
        self._plan, self._random = plan, np.random.default_rng(0)
        self._restarts = settings_from(config.own_settings).restarts
        self._of_user = max(1, plan.n_total // most_users(config, plan.clients, plan.n_total))
        self._centers = self._points(plan.k).raw_coordinates.T.astype(np.int64)
        rows = self._random.standard_normal((plan.rank, plan.d))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        seen = self._random.uniform(-0.3, 0.3, (max(plan.n_server, plan.k), plan.rank))
        self._projection = Projection(
            np.rint(rows * (1 << MATRIX_BITS)).astype(np.int32),
            np.rint(seen * (1 << plan.projected_bits)).astype(np.int64),
            plan.projected_bits,
        )

    def _points(self, n: int) -> GridPoints:
        return quantise(self._random.uniform(-0.5, 0.5, (n, self._plan.d)), self._plan.fraction_bits)

    def statistic(self, kind: str) -> Callable[[int], Callable[[], object]]:
        """Return what makes a client's step of n records."""
        plan, projection = self._plan, self._projection

        def prepare(n: int) -> Callable[[], object]:
            points, users = self._points(n), np.arange(n) // self._of_user

            def compute() -> object:
                own = statistics_of(points, plan, users)
                if kind == OUTER:
                    return own.outer_product()
                if kind == WEIGHTS:
                    return own.weights(projection)
                if kind == "centres":
                    return own.projected_step(projection, projection.server_points[: plan.k])
                return own.lloyd_step(self._centers)

            return compute

        return prepare

    def labels(self, n: int) -> Callable[[], object]:
        """Return the last labels of n records."""
        points = self._points(n)
        return lambda: assign(points, self._centers)

    def server_seconds(self, kind: str) -> float:
        """Return the processor seconds of what the server makes of a step's sums, besides dividing them."""
        plan = self._plan
        if kind == OUTER:
            width = min(plan.d, _MOST_FEATURES)
            matrix = self._random.standard_normal((width, width))
            return (
                measured(lambda: leading_subspace(matrix @ matrix.T, min(plan.rank, width)), 3) * (plan.d / width) ** 3
            )
        if kind == WEIGHTS:
            points = self._projection.server_points / float(1 << plan.projected_bits)
            once = measured(lambda: cluster(points, plan.k, PublicStream(plan.seed, _MADE_UP), restarts=1), 1)
            return once * self._restarts * ((plan.k + 1) / 2 if plan.choose_k else 1)
        if kind == START:
            points = self._random.uniform(-0.5, 0.5, (max(plan.n_server, plan.k), plan.d))
            return measured(lambda: start_centers(plan, points, self._restarts), 1)
        return 0.0
