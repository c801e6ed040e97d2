"""Generated records, normalisation, and the clients' files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd_papers.engine.generate import Source, Workspace, normalise, time_synth


@pytest.mark.parametrize(("n", "k", "d"), [(10_000, 2, 2), (1_003, 5, 5), (7, 3, 1)])
def test_time_synth_fills_the_bounds_with_balanced_clusters(n: int, k: int, d: int) -> None:
    points = time_synth(n, k, d)
    assert points.shape == (n, d)
    assert np.array_equal(points.min(axis=0), np.full(d, -1.0))
    assert np.array_equal(points.max(axis=0), np.full(d, 1.0))
    assert np.array_equal(points, time_synth(n, k, d))
    assert not np.array_equal(points, time_synth(n, k, d, seed=2))


def test_time_synth_has_clusters_of_equal_size() -> None:
    """Record i belongs to cluster i mod k: within a cluster records lie closer than over all."""
    points = time_synth(9_000, 3, 2)
    groups = [points[h::3] for h in range(3)]
    assert {len(group) for group in groups} == {3_000}
    assert all(group.var(axis=0).sum() < 0.5 * points.var(axis=0).sum() for group in groups)


def test_normalise_stretches_each_feature_and_keeps_constants() -> None:
    points = normalise(np.array([[1.0, 5.0, -3.0], [3.0, 5.0, 7.0], [2.0, 5.0, 2.0]]))
    assert np.allclose(points, [[-1.0, 0.0, -1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])


def test_shares_hold_every_record_once_and_are_forgotten(tmp_path: Path) -> None:
    work, source = Workspace(tmp_path), Source(n=101, k=2, d=3)
    shares = work.shares(source, 4)
    assert shares.n == 101
    assert max(shares.caps) - min(shares.caps) <= 1
    parts = [np.load(shares.template.replace("{client}", str(rank))) for rank in range(1, 5)]
    assert tuple(map(len, parts)) == shares.caps
    dealt = np.concatenate(parts)
    assert not np.array_equal(dealt, work.points(source))
    assert np.array_equal(np.sort(dealt, axis=0), np.sort(work.points(source), axis=0))
    assert work.shares(source, 4) is shares
    work.forget()
    assert list(tmp_path.iterdir()) == []
    assert work.shares(source, 4) == shares


def test_a_public_set_is_normalised_and_must_have_the_papers_shape(tmp_path: Path) -> None:
    (tmp_path / "lsun.csv.gz").write_bytes(gzip.compress(b"a,b\n0,10\n4,20\n2,15\n"))
    work = Workspace(tmp_path, str(tmp_path))
    points = work.points(Source(n=3, k=2, d=2, dataset="lsun"))
    assert np.allclose(points, [[-1, -1], [1, 1], [0, 0]])
    with pytest.raises(ConfigError, match="expected 400 records with 2 features as in the paper, got 3 with 2"):
        work.points(Source(n=400, k=3, d=2, dataset="lsun"))
    with pytest.raises(ConfigError, match="no data set 's1'"):
        work.points(Source(n=5_000, k=15, d=2, dataset="s1"))
