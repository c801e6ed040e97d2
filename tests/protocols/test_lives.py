"""Every protocol's whole life: in one thread, over memory and TCP in threads, over MPI in processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.protocols.registry import PROTOCOLS
from tests.contracts import life


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("runner", ["in_memory", "over_tcp"])
def test_a_life_is_the_same_whoever_runs_it(protocol: str, runner: str, tmp_path: Path) -> None:
    life.check(protocol, life.RUNNERS[runner], tmp_path)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "protocol", ["lloyd", "feddp", "kfed", "secfc", "vertical-plain", "vertical-dp", "vertical-he"]
)
def test_a_life_over_mpi_is_the_same(protocol: str, tmp_path: Path) -> None:
    life.check(protocol, life.over_mpi, tmp_path)
