"""How budgets become noise multipliers, before the accountant has the last word."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.fastlloyd.plus_plan import SURVEY_COUNT_RATIO, PlusPlan, Stage, make_plus, plus_multipliers
from fastlloyd.protocols.fastlloyd.settings import count_ratio, settings_from
from fastlloyd.protocols.feddp import settings as feddp
from fastlloyd.protocols.feddp.settings import settings_from as feddp_settings
from fastlloyd.protocols.vertical_he.budget import multipliers as he_multipliers
from tests.protocols.vertical_he.support import parameters

SET_ASIDE = 2.0**-40
# So small that what is set aside is a third of it: noise for delta, or for more than delta, is some per cent less.
DELTA = 3 * SET_ASIDE


def test_what_is_set_aside_for_the_sampler_is_taken_off_before_noise_is_sized() -> None:
    sigma = gaussian_noise_multiplier(1.0, DELTA - SET_ASIDE)
    assert sigma > 1.005 * gaussian_noise_multiplier(1.0, DELTA)
    shares = feddp.epsilon_shares(feddp_settings({}), 0)
    gauss, _ = feddp.multipliers(shares, epsilon=1.0, delta=DELTA, factor=1.0)[feddp.OUTER]
    expected = gaussian_noise_multiplier(shares[feddp.OUTER][0], DELTA - SET_ASIDE)
    assert gauss == pytest.approx(expected, rel=1e-12)
    counts, sums = he_multipliers(dataclasses.replace(parameters(5000, 3), delta=DELTA), 2, 6)
    assert 6 / counts**2 + 6 / sums**2 == pytest.approx(1.0 / sigma**2, rel=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.3])
@pytest.mark.parametrize("cells", [0, 7])
@pytest.mark.parametrize("d,rounds", [(1, 2), (3, 10), (40, 7)])
def test_rounds_of_plus_share_what_its_start_leaves(share: float, cells: int, d: int, rounds: int) -> None:
    settings = settings_from("fastlloyd-plus", {"grid" if cells else "survey": share})
    stages = (Stage(rounds=rounds - 1, clusters=3, cell=0.5, reach=1.0),)
    plus = PlusPlan(survey=not cells, cells=cells, stages=stages, shorten=True, shrink=True, swap=True)
    sigma = 3.7
    first, *rest = plus_multipliers(plus, settings, d=d, sigma=sigma, rounds=rounds)
    if cells:
        assert first[0] == 0.0 and 1 / first[1] ** 2 == pytest.approx(share / sigma**2)
    else:
        assert first[1] / first[0] == pytest.approx(SURVEY_COUNT_RATIO)
        assert 1 / first[0] ** 2 + 1 / first[1] ** 2 == pytest.approx(share / sigma**2)
    assert len(rest) == rounds - 1 and len(set(rest)) == 1
    sums, counts = rest[0]
    assert counts / sums == pytest.approx(count_ratio("fastlloyd", d, settings))
    assert (rounds - 1) * (1 / sums**2 + 1 / counts**2) == pytest.approx((1 - share) / sigma**2)
    assert math.isclose(count_ratio("fastlloyd", d, settings), (4 * d) ** 0.25)


@pytest.mark.parametrize(("k", "cells"), [(1024, 16), (1025, 0)])
def test_so_many_clusters_that_k_means_of_cells_takes_too_long_begin_with_a_survey(k: int, cells: int) -> None:
    settings = settings_from("fastlloyd-plus", {})
    plus = make_plus(settings, k=k, d=3, n=10**8, sigma=4.0, rounds=10, choose_k=False)
    assert (plus.cells, plus.survey) == (cells, not cells)


@pytest.mark.parametrize(
    ("k", "n", "asked", "rounds", "stages"),
    [
        (5, 5000, {}, 10, [(3, 15), (1, 10), (1, 8), (1, 6), (3, 5)]),
        (5, 5000, {}, 14, [(3, 15), (1, 10), (1, 8), (1, 6), (7, 5)]),
        (5, 5000, {}, 9, [(4, 10), (4, 5)]),  # too few rounds to narrow step by step
        (3, 5000, {}, 10, [(3, 9), (1, 6), (2, 4), (3, 3)]),
        (2, 5000, {}, 10, [(3, 6), (1, 4), (1, 3), (4, 2)]),
        (5, 700, {}, 10, [(3, 15), (1, 10), (1, 8), (1, 6), (3, 5)]),  # nu = 0.081
        (5, 600, {}, 10, [(4, 10), (5, 5)]),  # nu = 0.095
        (5, 250, {}, 10, [(9, 5)]),  # too much noise on twice as many counts
        (5, 250, {"wide": 3.0}, 10, [(4, 15), (5, 5)]),
        (5, 5000, {"wide": 1.0}, 10, [(9, 5)]),
        (5, 5000, {"wide": 2.5}, 10, [(4, 12), (5, 5)]),
        (5, 5000, {}, 5, [(2, 10), (2, 5)]),
        (5, 5000, {}, 3, [(2, 5)]),
        (5, 5000, {}, 2, [(2, 5)]),
        (1, 5000, {}, 10, [(9, 1)]),
        (341, 10**7, {}, 10, [(3, 1023), (1, 682), (1, 512), (1, 409), (3, 341)]),
        (342, 10**7, {}, 10, [(4, 684), (5, 342)]),
        (512, 10**7, {}, 10, [(4, 1024), (5, 512)]),
        (513, 10**7, {}, 10, [(9, 513)]),  # more than are merged
    ],
)
def test_the_first_rounds_have_more_clusters_where_the_noise_allows_it(k, n, asked, rounds, stages) -> None:
    settings = settings_from("fastlloyd-plus", asked)
    plus = make_plus(settings, k=k, d=6, n=n, sigma=3.5, rounds=rounds, choose_k=False)
    assert [(stage.rounds, stage.clusters) for stage in plus.stages] == stages
    assert plus.first + sum(stage.rounds for stage in plus.stages) == rounds
    one = make_plus(settings, k=k, d=6, n=n, sigma=3.5, rounds=rounds, choose_k=True)
    assert [stage.clusters for stage in one.stages] == [k]
    assert [plus.stage(t)[0].clusters for t in range(plus.first, rounds)] == [c for r, c in stages for _ in range(r)]
    first = stages[0][0]
    assert [plus.age(t) for t in range(plus.first, rounds)] == [*range(first), *range(rounds - plus.first - first)]


@pytest.mark.parametrize(("d", "n", "first"), [(36, 750, 15), (36, 700, 10), (2, 5000, 10)])
def test_rounds_narrow_step_by_step_without_a_histogram_and_with_less_noise_on_many_features(d, n, first) -> None:
    plus = make_plus(settings_from("fastlloyd-plus", {}), k=5, d=d, n=n, sigma=2.0, rounds=10, choose_k=False)
    assert plus.stages[0].clusters == first
    assert (plus.cells > 0) == (d == 2)
