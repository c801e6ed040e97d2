"""Protocols of this package do what those of other packages must: one on each base of clients that hold records."""

from __future__ import annotations

import pytest

from fastlloyd.run.config import RunConfig
from fastlloyd.testing import ProtocolContract
from tests.forked import ForkedSites, forked_command
from tests.mpi.support import start_quickly


@pytest.fixture(autouse=True)
def without_plots_and_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes draw nothing: no plot and no page is asked of them."""
    start_quickly(monkeypatch)


class Forked(ProtocolContract):
    sites = ForkedSites
    command = staticmethod(forked_command)


@pytest.mark.slow
class TestFastLloyd(Forked):
    config = RunConfig(protocol="fastlloyd", dataset="iris", bounds="0,8", k=2, epsilon=20.0, rounds=6)


class TestKFed(Forked):
    config = RunConfig(protocol="kfed", dataset="iris", bounds="0,8", k=2)
    exact = True


@pytest.mark.slow
class TestFedDP(Forked):
    config = RunConfig(protocol="feddp", dataset="iris", bounds="0,8", k=2, epsilon=20.0, rounds=5)
