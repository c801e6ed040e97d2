"""Lagrange codes: exact, t-private, and decoded from any sufficient set of clients."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.protocols.secfc.field import lagrange
from fastlloyd.protocols.secfc.field.lagrange import Code, completion_matrix, sum_weights
from fastlloyd.protocols.secfc.field.prime import Elements, Field
from fastlloyd.randomness.secret import SecretRandom

REAL = Field((16777213, 16777199, 65521))
TINY = Field((13,))
ALARM = 1e-7
SIZES = [(1, 1, 3), (1, 2, 5), (3, 1, 7), (2, 2, 8), (5, 3, 16), (1, 4, 10), (4, 4, 17)]


def all_vectors(p: int, length: int) -> Elements:
    """Every vector of this length over the field: shape (1, length, p^length), centred."""
    grid = np.stack(np.meshgrid(*[np.arange(p) - p // 2] * length, indexing="ij")).reshape(length, -1)
    return grid[None].astype(np.float64)


def scores(code: Code, shares: Elements, labels: NDArray[np.int64], k: int) -> Elements:
    """What all clients answer: |mu|^2 - 2 |S| mu.x on their shares; shape (primes, n, m, k)."""
    field, sizes = code.field, np.bincount(labels, minlength=k)
    answers = []
    for j in range(code.clients):
        mu = field.group_sums(shares[:, j], labels, k)
        scaled = field.multiply(field.encode(-2 * sizes)[:, :, None], mu)
        inner = field.matmul(shares[:, j], scaled.swapaxes(1, 2))
        answers.append(field.add(inner, field.squared_norms(mu)[:, None, :]))
    return np.stack(answers, axis=1)


@pytest.mark.parametrize("sizes", SIZES)
def test_shares_are_values_of_the_polynomial_through_segments_and_noise(sizes: tuple[int, int, int]) -> None:
    code = Code(REAL, *sizes)
    matrix = code.encoding_matrix()
    for i, p in enumerate(REAL.primes):
        for j, alpha in enumerate(code.alphas):
            for u, beta in enumerate(code.betas):
                exact = 1
                for other in code.betas:
                    if other != beta:
                        exact = exact * (alpha - other) * pow(beta - other, -1, p) % p
                assert matrix[i, j, u] % p == exact
        assert len({x % p for x in code.alphas + code.betas}) == len(code.alphas) + len(code.betas)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("d", [1, 5, 8])
def test_any_l_plus_t_clients_recover_a_point(sizes: tuple[int, int, int], d: int) -> None:
    code = Code(REAL, *sizes)
    rng = np.random.default_rng(d)
    points = rng.integers(-(2**16), 2**16, (6, d))
    shares = code.share(REAL.encode(points), SecretRandom())
    assert shares.shape == (len(REAL.primes), code.clients, 6, -(-d // code.segments))
    for _ in range(5):
        chosen = rng.permutation(code.clients)[: code.reveal]
        opened = code.decode_segments(shares[:, chosen], chosen + 1)
        assert (REAL.decode(code.join(opened, d)) == points).all()
    # One share less fits any point: the shares then say nothing of the last segment.
    fewer = code.decode_segments(shares[:, : code.reveal - 1], range(1, code.reveal), degree=code.degree - 1)
    assert (REAL.decode(code.join(fewer, d)) != points).any()


@pytest.mark.parametrize(("l", "t", "n"), [(1, 1, 3), (1, 2, 5), (2, 2, 7), (3, 1, 7)])
def test_any_t_shares_are_uniform_and_independent_of_the_data_in_every_case(l: int, t: int, n: int) -> None:  # noqa: E741
    # All noise vectors, one after the other: an exact statement, not a sample.
    code = Code(TINY, l, t, n)
    noise = all_vectors(13, t)
    matrix = code.encoding_matrix()
    for data in itertools.islice(itertools.product(range(-6, 7), repeat=l), 0, None, 29):
        fixed = np.repeat(np.array(data, dtype=np.float64)[None, :, None], noise.shape[2], axis=2)
        shares = TINY.matmul(matrix, np.concatenate([fixed, noise], axis=1))[0]
        for group in itertools.combinations(range(n), t):
            seen = Counter(map(tuple, shares[list(group)].T.tolist()))
            assert len(seen) == 13**t
            assert set(seen.values()) == {1}


def test_one_share_more_depends_on_the_data() -> None:
    # So the test above would notice a code that protects against fewer clients than it says.
    code = Code(TINY, 2, 1, 5)
    noise = all_vectors(13, 1)
    views = []
    for data in ((0, 0), (1, 4)):
        fixed = np.repeat(np.array(data, dtype=np.float64)[None, :, None], 13, axis=2)
        shares = TINY.matmul(code.encoding_matrix(), np.concatenate([fixed, noise], axis=1))[0]
        views.append(set(map(tuple, shares[:2].T.tolist())))
    assert views[0].isdisjoint(views[1])


@pytest.mark.parametrize("point", [(0, 0), (6, -6)])
def test_shares_as_drawn_are_jointly_uniform(point: tuple[int, int]) -> None:
    # Three groups for two points at 1e-7 each: a false alarm once in 1.6 million runs.
    code = Code(TINY, 2, 2, 7)
    draws = 20_000
    shares = code.share(TINY.encode(np.tile(np.array(point), (draws, 1))), SecretRandom())[0, :, :, 0].astype(int) + 6
    for i, j in ((0, 1), (2, 6), (5, 3)):
        cells = np.bincount(13 * shares[i] + shares[j], minlength=169)
        statistic = ((cells - draws / 169) ** 2 / (draws / 169)).sum()
        assert statistic < chi2.isf(ALARM, 168)


def test_real_shares_of_equal_points_are_uniform() -> None:
    # Six tests at 1e-7 each.
    code = Code(REAL, 2, 2, 7)
    shares = code.share(REAL.encode(np.full((30_000, 2), 123)), SecretRandom())
    for i, p in enumerate(REAL.primes[:2]):
        for j in (0, 3, 6):
            residues = shares[i, j, :, 0].astype(np.int64) % p
            cells = np.bincount(residues >> 16, minlength=256)
            assert ((cells - 30_000 / 256) ** 2 / (30_000 / 256)).sum() < chi2.isf(ALARM, 255)


@settings(deadline=None)
@given(st.sampled_from(SIZES), st.integers(0, 3), st.integers(1, 8), st.randoms(use_true_random=False))
def test_scores_decode_to_those_of_the_integers_from_any_enough_clients(
    sizes: tuple[int, int, int],
    more: int,
    d: int,
    random: object,
) -> None:
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    l, t, n = sizes  # noqa: E741
    code = Code(REAL, l, t, n + more)
    m, k = 12, 3
    points, labels = rng.integers(-(2**16), 2**16 + 1, (m, d)), rng.integers(0, k, m)
    answers = scores(code, code.share(REAL.encode(points), SecretRandom()), labels, k)
    mu = np.stack([points[labels == h].sum(axis=0) for h in range(k)])
    exact = (mu**2).sum(axis=1) - 2 * np.bincount(labels, minlength=k) * (points @ mu.T)
    chosen = rng.permutation(code.clients)[: code.recovery]
    assert (REAL.decode(code.decode_sums(answers[:, chosen], chosen + 1)) == exact).all()
    # Each segment's part of the score is there to be decoded too: what `zero_sum.py` is for.
    parts = REAL.decode(code.decode_segments(answers, range(1, n + more + 1), degree=2 * code.degree))
    width = code.width(d)
    for u in range(l):
        x, c = points[:, u * width : (u + 1) * width], mu[:, u * width : (u + 1) * width]
        assert (parts[u] == (c**2).sum(axis=1) - 2 * np.bincount(labels, minlength=k) * (x @ c.T)).all()


def test_sums_come_from_the_first_answers_only() -> None:
    code = Code(REAL, 2, 1, 7)
    answers = REAL.uniform((7, 4), SecretRandom())
    decoded = code.decode_sums(answers, range(1, 8))
    answers[:, code.recovery :] = 0
    assert (code.decode_sums(answers, range(1, 8)) == decoded).all()
    assert (decoded[:, 0] == code.decode_sums(answers[:, :, 0], range(1, 8))).all()


def test_splitting_fills_up_with_zeros_and_joining_undoes_it() -> None:
    code = Code(REAL, 3, 1, 7)
    points = np.arange(1, 15).reshape(2, 7)
    segments = code.split(REAL.encode(points))
    assert REAL.decode(segments)[:, 0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 0, 0]]
    assert (REAL.decode(code.join(segments, 7)) == points).all()


def test_too_few_clients_name_the_mend() -> None:
    with pytest.raises(
        ConfigError, match=r"need at least 2l \+ 2t - 1 = 7 clients, got 6; lower l or t so that l \+ t <= 3"
    ):
        Code(REAL, 2, 2, 6)
    with pytest.raises(ConfigError, match="threshold of at least 1"):
        Code(REAL, 2, 0, 6)
    with pytest.raises(ConfigError, match="do not fit the prime 13"):
        Code(TINY, 3, 3, 11)


def test_points_move_where_masks_would_not_be_determined() -> None:
    # Over 13 with l = 1: prod (beta_1 - alpha_j) is never 0; with more segments the sum can be, and then the
    # points are others than the first ones.
    moved = 0
    for p in (11, 13, 17, 19, 23, 29, 31):
        for l, t in ((2, 1), (3, 1), (2, 2)):  # noqa: E741
            n = 2 * l + 2 * t - 1
            if l + t + n >= p:
                continue
            try:
                code = Code(Field((p,)), l, t, n)
            except ConfigError:
                continue
            total = 0
            for beta in code.betas[:l]:
                product = 1
                for alpha in code.alphas[: n - 1]:
                    product *= beta - alpha
                total += product
            assert total % p != 0
            moved += code.alphas[0] != l + t + 1
    assert moved > 0


@pytest.mark.parametrize("responders", [(1, 2, 3, 4), (1, 2, 3, 4, 4), (0, 1, 2, 3, 4), (1, 2, 3, 4, 8)])
def test_a_wrong_set_of_clients_is_a_bug(responders: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="distinct clients of 1..7"):
        Code(REAL, 2, 1, 7).decode_sums(np.zeros((len(REAL.primes), 5, 1)), responders)


def test_matrices_are_computed_once_and_cannot_be_changed() -> None:
    code = Code(REAL, 2, 1, 7)
    assert sum_weights(code, (1, 2, 3, 4, 5)) is sum_weights(Code(REAL, 2, 1, 7), (1, 2, 3, 4, 5))
    for matrix in (sum_weights(code, (1, 2, 3, 4, 5)), code.encoding_matrix(), completion_matrix(code)):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0] = 0


@pytest.mark.parametrize("sources", [(1, 2, 5), (3,), (0, 4, 7, 11)])
def test_a_polynomial_is_read_off_at_any_point_its_sources_included(sources: tuple[int, ...]) -> None:
    coefficients = range(2, 2 + len(sources))

    def value(x: int) -> int:
        return sum(c * x**i for i, c in enumerate(coefficients)) % 13

    for target in range(13):
        row = lagrange._lagrange_row(13, sources, target)
        assert sum(w * value(x) for w, x in zip(row, sources, strict=True)) % 13 == value(target)


def test_the_last_points_of_a_small_field_are_used() -> None:
    # 13 elements: beta = 1, 2 and ten clients at 3 to 12, the one place for them.
    assert Code(TINY, 1, 1, 10).alphas == tuple(range(3, 13))
    with pytest.raises(ConfigError):
        Code(TINY, 1, 1, 11)
