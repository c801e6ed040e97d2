"""The demonstration, as `make demo` runs it, shows a result without empty clusters for every seed."""

from __future__ import annotations

import pytest

from fastlloyd.run.config import RunConfig
from fastlloyd.run.together import run_together


@pytest.mark.parametrize("seed", range(10))
def test_no_cluster_of_the_demonstration_is_empty(seed: int) -> None:
    ended = run_together(RunConfig(seed=seed), 2)
    result = next(outcome.result for outcome in ended.outcomes.values() if outcome.result is not None)
    assert result.common.protocol == "fastlloyd-plus"
    assert result.quality.verdict in ("good", "fair")
    assert not result.quality.empty and not result.quality.overlapping and not result.quality.at_bounds
