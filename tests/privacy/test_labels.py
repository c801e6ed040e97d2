"""A record's label depends on that record and the centres alone: no other record, block, thread or restart enters.

Comparisons are exact: there are no false alarms.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.kmeans.assign import accumulate, assign
from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.lifecycle.rounds import StoredRounds
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.mask import NO_HISTORY
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.rounds import first_centers, local_update
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import PartyId
from tests.protocols.support import common_masks, parameters, run

ROOT = Path(__file__).parents[2]
# (records, features, clusters): one-hot and bincount kernels, few and many blocks, images.
SHAPES = [(20_000, 2, 15), (20_000, 16, 40), (20_000, 3, 100), (2_000, 784, 10)]
THREADS = (1, 4)
MASKS = common_masks(2, bytes(32))


@dataclass(frozen=True)
class Tied:
    """Records of which most lie at the same distance from several of their nearest centres."""

    plan: Plan
    points: NDArray[np.float64]
    start: NDArray[np.float64]

    @property
    def grid(self) -> GridPoints:
        return quantise(self.points, self.plan.fraction_bits)

    @property
    def centers(self) -> NDArray[np.int64]:
        return first_centers(self.plan, self.start).grid


@functools.cache
def tied(n: int, d: int, k: int) -> Tied:
    """Make such records: constant within groups of features, centres that differ by permutations within these groups.

    So scores are sums of the same products in another order: equal, but not in floats off the grid.
    """
    public = parameters(n, k, protocol="lloyd", rounds=2)
    plan = make_plan(public, d=d, names=tuple(f"x{i}" for i in range(d)))
    rng = np.random.default_rng(n + d + k)
    groups = np.array_split(np.arange(d), 1 if d < 8 else 4)
    start = np.repeat(rng.uniform(-1, 1, (-(-k // 4), d)), 4, axis=0)[:k]
    points = rng.uniform(-1, 1, (n, d))
    constant = rng.random(n) < 0.8
    for group in groups:
        start[:, group] = rng.permuted(start[:, group], axis=1)
        points[np.ix_(constant, group)] = rng.uniform(-1, 1, (int(constant.sum()), 1))
    return Tied(plan, points, start)


@functools.cache
def digest(n: int, d: int, k: int) -> str:
    """Digest the labels, and the vectors of a masked run's two rounds without noise."""
    case = tied(n, d, k)
    content = assign(case.grid, case.centers).tobytes()
    saved = uplinks(case, StoredRounds(), noise=False)
    return hashlib.sha256(content + saved["uplink-0"] + saved["uplink-1"]).hexdigest()


def uplinks(case: Tied, stored: StoredRounds, *, noise: bool) -> dict[str, bytes]:
    """Run server and two clients, one without records, under fixed masks; give what the first saved."""
    plan, secret = case.plan, SecretRandom()

    def add(t: int) -> NDArray[np.int64]:
        drawn = secret.uint64(plan.elements(t)).astype(np.int64) >> 50
        return drawn if noise else np.zeros_like(drawn)

    simulation = run(
        case.points,
        plan,
        parts=[np.arange(len(case.points)), np.arange(0)],
        masks=MASKS,
        noise=add,
        start=case.start,
        stored=dict.fromkeys(MASKS, stored),
        replies=stored.replies,
    ).simulation
    return {name: content for (party, name), content in simulation.saved.items() if party == PartyId(1)}


@pytest.mark.parametrize("shape", SHAPES)
def test_most_records_are_tied(shape: tuple[int, int, int]) -> None:
    case = tied(*shape)
    x, c = case.grid.raw_coordinates[:, :500].T.astype(np.int64), case.centers
    squares = ((x[:, None, :] - c[None]) ** 2).sum(axis=2)
    tied_with = (squares == squares.min(axis=1)[:, None]).sum(axis=1)
    assert (tied_with > 1).mean() > 0.5
    # Ties go to the lowest index, by integer arithmetic.
    assert (assign(case.grid, c)[:500] == squares.argmin(axis=1)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_block_size_changes_a_label_or_a_sum(shape: tuple[int, int, int]) -> None:
    case = tied(*shape)
    labels = assign(case.grid, case.centers)
    sums = accumulate(case.grid, case.centers, radius=None, relative=True)
    for block in (1, 257, 1000, 4096, 8191, shape[0]):
        assert (assign(case.grid, case.centers, block=block) == labels).all()
        again = accumulate(case.grid, case.centers, radius=None, relative=True, block=block)
        assert all((a == b).all() for a, b in zip(sums, again, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_removing_moving_or_permuting_records_changes_no_other_label(shape: tuple[int, int, int]) -> None:
    case = tied(*shape)
    n, q = shape[0], case.plan.fraction_bits
    labels = assign(case.grid, case.centers)
    rng = np.random.default_rng(1)
    # First, last and the borders of blocks: everything after a removed record moves up by one place.
    for i in (0, 1, n // 2, min(8191, n - 2), n - 1):
        others = np.arange(n) != i
        assert (assign(quantise(case.points[others], q), case.centers) == labels[others]).all()
        moved = case.points.copy()
        moved[i] = rng.uniform(-1, 1, shape[1])
        assert (assign(quantise(moved, q), case.centers) == labels)[others].all()
    order = rng.permutation(n)
    assert (assign(quantise(case.points[order], q), case.centers) == labels[order]).all()
    few = rng.permutation(n)[: n // 50]
    assert (assign(quantise(case.points[few], q), case.centers) == labels[few]).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_alone_or_with_one_other_has_its_label(shape: tuple[int, int, int]) -> None:
    case = tied(*shape)
    q = case.plan.fraction_bits
    labels = assign(case.grid, case.centers)
    for i in range(0, shape[0] - 1, shape[0] // 300):
        for size in (1, 2):
            rows = slice(i, i + size)
            assert (assign(quantise(case.points[rows], q), case.centers) == labels[rows]).all()


def scores_in_floats(x: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The usual scores, not on the grid."""
    return (centers**2).sum(axis=1) - 2.0 * (x @ centers.T)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_grid_mends_what_floats_break(shape: tuple[int, int, int]) -> None:
    case = tied(*shape)
    whole = scores_in_floats(case.points, case.start).argmin(axis=1)
    changed = [
        i for i in range(2000) if scores_in_floats(case.points[i : i + 1], case.start).argmin(axis=1)[0] != whole[i]
    ]
    if not changed:
        pytest.skip("this machine's BLAS gives tied records the same label in all block sizes, off the grid as well")
    labels = assign(case.grid, case.centers)
    for i in changed[:300]:
        alone = quantise(case.points[i : i + 1], case.plan.fraction_bits)
        assert assign(alone, case.centers)[0] == labels[i]


@pytest.fixture(scope="module")
def digests_by_threads() -> dict[int, list[str]]:
    """Digests of all shapes, computed in a process of its own per number of BLAS threads."""
    found = {}
    for threads in THREADS:
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(threads))}
        program = "from tests.privacy.test_labels import SHAPES, digest\nfor shape in SHAPES: print(digest(*shape))"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        found[threads] = done.stdout.split()
    return found


@pytest.mark.parametrize("threads", THREADS)
def test_no_thread_count_changes_a_label_or_a_vector(threads: int, digests_by_threads: dict[int, list[str]]) -> None:
    assert digests_by_threads[threads] == [digest(*shape) for shape in SHAPES]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_resumed_client_computes_the_same_vector(shape: tuple[int, int, int]) -> None:
    case = tied(*shape)
    before = uplinks(case, StoredRounds(), noise=True)
    # It stopped after round 0's reply and before it wrote round 1's uplink down.
    stored = StoredRounds(uplinks={0: before["uplink-0"]}, replies={0: before["reply-0"]}, server_done=1)
    after = uplinks(case, stored, noise=True)
    assert "uplink-0" not in after
    assert after["uplink-1"] == before["uplink-1"]
    assert after["reply-1"] != before["reply-1"]  # so round 1 was computed anew
    # It is the vector of the centres that followed from reply 0, and the data enter it.
    first = local_update(case.grid, first_centers(case.plan, case.start), case.plan, 0)
    ring = Ring(case.plan.ring_bits)
    masks = MASKS[PartyId(1)].shaped(ring, case.plan.elements(0))
    sent = np.frombuffer(before["uplink-0"], dtype=ring.dtype)
    assert (ring.decode(sent - masks.mask(0, PartyId(1), NO_HISTORY)) == first).all()
