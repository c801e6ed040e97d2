"""Sketches: exact distributions, the keyed hash, levels on the wire, rows in the ledger."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import struct
import time
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError, DataError, RangeError
from fastlloyd.privacy.accountant import SAMPLER_DELTA, spent
from fastlloyd.privacy.release import SKETCH_ROWS, Release
from fastlloyd.protocols.vertical_dp.sketch.level import (
    MAX_PHANTOMS,
    level_table,
    phantom_table,
    phantoms_for,
    row_epsilon,
)
from fastlloyd.protocols.vertical_dp.sketch.sketch import (
    RECORDS_PER_NONCE,
    Levels,
    SketchShape,
    cell_blocks,
    change_release,
    join_levels,
    level_bits,
    make_sketch,
    pack_sketch,
    paper_phantoms,
    party_phantoms,
    raw_maxima,
    sketch_bytes,
    sketch_release,
    unpack_sketch,
)
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive, keystream
from fastlloyd.randomness.secret import SecretRandom

KEY = bytes(range(32))


def shape_of(**changes: object) -> SketchShape:
    return dataclasses.replace(SketchShape(rows=16, clusters=3, phantoms=5), **changes)


@pytest.mark.parametrize("gamma", [2.0**-11, 0.05, 1.0])
def test_a_users_level_is_geometric_to_the_precision_of_its_word(gamma: float) -> None:
    table = level_table(gamma)
    assert table.totals[0] == 0 and table.totals[-1] == 1 << 32
    assert all(low <= high for low, high in itertools.pairwise(table.totals))
    for a in (1, 2, 10, table.top // 2, table.top - 1):
        exact = Fraction(1) - (1 / (1 + Fraction(gamma))) ** a
        assert abs(Fraction(table.totals[a]) - exact * (1 << 32)) <= Fraction(1, 2) + Fraction(1, 2**40)


def test_levels_follow_the_table_at_every_step() -> None:
    table = level_table(0.5)
    steps = np.array(list(table.totals[1:-1]), dtype=np.uint32)
    at, below = table.levels(steps), table.levels(steps - np.uint32(1))
    for total, high, low in zip(steps.tolist(), at.tolist(), below.tolist(), strict=True):
        assert table.totals[high - 1] <= total < table.totals[high]
        assert table.totals[low - 1] <= total - 1 < table.totals[low]
    assert table.levels(np.array([0, 2**32 - 1], dtype=np.uint32)).tolist() == [1, table.top]


def test_every_word_of_few_bits_has_its_level() -> None:
    table = level_table(1.0, 6)
    levels = table.levels(np.arange(64, dtype=np.uint32))
    assert [int((levels <= a).sum()) for a in range(table.top + 1)] == list(table.totals)


@pytest.mark.parametrize("phantoms", [1, 7, 490])
def test_the_phantoms_distribution_is_a_power(phantoms: int) -> None:
    users, largest = level_table(0.05), phantom_table(0.05, phantoms)
    for a in (1, 60, 200, users.top - 1, users.top):
        exact = Fraction(users.totals[a], 1 << 32) ** phantoms * (1 << 64)
        assert 0 <= exact - largest.totals[a] < 1 + Fraction(1, 2**60)
    words = np.array([largest.totals[200], largest.totals[200] - 1], dtype=np.uint64)
    assert largest.levels(words).tolist() == [201, 200]


@pytest.mark.parametrize(("gamma", "phantoms"), [(2.0**-11, 490), (0.05, 3), (1.0, 1), (1.0, 40_000)])
def test_a_row_spends_what_the_number_of_phantoms_promises(gamma: float, phantoms: int) -> None:
    nominal = math.log1p(1.0 / phantoms)
    assert 0.99 * nominal <= row_epsilon(gamma, phantoms) <= nominal * (1.0 + 1e-6)


def test_row_epsilon_is_the_worst_over_all_cell_sizes() -> None:
    gamma, phantoms, bits = 0.7, 2, 6
    users, largest = level_table(gamma, bits), phantom_table(gamma, phantoms, bits)
    floor = users.floor(phantoms)
    worst = 0.0
    for size in range(40):
        masses = []
        for count in (size, size + 1):
            below = [Fraction(u, 64) ** count * v for u, v in zip(users.totals, largest.totals, strict=True)]
            masses.append([below[floor], *(high - low for low, high in itertools.pairwise(below[floor:]))])
        worst = max(worst, *(abs(math.log(two / one)) for one, two in zip(*masses, strict=True) if one or two))
    assert worst == pytest.approx(row_epsilon(gamma, phantoms, bits), rel=1e-12)


def power_at_length(total: int, bits: int, exponent: int) -> int:
    """Return 2^64 (total / 2^bits)^exponent, each product rounded down at 192 bits."""
    result, base = 1 << 192, total << (192 - bits)
    while exponent:
        if exponent & 1:
            result = result * base >> 192
        base, exponent = base * base >> 192, exponent >> 1
    return result >> 128


def all_levels(gamma: float, phantoms: int, bits: int) -> tuple[float, tuple[int, ...]]:
    """The epsilon of a row, from every level above the floor, and the phantoms' distribution, from every level."""
    users, one = level_table(gamma, bits), 1 << bits
    powers = [power_at_length(total, bits, phantoms) for total in users.totals]
    floor = users.floor(phantoms)
    most, over = one, users.totals[floor]
    for a in range(floor + 1, users.top + 1):
        u, v = users.totals[a], users.totals[a - 1]
        if u > v:
            assert powers[a] > powers[a - 1]
            rise, gap = u * powers[a] - v * powers[a - 1], one * (powers[a] - powers[a - 1])
            if rise * over > most * gap:
                most, over = rise, gap
    return math.log1p(float(Fraction(most - over, over))) * (1.0 + 2.0**-50), tuple(powers)


def of_any_size(most: int) -> st.SearchStrategy[int]:
    """Whole numbers from 1, of each length in bits alike."""
    return st.integers(1, most.bit_length()).flatmap(
        lambda bits: st.integers(1 << (bits - 1), min(most, (1 << bits) - 1))
    )


@given(st.floats(2.0**-6, 2.0), of_any_size(MAX_PHANTOMS), st.integers(1, 32))
@settings(max_examples=200)
@example(2.0, 1, 32)
@example(0.05, 1, 32)
@example(0.05, MAX_PHANTOMS, 32)
@example(0.05, MAX_PHANTOMS, 1)
@example(2.0**-11, 490, 32)
@example(2.0**-12, 1, 32)
def test_the_levels_left_out_change_no_bit(gamma: float, phantoms: int, bits: int) -> None:
    epsilon, powers = all_levels(gamma, phantoms, bits)
    assert row_epsilon(gamma, phantoms, bits) == epsilon
    assert phantom_table(gamma, phantoms, bits).totals == powers


@given(st.floats(1e-6, 50.0))
def test_the_number_of_phantoms_is_enough_and_no_larger(epsilon: float) -> None:
    phantoms = phantoms_for(epsilon)
    assert math.log1p(1.0 / phantoms) <= epsilon * (1.0 + 1e-9)
    assert phantoms == 1 or math.log1p(1.0 / (phantoms - 1)) > epsilon * (1.0 - 1e-9)


def test_the_floor_leaves_every_user_unseen_often_enough() -> None:
    shape = shape_of()
    cumulative = shape.user_levels.cumulative()
    assert cumulative[shape.floor] >= 5 / 6 > cumulative[shape.floor - 1]


def user_words(record: int, rows: int, key: bytes) -> np.ndarray:
    """One record's words, shape (rows,): its 4 bytes per row in the key stream of its 256 records."""
    block, place = divmod(record, 256)
    stream = keystream(derive(key, domains.SKETCH_USERS), struct.pack("<QI", block, 0), 4 * rows * (place + 1))
    return np.frombuffer(stream, dtype="<u4")[place * rows :]


@pytest.mark.parametrize("rows", [1, 7, 4096])
def test_the_maxima_are_those_of_the_records_own_words(rows: int) -> None:
    labels = np.random.default_rng(1).integers(-1, 4, 2 * RECORDS_PER_NONCE + 5)
    labels[labels == 2] = 1
    found = raw_maxima(labels, 4, rows, KEY)
    words = np.array([user_words(record, rows, KEY) for record in range(len(labels))])
    for a in (0, 1, 3):
        assert (found[:, a] == words[labels == a].max(axis=0)).all()
    assert (found[:, 2] == 0).all()


def test_words_depend_on_key_and_record_and_look_uniform() -> None:
    words = np.array([user_words(record, 4096, KEY) for record in (0, 1, RECORDS_PER_NONCE)])
    other = user_words(0, 4096, bytes(32))
    assert len({line.tobytes() for line in (*words, other)}) == 4
    counts = np.bincount((words >> np.uint32(24)).ravel(), minlength=256)
    # Chi-square with 255 degrees of freedom: 420 is exceeded once in 10^9 times.
    assert ((counts - 48.0) ** 2 / 48.0).sum() < 420.0


def test_phantom_words_do_not_depend_on_how_they_are_cut_into_blocks() -> None:
    cells = 70_001
    blocks = list(cell_blocks(KEY, 3, cells))
    assert [len(block) for block in blocks] == [1, 1, 1]
    flat = np.concatenate(list(cell_blocks(KEY, 3 * cells, 1)))
    assert (np.concatenate(blocks).ravel() == flat.ravel()).all()


def test_a_party_enters_the_phantoms_of_its_own_coordinate() -> None:
    shape = shape_of(parties=3)
    words = np.arange(2 * 27, dtype=np.uint64).reshape(2, 27)
    grid = words.reshape(2, 3, 3, 3)
    for party in range(3):
        own = party_phantoms(words, party, shape)
        for a in range(3):
            assert (own[:, a] == grid.take(a, axis=party + 1).max(axis=(1, 2))).all()


def test_parties_see_equal_levels_where_they_have_the_same_cluster() -> None:
    labels = np.zeros(50, dtype=np.int64)
    shape = shape_of(rows=64, clusters=1)
    assert (make_sketch(labels, 0, KEY, shape) == make_sketch(labels, 1, KEY, shape)).all()


def test_a_sketch_holds_users_phantoms_and_the_floor() -> None:
    shape = shape_of(rows=200)
    labels = np.array([0, 0, 1, -1, 1])
    phantoms = np.concatenate([party_phantoms(cells, 1, shape) for cells in cell_blocks(KEY, 200, 9)])
    expected = join_levels(raw_maxima(labels, 3, 200, KEY), phantoms, shape)
    found = make_sketch(labels, 1, KEY, shape)
    assert (found == expected).all() and found.min() >= shape.floor
    assert (found[:, 2] == np.maximum(shape.phantom_levels.levels(phantoms[:, 2]), shape.floor)).all()


def test_the_papers_phantoms_are_each_partys_own() -> None:
    shape = shape_of(rows=64, clusters=1, scheme="paper")
    nobody = np.zeros(0, dtype=np.int64)
    assert (make_sketch(nobody, 0, KEY, shape, SecretRandom()) != make_sketch(nobody, 0, KEY, shape)).any()


@pytest.mark.parametrize("labels", [[3], [-2], [[0]]])
def test_labels_that_do_not_fit_are_refused(labels: list[int]) -> None:
    with pytest.raises(DataError, match="labels"):
        make_sketch(np.array(labels), 0, KEY, shape_of())


@pytest.mark.slow
def test_a_sketch_of_many_records_is_fast() -> None:
    labels = np.random.default_rng(1).integers(0, 5, 100_000)
    shape = SketchShape(rows=4096, clusters=5, phantoms=500)
    start = time.process_time()
    make_sketch(labels, 0, KEY, shape)
    assert time.process_time() - start <= 5.0


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    shape = shape_of(rows=2048, clusters=2, phantoms=3)
    level_table(shape.gamma), phantom_table(shape.gamma, 3)
    peaks = []
    for n in (600, 6000):
        labels = np.zeros(n, dtype=np.int64)
        tracemalloc.start()
        make_sketch(labels, 0, KEY, shape)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] <= peaks[0] + 100_000


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 0}, {"rows": 1 << 17}, {"clusters": 0}, {"clusters": 257}, {"parties": 1}, {"parties": 12},
        {"gamma": 0.0}, {"gamma": 3.0}, {"gamma": math.nan}, {"phantoms": 0}, {"scheme": "none"}, {"word_bits": 33},
    ],
)  # fmt: skip
def test_shapes_out_of_range_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        shape_of(**changes)


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(1, 6), st.sampled_from([2.0**-11, 0.1, 1.0]), st.data())
def test_what_is_packed_comes_back(rows: int, clusters: int, gamma: float, data: st.DataObject) -> None:
    shape = SketchShape(rows=rows, clusters=clusters, gamma=gamma, phantoms=9)
    level = st.integers(shape.floor, shape.top)
    levels = np.array(data.draw(st.lists(level, min_size=rows * clusters, max_size=rows * clusters)))
    levels = levels.reshape(rows, clusters)
    content = pack_sketch(levels, shape)
    assert len(content) == sketch_bytes(shape)
    assert (unpack_sketch(content, shape) == levels).all()


def test_a_sketch_is_far_smaller_than_the_papers() -> None:
    assert sketch_bytes(SketchShape(rows=4096, clusters=5, phantoms=500)) <= 40_960 < 164_000
    assert sketch_bytes(SketchShape(rows=4096, clusters=8, phantoms=500)) <= 65_536 < 260_000


def test_damaged_sketches_are_refused() -> None:
    shape = SketchShape(rows=3, clusters=1, gamma=1.0, phantoms=9)
    content = pack_sketch(np.full((3, 1), shape.floor), shape)
    for damaged in (content[:-1], content + b"\0", content[:-1] + bytes([content[-1] | 1]), b"\xff" * len(content)):
        with pytest.raises(RangeError):
            unpack_sketch(damaged, shape)
    assert 3 * level_bits(shape) % 8


@pytest.mark.parametrize("levels", [np.zeros((3, 1), dtype=np.int64), np.full((3, 2), 9), np.full((3, 1), 99)])
def test_levels_that_do_not_fit_are_not_packed(levels: Levels) -> None:
    with pytest.raises(RangeError):
        pack_sketch(levels, SketchShape(rows=3, clusters=1, gamma=1.0, phantoms=9))


def exact_delta(epsilon: float, rows: int, at: float) -> float:
    """Return delta of `rows` randomised responses, from the definition."""
    p = 1.0 / (1.0 + math.exp(-epsilon))
    terms = (
        math.comb(rows, j) * (p**j * (1 - p) ** (rows - j) - math.exp(at) * p ** (rows - j) * (1 - p) ** j)
        for j in range(rows + 1)
    )
    return math.fsum(max(0.0, term) for term in terms)


def rows_release(epsilon: float, rows: int) -> Release:
    return Release(
        round=0, name="x", mechanism=SKETCH_ROWS, sensitivity=1.0, norm="pure", noise_scale=1.0 / epsilon, rows=rows
    )


@pytest.mark.parametrize(("epsilon", "rows", "delta"), [(0.1, 30, 1e-3), (0.01, 400, 1e-5), (1.0, 5, 1e-6)])
def test_rows_compose_as_randomised_responses(epsilon: float, rows: int, delta: float) -> None:
    found = spent([rows_release(epsilon, rows)], delta)
    # From above, and by less than the accountant's promise: below that distance the claim would fail.
    assert exact_delta(epsilon, rows, found) <= delta
    assert found == pytest.approx(rows * epsilon) or exact_delta(epsilon, rows, found * (1 - 1e-3)) > delta


def test_many_rows_compose_at_the_least_delta() -> None:
    # What is cut off their distribution counts as given away: it must stay far below what the sampler leaves of delta.
    assert spent([rows_release(0.01, 4000)], SAMPLER_DELTA + 1e-15) < 0.01 * 4000 / 4


def test_rows_in_one_or_two_releases_cost_the_same() -> None:
    both = [rows_release(0.01, 100), dataclasses.replace(rows_release(0.01, 300), name="y")]
    assert spent(both, 1e-5) == spent([rows_release(0.01, 400)], 1e-5)


def test_rows_and_laplace_noise_compose() -> None:
    laplace = Release(round=0, name="n", mechanism="laplace", sensitivity=1.0, norm="l1", noise_scale=50.0)
    rows = rows_release(0.002, 4096)
    alone, both = spent([rows], 1e-5), spent([rows, laplace], 1e-5)
    assert alone < both < alone + 0.02
    assert spent([rows, laplace], 0.0) == pytest.approx(4096 * 0.002 + 0.02)


def test_the_release_of_all_parties_counts_rows_and_groups() -> None:
    shape = SketchShape(rows=128, clusters=3, phantoms=40)
    release = sketch_release(shape, 6)
    assert (release.rows, release.noise_scale) == (768, 1.0 / shape.row_epsilon)
    assert Release.from_json(release.to_json()) == release
    twice = change_release(release)
    assert spent([twice], 0.0) == pytest.approx(2.0 * spent([release], 0.0))


def test_the_papers_phantoms_have_no_epsilon() -> None:
    release = sketch_release(SketchShape(rows=128, clusters=3, phantoms=40, scheme="paper"), 6)
    assert release.mechanism == "none" and spent([release], 1e-5) == math.inf


@pytest.mark.parametrize(
    "changes", [{"rows": 0}, {"rows": 1 << 25}, {"norm": "l1"}, {"mechanism": "laplace", "norm": "l1"}]
)
def test_releases_of_rows_that_do_not_fit_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        dataclasses.replace(rows_release(0.1, 10), **changes)


def test_sketches_of_fresh_keys_differ() -> None:
    labels = np.zeros(20, dtype=np.int64)
    one, two = (make_sketch(labels, 0, os.urandom(32), shape_of(rows=64)) for _ in range(2))
    assert (one != two).any()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_phantoms_for_no_epsilon_are_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="expected a positive epsilon per row"):
        phantoms_for(epsilon)
    with pytest.raises(ConfigError, match="expected a positive epsilon"):
        paper_phantoms(16, epsilon, 1e-5)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, math.nan])
def test_phantoms_for_no_delta_are_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta between 0 and 1"):
        paper_phantoms(16, 1.0, delta)


@pytest.mark.parametrize("gamma", [2.0**-12 * 0.999, 2.001, math.nan])
def test_levels_too_fine_or_too_coarse_are_refused(gamma: float) -> None:
    assert level_table(2.0**-12).top > level_table(2.0).top > 1
    with pytest.raises(ConfigError, match="expected a number from 2\\^-12 to 2"):
        level_table(gamma)


def test_a_level_s_share_of_the_words_is_the_nearest_there_is() -> None:
    # gamma = 1: 4, 2, 1, 1/2 and 1/4 words are left; one half counts as one.
    assert level_table(1.0, 3).totals == (0, 4, 6, 7, 7, 8)
    # gamma = 2: 8 / 3, 8 / 9 and 8 / 27 words are left, to the nearest 3, 1 and 0.
    assert level_table(2.0, 3).totals == (0, 5, 7, 8)


@pytest.mark.parametrize("bits", [0, 33])
def test_words_of_no_bits_or_too_many_are_refused(bits: int) -> None:
    assert level_table(1.0, 1).totals == (0, 1, 1, 2)
    with pytest.raises(ConfigError, match="expected words of 1 to 32 bits"):
        level_table(1.0, bits)
