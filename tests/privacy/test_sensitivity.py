"""What one record can change in a client's whole update: at most what the ledger states, in its norm, and no less.

Every comparison is in integers, so there are no false alarms and no tolerances.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastlloyd.kmeans.grid import quantise
from fastlloyd.kmeans.update import join, split
from fastlloyd.masking.fixed import Ring
from fastlloyd.party.effects import Save
from fastlloyd.privacy.release import Release
from fastlloyd.protocols.fastlloyd.client import client
from fastlloyd.protocols.fastlloyd.plan import Plan, make_plan
from fastlloyd.protocols.fastlloyd.rounds import Centers, first_centers, local_update, post_process
from fastlloyd.wire.header import PartyId
from tests.protocols.support import common_masks, parameters

PROTOCOLS = ["fastlloyd", "glloyd", "sulloyd", "lloyd"]
ROUNDS = 3
Floats = NDArray[np.float64]
Vector = NDArray[np.int64]
Update = Callable[[Floats, Centers, Plan, int], Vector]


@functools.cache
def plan_of(protocol: str, k: int, d: int) -> Plan:
    public = parameters(1000, k, protocol=protocol, rounds=ROUNDS)
    return make_plan(public, d=d, names=tuple(f"x{i}" for i in range(d)))


def tiny(protocol: str, k: int, d: int, bits: int, radius: int) -> Plan:
    """The same plan on a grid so coarse that all records can be tried."""
    plan = plan_of(protocol, k, d)
    rounds = tuple(
        dataclasses.replace(r, radius=None if r.radius is None else radius + t) for t, r in enumerate(plan.rounds)
    )
    return dataclasses.replace(plan, fraction_bits=bits, rounds=rounds)


def real(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    return local_update(quantise(points, plan.fraction_bits), centers, plan, t)


def size(change: Vector, release: Release) -> int:
    """The change in the release's norm; squared if that is L2."""
    values = [int(v) for v in change.ravel()]
    return sum(abs(v) for v in values) if release.norm == "l1" else sum(v * v for v in values)


def limit(release: Release) -> int:
    """The stated sensitivity on the same scale; sqrt(d) 2^q squared is an integer."""
    return round(release.sensitivity) if release.norm == "l1" else round(release.sensitivity**2)


def broken_promise(change: Vector, plan: Plan, t: int) -> str | None:
    """Say which promise of round t's releases a change by one record breaks, if any."""
    sums, counts = split(change, plan.k, plan.d)
    stated_sums, stated_counts = plan.releases(t)
    if (sums.any(axis=1) | (counts != 0)).sum() > 1:
        return "rows"
    if size(sums, stated_sums) > limit(stated_sums):
        return "sums"
    if size(counts, stated_counts) > limit(stated_counts):
        return "counts"
    return None


def grid_centers(rows: list[list[int]], plan: Plan) -> Centers:
    grid = np.array(rows, dtype=np.int64)
    return Centers(grid / 2.0**plan.fraction_bits, grid, np.zeros(len(rows)))


def grid_records(d: int, bits: int) -> Floats:
    """Every record of the grid."""
    axis = np.arange(-(2**bits), 2**bits + 1) / 2.0**bits
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)


# Equal centres, centres on the border, and borders between centres that run through grid points.
PLACES = {
    1: [[[-16], [0], [16]], [[-5], [5], [5]], [[1], [2], [-1]]],
    2: [[[-8, -8], [0, 0], [8, 8]], [[-3, 0], [3, 0], [0, 3]], [[2, 2], [2, 2], [-8, 8]]],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("d,bits,radius", [(1, 4, 4), (2, 3, 5)])
def test_every_record_of_a_grid_added_alone_or_to_others_and_the_bound_is_met(
    protocol: str, d: int, bits: int, radius: int
) -> None:
    plan = tiny(protocol, 3, d, bits, radius)
    records = grid_records(d, bits)
    for t in range(ROUNDS):
        largest = [0, 0]
        for place in PLACES[d]:
            centers = grid_centers(place, plan)
            for base in (records[:0], records[::7]):
                without = real(base, centers, plan, t)
                for x in records:
                    change = real(np.concatenate([base, x[None]]), centers, plan, t) - without
                    assert broken_promise(change, plan, t) is None
                    for i, (part, release) in enumerate(zip(split(change, 3, d), plan.releases(t), strict=True)):
                        largest[i] = max(largest[i], size(part, release))
        # Met exactly: a smaller sensitivity would be wrong, a larger one would waste noise.
        assert largest == [limit(release) for release in plan.releases(t)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_tables_of_up_to_three_records_and_all_their_neighbours(protocol: str) -> None:
    plan = tiny(protocol, 2, 1, 2, 2)
    records = grid_records(1, 2)
    for place in ([[-2], [2]], [[1], [1]], [[4], [0]]):
        centers = grid_centers(place, plan)
        tables = [table for n in range(4) for table in itertools.combinations_with_replacement(range(len(records)), n)]
        updates = {table: real(records[list(table)].reshape(-1, 1), centers, plan, 1) for table in tables}
        for table, update in updates.items():
            for i in range(len(table)):
                removed = updates[table[:i] + table[i + 1 :]]
                assert broken_promise(removed - update, plan, 1) is None


def hard_records(rng: np.random.Generator, centers: Centers, plan: Plan, t: int) -> Floats:
    """Records on the radius, on borders between clusters, beyond the bounds, and a fraction of the grid off these."""
    step = 2.0**-plan.fraction_bits
    radius = plan.rounds[t].radius or 2**plan.fraction_bits
    k, d = centers.exact.shape
    angle = rng.normal(size=(8, d))
    angle /= np.linalg.norm(angle, axis=1, keepdims=True)
    at = centers.grid[rng.integers(0, k, 8)] * step
    on_radius = at + angle * radius * step
    on_axis = at + np.eye(d)[rng.integers(0, d, 8)] * radius * step * rng.choice([-1, 1], (8, 1))
    between = (at + centers.grid[rng.integers(0, k, 8)] * step) / 2
    outside = rng.uniform(-3, 3, (4, d))
    corner = rng.choice([-1.0, 1.0], (4, d)) * np.array([[1.0], [1.0], [np.nextafter(1.0, 2.0)], [1e300]])
    records = np.concatenate([on_radius, on_axis, between, outside, corner])
    return records + rng.choice([0.0, 0.0, 1e-9, 0.49, 0.5, 0.51], records.shape) * step * rng.choice(
        [-1, 1], records.shape
    )


def adaptive_centers(rng: np.random.Generator, plan: Plan, t: int) -> Centers:
    """Centres of round t after arbitrary releases: the bound must hold for every one of them."""
    centers = first_centers(plan, rng.uniform(-1, 1, (plan.k, plan.d)))
    for earlier in range(t):
        scale = 2.0 ** rng.integers(0, plan.fraction_bits + 6)
        noisy = np.rint(rng.normal(0, scale, plan.elements(earlier))).astype(np.int64)
        centers = post_process(noisy, centers, plan, earlier)
    return centers


@given(st.sampled_from(PROTOCOLS), st.sampled_from([(1, 1), (3, 1), (4, 2), (40, 2), (3, 5)]), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_adding_and_removing_hard_records_in_every_round(protocol: str, shape: tuple[int, int], seed: int) -> None:
    plan = plan_of(protocol, *shape)
    rng = np.random.default_rng(seed)
    for t in range(ROUNDS):
        centers = adaptive_centers(rng, plan, t)
        records = hard_records(rng, centers, plan, t)
        everybody = real(records, centers, plan, t)
        nobody = real(records[:0], centers, plan, t)
        assert not nobody.any()
        for i in range(len(records)):
            alone = real(records[i : i + 1], centers, plan, t)
            removed = everybody - real(np.delete(records, i, axis=0), centers, plan, t)
            assert broken_promise(removed, plan, t) is None
            # The record's effect is the same whoever else is there.
            assert (removed == alone).all()


@given(st.integers(1, 2000), st.lists(st.floats(-0.75, 0.75), min_size=1, max_size=3), st.booleans())
@settings(max_examples=200, deadline=None)
def test_records_just_beyond_the_radius_are_decided_on_the_grid(radius: int, off: list[float], negative: bool) -> None:
    d = len(off)
    plan = plan_of("fastlloyd", 1, d)
    plan = dataclasses.replace(plan, rounds=(dataclasses.replace(plan.rounds[0], radius=radius),))
    centers = grid_centers([[0] * d], plan)
    offset = np.array(off)
    offset[0] += -radius if negative else radius
    record = offset[None] / 2.0**plan.fraction_bits
    change = real(record, centers, plan, 0)
    rounded = [int(v) for v in np.rint(offset)]
    kept = sum(v * v for v in rounded) <= radius * radius
    assert change.tolist() == ([*rounded, 1 << plan.fraction_bits] if kept else [0] * (d + 1))
    assert broken_promise(change, plan, 0) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_client_sends_moves_by_no_more(protocol: str) -> None:
    plan = plan_of(protocol, 4, 2)
    rng = np.random.default_rng(3)
    masks = common_masks(1, bytes(32))[PartyId(1)]
    start = rng.uniform(-1, 1, (4, 2))
    records = hard_records(rng, first_centers(plan, start), plan, 0)

    def uplink(points: Floats) -> NDArray[np.uint32]:
        party = client(PartyId(1), quantise(points, plan.fraction_bits), plan, masks, start=start)
        saved = next(effect for effect in party if isinstance(effect, Save))
        assert saved.name == "uplink-0"
        return np.frombuffer(saved.content, dtype="<u4")

    whole = uplink(records)
    for i in range(len(records)):
        change = Ring(32).decode(whole - uplink(np.delete(records, i, axis=0)))
        assert broken_promise(change, plan, 0) is None


# Updates that look right and are not. Each must be found out by the same search that the real one passes.


def _labels(x: Floats, centers: Centers) -> NDArray[np.int64]:
    return ((x[:, None, :] - centers.grid[None]) ** 2).sum(axis=2).argmin(axis=1)


def _add(x: Floats, labels: NDArray[np.int64], kept: NDArray[np.bool_], centers: Centers, plan: Plan) -> Vector:
    """Add up rows of x (grid units, perhaps fractions); round at the end."""
    sums, counts = np.zeros((plan.k, plan.d)), np.zeros(plan.k)
    np.add.at(sums, labels[kept], (x - centers.grid[labels] if plan.relative else x)[kept])
    np.add.at(counts, labels[kept], 1.0)
    return join(np.rint(sums), np.rint(counts * 2**plan.fraction_bits)).astype(np.int64)


def _inside(x: Floats, labels: NDArray[np.int64], centers: Centers, radius: float | None) -> NDArray[np.bool_]:
    if radius is None:
        return np.ones(len(x), dtype=bool)
    return ((x - centers.grid[labels]) ** 2).sum(axis=1) <= radius**2


def rounding_after_summing(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    x = np.clip(points, -1, 1) * 2.0**plan.fraction_bits
    labels = _labels(x, centers)
    return _add(x, labels, _inside(x, labels, centers, plan.rounds[t].radius), centers, plan)


def radius_checked_before_rounding(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    x = np.clip(points, -1, 1) * 2.0**plan.fraction_bits
    labels = _labels(x, centers)
    return _add(np.rint(x), labels, _inside(x, labels, centers, plan.rounds[t].radius), centers, plan)


def radius_one_too_wide(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    x = np.rint(np.clip(points, -1, 1) * 2.0**plan.fraction_bits)
    labels = _labels(x, centers)
    return _add(x, labels, _inside(x, labels, centers, (plan.rounds[t].radius or 0) + 1), centers, plan)


def no_radius(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    x = np.rint(np.clip(points, -1, 1) * 2.0**plan.fraction_bits)
    labels = _labels(x, centers)
    return _add(x, labels, _inside(x, labels, centers, None), centers, plan)


def sums_of_the_records_themselves(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    x = np.rint(np.clip(points, -1, 1) * 2.0**plan.fraction_bits)
    labels = _labels(x, centers)
    kept = _inside(x, labels, centers, plan.rounds[t].radius)
    return _add(x, labels, kept, centers, dataclasses.replace(plan, relative=False))


def not_clipped_to_the_bounds(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    x = np.rint(np.clip(points, -1.25, 1.25) * 2.0**plan.fraction_bits)
    labels = _labels(x, centers)
    return _add(x, labels, _inside(x, labels, centers, None), centers, plan)


def phantom_in_empty_clusters(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    sums, counts = split(real(points, centers, plan, t).copy(), plan.k, plan.d)
    empty = counts == 0
    sums[empty], counts[empty] = centers.grid[empty], 1 << plan.fraction_bits
    return join(sums, counts)


def ties_broken_by_the_number_of_records(points: Floats, centers: Centers, plan: Plan, t: int) -> Vector:
    turned = Centers(centers.exact[::-1], centers.grid[::-1], centers.noisy_counts)
    if len(points) % 2:
        return real(points, centers, plan, t)
    sums, counts = split(real(points, turned, plan, t), plan.k, plan.d)
    return join(sums[::-1], counts[::-1])


def neighbours(plan: Plan, seed: int) -> Iterator[tuple[Centers, int, Floats]]:
    rng = np.random.default_rng(seed)
    for i in range(60):
        t = i % ROUNDS
        centers = adaptive_centers(rng, plan, t)
        yield centers, t, hard_records(rng, centers, plan, t)


def first_broken_promise(update: Update, plan: Plan) -> str | None:
    """Remove each record from small tables and give the first promise that this breaks."""
    for centers, t, records in neighbours(plan, 11):
        for size_ in (1, 2, 5):
            for table in np.array_split(records, len(records) // size_):
                without = update(table[1:], centers, plan, t)
                broken = broken_promise(update(table, centers, plan, t) - without, plan, t)
                if broken is not None:
                    return broken
    return None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_search_finds_nothing_in_the_real_update(protocol: str) -> None:
    assert first_broken_promise(real, tiny(protocol, 3, 2, 4, 6)) is None


@pytest.mark.parametrize(
    "protocol,update,found",
    [
        ("fastlloyd", rounding_after_summing, "sums"),
        ("fastlloyd", radius_checked_before_rounding, "sums"),
        ("fastlloyd", radius_one_too_wide, "sums"),
        ("fastlloyd", no_radius, "sums"),
        ("fastlloyd", sums_of_the_records_themselves, "sums"),
        ("fastlloyd", ties_broken_by_the_number_of_records, "rows"),
        ("glloyd", not_clipped_to_the_bounds, "sums"),
        ("sulloyd", not_clipped_to_the_bounds, "sums"),
        ("glloyd", phantom_in_empty_clusters, "sums"),
        ("sulloyd", phantom_in_empty_clusters, "sums"),
        ("glloyd", ties_broken_by_the_number_of_records, "rows"),
    ],
)
def test_the_search_finds_updates_that_move_too_far(protocol: str, update: Update, found: str) -> None:
    assert first_broken_promise(update, tiny(protocol, 3, 2, 4, 6)) == found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_search_finds_a_ledger_that_states_too_little(protocol: str) -> None:
    honest = tiny(protocol, 3, 2, 4, 6)

    class Understated(Plan):
        def releases(self, t: int) -> tuple[Release, ...]:
            return tuple(
                dataclasses.replace(release, sensitivity=0.9 * release.sensitivity) for release in super().releases(t)
            )

    fields = {field.name: getattr(honest, field.name) for field in dataclasses.fields(Plan)}
    assert first_broken_promise(real, Understated(**fields)) in ("sums", "counts")


def test_one_record_moves_a_sum_rounded_at_the_end_by_more_than_the_radius() -> None:
    # Offsets (4.24, 4.24) have norm 5.996 <= 6, but beside (0.3, 0.3) they take the rounded sum from (0, 0) to (5, 5),
    # whose norm is 7.07.
    plan = tiny("fastlloyd", 1, 2, 4, 6)
    centers = grid_centers([[0, 0]], plan)
    table = np.array([[4.24, 4.24], [0.3, 0.3]]) / 16
    moved = {
        update: size(
            split(update(table, centers, plan, 0) - update(table[1:], centers, plan, 0), 1, 2)[0], plan.releases(0)[0]
        )
        for update in (real, rounding_after_summing)
    }
    assert moved[rounding_after_summing] == 50
    assert moved[real] == 32 <= 36 == limit(plan.releases(0)[0])
