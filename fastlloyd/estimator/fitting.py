"""One fit: rows that lack a value, the run of all parties in memory, and the attributes that it leaves.

Source: docs/estimator.md.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import count_outside, scale
from fastlloyd.data.missing import count_missing
from fastlloyd.estimator.account import Spending
from fastlloyd.estimator.description import read_lines
from fastlloyd.estimator.inputs import is_vertical, prepare
from fastlloyd.estimator.showing import Shown
from fastlloyd.estimator.words import ParameterError, in_own_words, in_own_words_of
from fastlloyd.kmeans.metrics import nearest
from fastlloyd.run.simulation import Tap, run_together
from fastlloyd.wire.header import SERVER, Header, PartyId, clients

_TRAFFIC = ("payload_bytes", "link_bytes", "messages", "setup_bytes")


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted of the owners' records without noise, by column; columns with none are left out."""

    clipped: dict[str, int]
    missing: dict[str, int]


def complete_rows(
    model: Any, raw_parts: Sequence[NDArray[np.float64]]
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]] | None]:
    """Leave out rows that lack a value, where the rule is 'drop'; return the others, and which rows these are.

    Raises
    ------
    ParameterError
        No row stays, or the protocol joins columns, whose rows stand together.
    """
    parts = list(raw_parts)
    if model.missing != "drop":
        return parts, None
    if is_vertical(model):
        raise ParameterError(
            f"missing: expected 'refuse' or 'midpoint', since the owners of {model.protocol!r} hold columns of the "
            "same rows, got 'drop'"
        )
    kept: list[NDArray[np.bool_]] = [np.asarray(~np.isnan(part).any(axis=1)) for part in parts]
    for rows in kept:
        if not rows.any():
            raise ParameterError("missing: every row lacks a value, so 'drop' leaves none; fill in public numbers")
    return [part[rows] for part, rows in zip(parts, kept, strict=True)], kept


def fill(model: Any, raw_parts: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Put the middle of the bounds in place of missing values, where the rule is 'midpoint'."""
    if model.missing != "midpoint":
        return list(raw_parts)
    middles = [model.bounds_.middle] * len(raw_parts)
    if is_vertical(model) and len(raw_parts) > 1:
        middles = np.split(model.bounds_.middle, np.cumsum([part.shape[1] for part in raw_parts])[:-1])
    return [np.where(np.isnan(part), middle, part) for part, middle in zip(raw_parts, middles, strict=True)]


def count_intake(model: Any, raw_parts: Sequence[NDArray[np.float64]]) -> Counted:
    """Count what the bounds clip and what is missing."""
    names = list(model.bounds_.names)
    parts = [np.concatenate(raw_parts, axis=1)] if is_vertical(model) else raw_parts
    outside, lacking = np.zeros(len(names), dtype=np.int64), dict.fromkeys(names, 0)
    for part in parts:
        outside += count_outside(part, model.bounds_)
        for name, count in count_missing(part, names).items():
            lacking[name] += count
    clipped = {name: int(count) for name, count in zip(names, outside, strict=True) if count}
    return Counted(clipped, {name: count for name, count in lacking.items() if count})


def fit_together(
    model: Any,
    raw_parts: list[NDArray[np.float64]],
    server_points: NDArray[np.float64] | None,
    spending: Spending,
    epsilon: float | None = None,
) -> list[NDArray[np.int64]]:
    """Run all parties and set the model's fitted attributes.

    Parameters
    ----------
    model : FastLloyd
        With `bounds_`, and without the attributes of an earlier fit.
    raw_parts : list of float64 arrays
        Records of each client; columns of each owner for a vertical protocol.
    server_points : float64 array, shape (s, d), or None
    spending : Spending
        Of the fit; holds the release of the bounds, where they were found.
    epsilon : float, optional
        What is left for this run; by default that of the model.

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
        config, n_clients, inputs = prepare(model, raw_parts, model.bounds_, server_points, epsilon)
        tap = _say_rounds(spending) if model.verbose else None
        ended = run_together(config, n_clients, inputs=inputs, afford=spending.afford, tap=tap)
        spending.check(ended.ledgers.values())
    results = [outcome.result for outcome in ended.outcomes.values() if outcome.result is not None]
    result = max(results, key=lambda one: one.noisy_sizes is not None)
    rounds, traffic = len(result.common["rounds"]), ended.outcomes[SERVER].traffic
    model.cluster_centers_ = result.centroids
    model.quality_ = in_own_words_of(result.quality)
    model.measures_ = tuple(read_lines(result.files.get("quality.csv", "")))
    model.noisy_counts_ = None if result.noisy_sizes is None else np.array(result.noisy_sizes)
    model.plan_, model.ledger_ = spending.plan, spending.ledger
    model._run = spending.releases[-1].run
    model._shown = Shown.of(result, traffic, spending, float(model.epsilon))
    model.epsilon_, model.delta_ = spending.epsilon, spending.delta
    model.neighbours_, model.budget_ = spending.neighbours, spending.limit
    model.epsilon_for_a_change_ = spending.epsilon_for_a_change
    model.epsilon_spent_ = spending.epsilon_in_all
    model.traffic_ = {name: traffic[name] for name in _TRAFFIC}
    model.traffic_["payload_bytes_per_round"] = traffic["payload_bytes"] / rounds
    model.n_iter_ = rounds
    model._n_features_out = 0
    if result.left_out and result.centroids is None:
        return [np.full(len(part), -1) for part in (raw_parts[:1] if is_vertical(model) else raw_parts)]
    model._n_features_out = int(model.n_clusters) if result.centroids is None else len(result.centroids)
    if result.centroids is None or not np.isfinite(result.centroids).all():
        return [np.asarray(ended.outcomes[party].raw_labels) for party in clients(n_clients)]
    if is_vertical(model):
        raw_parts = [np.concatenate(raw_parts, axis=1)]
    return [nearest(scale(part, model.bounds_), scaled_centers(model))[0] for part in raw_parts]


def _say_rounds(spending: Spending) -> Tap:
    """Return what prints a line when a round begins; it changes no message."""
    begun = -1

    def say(_sender: PartyId, _receiver: PartyId, header: Header, body: bytes) -> bytes:
        nonlocal begun
        rounds = getattr(spending.plan, "rounds", 0)
        total = len(rounds) if isinstance(rounds, Sized) else int(rounds or 0)
        if begun < header.round < total:
            begun = header.round
            print(f"[FastLloyd] round {begun + 1} of {total}", flush=True)
        return body

    return say


def scaled_centers(model: Any) -> NDArray[np.float64]:
    """Return a model's centres in the scaled domain, not clipped: without folding they may lie outside."""
    centers = (np.asarray(model.cluster_centers_) - model.bounds_.middle) / model.bounds_.half_width
    return np.asarray(centers, dtype=np.float64)
