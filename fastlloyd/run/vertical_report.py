"""Pictures and figures of a vertical run's result, whose columns come from several parties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures, assemble_names
from fastlloyd.run.outcome import Facts, draw_result


def whole_bounds(features: Sequence[PartyFeatures]) -> Bounds:
    """Give the bounds of all parties' columns, in their order."""
    lo = np.concatenate([own.bounds.lo for own in features])
    hi = np.concatenate([own.bounds.hi for own in features])
    return Bounds(lo, hi, assemble_names(features))


def draw_vertical(
    facts: Facts, features: Sequence[PartyFeatures], centroids: NDArray[np.float64], sizes: Sequence[float] | None
) -> dict[str, bytes]:
    """Draw the released centroids."""
    return draw_result(facts, whole_bounds(features), assemble_names(features), centroids, sizes)


def evaluate_vertical(
    facts: Facts, common: Any, names: tuple[str, ...], centers: NDArray[np.float64]
) -> dict[str, float | None] | None:
    """Compare with the public data set, if asked; centres are scaled, their columns as in `names`."""
    dataset = common.dataset
    if not facts.config.evaluate or dataset is None:
        return None
    from fastlloyd.data.bounds import scale
    from fastlloyd.kmeans.metrics import evaluate

    points = scale(dataset.values.copy(), common.bounds)
    order = [dataset.names.index(name) for name in names]
    return evaluate(points[:, order], centers, dataset.labels)
