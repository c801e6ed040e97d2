"""The noise: exactly a rounded normal or Laplace variable, and statistically so.

Every statistical test has a false-alarm rate of at most `ALARM`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2, laplace, norm

from fastlloyd.errors import ConfigError, InternalError, RangeError
from fastlloyd.privacy.noise import sampler
from fastlloyd.privacy.noise.sampler import box_muller, exponential, round_laplace, round_normal
from fastlloyd.randomness.secret import SecretRandom

ALARM = 1e-7
# A standard normal statistic exceeds this with probability ALARM.
LIMIT = norm.isf(ALARM / 2)
N = 200_000
# The bits that follow the first 64 of every uniform in the exactness tests.
CONTINUATION = 0x9E3779B97F4A7C15
EDGES = [0, 1, 2, 3, 2**32, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 3 * 2**62, 2**64 - 2, 2**64 - 1]


def real_uniform(word: int) -> mpmath.mpf:
    """Return the real number whose bits are `word` and then `CONTINUATION` for ever."""
    return (mpmath.mpf(word) + mpmath.mpf(CONTINUATION) / (2**64 - 1)) / mpmath.mpf(2) ** 64


def nearest(value: mpmath.mpf) -> int:
    return int(mpmath.floor(value + mpmath.mpf(1) / 2))


def exact_normals(sigma: float, first: int, second: int) -> tuple[int, int]:
    with mpmath.workprec(500):
        radius = sigma * mpmath.sqrt(-2 * mpmath.log(real_uniform(first)))
        angle = 2 * mpmath.pi * real_uniform(second)
        return nearest(radius * mpmath.cos(angle)), nearest(radius * mpmath.sin(angle))


def exact_exponential(scale: float, first: int) -> int:
    with mpmath.workprec(500):
        return nearest(-scale * mpmath.log(real_uniform(first)))


def words(count: int, seed: int) -> np.ndarray:
    """Return fixed words: random ones, then small, large and edge values."""
    rng = np.random.default_rng(seed)
    many = rng.integers(0, 2**64, count, dtype=np.uint64)
    many[: count // 8] >>= rng.integers(0, 64, count // 8, dtype=np.uint64)
    many[count // 8 : count // 4] = ~(many[count // 8 : count // 4] >> np.uint64(40))
    return np.concatenate((np.array(EDGES, dtype=np.uint64), many))


class Draws:
    """Gives the continuation and counts how often it was asked."""

    def __init__(self, values: Iterator[int] | None = None) -> None:
        self.count = 0
        self.values = values

    def __call__(self) -> int:
        self.count += 1
        return CONTINUATION if self.values is None else next(self.values)


SCALES = [1e-300, 0.3, 0.7, 1000.0, 2.0**20 + 0.1, 2.0**38, 2.0**46 / 3, 2.0**55]


@pytest.mark.parametrize("sigma", SCALES)
def test_normals_are_rounded_exactly(sigma):
    first, second = words(300, 1), np.roll(words(300, 2), 5)
    draw = Draws()
    ours = box_muller(sigma, first, second, draw)
    exact = [exact_normals(sigma, int(u), int(v)) for u, v in zip(first, second, strict=True)]
    assert ours.reshape(2, -1).T.tolist() == [list(pair) for pair in exact]
    # u = 0 always draws on; beyond the precision of floats all do.
    assert draw.count >= (2 * 300 if sigma == 2.0**55 else 2)


def test_normals_on_all_pairs_of_edges_are_rounded_exactly():
    first, second = (grid.ravel() for grid in np.meshgrid(*[np.array(EDGES, dtype=np.uint64)] * 2))
    ours = box_muller(4096.0, first, second, Draws())
    exact = [exact_normals(4096.0, int(u), int(v)) for u, v in zip(first, second, strict=True)]
    assert ours.reshape(2, -1).T.tolist() == [list(pair) for pair in exact]


@pytest.mark.parametrize("scale", SCALES)
def test_exponentials_are_rounded_exactly(scale):
    first = words(400, 3)
    ours = exponential(scale, first, Draws())
    assert ours.tolist() == [exact_exponential(scale, int(u)) for u in first]


def test_values_beside_a_half_integer_are_rounded_exactly():
    # Sigma is chosen so that the cosine is 1000.5 but for the last bits of sigma: floats alone fail here.
    rng = np.random.default_rng(8)
    by_floats = 0
    for first in (rng.integers(1, 2**64, 500, dtype=np.uint64) >> np.uint64(10)).tolist():
        second = int(rng.integers(0, 2**64, dtype=np.uint64))
        with mpmath.workprec(500):
            radius = mpmath.sqrt(-2 * mpmath.log(real_uniform(first)))
            sigma = abs(float(mpmath.mpf(1000.5) / (radius * mpmath.cos(2 * mpmath.pi * real_uniform(second)))))
        words = np.array([first], dtype=np.uint64), np.array([second], dtype=np.uint64)
        exact = exact_normals(sigma, first, second)
        assert tuple(box_muller(sigma, *words, Draws())) == exact
        by_floats += tuple(box_muller(sigma, *words, Draws(), inflate=0.0)) == exact
    assert by_floats < 500


@pytest.mark.parametrize("sigma", [0.7, 4096.0, 2.0**30])
def test_the_slow_path_agrees_with_the_fast_one(sigma):
    first, second = words(1500, 4), np.roll(words(1500, 5), 3)
    fast, slow = Draws(), Draws()
    ours = box_muller(sigma, first, second, fast)
    assert np.array_equal(ours, box_muller(sigma, first, second, slow, inflate=math.inf))
    assert fast.count < slow.count / 4
    assert slow.count >= 2 * first.size


class Rough:
    """numpy, but logarithm, sine and cosine are off by six more units of 2^-53: the bounds allow for eight."""

    def __init__(self, sign: int) -> None:
        self._factor = 1.0 + sign * 6.0 * 2.0**-53

    def __getattr__(self, name: str):
        exact = getattr(np, name)
        return (lambda x: exact(x) * self._factor) if name in ("log", "cos", "sin") else exact


@pytest.mark.parametrize("sign", [1, -1])
def test_the_error_bounds_hold_with_rough_functions(sign, monkeypatch):
    seen = []

    def keep(values, error):
        seen.append((values.copy(), error.copy()))
        return np.rint(values).astype(np.int64), np.array([], dtype=np.int64)

    first, second = words(60, 9)[1:], np.roll(words(60, 10), 7)[1:]
    first, second = first[first > 0], second[first > 0]
    scale = 2.0**30 / 3
    monkeypatch.setattr(sampler, "round_certain", keep)
    monkeypatch.setattr(sampler, "np", Rough(sign))
    box_muller(scale, first, second, Draws())
    exponential(scale, first, Draws(), shift=0.5)
    monkeypatch.undo()
    (normals, normal_error), (exponentials, exponential_error) = seen
    with mpmath.workprec(300):
        for i, (word, angle) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            for u, v in ((word, angle), (word + 1, angle), (word, angle + 1), (word + 1, angle + 1)):
                log, turn = mpmath.log(mpmath.mpf(u) / 2**64), 2 * mpmath.pi * mpmath.mpf(v) / 2**64
                radius = scale * mpmath.sqrt(-2 * log)
                assert abs(-scale * log - 0.5 - exponentials[i]) <= exponential_error[i]
                assert abs(radius * mpmath.cos(turn) - normals[i]) <= normal_error[i]
                assert abs(radius * mpmath.sin(turn) - normals[i + first.size]) <= normal_error[i + first.size]


def test_the_slow_exponential_agrees_with_the_fast_one():
    first = words(3000, 6)
    fast, slow = Draws(), Draws()
    ours = exponential(4096.0, first, fast)
    assert np.array_equal(ours, exponential(4096.0, first, slow, inflate=math.inf))
    assert fast.count < slow.count / 4
    assert slow.count >= first.size


def test_the_fast_path_is_the_usual_one():
    first, second = (np.random.default_rng(7).integers(0, 2**64, N, dtype=np.uint64) for _ in range(2))
    draw = Draws()
    box_muller(4096.0, first, second, draw)
    # 2 N values, each unsure with probability about 2^-33: fixed words, so no false alarm at all.
    assert draw.count == 0
    box_muller(2.0**36, first, second, draw)
    assert 0 < draw.count < N / 10


def test_the_tail_has_no_end():
    # u = 2^-(64 words - 1), angle 0: each further word of zeros goes deeper.
    for zeros, sigmas in ((1, 13), (2, 16), (6, 24)):
        bits = 64 * (zeros + 1)
        values = iter([word for _ in range(zeros - 1) for word in (0, 0)] + [1, 0] + [0, 0] * 40)
        noise = box_muller(1000.0, np.zeros(1, np.uint64), np.zeros(1, np.uint64), Draws(values))
        assert noise[0] == round(1000.0 * math.sqrt(2 * bits * math.log(2)))
        assert noise[0] > 1000 * sigmas
        assert noise[1] == 0


def test_the_laplace_tail_has_no_end():
    noise = exponential(1000.0, np.zeros(1, np.uint64), Draws(iter([1, *[0] * 40])))
    assert noise[0] == round(1000.0 * 128 * math.log(2))


def test_six_standard_deviations_are_reached_by_ordinary_words():
    first = np.array([2**30], dtype=np.uint64)
    noise = box_muller(1000.0, first, np.zeros(1, np.uint64), Draws())
    assert noise[0] == round(1000.0 * math.sqrt(2 * 34 * math.log(2))) > 6000


def test_bits_that_repeat_for_ever_end_in_an_error():
    with pytest.raises(InternalError, match="random bits"):
        exponential(1.0, np.zeros(1, np.uint64), Draws(iter([0] * 100)))


def chi_square(noise: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray], width: int) -> float:
    """Return the probability of a worse fit, bins of `width` integers with at least 20 expected."""
    low, high = int(noise.min()) - 5 * width, int(noise.max()) + 5 * width
    edges = np.arange(low, high + width, width)
    expected = noise.size * np.diff(np.concatenate(([0.0], cdf(edges - 0.5), [1.0])))
    index = np.searchsorted(edges, noise, side="right")
    observed = np.bincount(index, minlength=expected.size).astype(float)
    inside = np.flatnonzero(expected >= 20)
    first, last = inside[0], inside[-1] + 1
    expected = np.concatenate(([expected[:first].sum()], expected[first:last], [expected[last:].sum()]))
    observed = np.concatenate(([observed[:first].sum()], observed[first:last], [observed[last:].sum()]))
    keep = expected >= 1
    statistic = float((((observed - expected) ** 2)[keep] / expected[keep]).sum())
    return float(chi2.sf(statistic, keep.sum() - 1))


@pytest.mark.parametrize(("scale", "width"), [(0.7, 1), (3.0, 1), (1000.0, 40)])
def test_normals_fit_the_integer_distribution(scale, width):
    noise = round_normal(scale, N, SecretRandom())
    assert chi_square(noise, lambda x: norm.cdf(x, scale=scale), width) > ALARM


@pytest.mark.parametrize(("scale", "width"), [(0.7, 1), (3.0, 1), (1000.0, 40)])
def test_laplace_fits_the_integer_distribution(scale, width):
    noise = round_laplace(scale, N, SecretRandom())
    assert chi_square(noise, lambda x: laplace.cdf(x, scale=scale), width) > ALARM


def test_the_fit_would_notice_three_per_cent():
    noise = round_normal(3.09, N, SecretRandom())
    assert chi_square(noise, lambda x: norm.cdf(x, scale=3.0), 1) < ALARM


@pytest.mark.parametrize("scale", [3.0, 4096.0, 2.0**40])
def test_variances_are_right(scale):
    # Rounding adds 1/12. The variance of the square is 2 sigma^4 (normal), 20 b^4 (Laplace).
    normal = round_normal(scale, 20_000 if scale > 2**30 else N, SecretRandom()).astype(float)
    bound = LIMIT * math.sqrt(2 / normal.size)
    assert abs((normal**2).mean() / (scale**2 + 1 / 12) - 1) < bound
    two_sided = round_laplace(scale, N, SecretRandom()).astype(float)
    bound = LIMIT * math.sqrt(20 / N) / 2
    assert abs((two_sided**2).mean() / (2 * scale**2 + 1 / 12) - 1) < bound * 1.01


def test_signs_are_fair():
    for draw in (round_normal, round_laplace):
        noise = draw(1000.0, N, SecretRandom())
        positive, negative = int((noise > 0).sum()), int((noise < 0).sum())
        assert abs(positive - negative) < LIMIT * math.sqrt(positive + negative)


@pytest.mark.parametrize("draw", [round_normal, round_laplace])
def test_samples_and_instances_are_uncorrelated(draw):
    one, two = (draw(1000.0, N, SecretRandom()).astype(float) for _ in range(2))
    one, two = one / one.std(), two / two.std()
    # Sizes, not squares: products of squares have so long a tail that the limit would be passed once in 10^5 runs.
    size_one = np.abs(one) - np.abs(one).mean()
    half = N // 2
    for x, y in (
        (one, two),
        (one[:-1], one[1:]),
        (one[:half], one[half:]),
        (size_one[:half], size_one[half:]),
        # Box-Muller's cosine and sine of one pair, within the first block.
        (one[: sampler._BLOCK], one[sampler._BLOCK : 2 * sampler._BLOCK]),
        (size_one[: sampler._BLOCK], size_one[sampler._BLOCK : 2 * sampler._BLOCK]),
    ):
        correlation = (x * y).mean() / math.sqrt((x**2).mean() * (y**2).mean())
        assert abs(correlation) < 1.1 * LIMIT / math.sqrt(x.size)


def test_shapes_and_types():
    secret = SecretRandom()
    for draw in (round_normal, round_laplace):
        for size, shape in ((0, (0,)), (1, (1,)), (45, (45,)), ((3, 5), (3, 5)), ((2, 0), (2, 0)), ((), ())):
            noise = draw(5.0, size, secret)
            assert noise.shape == shape
            assert noise.dtype == np.int64
        # Longer than a block, and odd.
        assert np.count_nonzero(draw(1e6, 2 * sampler._BLOCK + 7, secret)) > 2 * sampler._BLOCK


def test_each_call_draws_anew():
    secret = SecretRandom()
    assert not np.array_equal(round_normal(1e6, 10, secret), round_normal(1e6, 10, secret))


@pytest.mark.parametrize("draw", [round_normal, round_laplace])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_is_not_positive_is_refused(draw, scale):
    with pytest.raises(ConfigError, match="positive finite"):
        draw(scale, 1, SecretRandom())


def test_a_scale_beyond_64_bits_is_refused():
    with pytest.raises(RangeError, match="fewer fraction bits"):
        round_normal(2.0**60, 1, SecretRandom())
    with pytest.raises(RangeError, match="fewer fraction bits"):
        round_laplace(2.0**57, 1, SecretRandom())
    assert abs(int(round_normal(2.0**59, 1, SecretRandom())[0])) < 2**63
