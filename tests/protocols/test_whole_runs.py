"""Every protocol's whole run: in one thread, over memory, TCP and calls in threads, over MPI in processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.protocols.registry import PROTOCOLS
from tests.contracts import whole_run


@pytest.fixture(scope="module")
def alone(request: pytest.FixtureRequest) -> tuple[str, list[whole_run.PartyEnd]]:
    """A protocol, and its parties' lives in one thread: made once for all who run it otherwise."""
    return request.param, whole_run.alone(request.param)


@pytest.mark.parametrize("alone", PROTOCOLS, indirect=True)
@pytest.mark.parametrize("runner", ["in_memory", "over_tcp", "over_calls"])
def test_a_life_is_the_same_whoever_runs_it(
    alone: tuple[str, list[whole_run.PartyEnd]], runner: str, tmp_path: Path
) -> None:
    protocol, expected = alone
    whole_run.check(protocol, whole_run.RUNNERS[runner], tmp_path, expected)


@pytest.mark.mpi
@pytest.mark.parametrize(
    # The baselines that are left out run the code of these three.
    "alone",
    ["fastlloyd", "fastlloyd-plus", "lloyd", "feddp", "kfed", "secfc", "vertical-plain", "vertical-dp", "vertical-he"],
    indirect=True,
)
def test_a_life_over_mpi_is_the_same(alone: tuple[str, list[whole_run.PartyEnd]], tmp_path: Path) -> None:
    protocol, expected = alone
    whole_run.check(protocol, whole_run.over_mpi, tmp_path, expected)
