"""What the computing party computes with in this process, and what a round costs it.

A party is a coroutine without processes or files, so it is handed an engine. An engine takes in encrypted blocks and
adds them up, round by round; it holds the computing party's own columns. `workers.py` spreads one over processes.

Source: Vertical HE, §3, steps (1) to (3) of Figure 1, and §3.1; costs are measured, docs/vertical-he.md, "How long",
and papers/benchmarks/vertical_he_cost.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.math.choose import encryption_seconds, linear_seconds
from fastlloyd.protocols.vertical_he.math.circuit import seconds as circuit_seconds
from fastlloyd.protocols.vertical_he.math.computer import Computer
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine
from fastlloyd.protocols.vertical_he.math.pairwise import PairwiseEngine
from fastlloyd.protocols.vertical_he.math.projection import ProjectionEngine
from fastlloyd.protocols.vertical_he.parameters import LINEAR, PAIRWISE, PROJECTION
from fastlloyd.protocols.vertical_he.plan import Plan


def shared_blocks(plan: Plan, engines: int, blocks: int) -> range:
    """Return the blocks that several engines divide by clusters: those that do not divide evenly."""
    return range(blocks - blocks % engines if plan.scheme != PAIRWISE else blocks, blocks)


def make_engine(plan: Plan, raw_columns: NDArray[np.float64], *, number: int = 0, engines: int = 1) -> Computer:
    """Make an engine that computes in this process.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's own columns, scaled to [-1, 1]; d_own is 0 for a party without data.
    number, engines : int
        This engine's number among all: of `shared_blocks` it computes only every n-th cluster, n the number of engines.
    """
    if plan.scheme == PAIRWISE:
        return PairwiseEngine(plan, raw_columns)
    shared = shared_blocks(plan, engines, plan.blocks_of(raw_columns.shape[1]))
    kind = ProjectionEngine if plan.scheme == PROJECTION else LinearEngine
    return kind(plan, raw_columns, turns=dict.fromkeys(shared, (number, engines)))


def round_seconds(plan: Plan, workers: int, n: int | None = None) -> float:
    """Estimate the seconds of one round, to compare with its deadline.

    Parameters
    ----------
    plan : Plan
    workers : int
        Processes of the computing party, each on its own processor.
    n : int, optional
        Records; by default the largest possible number.
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
    """Return how many of the computing party's workers n records keep busy.

    The linear schemes also divide the remaining blocks by clusters.
    """
    blocks = plan.blocks_of(n)
    return min(workers, blocks if plan.scheme == PAIRWISE else max(plan.k, blocks))
