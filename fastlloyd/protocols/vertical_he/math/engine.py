"""What a computing party computes with: in this process, or spread over workers (`workers.py`).

A party is a coroutine without processes or files; it is handed an engine. An engine takes encrypted blocks in and adds
up, round by round; it owns the computing party's own columns.

Source: Vertical HE, §3, steps (1) to (3) of Figure 1, and §3.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.vertical_he.math.computer import Computer
from fastlloyd.protocols.vertical_he.math.linear import LinearEngine
from fastlloyd.protocols.vertical_he.math.pairwise import PairwiseEngine
from fastlloyd.protocols.vertical_he.math.projection import ProjectionEngine
from fastlloyd.protocols.vertical_he.parameters import PAIRWISE, PROJECTION
from fastlloyd.protocols.vertical_he.plan import Plan


def shared_blocks(plan: Plan, engines: int, blocks: int) -> range:
    """Return the blocks that several engines divide among them by clusters: those that do not divide evenly."""
    return range(blocks - blocks % engines if plan.scheme != PAIRWISE else blocks, blocks)


def make_engine(plan: Plan, raw_columns: NDArray[np.float64], *, number: int = 0, engines: int = 1) -> Computer:
    """Make an engine that computes in this process.

    Parameters
    ----------
    plan : Plan
    raw_columns : float64 array, shape (d_own, n)
        The computing party's own columns, scaled to [-1, 1]; d_own is 0 for a party without data.
    number, engines : int
        Which of how many engines this is: of `shared_blocks` it does only every n-th cluster, n the number of engines.
    """
    if plan.scheme == PAIRWISE:
        return PairwiseEngine(plan, raw_columns)
    shared = shared_blocks(plan, engines, plan.blocks_of(raw_columns.shape[1]))
    kind = ProjectionEngine if plan.scheme == PROJECTION else LinearEngine
    return kind(plan, raw_columns, turns=dict.fromkeys(shared, (number, engines)))
