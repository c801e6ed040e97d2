"""Protocols of noisy masked sums with threshold masks, in whole runs that lose all the clients that they may."""

from __future__ import annotations

import pytest

from fastlloyd.run.config import RunConfig
from tests.protocols.lossy import check_noise, check_result, play

PUBLIC = {"masking": "threshold", "data": "{client}.csv", "bounds": "-1,1", "n_total": 5000, "ring_bits": 64}
LOST = (5, 6)


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus"])
def test_with_all_lost_that_may_be_the_result_is_that_of_the_others(protocol: str) -> None:
    config = RunConfig(protocol=protocol, k=3, epsilon=4.0, seed=1, **PUBLIC)
    check_result(play(config, 6, LOST), near=0.03)


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus"])
def test_with_all_lost_that_may_be_the_noise_is_the_planned_one(protocol: str) -> None:
    config = RunConfig(protocol=protocol, k=150, epsilon=4.0, rounds=8, **PUBLIC)
    check_noise(play(config, 6, LOST, d=8), count=6, lost=LOST)
