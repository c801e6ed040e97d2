"""The Gaussian mixture and its server data."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import stats

from fastlloyd.data.public.mixture import Mixture, make_mixture, parse_mixture
from fastlloyd.errors import ConfigError

SMALL = Mixture(clients=12, points=200, d=6, k=4)


def test_the_defaults_are_the_papers() -> None:
    mixture = parse_mixture("mixture")
    assert (mixture.clients, mixture.points, mixture.d, mixture.k, mixture.variance) == (100, 1000, 100, 10, 0.5)
    assert mixture.server_rows == 300
    assert parse_mixture("mixture:clients=2000, points=50,missing=5").server_rows == 200


def test_records_follow_the_stated_distribution() -> None:
    data = make_mixture(SMALL, 3)
    assert data.points.shape == (2400, 6)
    assert ((data.means >= 0) & (data.means <= 1)).all()
    counts = np.bincount(data.labels, minlength=4)
    assert stats.chisquare(counts).pvalue > 1e-6
    # Standardised residuals are normal; Kolmogorov-Smirnov at 1e-6.
    residual = (data.points - data.means[data.labels]) / np.sqrt(0.5)
    assert stats.kstest(residual.ravel(), "norm").pvalue > 1e-6
    assert data.server_points.shape == (4 * 20 + 100, 6)
    near, uniform = data.server_points[:-100], data.server_points[-100:]
    residual = (near - np.repeat(data.means, 20, axis=0)) / np.sqrt(0.5)
    assert stats.kstest(residual.ravel(), "norm").pvalue > 1e-6
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-6


def test_the_seed_decides_and_nothing_else() -> None:
    one, two = make_mixture(SMALL, 5), make_mixture(SMALL, 5)
    assert (one.points == two.points).all() and (one.server_points == two.server_points).all()
    assert (make_mixture(SMALL, 6).points != one.points).any()


@pytest.mark.parametrize("missing", [1, 4])
def test_missing_components_change_the_server_data_only(missing: int) -> None:
    full, less = make_mixture(SMALL, 1), make_mixture(dataclasses.replace(SMALL, missing=missing), 1)
    assert (full.points == less.points).all()
    kept = np.concatenate([full.server_points[: (4 - missing) * 20], full.server_points[-100:]])
    assert np.array_equal(kept, less.server_points)


def test_local_components_limit_what_a_client_holds() -> None:
    data = make_mixture(dataclasses.replace(SMALL, local=2), 0)
    held = [set(data.labels[data.owners == owner]) for owner in range(12)]
    assert all(len(own) == 2 for own in held)
    assert len({frozenset(own) for own in held}) > 1
    few = make_mixture(dataclasses.replace(SMALL, clients=4, local=1), 1)
    assert set(few.labels) == set(range(4))


def test_owners_are_dealt_out_whole() -> None:
    data = make_mixture(SMALL, 0)
    rows = data.rank_rows(5)
    assert sorted(np.concatenate(rows)) == list(range(2400))
    users = [set(data.owners[own]) for own in rows]
    assert sum(map(len, users)) == 12
    assert {len(own) for own in users} == {2, 3}
    with pytest.raises(ConfigError, match="12 owners"):
        data.rank_rows(13)


def test_bounds_hold_all_records_and_lie_around_the_middle() -> None:
    data = make_mixture(SMALL, 2)
    bounds = SMALL.bounds
    assert len(bounds) == 6
    assert (bounds.lo < data.points).all() and (data.points < bounds.hi).all()
    assert np.allclose(bounds.middle, 0.5)


@pytest.mark.parametrize(
    "text,word",
    [
        ("blobs", "expected mixture"),
        ("mixture:size=3", "'size=3'"),
        ("mixture:k=3,k=4", "at most once"),
        ("mixture:k", "NUMBER"),
        ("mixture:k=2.5", "NUMBER"),
        ("mixture:k=0", "k: expected a whole number, at least 1, got 0"),
        ("mixture:k=3,missing=4", "missing: expected a whole number from 0 to 3, got 4"),
        ("mixture:k=3,local=4", "local: expected a whole number from 0 to 3, got 4"),
        ("mixture:variance=nan", "variance: expected a number, above 0, got nan"),
        ("mixture:server=0,uniform=0", "no record"),
        ("mixture:clients=100000,points=100000", "values in all"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(text: str, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        parse_mixture(text)
