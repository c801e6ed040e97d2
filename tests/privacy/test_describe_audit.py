"""The empirical audit of a description of clusters: attacks stay below its epsilon, and catch wrong sensitivities.

The attacker knows all records but the canaries: one record for each cluster, whose values lie on bounds, so that it
moves its cluster's numbers by exactly the sensitivity; present by a coin. It subtracts what it knows from the release
and compares likelihoods: the most powerful test there is, over the whole row, and over size, bins and half sums by
themselves. Clusters have rows of their own, with noise of their own: a run gives one trial for each.

False alarms: each bound lies above the true epsilon with probability at most `ALARM`. What attacks must reach lies at
least six standard deviations (measured over repetitions) below what it does reach.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.describe.coding import Layout, code
from fastlloyd.describe.columns import DescribedColumn
from fastlloyd.privacy.calibration import gaussian_noise_multiplier, gdp_epsilon
from fastlloyd.protocol.sums import Part, SumsPlan
from fastlloyd.protocols.describe.protocol import Describe, DescribeSettings
from fastlloyd.protocols.describe.rounds import PART, LabelledRecords
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig
from tests.privacy.audit import Trials, combined_scores, epsilon_bound, gaussian_bound

ALARM = 1e-6
EPSILON = 1.0
# Large, so that an attack need not wait for rare events; nothing else depends on it.
DELTA = 0.05
MU = 1.0 / gaussian_noise_multiplier(EPSILON, DELTA)
K = 64
COLUMNS = (
    DescribedColumn(name="age", lo=0, hi=100, bins=4),
    DescribedColumn(name="dose", lo=0, hi=1, bins=3),
)
CANARY = (100.0, 0.0)

Noise = Callable[[Describe, SumsPlan], NDArray[np.int64]]


def server(protocol: Describe, plan: SumsPlan) -> NDArray[np.int64]:
    """All noise, as the server draws it."""
    return protocol.noise(plan, 0, SecretRandom())


def unknown_share(protocol: Describe, plan: SumsPlan) -> NDArray[np.int64]:
    """With pairwise masks and two clients: the share of the client that the attacker is not."""
    return protocol.noise_parts(plan, 0, [plan.share], [SecretRandom()])[0]


def planned(protocol: Describe, masking: str = "common", m: int = 2) -> SumsPlan:
    settings = {"columns": json.dumps([column.to_json() for column in COLUMNS[:m]]), "run": "00"}
    config = RunConfig(
        protocol="describe",
        bounds="0,1",
        k=K,
        n_total=1000,
        epsilon=EPSILON,
        delta=DELTA,
        accept_large_delta=True,
        masking=masking,
        settings={"describe": settings},
    )
    return protocol.make_plan(protocol.public_parameters(config, 2, 1000, K), ("x1",))


def rows(plan: SumsPlan, protocol: Describe, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """What canaries with these labels add, by the protocol's own code."""
    layout = protocol.layout(plan)
    assert layout is not None
    placed = [column.place(np.full(len(labels), value)) for column, value in zip(layout.columns, CANARY, strict=False)]
    own = LabelledRecords(
        raw_labels=labels,
        raw_points=np.zeros((len(labels), 1)),
        centers=np.zeros((K, 1)),
        middle=np.zeros(1),
        coded=code(layout.columns, placed),
    )
    return protocol.local(own, {}, plan)[PART]


def attack(protocol: Describe, runs: int, noise: Noise, masking: str = "common", m: int = 2) -> Trials:
    plan = planned(protocol, masking, m)
    moves = rows(plan, protocol, np.arange(K)).astype(np.float64)
    scale = plan.releases(0)[0].noise_scale
    present = np.random.default_rng(5).random((runs, K)) < 0.5
    scores, combined = np.empty((runs, K, 1, 3)), np.empty((runs, K, 3 * moves.shape[1]))
    parts = (slice(0, 1), slice(1, -m), slice(-m, None))
    for i in range(runs):
        rest = rows(plan, protocol, np.flatnonzero(present[i])) + noise(protocol, plan).reshape(moves.shape)
        ratios = (rest - moves / 2.0) * moves / scale**2
        scores[i, :, 0] = np.stack([ratios[:, part].sum(axis=1) for part in parts], axis=1)
        combined[i] = combined_scores(rest, moves, np.full(moves.shape[1], scale))
    return Trials(scores.reshape(-1, 1, 3), present.ravel(), combined.reshape(present.size, -1))


def test_the_canaries_move_the_release_by_exactly_its_sensitivity() -> None:
    protocol = Describe()
    plan = planned(protocol)
    moves = rows(plan, protocol, np.arange(K)).astype(np.float64)
    assert np.linalg.norm(moves, axis=1) == pytest.approx(plan.releases(0)[0].sensitivity)


@pytest.mark.parametrize(("noise", "masking"), [(server, "common"), (unknown_share, "pairwise")])
def test_attacks_on_a_description_stay_below_its_epsilon(noise: Noise, masking: str) -> None:
    trials = attack(Describe(), 400, noise, masking)
    mu = gaussian_bound(trials, ALARM)
    assert 0.3 < gdp_epsilon(mu, DELTA) <= EPSILON and mu <= MU
    assert epsilon_bound(trials, DELTA, ALARM) <= EPSILON


def wrong(sensitivity: float) -> Describe:
    """A description that is calibrated to another sensitivity."""

    class Wrong(Describe):
        def parts(self, k: int, d: int, chosen: DescribeSettings) -> tuple[Part, ...]:
            assert isinstance(chosen.layout, Layout)
            return (Part(PART, (k, chosen.layout.width), sensitivity),)

    return Wrong()


@pytest.mark.parametrize(
    ("m", "sensitivity"),
    [(1, 1.0), (1, math.sqrt(1 + 1 / 4))],
    ids=["sqrt(m), without size and half sums, or with a column left out", "without the size"],
)
def test_a_sensitivity_that_leaves_something_out_is_caught(m: int, sensitivity: float) -> None:
    """Half sums alone are 6 % of it, too little for an audit: test_coding.py has a record for it."""
    trials = attack(wrong(sensitivity), 900, server, m=m)
    assert gaussian_bound(trials, ALARM) > MU


def test_noise_that_is_the_same_in_all_clusters_is_caught() -> None:
    def copied(protocol: Describe, plan: SumsPlan) -> NDArray[np.int64]:
        drawn = server(protocol, plan).reshape(K, -1)
        return np.tile(drawn[0], (K, 1))

    assert epsilon_bound(attack(Describe(), 60, copied), DELTA, ALARM) > EPSILON
