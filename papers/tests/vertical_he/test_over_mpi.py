"""Vertical k-means under CKKS over real links: what it sends, what memory it takes, how good it is."""

from __future__ import annotations

import pytest

pytest.importorskip("tenseal")

from fastlloyd_papers.vertical_he.mpi import run_over_mpi
from fastlloyd_papers.vertical_he.run import Case, synthetic
from tests.mpi.support import mpirun


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n,k,megabytes", [(10_000, 2, 3.0), (10_000, 5, 3.8), (10_000, 8, 4.6), (100_000, 5, 23.0)])
def test_ten_rounds_send_no_more_than_stated(n: int, k: int, megabytes: float) -> None:
    points, _ = synthetic(n, k, 2)
    value = run_over_mpi(Case(k=k, widths=(1, 1)), points, 2, mpirun())
    assert (value["scheme"], value["rounds"]) == ("linear", 10)
    # All that is sent: headers and TLS records included.
    assert value["setup_bytes"] + 10 * value["round_bytes"] <= 1e6 * megabytes
    assert value["peak_mib"] < 8192
    assert value["loss"] < 0.02
