"""What a server can do with a published result under common masks, as docs/privacy.md and docs/security.md say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.protocols.fastlloyd.rounds import draw_noise
from fastlloyd.randomness.secret import SecretRandom
from tests.protocols.support import blobs, plan_for, run


@pytest.mark.parametrize("protocol", ["glloyd", "sulloyd"])
def test_a_server_that_kept_its_noise_reads_exact_counts_off_the_noisy_sizes(protocol: str) -> None:
    points = blobs(300, 3, 2)
    plan = plan_for(points, 3, protocol=protocol, rounds=2)
    kept: list[NDArray[np.int64]] = []

    def noise(t: int) -> NDArray[np.int64]:
        kept.append(draw_noise(plan, t, SecretRandom()))
        return kept[-1]

    published = run(points, plan, noise=noise).first.centers.noisy_counts
    counts = published - kept[-1][plan.k * plan.d :] / (1 << plan.fraction_bits)
    assert counts == pytest.approx(np.round(counts), abs=1e-9)
    assert (counts >= -1e-9).all() and counts.sum() == pytest.approx(300)
    assert abs(published - counts).max() > 0.1  # what the noise had hidden
