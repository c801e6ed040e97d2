"""Private k-medians by noisy votes: what is added up, and what the sums mean. Everything else is `MaskedSums`.

A median is where as many records lie on one side as on the other. So a record needs to say only on which side of its
nearest centre it lies, feature by feature: a vote of -1, 0 or 1, which is small wherever the record lies. A centre
moves towards the side with more votes, by less in each round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastlloyd.kmeans.initial import GRID_BITS, sphere_packing
from fastlloyd.protocol import Expected, Floats, MaskedSums, Part, SumsPlan, expect_mean, option


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run may set, as `--set kmedians.NAME=VALUE`.

    Attributes
    ----------
    stride : float
    decay : float
    """

    stride: float = option(0.7, "first step of a centre, as a share of half a feature's range", above=0, most=1)
    decay: float = option(0.7, "each round's step over the step before", above=0, most=1)


class KMedians(MaskedSums):
    """k-medians: the centre of a cluster is the median of its records in each feature."""

    settings = Settings
    counts = "counts"

    def parts(self, k: int, d: int, chosen: Settings) -> tuple[Part, ...]:
        """Return votes and counts.

        Notes
        -----
        Privacy: neighbours differ in one record, added or removed. The centres are public, so every other record votes
        and counts as before. The record itself enters one cluster: there it adds a vote of -1, 0 or 1 in each of d
        features, a vector of length sqrt(d) at most, and 1 to the count.
        """
        return Part("votes", (k, d), math.sqrt(d)), Part("counts", (k,), 1.0)

    def start(self, plan: SumsPlan) -> Floats:
        """Return centres as far from each other as they can be, shape (k, d)."""
        return sphere_packing(plan.k, plan.d, plan.seed) / float(1 << GRID_BITS)

    def labels(self, raw_points: Floats, state: Floats) -> NDArray[np.int64]:
        """Return the nearest centre by the sum of absolute differences, shape (n,)."""
        nearest: NDArray[np.int64] = np.stack([np.abs(raw_points - c).sum(axis=1) for c in state]).argmin(axis=0)
        return nearest

    def local(self, raw_points: Floats, state: Floats, plan: SumsPlan) -> Mapping[str, NDArray[np.int64]]:
        """Return the votes of this client's records on the side of their centre, and how many each centre has."""
        labels, votes = self.labels(raw_points, state), np.zeros((plan.k, plan.d), dtype=np.int64)
        np.add.at(votes, labels, np.sign(raw_points - state[labels]).astype(np.int64))
        return {"votes": votes, "counts": np.bincount(labels, minlength=plan.k)}

    def step(self, noisy: Mapping[str, Floats], state: Floats, plan: SumsPlan, t: int) -> Floats:
        """Move each centre towards the side with more votes, as far as the majority is clear."""
        chosen: Settings = self.settings_of(plan)
        majority = np.clip(noisy["votes"] / np.maximum(noisy["counts"], 1.0)[:, np.newaxis], -1.0, 1.0)
        return np.clip(state + chosen.stride * chosen.decay**t * majority, -1.0, 1.0)

    def expected(self, config: object, plan: SumsPlan) -> Expected:
        """Say what the noise on the votes of the later rounds may do to an average centre."""
        chosen, share, rounds = self.settings_of(plan), plan.n_total / plan.k, len(plan.rounds)
        strides = math.sqrt(sum((chosen.stride * chosen.decay**t) ** 2 for t in range(rounds // 2, rounds)))
        return expect_mean(sums=strides * plan.noise_on("votes", 0), counts=0.0, share=share, k=plan.k, d=plan.d)


PROTOCOL = KMedians()
