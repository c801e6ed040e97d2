"""What people are told before a run starts and after it failed, about what it costs and how it can go on.

Source: docs/operations.md, "State directory, budget, resume".
"""

from __future__ import annotations

import math
from pathlib import Path

from fastlloyd.report.unit import format_count, format_epsilon


def interrupted_words(state: Path) -> str:
    """Say of a new run that an interrupted one could go on."""
    return (
        f"state: an interrupted run stands in {state}; --resume goes on with it and spends nothing twice, this new run "
        "spends anew and takes its place"
    )


def resume_words(state: Path) -> str:
    """Say of a run that failed that it can go on."""
    return (
        f"what was done is kept in {state}: once the cause is mended, the same command with --resume, at all parties, "
        "goes on from there and spends nothing twice"
    )


def cost_words(before: float, after: float, delta: float, *, runs: int, budget: float | None) -> str:
    """Say what a run adds to what was spent on the same records.

    Parameters
    ----------
    before, after : float
        Epsilon of the whole ledger without and with this run; infinite where something carries no noise.
    delta : float
        At which it is read.
    runs : int
        How many runs stand in the ledger.
    budget : float or None

    Examples
    --------
    >>> cost_words(0.5, 0.75, 1e-6, runs=1, budget=None)
    'state: 1 run before has spent epsilon 0.5 on these records; this one adds 0.25, together 0.75, at delta 1e-06'
    """
    begin = f"state: {format_count(runs, 'run')} before"
    if math.isinf(before):
        return f"{begin} released something without noise, or protect a smaller unit: no epsilon holds for all together"
    spent = f"{begin} {'has' if runs == 1 else 'have'} spent epsilon {format_epsilon(before)} on these records"
    if math.isinf(after):
        return f"{spent}; this one releases something without noise, and then no epsilon holds for all together"
    limit = "" if budget is None else f" of the budget {budget:g}"
    return (
        f"{spent}; this one adds {format_epsilon(after - before)}, together {format_epsilon(after)}{limit}, at delta "
        f"{delta:.3g}"
    )
