"""What a plan expects: more noise with fewer users or a smaller epsilon, and of an order that runs confirm."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.protocols.vertical_dp.messages import SharedResult
from fastlloyd.protocols.vertical_dp.protocol import PROTOCOL, expect, noise_of
from fastlloyd.run.config import RunConfig


def expected(n: int, epsilon: float, protocol: str = "vertical-dp") -> float:
    plan = PROTOCOL.planned(RunConfig(protocol=protocol, n_total=n, k=3, epsilon=epsilon), 2, 6)
    found = expect(plan).centre_noise
    assert found is not None
    return found


def test_a_plan_expects_less_noise_with_more_users_or_a_larger_epsilon() -> None:
    assert expected(50_000, 1.0) < expected(5000, 1.0) < expected(5000, 0.3)


@pytest.mark.parametrize("n,verdict", [(600, "poor"), (5000, "good"), (50_000, "good")])
def test_the_verdict_is_of_the_order_that_was_measured(n: int, verdict: str) -> None:
    # Measured on blobs, epsilon 1: NICV of 1.09 to 1.28, 1.00 to 1.02 and 1.00 times that without noise.
    plan = PROTOCOL.planned(RunConfig(protocol="vertical-dp", n_total=n, k=3, epsilon=1.0), 2, 6)
    assert expect(plan).verdict == verdict


def test_what_is_foreseen_of_a_run_says_what_to_expect() -> None:
    config = RunConfig(protocol="vertical-dp", n_total=5000, k=3, epsilon=1.0)
    found = PROTOCOL.foresee(config, 2, 6).expected
    assert found is not None and found == expect(PROTOCOL.planned(config, 2, 6))
    assert PROTOCOL.foresee(RunConfig(protocol="vertical-plain", n_total=600, k=3), 2, 6).expected is None


def test_without_privacy_a_result_is_exact() -> None:
    plan = PROTOCOL.planned(RunConfig(protocol="vertical-plain", n_total=600, k=3), 2, 6)
    assert noise_of(plan, SharedResult(centers=np.zeros((3, 6)), weights=np.full(3, 200.0))).exact
