"""Notes what the parties of vertical-dp draw, in the order in which they do, and changes none of it.

What their noise is added to stays in the tree of boxes and its steps. That each number drawn is added once, in this
order and to nothing else, is what `tests/protocols/vertical_dp/test_parties.py` shows: the reference, which draws for
itself, comes to the same bits. Here it is whether the numbers depend on one another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Self
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fastlloyd.privacy.noise.sampler import round_laplace, round_normal
from fastlloyd.protocols.vertical_dp import client
from fastlloyd.protocols.vertical_dp.math import weights
from fastlloyd.randomness.secret import SecretRandom
from tests.privacy.joint import uniform_scores

Floats = NDArray[np.float64]
Sampler = Callable[[float, int, SecretRandom], NDArray[np.int64]]


class Drawn:
    """What each party draws while this is entered, call by call, turned into standard normals."""

    def __init__(self, coins: np.random.Generator) -> None:
        self._coins = coins
        self._parties: list[tuple[SecretRandom, list[Floats]]] = []
        self._stack = ExitStack()
        self.last: dict[int, float] = {}

    def __enter__(self) -> Self:
        for module, name, real, scores in (
            (client, "round_laplace", round_laplace, self._of_laplace),
            (client, "round_normal", round_normal, lambda scale, noise: noise / scale),
            (weights, "round_laplace", round_laplace, self._of_laplace),
        ):
            self._stack.enter_context(mock.patch.object(module, name, self._noting(real, scores)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def calls(self) -> dict[str, Floats]:
        """The scores of each party's calls, by name."""
        return {
            f"party {place + 1}'s draw {i}": scores
            for place, (_, own) in enumerate(self._parties)
            for i, scores in enumerate(own)
        }

    def _noting(self, real: Sampler, scores: Callable[[float, NDArray[np.int64]], Floats]) -> Sampler:
        def draw(scale: float, size: int, secret: SecretRandom) -> NDArray[np.int64]:
            noise = real(scale, size, secret)
            if not any(secret is known for known, _ in self._parties):
                self._parties.append((secret, []))
            place, own = next((i, own) for i, (known, own) in enumerate(self._parties) if known is secret)
            own.append(scores(scale, noise))
            self.last[place] = float(noise[-1])
            return noise

        return draw

    def _of_laplace(self, scale: float, noise: NDArray[np.int64]) -> Floats:
        law = stats.laplace(scale=scale)
        below, above = law.cdf(noise - 0.5), law.cdf(noise + 0.5)
        return uniform_scores(below + self._coins.random(noise.shape) * (above - below))
