"""Adding or removing one record or one user moves each statistic by at most what the plan states, exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import GridPoints, quantise
from fastlloyd.protocols.feddp.client import statistics_of
from fastlloyd.protocols.feddp.math.projection import MATRIX_BITS, Projection, choose_projected_bits, project
from fastlloyd.protocols.feddp.math.record import cut_norm
from fastlloyd.protocols.feddp.plan import Plan, StepPlan
from fastlloyd.protocols.feddp.settings import CENTERS, LLOYD, OUTER, WEIGHTS

KINDS = (OUTER, WEIGHTS, CENTERS, LLOYD)


def bare_plan(
    d: int,
    *,
    k: int = 3,
    q: int = 10,
    p: int = 8,
    norm: float = 0.7,
    by_user: bool = False,
    start: str = "feddp",
) -> Plan:
    """A plan without noise: its grids and bounds are what counts here."""
    clips = (norm**2, 1.0, norm / 2, math.sqrt(k)) if by_user else (0.0,) * 4
    rank = min(k, d)
    return Plan(
        protocol="feddp",
        clients=2,
        min_clients=2,
        masking="pairwise",
        k=k,
        choose_k=False,
        d=d,
        names=tuple(f"x{i}" for i in range(d)),
        n_total=1000,
        n_server=4,
        epsilon=1.0,
        delta=1e-6,
        seed=0,
        ring_bits=64,
        known_shares=1,
        privacy_level="client" if by_user else "record",
        start=start,
        norm_bound=norm,
        outer_clip=clips[0],
        weight_clip=clips[1],
        mean_clip=clips[2],
        count_clip=clips[3],
        fraction_bits=q,
        outer_bits=p,
        projected_bits=choose_projected_bits(norm, rank),
        rounds=tuple(StepPlan(kind=kind, sigma=0.0, scale=0.0) for kind in KINDS),
    )


def public_values(plan: Plan, seed: int) -> tuple[Projection, NDArray[np.int64], NDArray[np.int64]]:
    """A projection, projected centres and centres that the server might send."""
    rng = np.random.default_rng(seed)
    rows = np.linalg.qr(rng.normal(size=(plan.d, plan.rank)))[0].T
    matrix = np.rint(rows * 2.0**MATRIX_BITS).astype(np.int32)
    points = quantise(rng.uniform(-0.5, 0.5, (plan.n_server, plan.d)), plan.fraction_bits)
    points = cut_norm(points, plan.norm_limit)
    seen = project(points, matrix, plan.projected_bits).raw_coordinates.T.astype(np.int64)
    centers = np.rint(rng.uniform(-0.5, 0.5, (plan.k, plan.d)) * 2.0**plan.fraction_bits).astype(np.int64)
    return Projection(matrix, seen, plan.projected_bits), seen[: plan.k], centers


def all_statistics(
    x: NDArray[np.float64], users: NDArray[np.int64], plan: Plan, public: tuple
) -> list[NDArray[np.int64]]:
    """Every step's statistic of one table."""
    own = statistics_of(quantise(x, plan.fraction_bits), plan, users)
    projection, xi, nu = public
    return [
        own.outer_product(),
        own.weights(projection),
        own.projected_step(projection, xi),
        own.lloyd_step(nu),
    ]


def check(before: list[NDArray[np.int64]], after: list[NDArray[np.int64]], plan: Plan) -> None:
    """Compare two tables' statistics with the stated sensitivities, in integers."""
    for t, (one, other) in enumerate(zip(before, after, strict=True)):
        gauss, laplace = plan.sensitivities(t)
        change = [int(v) for v in (one - other)]
        if KINDS[t] == OUTER:
            assert sum(v * v for v in change) <= gauss * gauss
        elif KINDS[t] == WEIGHTS:
            assert sum(abs(v) for v in change) <= laplace
        else:
            cells = plan.k * plan.d
            assert sum(v * v for v in change[:cells]) <= gauss * gauss
            assert sum(abs(v) for v in change[cells:]) <= laplace


# Coordinates on and beyond the border, on half grid steps, tiny and zero.
COORDINATE = st.one_of(
    st.floats(-1.5, 1.5, allow_nan=False),
    st.sampled_from([0.0, 1.0, -1.0, 0.7, -0.7, 0.5 / 1024, 1.5 / 1024, 0.49497474683, 2.0**-30]),
)


def tables(d: int, most: int) -> st.SearchStrategy[NDArray[np.float64]]:
    rows = st.lists(st.lists(COORDINATE, min_size=d, max_size=d), min_size=1, max_size=most)
    return rows.map(lambda values: np.array(values, dtype=np.float64))


@settings(max_examples=60, deadline=None)
@given(
    tables(3, 6),
    st.integers(0, 5),
    st.sampled_from([(10, 10), (10, 8), (16, 9)]),
    st.sampled_from([0.7, 0.1, 1.7]),
    st.sampled_from(["feddp", "private"]),
)
def test_one_record_moves_each_statistic_by_at_most_its_sensitivity(x, which, grids, norm, start) -> None:
    plan = bare_plan(3, q=grids[0], p=grids[1], norm=norm, start=start)
    public = public_values(plan, which)
    users = np.zeros(len(x), dtype=np.int64)
    without = np.delete(x, which % len(x), axis=0)
    check(all_statistics(x, users, plan, public), all_statistics(without, users[1:], plan, public), plan)


@settings(max_examples=80, deadline=None)
@given(
    tables(3, 12),
    st.lists(st.integers(0, 2), min_size=12, max_size=12),
    st.sampled_from([(10, 10), (10, 8), (12, 6)]),
    st.sampled_from([(0.3, 1.0, 0.5, 1.5), (0.02, 0.25, 0.1, 0.3), (5.0, 9.0, 3.0, 3.0), None]),
    st.sampled_from(["feddp", "private"]),
)
def test_one_user_moves_each_statistic_by_at_most_its_sensitivity(x, numbers, grids, clips, start) -> None:
    plan = bare_plan(3, q=grids[0], p=grids[1], by_user=True, start=start)
    if clips is not None:
        names = ("outer_clip", "weight_clip", "mean_clip", "count_clip")
        plan = replace(plan, **dict(zip(names, clips, strict=True)))
    public = public_values(plan, 1)
    users = np.array(numbers[: len(x)], dtype=np.int64) * 7 - 3
    before = all_statistics(x, users, plan, public)
    for user in np.unique(users):
        rest = users != user
        check(before, all_statistics(x[rest], users[rest], plan, public), plan)


def test_the_constant_of_the_private_start_is_in_its_sensitivity_and_a_record_at_the_bound_reaches_most_of_it() -> None:
    plan = bare_plan(4, q=10, p=10, norm=0.5, start="private")
    own = statistics_of(quantise(np.array([[0.5, 0, 0, 0]]), 10), plan, None).outer_product().astype(float)
    # x^2, c x and c^2 of 512 and c = 256; the matrix has c x twice.
    assert sorted(own[own != 0]) == [256.0**2, 256.0 * 512, 512.0**2]
    assert plan.sensitivities(0)[0] == 512**2 + 256**2
    assert 0.87 < math.sqrt(float((own**2).sum())) / plan.sensitivities(0)[0] <= 1.0


@pytest.mark.parametrize("axis", [True, False])
def test_the_sensitivities_are_reached_by_a_record_at_the_bound(axis: bool) -> None:
    plan = bare_plan(4, q=10, p=10, norm=0.5)
    x = np.array([[0.5, 0, 0, 0]]) if axis else np.full((1, 4), 0.25)
    public = public_values(plan, 3)
    users = np.zeros(1, dtype=np.int64)
    outer, weights, sums, _ = all_statistics(x, users, plan, public)
    # Along an axis the upper triangle is the whole matrix; elsewhere it is at least 1 / sqrt(2) of its norm.
    reached = math.sqrt(float((outer.astype(float) ** 2).sum())) / plan.sensitivities(0)[0]
    assert reached == 1.0 if axis else 0.7 < reached < 1.0
    assert weights.sum() == plan.sensitivities(1)[1] == 1 << 10
    assert math.sqrt(float((sums[:12].astype(float) ** 2).sum())) == plan.sensitivities(2)[0] == 512
    assert sums[12:].sum() == plan.sensitivities(2)[1]


def test_bounds_that_no_user_reaches_change_nothing() -> None:
    rng = np.random.default_rng(0)
    plan = replace(bare_plan(3, by_user=True, p=10), outer_clip=100.0, weight_clip=50.0)
    record = replace(bare_plan(3, p=10), n_server=4)
    x = rng.uniform(-0.4, 0.4, (40, 3))
    public = public_values(plan, 0)
    users = rng.integers(0, 5, 40)
    ours = all_statistics(x, users, plan, public)
    theirs = all_statistics(x, users, record, public)
    assert (ours[0] == theirs[0]).all() and (ours[1] == theirs[1]).all()


def test_a_user_above_its_bounds_keeps_its_direction() -> None:
    rng = np.random.default_rng(1)
    plan = replace(bare_plan(3, q=16, p=14, by_user=True), mean_clip=0.2, count_clip=1.0, outer_clip=0.05)
    x, users = rng.uniform(-0.4, 0.4, (30, 3)) + 0.1, np.zeros(30, dtype=np.int64)
    public = public_values(plan, 0)
    outer, weights, sums, _ = all_statistics(x, users, plan, public)
    free = replace(plan, mean_clip=10.0, count_clip=10.0, outer_clip=100.0)
    free_outer, _, free_sums, _ = all_statistics(x, users, free, public)
    for mine, whole, bound in ((outer, free_outer, 0.05 * 4**14), (sums[:9], free_sums[:9], 0.2 * 2**16)):
        length = np.linalg.norm(mine)
        cosine = mine @ whole / length / np.linalg.norm(whole)
        assert cosine > 1 - 1e-4 and length <= bound
    # The outer product is measured as a whole matrix, of which the upper triangle is between 0.7 and 1.
    assert np.linalg.norm(outer) > 0.69 * 0.05 * 4**14
    assert weights.sum() == pytest.approx(2.0**16, rel=1e-3)
    # Means and units are cut by the same factor: the mean of means stays.
    filled = free_sums[9:] > 0
    mean = sums[:9].reshape(3, 3)[filled] / sums[9:][filled][:, None]
    assert np.allclose(mean, free_sums[:9].reshape(3, 3)[filled] / free_sums[9:][filled][:, None], atol=1e-3)


def test_a_label_depends_on_its_record_alone() -> None:
    # Points that lie exactly between two centres: whoever else is there, and in whatever order, labels stay.
    plan = bare_plan(2, k=2, q=10, p=10, norm=1.0)
    rng = np.random.default_rng(2)
    matrix = np.array([[1 << 16, 0], [0, 1 << 16]], dtype=np.int32)
    xi = np.array([[-1, 0], [1, 0]]) * (1 << (plan.projected_bits - 2))
    projection = Projection(matrix, xi, plan.projected_bits)
    x = np.stack([np.zeros(50), rng.uniform(-0.9, 0.9, 50)], axis=1)  # ties, all of them
    for rows in (np.arange(50), np.arange(50)[::-1], np.arange(1, 50), np.arange(1)):
        own = statistics_of(quantise(x[rows], 10), replace(plan, n_server=2))
        assert own.weights(projection).tolist() == [len(rows) << 10, 0]
        assert own.projected_step(projection, xi)[4:].tolist() == [len(rows) << 10, 0]


def test_cutting_to_the_norm_is_exact_and_close() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (2000, 7))
    points = quantise(x, 12)
    limit = 3000
    cut = cut_norm(points, limit)
    whole = cut.raw_coordinates.astype(object)
    squares = (whole * whole).sum(axis=0)
    assert max(squares) <= limit * limit
    assert (squares == cut.raw_squared_norms).all()
    long = points.raw_squared_norms > limit**2
    assert long.sum() > 100
    assert (cut.raw_coordinates[:, ~long] == points.raw_coordinates[:, ~long]).all()
    # Truncation takes off at most one grid step per coordinate.
    assert np.sqrt(np.array(squares[long], dtype=float)).min() > limit - math.sqrt(7) - 1
    assert cut_norm(cut, limit) is cut


def test_a_norm_that_rounds_up_is_cut_once_more() -> None:
    # 5^2 = 3^2 + 4^2: scaled from a multiple, the integer norm lands on the bound or just below, never above.
    for factor in range(2, 400):
        raw = np.array([[3 * factor], [4 * factor]], dtype=np.int32)
        points = GridPoints(raw, np.array([25.0 * factor**2]), 10)
        for limit in (5, 10, 25, 5 * factor - 1):
            cut = cut_norm(points, limit).raw_coordinates.astype(int)[:, 0]
            assert cut @ cut <= limit * limit
