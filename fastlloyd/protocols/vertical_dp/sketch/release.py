"""Sketches in the ledger, and how many phantoms a stated epsilon and delta need.

Source: Vertical DP, Lemma 1 and Algorithm 3 line 1 (the paper's split); docs/vertical-dp-privacy.md, "Rows add up".
"""

from __future__ import annotations

import dataclasses
import math

from fastlloyd.errors import ConfigError
from fastlloyd.privacy.release import SKETCH_ROWS, Release
from fastlloyd.protocols.vertical_dp.sketch.level import phantoms_for
from fastlloyd.protocols.vertical_dp.sketch.sketch import GRID_PHANTOMS, SketchShape

ZERO_OUT = "zero-out of one user's row"
_NAME = "partition sketches"


def sketch_release(shape: SketchShape, groups: int = 1) -> Release:
    """Return the release of all parties' sketches together, as each party records it before it sends its own.

    Parameters
    ----------
    shape : SketchShape
    groups : int
        Groups of parties with a separate key and sketches: s (s - 1) / 2 for pairs among s parties.

    Returns
    -------
    Release
        M `groups` rows of pure `shape.row_epsilon`; without noise for the paper's phantoms, which promise nothing.

    Notes
    -----
    Privacy: neighbours are zero-out: one user's row counted or replaced by nothing, at all parties. For a change of
    the row's values to others, two cells of each row change: take half the noise scale (`change_release`).
    """
    if shape.scheme != GRID_PHANTOMS:
        return Release(
            round=0, name=_NAME, mechanism="none", sensitivity=1.0, norm="l1", noise_scale=0.0,
            neighbours=ZERO_OUT, seen_by="server",
        )  # fmt: skip
    return Release(
        round=0, name=_NAME, mechanism=SKETCH_ROWS, sensitivity=1.0, norm="pure",
        noise_scale=1.0 / shape.row_epsilon, unit="one user", neighbours=ZERO_OUT, seen_by="server",
        rows=shape.rows * groups,
    )  # fmt: skip


def change_release(release: Release) -> Release:
    """Return the same release for neighbours that differ in the values of one user's row: it moves twice as far."""
    return dataclasses.replace(
        release, sensitivity=2.0 * release.sensitivity, neighbours="change of one user's row", run=""
    )


def paper_phantoms(rows: int, epsilon: float, delta: float) -> int:
    """Return the paper's n_p for one party's share: epsilon' = epsilon / (4 sqrt(M log(1 / delta))).

    Notes
    -----
    Source: Vertical DP, Algorithm 3 line 1, with epsilon_2 = b epsilon / (2 S) and delta_2 = delta / S.
    """
    if not (0.0 < delta < 1.0 and epsilon > 0.0):
        raise ConfigError(f"expected a positive epsilon and delta between 0 and 1, got {epsilon} and {delta}")
    return phantoms_for(epsilon / (4.0 * math.sqrt(rows * math.log(1.0 / delta))))
