"""One fit, from checked records to fitted attributes: all parties run in memory, and the model takes their releases.

A fit takes effect completely or not at all, and no display shows its private values.

Source: docs/estimator.md, "What a fit leaves".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import scale
from fastlloyd.estimator.account import Spending
from fastlloyd.estimator.inputs import is_vertical, prepare
from fastlloyd.estimator.parameter import in_own_words
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.run.in_memory import run_together
from fastlloyd.wire.header import SERVER, clients

Model = TypeVar("Model")

_OF_A_FIT = ("_labels", "_n_features_out")
_TRAFFIC = ("payload_bytes", "link_bytes", "messages", "setup_bytes")


@dataclass(frozen=True, slots=True)
class Private:
    """A value computed from records without noise: its owner reads it; no display shows it or its size."""

    value: Any = field(repr=False)


@contextmanager
def whole(model: Model) -> Iterator[Model]:
    """Yield an unfitted copy; the model becomes that copy in one step if nothing was raised.

    An interrupt comes before or after this step, so the model is unchanged or fitted. Parameters that another thread
    sets meanwhile stay.
    """
    fresh = copy.copy(model)
    fresh.__dict__ = _unfitted(model)
    before = dict(vars(fresh))
    yield fresh
    fitted = {name: value for name, value in vars(fresh).items() if name not in before or before[name] is not value}
    model.__dict__ = {**_unfitted(model), **fitted}


def _unfitted(model: object) -> dict[str, Any]:
    """Return the attributes of a model without those of a fit."""
    return {name: value for name, value in vars(model).items() if not name.endswith("_") and name not in _OF_A_FIT}


def fit_together(
    model: Any, raw_parts: list[NDArray[np.float64]], server_points: NDArray[np.float64] | None
) -> list[NDArray[np.int64]]:
    """Run all parties and set the model's fitted attributes.

    Parameters
    ----------
    model : FastLloyd
        With `bounds_`, and without the attributes of an earlier fit.
    raw_parts : list of float64 arrays
        Records of each client; columns of each owner for a vertical protocol.
    server_points : float64 array, shape (s, d), or None

    Returns
    -------
    list of int64 arrays
        Each owner's labels; one array for a vertical protocol where the centres are shown.

    Raises
    ------
    ParameterError, BudgetError
        As `FastLloyd.fit`.
    """
    with in_own_words():
        config, n_clients, inputs = prepare(model, raw_parts, model.bounds_, server_points)
        spending = Spending(model)
        ended = run_together(config, n_clients, inputs=inputs, afford=spending.afford)
        spending.check(ended.ledgers.values())
    results = [outcome.result for outcome in ended.outcomes.values() if outcome.result is not None]
    result = max(results, key=lambda one: one.noisy_sizes is not None)
    rounds, traffic = len(result.common["rounds"]), ended.outcomes[SERVER].traffic
    model.cluster_centers_ = result.centroids
    model.quality_ = result.quality
    model.noisy_counts_ = None if result.noisy_sizes is None else np.array(result.noisy_sizes)
    model.plan_, model.ledger_ = spending.plan, spending.ledger
    model.epsilon_, model.delta_ = spending.epsilon, spending.delta
    model.neighbours_, model.budget_ = spending.neighbours, spending.limit
    model.epsilon_for_a_change_ = spending.epsilon_for_a_change
    model.epsilon_spent_ = spending.epsilon_in_all
    model.traffic_ = {name: traffic[name] for name in _TRAFFIC}
    model.traffic_["payload_bytes_per_round"] = traffic["payload_bytes"] / rounds
    model.n_iter_ = rounds
    model._n_features_out = int(model.n_clusters) if result.centroids is None else len(result.centroids)
    if result.centroids is None or not np.isfinite(result.centroids).all():
        return [np.asarray(ended.outcomes[party].raw_labels) for party in clients(n_clients)]
    if is_vertical(model):
        raw_parts = [np.concatenate(raw_parts, axis=1)]
    return [nearest(scale(part, model.bounds_), scaled_centers(model))[0] for part in raw_parts]


def scaled_centers(model: Any) -> NDArray[np.float64]:
    """Return a model's centres in the scaled domain, not clipped: without folding they may lie outside."""
    centers = (np.asarray(model.cluster_centers_) - model.bounds_.middle) / model.bounds_.half_width
    return np.asarray(centers, dtype=np.float64)
