"""Bounds that nobody knows: a release before the fit, counted with it.

Source: docs/estimator.md, "Parameters"; docs/privacy.md, "Bounds that nobody knows".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds, parse_bounds
from fastlloyd.estimator.account import Spending
from fastlloyd.estimator.inputs import gather_records, is_vertical, prepare
from fastlloyd.estimator.words import ParameterError
from fastlloyd.protocols.private_bounds.inputs import BOUNDS, IN_ONE_PROCESS, split_run
from fastlloyd.run.config import WIDEST, RunConfig
from fastlloyd.run.simulation import run_together
from fastlloyd.wire.header import PartyId

_SHOWN = 8


def wants_bounds(bounds: Any) -> bool:
    """Say whether the parameter asks for bounds that are found with noise: 'private' or 'private:SHARE'."""
    return isinstance(bounds, str) and RunConfig(bounds=bounds).bounds_share is not None


def find_bounds(
    model: Any, raw_parts: Sequence[NDArray[np.float64]], names: Sequence[str], spending: Spending
) -> tuple[Bounds, float]:
    """Find bounds of all features with noise; return them, and the epsilon that is left for the fit.

    Parameters
    ----------
    model : FastLloyd
    raw_parts : sequence of float64 arrays, shapes (n_i, d)
        Records of each owner.
    names : sequence of str, length d
    spending : Spending
        Of the whole fit.

    Raises
    ------
    ParameterError
        The noise would hide where the values lie, or that of the protocol does not add up with it; or a feature got no
        bounds, which are then spent.
    BudgetError
        Bounds and fit together would exceed the budget; nothing was released and nothing was recorded.
    """
    if is_vertical(model):
        raise ParameterError(
            f"bounds: expected those of each column, since the owners of {model.protocol!r} hold columns of the same "
            f"records, got {model.bounds!r}"
        )
    parts = list(raw_parts)
    low, high = map(float, WIDEST.split(","))
    box = Bounds(np.full(len(names), low), np.full(len(names), high), tuple(names))
    config, n_clients, _ = prepare(model, parts, box, None)
    both = split_run(replace(config, bounds=model.bounds), n_clients, len(names), IN_ONE_PROCESS)
    spending.check_budget(both.releases, both.delta)
    config, public = gather_records(both.bounds, parts, box, IN_ONE_PROCESS)
    ended = run_together(config, n_clients, inputs=public, afford=spending.afford)
    spending.check(ended.ledgers.values())
    result = ended.outcomes[PartyId(1)].result
    with TemporaryDirectory(prefix="fastlloyd-") as folder:
        path = Path(folder) / BOUNDS
        path.write_text("" if result is None else result.files[BOUNDS], "utf-8")
        found = parse_bounds(str(path)) if result is not None and result.quality.verdict != "noise" else None
    known = () if found is None or found.names is None else found.names
    if lacking := [name for name in names if name not in known]:
        pairs = (
            {} if found is None else {name: (float(found.lo[at]), float(found.hi[at])) for at, name in enumerate(known)}
        )
        raise ParameterError(
            f"bounds: no value but the origin stands out of the noise in {', '.join(lacking[:_SHOWN])}"
            f"{', ..' * (len(lacking) > _SHOWN)}: leave such columns out of X, or state their bounds without a look at "
            f"them. Those of the others are spent for, and the ledger counts them: bounds={pairs!r} with "
            f"epsilon={both.run.epsilon:g} spends no more than epsilon={both.epsilon:g} together"
        )
    assert found is not None
    return found.match(names), both.run.epsilon
