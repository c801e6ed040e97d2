"""What a run of vertical-dp computes, for `plan`: a party's own steps measured now, the server's by their number.

Compared with runs: papers/benchmarks/planned_work.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.math.local import cluster_locally
from fastlloyd.protocols.vertical_dp.plan import Plan
from fastlloyd.protocols.vertical_dp.sketch.sketch import cell_blocks, party_phantoms, raw_maxima
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from fastlloyd.run.vertical import alignment_seconds
from fastlloyd.run.work import Work, machine_factor, measured

_SAMPLE_VALUES = 1 << 16
_SAMPLE_RECORDS = 1 << 13
_SAMPLE_USERS = 1024
_SAMPLE_ROWS = 64
# Measured: the accounting of a plan; the server's work for a pair of parties, and for each row of its sketches and cell
# of its grid; a party's session, and for each of its records.
_PAIR_S, _CELL_S = 3e-2, 8e-8
_PLAN_S = 0.1
_SESSION_S, _RECORD_S = 5e-2, 8e-7


def estimate_work(config: RunConfig, plan: Plan) -> Work | str:
    """Estimate what a run of N people computes; not known for estimators that were not measured."""
    if plan.private and plan.estimator != "likelihood":
        return f"nobody measured the estimator {plan.estimator!r}"
    factor, parties, n = machine_factor(), plan.clients, plan.n_total
    everybody, path = alignment_seconds(config, parties, n)
    sketch = _sketch_seconds(plan) if plan.key_groups else 0.0
    places = {len(names): place for place, names in enumerate(plan.names)}
    local = {width: _local_seconds(plan, place) for width, place in places.items()}
    own = [local[len(plan.names[place])] + factor * (_SESSION_S + n * _RECORD_S) for place in range(parties)]
    own = [seconds + sketch * sum(place in group for group in plan.key_groups) for place, seconds in enumerate(own)]
    pairs = len(plan.table_groups) if plan.key_groups else 0
    server = factor * pairs * (_PAIR_S + _CELL_S * plan.rows * plan.local_clusters**2)
    return Work(
        rounds=1,
        setup=everybody + sum(own) + factor * _PLAN_S,
        round=server,
        setup_wait=path + max(own),
        round_wait=server,
        because="mostly to find the common ids in lists of N entries" if everybody > sum(own) else "",
    )


def _sketch_seconds(plan: Plan) -> float:
    """Measure one sketch of N people: its users, and the phantoms of the cells in some of its rows."""
    key, shape, labels = bytes(32), plan.shape, np.arange(_SAMPLE_USERS) % plan.local_clusters
    few = replace(shape, rows=min(shape.rows, _SAMPLE_ROWS))
    user = measured(lambda: raw_maxima(labels, shape.clusters, shape.rows, key), 3) / _SAMPLE_USERS
    cells = measured(lambda: [party_phantoms(cells, 0, few) for cells in cell_blocks(key, few.rows, few.cells)], 3)
    return plan.n_total * user + cells * shape.rows / few.rows


def _local_seconds(plan: Plan, place: int) -> float:
    """Measure the local clustering of a few records of a party, as long as N of them take."""
    local = plan.local_plan(place)
    n = min(plan.n_total, _SAMPLE_RECORDS, max(64, _SAMPLE_VALUES // local.d))
    points, noise = np.random.default_rng(0).uniform(-1.0, 1.0, (n, local.d)), noise_for(local, SecretRandom())
    return measured(lambda: cluster_locally(points, local, noise), 1) * plan.n_total / n
