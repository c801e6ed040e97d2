"""Runs for measurements have the lengths and the noise of the parties' runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastlloyd_papers.utility.run import generator_noise
from tests.protocols.test_lengths import planned


def test_noise_for_measurements_has_the_same_length_and_scale() -> None:
    plan = planned(4000, ring_bits=64)
    noise = generator_noise(plan, np.random.default_rng(0))
    assert [noise(t).size for t in range(3)] == [4000, 9, 9]
    assert noise(0).std() == pytest.approx(plan.rounds[0].count_scale, rel=0.1)
    silent = generator_noise(dataclasses.replace(plan, mechanism="none"), np.random.default_rng(0))
    assert [silent(t).size for t in range(3)] == [4000, 9, 9]
