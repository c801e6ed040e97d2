"""The threads of a party's passes: as configured, or its share of the cores."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fastlloyd.data.bounds import Bounds
from fastlloyd.run.config import RunConfig
from fastlloyd.run.inputs import OwnRecords, own_threads


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Eight cores that this process may use, and no launcher."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for name in list(os.environ):
        if name.startswith(("OMPI_", "PMI", "SLURM_", "MPI_")):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("ranks", "here", "threads"),
    # Rank 0 of a single host has no records. Of several hosts, none says whether the server is here.
    [(2, 2, 8), (3, 3, 4), (5, 5, 2), (4, 4, 2), (21, 21, 1), (6, 3, 2), (9, 8, 1), (3, 1, 8)],
)
def test_clients_of_one_host_share_its_cores(
    ranks: int, here: int, threads: int, eight_cores: pytest.MonkeyPatch
) -> None:
    for name, value in {"PMI_RANK": 1, "PMI_SIZE": ranks, "MPI_LOCALNRANKS": here}.items():
        eight_cores.setenv(name, str(value))
    assert own_threads(RunConfig()) == threads


def test_a_site_has_all_cores(eight_cores: pytest.MonkeyPatch) -> None:
    assert own_threads(RunConfig()) == 8


def test_what_is_configured_wins(eight_cores: pytest.MonkeyPatch) -> None:
    assert own_threads(RunConfig(threads=3)) == 3


def test_records_on_the_grid_know_their_threads(eight_cores: pytest.MonkeyPatch) -> None:
    bounds = Bounds(np.array([-1.0]), np.array([1.0]), ("x",))
    own = OwnRecords(raw_points=np.zeros((4, 1)), names=("x",), bounds=bounds, threads=own_threads(RunConfig()))
    assert own.quantise(8).passes.over(10**7, 5, 5, lambda start, stop: stop - start) == [625_000] * 16
