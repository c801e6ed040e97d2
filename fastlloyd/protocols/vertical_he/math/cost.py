"""What a plan's rounds cost the computing party, and how many processes can share that.

Source: measured; docs/vertical-he.md, "How long", and benchmarks/vertical_he_cost.py.
"""

from __future__ import annotations

import math

from fastlloyd.protocols.vertical_he.math.choose import encryption_seconds, linear_seconds
from fastlloyd.protocols.vertical_he.math.circuit import seconds as circuit_seconds
from fastlloyd.protocols.vertical_he.parameters import LINEAR, PAIRWISE
from fastlloyd.protocols.vertical_he.plan import Plan


def round_seconds(plan: Plan, workers: int) -> float:
    """Estimate the seconds of one round, to compare with its deadline.

    Parameters
    ----------
    plan : Plan
    workers : int
        Processes of the computing party, each on a processor of its own.
    """
    count = count_engines(plan, workers)
    if plan.scheme == PAIRWISE:
        each = math.ceil(plan.blocks / count)
        return circuit_seconds(plan.n, plan.k, plan.scales.ring) * each / plan.blocks
    whole, left = plan.blocks // count, plan.blocks % count
    share = (whole + left * math.ceil(plan.k / count) / plan.k) / plan.blocks
    if plan.scheme == LINEAR:
        return share * linear_seconds(plan.n, plan.k, plan.corners, len(plan.columns(plan.computing)))
    encrypting = encryption_seconds(plan.n, plan.parts(plan.holder))
    return share * linear_seconds(plan.n, plan.k, plan.corners, plan.d) + encrypting


def count_engines(plan: Plan, workers: int) -> int:
    """Say how many of the computing party's workers have something to do.

    Notes
    -----
    The linear schemes divide what is left over by clusters as well.
    """
    return min(workers, plan.blocks if plan.scheme == PAIRWISE else max(plan.k, plan.blocks))
