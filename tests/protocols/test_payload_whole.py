"""Whole runs in memory: what a round sends with each protocol, ring and number of clients, and what the labels are."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.report.document import load
from tests.mpi.support import hospitals, read_matrix, report
from tests.protocols.whole import done_flags

OWN = ("--data", "hospital_{client}.csv", "--bounds", "-1,1", "--output", "res")
# protocol, clients, k = d, ring bits, payload bytes per round: 2 M k (d + 1) ring elements
TRAFFIC = [
    ("fastlloyd", 2, 2, 32, 96),
    ("sulloyd", 3, 2, 64, 288),
    ("lloyd", 3, 5, 64, 1440),
    ("sulloyd", 2, 2, 64, 192),
    ("lloyd", 3, 2, 32, 144),
    ("glloyd", 3, 5, 32, 720),
]


@pytest.mark.parametrize(("protocol", "clients", "k", "bits", "expected"), TRAFFIC)
def test_payload_per_round(tmp_path: Path, protocol: str, clients: int, k: int, bits: int, expected: int) -> None:
    hospitals(tmp_path, clients=clients, k=k, d=k)
    flags = [*OWN, "--protocol", protocol, "--k", k, "--n-total", 40 * clients, "--ring-bits", bits, "--rounds", 3]
    done_flags(tmp_path, flags, n=clients + 1)
    written = load(tmp_path / "res" / "report.json")
    assert written["protocol"] == protocol
    assert written["parameters"]["ring_bits"] == bits
    assert written["traffic"]["payload_bytes_per_round"] == expected
    assert written["traffic"]["payload_bytes"] == 3 * expected
    assert [entry["clients_included"] for entry in written["rounds"]] == [list(range(1, clients + 1))] * 3
    for client in range(1, clients + 1):
        check_labels(tmp_path / "res", client, read_matrix(tmp_path / f"hospital_{client}.csv"))
    if protocol == "lloyd":
        assert written["privacy"]["spent_epsilon"] is None and written["not_private"]
        assert written["privacy"]["unit"] is None
    else:
        assert 0.99 < written["privacy"]["spent_epsilon"] <= 1.0 and not written["not_private"]


def check_labels(folder: Path, client: int, raw_scaled: NDArray[np.float64]) -> None:
    """A client's labels, readable to it alone, are the nearest released centroids, up to the grid."""
    path = folder / f"labels_{client}.csv"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    labels = read_matrix(path)[:, 1].astype(int)
    centroids = read_matrix(folder / "centroids.csv")
    assert labels.shape == (len(raw_scaled),)
    distances = ((raw_scaled[:, None, :] - centroids[None, :, :]) ** 2).sum(axis=2)
    grid = 2.0 ** -report(folder)["parameters"]["fraction_bits"]
    slack = 8 * grid * raw_scaled.shape[1] * np.abs(centroids).max(initial=1.0)
    assert (distances[np.arange(len(labels)), labels] <= distances.min(axis=1) + slack).all()


@pytest.mark.parametrize(
    ("protocol", "parties", "flags"),
    [
        ("secfc", 4, ("--set", "secfc.starts=1", "--set", "secfc.start=random")),
        ("vertical-he", 2, ()),
        # One pair of clusters: each is compared under encryption.
        ("vertical-he", 2, ("--set", "vertical-he.scheme=pairwise", "--k", "2")),
    ],
)
def test_the_set_up_is_not_part_of_a_round(tmp_path: Path, protocol: str, parties: int, flags: tuple[str, ...]) -> None:
    found = []
    for rounds in (1, 2):
        folder = tmp_path / str(rounds)
        folder.mkdir()
        own = ("--protocol", protocol, "--dataset", "iris", "--rounds", rounds, "--output", "res", *flags)
        done_flags(folder, own, n=parties)
        written = load(folder / "res" / "report.json")
        assert len(written["rounds"]) == rounds
        found.append(written["traffic"])
    few, many = found
    assert few["payload_bytes_per_round"] == many["payload_bytes_per_round"] > 0
    assert many["payload_bytes"] == 2 * few["payload_bytes"]
