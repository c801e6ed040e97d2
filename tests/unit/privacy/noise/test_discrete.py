"""Discrete Gaussians and Polya variables: their distributions, and that what is decided is decided exactly.

False alarms of the statistical tests: below 1e-6 each.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fastlloyd.errors import ConfigError, InternalError, RangeError
from fastlloyd.privacy.noise import discrete
from fastlloyd.privacy.noise.discrete import discrete_gaussian, discrete_gaussians, gaussian_law, polya_difference
from fastlloyd.privacy.noise.sampler import exponential, exponentials
from fastlloyd.randomness.secret import SecretRandom
from tests.dealt import fixed_random

# For each comparison, of three at most in a test.
ALARM = 2e-7
WORD = 1 << 64


def chi_square(sample: NDArray[np.int64], weight, reach: int) -> float:
    """p-value of a sample on the integers against probabilities proportional to `weight`."""
    support = np.arange(-reach, reach + 1)
    pmf = weight(support.astype(np.float64))
    pmf /= pmf.sum()
    counts = np.bincount(np.clip(sample, -reach, reach) + reach, minlength=support.size)
    # The rarest values make one cell. With 50 expected in each cell the chi-square distribution is near enough: with
    # cells of 1 or 10 it was passed 15 times as often as it says.
    order = np.argsort(pmf, kind="stable")
    enough = int(np.searchsorted(np.cumsum(pmf[order]) * sample.size, 50.0)) + 1
    rare = max(enough, int((pmf * sample.size < 50.0).sum()))
    cells = [counts[order[:rare]].sum(), *counts[order[rare:]]]
    expected = np.array([pmf[order[:rare]].sum(), *pmf[order[rare:]]]) * sample.size
    return float(stats.chisquare(cells, expected).pvalue)


@pytest.mark.parametrize("variance", [Fraction(1, 5), Fraction(7, 3), Fraction(25), Fraction(10**4, 3)])
def test_the_discrete_gaussian_has_its_distribution(variance: Fraction) -> None:
    sample = discrete_gaussian(variance, 100_000, SecretRandom())
    reach = int(40 * math.sqrt(variance)) + 5
    assert chi_square(sample, lambda x: np.exp(-(x**2) / (2.0 * float(variance))), reach) > ALARM


def test_a_wide_discrete_gaussian_has_its_variance_and_shape() -> None:
    sigma = Fraction(10**9, 7)
    sample = discrete_gaussian(sigma**2, (100, 1000), SecretRandom())
    assert sample.shape == (100, 1000)
    scaled = sample.ravel() / float(sigma)
    assert ALARM / 2 < stats.chi2(scaled.size).cdf((scaled**2).sum()) < 1 - ALARM / 2
    assert stats.kstest(scaled, "norm").pvalue > ALARM


@pytest.mark.parametrize("terms", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.4, 3.0, 40.0])
def test_polya_shares_sum_exactly_to_the_discrete_laplace_distribution(scale: float, terms: int) -> None:
    sample = sum(polya_difference(scale, Fraction(1, terms), 50_000, SecretRandom()) for _ in range(terms))
    assert chi_square(sample, lambda x: np.exp(-np.abs(x) / scale), int(60 * scale) + 5) > ALARM


@pytest.mark.parametrize(
    "shapes", [(Fraction(1, 99), Fraction(49, 150), Fraction(3283, 4950)), (Fraction(2, 3), Fraction(1, 3))]
)
def test_polya_shares_of_any_shapes_add_up(shapes: tuple[Fraction, ...]) -> None:
    assert sum(shapes) == 1
    sample = sum(polya_difference(5.0, shape, 50_000, SecretRandom()) for shape in shapes)
    assert chi_square(sample, lambda x: np.exp(-np.abs(x) / 5.0), 305) > ALARM


def test_one_polya_share_has_the_difference_of_negative_binomials() -> None:
    scale, terms = 4.0, 3
    p = math.exp(-1.0 / scale)
    one = stats.nbinom(1.0 / terms, 1.0 - p).pmf(np.arange(400))
    both = np.convolve(one, one[::-1])
    sample = polya_difference(scale, Fraction(1, terms), 100_000, SecretRandom())
    assert chi_square(sample, lambda x: both[(x + 399).astype(int)], 399) > ALARM


def test_wide_polya_shares_sum_to_a_laplace_variable() -> None:
    scale = 2.0**30 / 3.0
    sample = sum(polya_difference(scale, Fraction(1, 3), 10_000, SecretRandom()) for _ in range(3))
    assert stats.kstest(sample / scale, "laplace").pvalue > ALARM


@pytest.mark.parametrize("spare", [16, -1])
@pytest.mark.parametrize("counts", [(1,), (5, 2, 3), (25, 5), (3, 9000, 4)])
def test_vectors_drawn_together_have_the_bits_of_each_alone(
    counts: tuple[int, ...], spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first proposals do not fill a piece, so that words were read for the next one too early."""
    monkeypatch.setattr(discrete, "_enough", lambda count: 2 * count + spare)
    variances = [[Fraction(1000 * (i + 1) + j, 7) for j in range(len(counts))] for i in range(4)]
    alone, together = ([fixed_random(f"{counts} {i}") for i in range(4)] for _ in range(2))
    expected = [
        np.concatenate([discrete_gaussian(variance, count, one) for variance, count in zip(each, counts, strict=True)])
        for each, one in zip(variances, alone, strict=True)
    ]
    laws = [[gaussian_law(variance) for variance in each] for each in variances]
    assert (discrete_gaussians(laws, counts, together) == expected).all()


def test_what_the_first_bits_leave_open_is_decided_by_each_source_s_own() -> None:
    one, other = proposals(Fraction(50), 2), proposals(Fraction(5000, 3), 1)
    both = discrete._Proposals((*one._tried, *other._tried), [Words([0]), Words([WORD - 1], WORD - 1)])
    proposed, words = np.array([11, 3, 90]), []
    for y, law in zip(proposed.tolist(), [gaussian_law(Fraction(50))] * 2 + [gaussian_law(Fraction(5000, 3))]):
        needed = (y - law.variance / law.scale) ** 2 / (2 * law.variance)
        with mpmath.workprec(300):
            words.append(int(mpmath.floor(mpmath.exp(-mpmath.mpf(needed.numerator) / needed.denominator) * WORD)))
    assert both.accept(proposed, np.array(words, dtype=np.uint64)).tolist() == [True, True, False]
    scales, first = np.array([3.0, 3.0, 2.0**40]), np.array([0, 5, 0], dtype=np.uint64)
    sources = [Words([2**at], 2**at) for at in (60, 60, 10)]
    found = exponentials(scales, first, lambda i: sources[i].further)
    assert found[:2].tolist() == exponential(3.0, first[:2], sources[0].further).tolist()
    assert found[2:].tolist() == exponential(2.0**40, first[2:], sources[2].further).tolist()


# --- exactness ----------------------------------------------------------------------------------------------------


def draw(rng: np.random.Generator):
    return lambda: int(rng.integers(0, WORD, dtype=np.uint64))


@pytest.mark.parametrize("scale", [0.3, 5.0, 1e5, 2.0**40])
def test_certain_logarithmic_values_do_not_depend_on_the_error_bound(scale: float) -> None:
    rng = np.random.default_rng(3)
    v, u = (rng.integers(0, WORD, 300, dtype=np.uint64) for _ in range(2))
    plain = discrete._logarithmic(scale, v, u, draw(rng))
    slow = discrete._logarithmic(scale, v, u, draw(rng), inflate=2.0**60)  # everything by interval arithmetic
    far = np.abs(plain - slow) > 0
    # Different further bits may move a value across an integer only if the first 64 left it open.
    assert far.sum() <= (0 if scale < 1e6 else 3)


def test_the_first_zero_words_are_drawn_on() -> None:
    rng = np.random.default_rng(4)
    words = np.array([0, 0, 2**63], dtype=np.uint64), np.array([2**63, 5, 0], dtype=np.uint64)
    values = discrete._logarithmic(100.0, *words, draw(rng))
    assert (values >= 1).all()
    assert values[0] > 20  # v below 2^-64: far in the tail
    assert values[2] == 1  # u below 2^-64: parameter q all but 0


def test_poisson_variables_follow_the_exact_distribution_at_its_steps() -> None:
    scale, terms = 50.0, 2
    thresholds = discrete._thresholds(scale, Fraction(1, terms))
    with mpmath.workprec(400):
        mean = -2 * mpmath.log(1 - mpmath.exp(-1 / mpmath.mpf(scale))) / terms
        for k, threshold in enumerate(thresholds[:30]):
            exact = mpmath.fsum(mpmath.exp(-mean) * mean**i / mpmath.factorial(i) for i in range(k + 1))
            assert threshold == int(mpmath.floor(exact * WORD))
    assert thresholds[-1] == WORD - 1
    # On the step itself further bits decide: all zeros lie below F(k), all ones above.
    assert discrete._decide_poisson(scale, Fraction(1, terms), thresholds[3], lambda: 0) == 3
    assert discrete._decide_poisson(scale, Fraction(1, terms), thresholds[3], lambda: WORD - 1) == 4


@pytest.mark.parametrize("level", [Fraction(1, 3), Fraction(20), Fraction(1, 10**12)])
def test_acceptance_is_decided_exactly_at_its_border(level: Fraction) -> None:
    with mpmath.workprec(300):
        border = int(mpmath.floor(mpmath.exp(-mpmath.mpf(level.numerator) / level.denominator) * WORD))
    # -ln u exceeds the level exactly if u is below exp(-level).
    assert discrete._exceeds(border - 1, level, lambda: WORD - 1)
    assert not discrete._exceeds(border + 1, level, lambda: 0)
    assert discrete._exceeds(border, level, lambda: 0)
    assert not discrete._exceeds(border, level, lambda: WORD - 1)


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1)])
def test_a_variance_that_is_not_positive_is_refused(variance: Fraction) -> None:
    with pytest.raises(ConfigError, match="positive"):
        discrete_gaussian(variance, 1, SecretRandom())


def test_noise_beyond_what_floats_hold_is_refused() -> None:
    with pytest.raises(RangeError, match="fraction bits"):
        discrete_gaussian(Fraction(2**90), 1, SecretRandom())
    with pytest.raises(RangeError, match="fraction bits"):
        polya_difference(2.0**45, Fraction(1, 2), 1, SecretRandom())


def test_bits_that_never_decide_end_in_an_error() -> None:
    # A uniform of all ones comes ever nearer to 1, where -ln u meets the level 0.
    with pytest.raises(InternalError, match="no noise can be drawn"):
        discrete._exceeds(WORD - 1, Fraction(0), lambda: WORD - 1)


def test_a_uniform_at_a_step_of_the_poisson_distribution_ends_in_an_error() -> None:
    scale, terms = 3.0, 2
    with mpmath.workprec(6000):
        first = mpmath.exp(2 * mpmath.log(1 - mpmath.exp(-1 / mpmath.mpf(scale))) / terms)
        digits = int(mpmath.floor(first * mpmath.mpf(2) ** (64 * 70)))
    words = [digits >> 64 * (69 - i) & (WORD - 1) for i in range(70)]
    following = iter(words[1:])
    with pytest.raises(InternalError, match="no noise can be drawn"):
        discrete._decide_poisson(scale, Fraction(1, terms), words[0], lambda: next(following))


def test_a_uniform_that_begins_with_zeros_is_drawn_on() -> None:
    # -ln u is about 3 * 64 ln 2 = 133.1 after three words of zeros and one in the middle.
    for level, exceeds in ((133, True), (134, False)):
        following = iter([0, 0, 1 << 63, 5])
        assert discrete._exceeds(0, Fraction(level), lambda: next(following)) is exceeds


# --- the bounds that send a decision to the exact path: without them floats decide, wrongly half the time here ---


class Words:
    """Gives these 64-bit words first, and then the same one again and again."""

    def __init__(self, words: list[int], further: int = 0) -> None:
        self._words = np.array(words, dtype=np.uint64)
        self._further = np.array([further], dtype=np.uint64)

    def uint64(self, count: int) -> NDArray[np.uint64]:
        given, self._words = self._words, self._further
        assert given.size == count
        return given

    def further(self) -> int:
        return int(self.uint64(1)[0])


@pytest.mark.parametrize("further,passed", [(0, 0), (WORD - 1, 1)])
def test_a_word_on_a_step_of_the_poisson_distribution_is_drawn_on(further: int, passed: int) -> None:
    scale, terms = 50.0, 2
    steps = discrete._thresholds(scale, Fraction(1, terms))
    words = Words([steps[0], steps[3] - 1, steps[3], steps[3] + 1], further)
    assert discrete._poisson(scale, Fraction(1, terms), 4, words).tolist() == [passed, 3, 3 + passed, 4]


def proposals(variance: Fraction, count: int, secret: Any = None) -> discrete._Proposals:
    """Proposals for one law."""
    return discrete._Proposals(((gaussian_law(variance), count),), [secret])


@pytest.mark.parametrize("sigma", [7, 10**6, 10**12])
def test_acceptance_beside_its_border_is_not_left_to_floats(sigma: int) -> None:
    variance, scale = Fraction(sigma * sigma * 3 + 1, 3), sigma + 1
    proposed, words = [], []
    for step in range(1, 41):
        proposed += 2 * [sigma + max(1, sigma * step // 20)]
        needed = (abs(proposed[-1]) - variance / scale) ** 2 / (2 * variance)
        with mpmath.workprec(300):
            border = int(mpmath.floor(mpmath.exp(-mpmath.mpf(needed.numerator) / needed.denominator) * WORD))
        words += [border - 1, border + 1]
    accepted = proposals(variance, len(words), Words([0])).accept(np.array(proposed), np.array(words, dtype=np.uint64))
    assert accepted.tolist() == [True, False] * 40


@pytest.mark.parametrize("sigma", [10**3, 10**6, 10**12])
def test_the_bound_on_what_acceptance_needs_holds_and_is_narrow(sigma: int) -> None:
    # Near the centre almost all digits cancel, and what is left is the error of the centre.
    variance, scale = Fraction(sigma * sigma * 7 + 3, 7), sigma + 1
    steps = [0, 1, 2, 3, *(sigma * i // 97 for i in range(1, 97)), *range(sigma, 8 * sigma, sigma)]
    proposed = np.array([sigma + sign * step for step in steps for sign in (1, -1)])
    needed, error = proposals(variance, proposed.size)._needed(proposed)
    off = []
    for y, value, bound in zip(proposed.tolist(), needed.tolist(), error.tolist(), strict=True):
        exact = (abs(y) - variance / scale) ** 2 / (2 * variance)
        off.append(float(abs(Fraction(value) - exact)))
        assert off[-1] <= bound
        assert bound <= 2.0**-46 * (float(exact) + 1.0)
    assert max(off) > 0


@pytest.mark.parametrize("scale", [2.0**30, 2.0**40])
def test_logarithmic_values_beside_a_whole_number_are_not_left_to_floats(scale: float) -> None:
    rng = np.random.default_rng(5)
    first, second, expected = [], [], []
    with mpmath.workprec(400):
        depth = mpmath.log(1 - mpmath.exp(-1 / mpmath.mpf(scale)))
        for word in rng.integers(7 << 61, WORD - 1, 30, dtype=np.uint64).tolist():
            # 1 - (1 - p)^u for u = word / 2^64 and zeros; powers of q next to one half.
            q = mpmath.log(1 - mpmath.exp(mpmath.mpf(word) / WORD * depth))
            whole = int(mpmath.floor(mpmath.log(mpmath.mpf(0.5)) / q))
            border = int(mpmath.floor(mpmath.exp(whole * q) * WORD))
            first += [border - 1, border + 2]
            second += [word, word]
            expected += [whole + 1, whole]
    words = np.array(first, dtype=np.uint64), np.array(second, dtype=np.uint64)
    assert discrete._logarithmic(scale, *words, lambda: 0).tolist() == expected


@pytest.mark.parametrize("power", [1, 2])
def test_small_logarithmic_values_beside_a_whole_number_are_not_left_to_floats(power: int) -> None:
    # Small u: its parameter q = 1 - (1 - p)^u is below one half, and the value passes 1 or 2 at v = q or q^2.
    scale, rng = 2.0**30, np.random.default_rng(6)
    first, second = [], []
    with mpmath.workprec(400):
        depth = mpmath.log(1 - mpmath.exp(-1 / mpmath.mpf(scale)))
        for word in rng.integers(1 << 57, 1 << 59, 30, dtype=np.uint64).tolist():
            q = 1 - mpmath.exp(mpmath.mpf(word) / WORD * depth)
            border = int(mpmath.floor(q**power * WORD))
            first += [border - 1, border + 2]
            second += [word, word]
    words = np.array(first, dtype=np.uint64), np.array(second, dtype=np.uint64)
    assert discrete._logarithmic(scale, *words, lambda: 0).tolist() == [power + 1, power] * 30


# --- a library whose functions are off by as much as the bounds allow for -----------------------------------------


class Rough:
    """numpy, but a logarithm or exponential is off by six more units of 2^-53, of a given sign for each call."""

    def __init__(self, signs: list[int]) -> None:
        self._signs = itertools.cycle(signs)

    def __getattr__(self, name: str):
        exact = getattr(np, name)
        if name not in ("log", "log1p", "exp", "expm1"):
            return exact
        return lambda x: exact(x) * (1.0 + next(self._signs) * 6.0 * 2.0**-53)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("sigma", [10**3, 10**9])
def test_acceptance_is_exact_with_a_rough_logarithm(sigma: int, sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete, "np", Rough([sign]))
    variance, scale = Fraction(sigma * sigma * 3 + 1, 3), sigma + 1
    proposed, words = [], []
    for step in range(1, 90, 4):
        proposed += 2 * [sigma + sigma * step // 10]
        needed = (abs(proposed[-1]) - variance / scale) ** 2 / (2 * variance)
        with mpmath.workprec(300):
            border = int(mpmath.floor(mpmath.exp(-mpmath.mpf(needed.numerator) / needed.denominator) * WORD))
        words += [border - 1, border + 1]
    accepted = proposals(variance, len(words), Words([0])).accept(np.array(proposed), np.array(words, dtype=np.uint64))
    assert accepted.tolist() == [True, False] * 23


@pytest.mark.parametrize("signs", list(itertools.product([1, -1], repeat=3)))
def test_the_bound_on_logarithmic_values_holds_with_rough_functions(
    signs: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []

    def keep(values: NDArray[np.float64], error: NDArray[np.float64]):
        seen.append((values + 0.5, error.copy()))
        return np.rint(values).astype(np.int64), np.array([], dtype=np.int64)

    monkeypatch.setattr(discrete, "round_certain", keep)
    scale, rng = 2.0**40, np.random.default_rng(7)
    first, second = (rng.integers(1 << 56, WORD, 60, dtype=np.uint64) for _ in range(2))
    first[:20] >>= np.uint64(30)  # few bits of v are seen
    second[20:40] >>= np.uint64(36)  # few bits of u
    monkeypatch.setattr(discrete, "np", Rough(list(signs)))
    discrete._logarithmic(scale, first, second, lambda: 0)
    monkeypatch.undo()
    ((values, error),) = seen
    with mpmath.workprec(300):
        depth = mpmath.log(1 - mpmath.exp(-1 / mpmath.mpf(scale)))
        for i, (v, u) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            for v_end, u_end in itertools.product((v, v + 1), (u, u + 1)):
                q = mpmath.log(1 - mpmath.exp(mpmath.mpf(u_end) / WORD * depth))
                assert abs(mpmath.log(mpmath.mpf(v_end) / WORD) / q - values[i]) <= error[i]
