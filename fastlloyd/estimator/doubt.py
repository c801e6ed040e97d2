"""What a fit warns of, judged by what is public and what it released.

Source: docs/estimator.md, "What a fit leaves".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.protocols.fastlloyd.plan import Plan

# A noisy count this near to zero, in standard deviations of its noise, may be that of an empty cluster.
_EMPTY_DEVIATIONS = 2.0


def doubt_centers(plan: Any, noisy_counts: NDArray[np.float64] | None) -> str | None:
    """Say which centres the noise may have placed alone, where the plan tells the noise on counts."""
    if noisy_counts is None or not isinstance(plan, Plan):
        return None
    deviation = plan.rounds[-1].count_scale / (1 << plan.fraction_bits)
    if plan.mechanism == "laplace":
        deviation *= math.sqrt(2.0)
    empty = np.flatnonzero(noisy_counts < max(1.0, _EMPTY_DEVIATIONS * deviation))
    if not empty.size:
        return None
    return (
        f"clusters {', '.join(map(str, empty))}: their noisy numbers of records cannot be told from zero (standard "
        f"deviation of the noise {deviation:.3g}), so these centres may say nothing about the data; take fewer "
        "clusters, more records, a larger epsilon or tighter bounds"
    )
