"""The compiled pass gives what numpy gives, bit by bit: ties, near ties, the radius's edge, threads."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastlloyd.kmeans import passes
from fastlloyd.kmeans.assign import accumulate, assign, sum_by_label
from fastlloyd.kmeans.grid import GridPoints
from fastlloyd.kmeans.passes import Passes
from fastlloyd.kmeans.spectral import cluster_locally
from fastlloyd.kmeans.weighted import nearest

fused = pytest.importorskip("fastlloyd.kmeans.fused", reason="numba is not installed", exc_type=ImportError)

WAYS = (
    {"radius": None, "relative": False},
    {"radius": None, "relative": True},
    {"relative": False},
    {"relative": True},
    {"relative": True, "shorten": True},
)


def on_grid(coordinates: np.ndarray) -> GridPoints:
    """Points (n, d) given in grid units."""
    exact = coordinates.astype(np.float64)
    raw = np.ascontiguousarray(coordinates.T, dtype=np.int32)
    return GridPoints(raw, (exact * exact).sum(axis=1), 16)


def check_equal(points: GridPoints, centers: np.ndarray, radius: int, threads: int = 1) -> None:
    """Compare all kernels with what numpy gives."""
    quick = replace(points, passes=Passes(threads, patience=0))
    patient = replace(points, passes=Passes(1, patience=np.inf))
    labels = assign(patient, centers)
    pairs = [((assign(quick, centers),), (labels,))]
    pairs += [(sum_by_label(quick, labels, len(centers)), sum_by_label(patient, labels, len(centers)))]
    for way in WAYS:
        options = {"radius": radius, **way}
        pairs.append((accumulate(quick, centers, **options), accumulate(patient, centers, **options)))
    for got, expected in pairs:
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


@st.composite
def problems(draw: st.DrawFn):
    """Records and centres of many shapes; a coarse grid and copies make ties, a high corner makes near ones."""
    n, d, k = draw(st.integers(0, 600)), draw(st.integers(1, 20)), draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    reach = draw(st.sampled_from((1, 3, 1 << 10, 1 << 16, 1 << 20)))
    corner = draw(st.sampled_from((0, 0, 1 << 16, 1 << 21)))
    points = rng.integers(-reach, reach, (n, d), endpoint=True) + corner
    centers = rng.integers(-reach, reach, (k, d), endpoint=True) + corner
    if draw(st.booleans()):
        centers[rng.integers(k)] = centers[0]
    if n and draw(st.booleans()):
        centers[rng.integers(k)] = points[0]
    return points, centers, draw(st.integers(1, max(1, min(2 * reach, (1 << 24) - 1))))


@given(problems())
@settings(max_examples=150, deadline=None)
def test_equal_to_numpy(problem) -> None:
    points, centers, radius = problem
    check_equal(on_grid(points), centers, radius)


def test_single_precision_alone_would_mislabel() -> None:
    """Centres one unit apart, far from the origin: float32 scores are the same, labels are not."""
    rng = np.random.default_rng(3)
    centers = np.full((9, 6), 1 << 16) + rng.integers(-1, 1, (9, 6), endpoint=True)
    points = np.full((3000, 6), 1 << 16) + rng.integers(-2, 2, (3000, 6), endpoint=True)
    exact = (points.astype(np.float32) @ centers.T.astype(np.float32) * -2 + (centers**2).sum(axis=1)).argmin(axis=1)
    assert (exact != assign(on_grid(points), centers)).any()
    check_equal(on_grid(points), centers, 2)


def test_records_on_the_radius_are_within_it() -> None:
    """Pythagorean offsets: distances of exactly 5 * 2^12, one unit less and one more."""
    far = 5 << 12
    points = np.array([[3 << 12, 4 << 12], [far, 0], [far - 1, 0], [far + 1, 0], [0, -far], [3 << 12, (4 << 12) + 1]])
    check_equal(on_grid(np.tile(points, (100, 1))), np.array([[0, 0], [1 << 16, 1 << 16]]), far)
    counts = accumulate(
        replace(on_grid(points), passes=Passes(patience=0)), np.zeros((1, 2), np.int64), radius=far, relative=True
    )[1]
    assert counts.tolist() == [4]


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_LEAST", 1.0)
    rng = np.random.default_rng(threads)
    for n in (1, 3, 255, 256, 257, 5000):
        points = on_grid(rng.integers(-(1 << 16), 1 << 16, (n, 7)))
        centers = rng.integers(-(1 << 16), 1 << 16, (6, 7))
        check_equal(points, centers, 1 << 15, threads)
        pieces = replace(points, passes=Passes(threads, patience=np.inf))
        for ours, whole in zip(
            accumulate(pieces, centers, radius=1 << 15, relative=True, shorten=True),
            accumulate(points, centers, radius=1 << 15, relative=True, shorten=True),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, whole)


def test_many_clusters_and_features() -> None:
    rng = np.random.default_rng(0)
    check_equal(on_grid(rng.integers(-900, 900, (700, 130))), rng.integers(-900, 900, (300, 130)), 9000)


@given(st.integers(0, 700), st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_points_off_the_grid_get_the_same_bits(n: int, d: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n, d)).round(seed % 3 * 8)  # some so coarse that there are ties
    centers = points[rng.integers(n, size=k)] if n and seed % 2 else rng.normal(size=(k, d))
    for order in "CF":  # of nine features, which linear algebra takes, the order in memory may change the last bit
        laid = np.asarray(points, order=order)
        labels, distances = nearest(laid, centers)
        got, squared = nearest(laid, centers, Passes(patience=0))
        np.testing.assert_array_equal(got, labels)
        np.testing.assert_array_equal(squared.view(np.int64), distances.view(np.int64))


def test_local_clusters_are_the_same_however_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_LEAST", 1.0)
    points = on_grid(np.random.default_rng(5).integers(-(1 << 16), 1 << 16, (3000, 4)))
    found = [
        cluster_locally(replace(points, passes=way), 6, seed=0, purpose="test", restarts=2)
        for way in (Passes(patience=np.inf), Passes(3, patience=np.inf), Passes(patience=0), Passes(3, patience=0))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.view(np.int64), found[0].view(np.int64))


def test_compiles_where_machine_code_cannot_be_kept() -> None:
    namespace: dict = {}
    exec("def twice(x):\n    return 2 * x", namespace)  # in no file, so numba finds no folder for it
    assert fused._compiled()(namespace["twice"])(21) == 42


def twice(x: int) -> int:
    """Something to compile."""
    return 2 * x


@pytest.mark.parametrize("damaged", ["*.nbi", "*.nbc"])
def test_damaged_machine_code_is_compiled_again(damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    assert fused._compiled()(twice)(21) == 42
    (file,) = tmp_path.rglob(damaged)
    whole = file.stat().st_size
    file.write_bytes(b"")
    for hits in (0, 1):  # and is whole again for the next process
        again = fused._compiled()(twice)
        assert again(21) == 42
        assert len(again.stats.cache_hits) == hits
    assert file.stat().st_size == whole


def test_compiles_where_the_disk_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    compiled = fused._compiled()(twice)
    (folder,) = tmp_path.iterdir()
    folder.rmdir()
    folder.write_text("no folder any more")
    assert compiled(21) == 42


@pytest.mark.process
def test_machine_code_of_an_earlier_process_is_found() -> None:
    check_equal(on_grid(np.zeros((1, 2), np.int64)), np.zeros((1, 2), np.int64), 1)
    if fused.sweep.stats.cache_path is None:
        pytest.skip("numba may write nowhere")
    code = "from fastlloyd.kmeans import fused; assert not fused.sweep.signatures; assert fused.is_ready('sweep')"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.process
def test_a_small_run_does_not_import_numba() -> None:
    code = """
import sys
import numpy as np
from fastlloyd.kmeans.assign import accumulate
from fastlloyd.kmeans.grid import quantise
points = quantise(np.random.default_rng(0).uniform(-1, 1, (20_000, 5)), 16)
for _ in range(10):
    accumulate(points, np.zeros((5, 5), dtype=np.int64), radius=9, relative=True)
assert "numba" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
