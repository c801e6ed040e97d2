"""What a plan's rounds cost the computing party, and how many processes can share that.

Source: measured; docs/vertical-he.md, "How long", and papers/benchmarks/vertical_he_cost.py.
"""

from __future__ import annotations

import math

from fastlloyd.protocols.vertical_he.math.choose import encryption_seconds, linear_seconds
from fastlloyd.protocols.vertical_he.math.circuit import seconds as circuit_seconds
from fastlloyd.protocols.vertical_he.parameters import LINEAR, PAIRWISE
from fastlloyd.protocols.vertical_he.plan import Plan


def round_seconds(plan: Plan, workers: int, n: int | None = None) -> float:
    """Estimate the seconds of one round, to compare with its deadline.

    Parameters
    ----------
    plan : Plan
    workers : int
        Processes of the computing party, each on a processor of its own.
    n : int, optional
        Records; by default as many as there may be.
    """
    n = plan.n_total if n is None else n
    count, blocks = count_engines(plan, workers, n), plan.blocks_of(n)
    if plan.scheme == PAIRWISE:
        return circuit_seconds(n, plan.k, plan.scales.ring) * math.ceil(blocks / count) / blocks
    whole, left = blocks // count, blocks % count
    share = (whole + left * math.ceil(plan.k / count) / plan.k) / blocks
    if plan.scheme == LINEAR:
        return share * linear_seconds(n, plan.k, plan.corners, len(plan.columns(plan.computing)))
    encrypting = encryption_seconds(n, plan.parts(plan.holder))
    return share * linear_seconds(n, plan.k, plan.corners, plan.d) + encrypting


def count_engines(plan: Plan, workers: int, n: int) -> int:
    """Say how many of the computing party's workers have something to do with n records.

    Notes
    -----
    The linear schemes divide what is left over by clusters as well.
    """
    blocks = plan.blocks_of(n)
    return min(workers, blocks if plan.scheme == PAIRWISE else max(plan.k, blocks))
