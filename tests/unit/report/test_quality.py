"""The verdict on a result: what is warned of, what is not, and how often its tests err."""

import math
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fastlloyd.report.document import schema, validate
from fastlloyd.report.outlook import Expected
from fastlloyd.report.quality import EXACT, UNKNOWN, ResultNoise, judge
from fastlloyd.report.ranges import LAPLACE_TAIL, NORMAL_TAIL, chi_squared_quantile, overlapping

LO, HI = np.array([0.0, -1.0]), np.array([10.0, 1.0])
CENTROIDS = np.array([[2.0, 0.5], [8.0, -0.5]])
SIZES = [60.0, 40.0]
COST = "(another run spends epsilon again and needs new approvals)"


def noise(deviation=0.005, size=1.0, **changes):
    values = {
        "size_ranges": np.array([[s - 2 * size, s + 2 * size] for s in SIZES]),
        "centre_deviations": np.full((2, 2), deviation),
        "expected": Expected(centre_noise=deviation / 2, k=2, d=2),
        **changes,
    }
    return ResultNoise(**values)


def judged(noise, centroids=CENTROIDS, sizes=SIZES):
    return judge(noise, centroids=centroids, sizes=sizes, lo=LO, hi=HI)


def noise_words(found):
    """What a sentence says of the noise alone."""
    return found.sentence.partition("; ")[2]


def test_little_noise_is_good_and_warns_of_nothing():
    found = judged(noise())
    assert found.verdict == "good" and found.warnings == ()
    # Half a range, in the features' own units, and how much noise would still be good: 0.0075 of 0.15 / 2.
    known = "good: centres are known to about 0.049 in feature 1 and 0.0098 in feature 2"
    limit = "(good is up to 1.2 % for 2 clusters and 2 features)"
    assert found.sentence == f"{known}; noise of 0.25 % of the range on a centre {limit}"
    assert not (found.empty or found.at_bounds or found.overlapping)
    wide = judge(noise(), centroids=CENTROIDS * 1e5, sizes=SIZES, lo=LO * 1e5, hi=HI * 1e5, names=("cost", "age"))
    assert "known to about 4900 in cost and 980 in age;" in wide.sentence
    # Half a range: 1.96 deviations, in each feature's own units.
    assert found.centre_margins == pytest.approx(np.tile([0.049, 0.0098], (2, 1)), rel=1e-2)
    assert found.size_ranges.tolist() == [[58.0, 62.0], [38.0, 42.0]]


def test_what_had_not_settled_widens_the_ranges_and_is_no_noise():
    calm, found = judged(noise()), judged(noise(unsettled=np.full((2, 2), 0.012)))
    assert found.centre_margins == pytest.approx(np.tile([0.1274, 0.02548], (2, 1)), rel=1e-2)  # 0.013 in all
    assert (found.verdict, noise_words(found), found.warnings) == (calm.verdict, noise_words(calm), calm.warnings)
    on_bound = judged(noise(unsettled=np.full((2, 2), 0.1)), centroids=np.array([[10.0, 0.5], [2.0, -0.5]]))
    assert not on_bound.at_bounds


@pytest.mark.parametrize("deviation", [0.005, 0.05, 0.15, 0.5, 2.0, math.inf])
def test_more_noise_is_never_a_better_verdict_and_all_but_good_is_warned_of(deviation):
    grades = ["good", "fair", "poor", "noise"]
    found, better = judged(noise(deviation, expected=None)), judged(noise(deviation / 2, expected=None))
    assert grades.index(found.verdict) >= grades.index(better.verdict)
    assert (found.verdict == "good") == (not found.warnings)


def test_a_plan_that_said_noise_is_told_again():
    found = judged(noise(expected=Expected(centre_noise=4.79, k=2, d=2)))
    assert any("479 % of the range" in warning and "would be noise" in warning for warning in found.warnings)


def test_a_size_that_may_be_zero_is_empty_and_never_good():
    found = judged(noise(size_ranges=np.array([[0.0, 30.0], [38.0, 42.0]])))
    assert found.empty == (0,) and found.verdict == "noise"  # half of the clusters
    assert any(warning.startswith("cluster 0 cannot be told from empty") for warning in found.warnings)


def test_a_fair_grade_with_one_cluster_lost_of_five_is_poor():
    five = np.array([[1.0, -0.8], [9.0, -0.8], [1.0, 0.8], [9.0, 0.8], [5.0, 0.0]])
    known = np.array([[90.0, 110.0]] * 5)
    lost = np.array([*known[:4], [0.0, 220.0]])
    kept, found = (
        judged(noise(size_ranges=ranges, centre_deviations=np.full((5, 2), 0.02)), five, [100.0] * 5)
        for ranges in (known, lost)
    )
    assert (kept.verdict, kept.empty) == ("fair", ())
    assert (found.verdict, found.empty) == ("poor", (4,))
    assert found.sentence.startswith("poor: 1 of 5 clusters cannot be told from empty; ")


def test_the_sentence_names_what_made_the_verdict():
    empty, alike = np.array([[0.0, 30.0], [38.0, 42.0]]), np.array([[2.0, 0.5], [2.05, 0.5]])
    reasons = {
        "empty": judged(noise(size_ranges=empty)),
        "another": judged(noise(0.02), alike),
        "empty or another": judged(
            noise(0.02, size_ranges=np.array([*empty, [38.0, 42.0]]), centre_deviations=np.full((3, 2), 0.02)),
            np.array([[8.0, -0.5], *alike]),
            [10.0, *SIZES],
        ),
    }
    for reason, found in reasons.items():
        words = rf"noise: \d of \d clusters cannot be told from {reason}; noise of [0-9.]+ % of the range on a centre"
        assert re.match(words, found.sentence), found.sentence
    useless = judged(noise(2.0))
    assert useless.sentence.startswith("noise: noise of ") and useless.warnings[0].endswith(COST)


def test_centres_that_still_move_are_warned_of_unless_noise_explains_their_steps():
    deviations = np.full(2, 0.01)
    long = np.array([[0.1, 0.0], [0.0, -0.1]])
    found = judged(noise(steps=long, step_deviations=deviations))
    (warning,) = found.warnings
    assert found.verdict == "fair" and "still moved in the last round" in warning and "--rounds" in warning
    assert warning.endswith(COST)
    # Centres at (-0.6, 0.5) and (0.6, -0.5): 1.56 apart, and steps of 0.1 without their noise of 0.014.
    assert "about 6.3 % of the distance" in warning
    assert not judged(noise(steps=long / 20, step_deviations=deviations)).warnings
    assert not judged(noise(steps=long, step_deviations=5 * deviations)).warnings
    rng = np.random.default_rng(3)
    steps = rng.normal(0.0, 0.1, (2000, 2, 2))
    assert np.mean([bool(judged(noise(steps=one, step_deviations=10 * deviations)).warnings) for one in steps]) < 0.01


SQUARE = np.array([[2.0, 0.5], [8.0, 0.5], [2.0, -0.5], [8.0, -0.5]])


def _doubts(centres, sizes):
    """Judge clusters of which the noise tells nothing."""
    sizes = np.asarray(sizes, dtype=float)
    told = ResultNoise(
        size_ranges=np.column_stack([sizes - 2.0, sizes + 2.0]),
        centre_deviations=np.full(np.shape(centres), 1e-3),
    )
    return judged(told, np.asarray(centres), sizes.tolist())


def test_two_centres_in_one_cluster_are_doubted_and_a_small_cluster_far_from_all_is_not():
    halves = _doubts([*SQUARE, [3.0, 0.5]], [50.0, 100.0, 100.0, 100.0, 50.0])
    (warning,) = halves.warnings
    assert halves.verdict == "fair" and warning.startswith("clusters 0 and 4 may be one that was cut in two")
    assert warning.endswith(COST)
    # Merged into another it would cost less than those halves: for its size, not for its place.
    small = _doubts([*SQUARE, [5.0, 0.0]], [100.0, 100.0, 100.0, 100.0, 15.0])
    assert small.verdict == "good" and small.warnings == ()


def test_a_small_cluster_is_doubted_where_splitting_another_could_gain_much_more_or_where_it_is_tiny():
    far = [*SQUARE, [5.0, 0.0]]
    assert not _doubts(far, [250.0, 250.0, 250.0, 250.0, 30.0]).warnings
    (warning,) = _doubts(far, [100.0, 100.0, 100.0, 1000.0, 30.0]).warnings
    assert "cut in two" in warning
    found = _doubts(far, [250.0, 250.0, 250.0, 250.0, 15.0])
    assert found.verdict == "fair"
    assert found.warnings[-1].startswith("cluster 4 has less than a tenth of an equal share of the records")


def test_clusters_too_far_apart_for_what_is_left_within_clusters_are_no_halves():
    centres = np.array([*SQUARE, [3.0, 0.5]])
    shares = np.array([50.0, 100.0, 100.0, 100.0, 50.0]) / 400.0
    edge = (np.array([[10.0, 1.0]]) - 0.0, np.array([5.0, 0.0]), np.array([5.0, 1.0]))
    scaled = (centres - edge[1]) / edge[2]
    between = float(shares @ ((scaled - shares @ scaled) ** 2).sum(axis=1))

    def found(left):
        told = ResultNoise(centre_deviations=np.full((5, 2), 1e-3), spread=between + left)
        return judged(told, centres, (400.0 * shares).tolist())

    # Clusters 0 and 4 lie 0.2 apart: halves of one with a deviation of 0.125, which leaves 0.02 and more.
    wide, tight = found(0.02), found(0.002)
    assert wide.verdict == "fair" and "clusters 0 and 4 may be one that was cut in two" in wide.warnings[0]
    assert "no reason to spend epsilon again" in wide.warnings[0] and "--seed" not in wide.warnings[0]
    assert tight.verdict == "good" and tight.warnings == ()


def test_noise_is_graded_by_the_spread_within_clusters_where_a_release_contains_it():
    between = 0.61  # of the four centres, scaled, from their middle

    def found(deviation, left, doubt=0.0):
        told = ResultNoise(centre_deviations=np.full((4, 2), deviation), spread=between + left, spread_deviation=doubt)
        return judged(told, SQUARE, [100.0] * 4)

    # 0.0002 is little for usual features, and a fifth of 0.001; 0.0018 is much for usual ones, and 1 % of 0.16.
    tight = found(0.01, 0.001)
    assert tight.verdict == "fair" and re.search(r"adds about (1[6-9]|2\d) % to the spread", tight.warnings[0])
    assert found(0.01, 0.01).verdict == "good"
    assert judged(ResultNoise(centre_deviations=np.full((4, 2), 0.03)), SQUARE, [100.0] * 4).verdict == "fair"
    wide = found(0.03, 0.16)
    assert wide.verdict == "good" and "adds about 1.1 % to the spread" in wide.sentence
    assert "it is as large as the spread" in found(0.01, -0.0005).warnings[0]
    assert found(0.03, 0.16, doubt=0.06).verdict == "fair"


def test_what_a_centre_is_off_besides_the_noise_widens_its_range_and_no_more():
    plain, wide = judged(noise(0.003)), judged(noise(0.003, unsettled=np.array([0.004, 0.0])))
    assert wide.centre_margins / plain.centre_margins == pytest.approx(np.tile([5 / 3, 1.0], (2, 1)))
    same = ("verdict", "warnings", "at_bounds", "overlapping")
    assert all(getattr(plain, name) == getattr(wide, name) for name in same)
    assert noise_words(plain) == noise_words(wide)
    edge = np.array([[2.0, 1.0], [8.0, -0.5]])
    assert judged(noise(0.001, unsettled=np.ones(2)), edge).at_bounds == ()


def test_a_merge_that_costs_no_more_than_noise_is_doubted_where_another_cluster_has_more_to_gain():
    def found(centres, sizes):
        told = ResultNoise(size_ranges=None, centre_deviations=np.full(np.shape(centres), 0.05))
        return " ".join(judged(told, np.asarray(centres), sizes).warnings)

    assert "clusters 0 and 2 may be one that was cut in two" in found(SQUARE, [100.0, 100.0, 100.0, 700.0])
    assert "cut in two" not in found(SQUARE, [100.0, 100.0, 100.0, 100.0])
    # Of two clusters there is no other that could hold two.
    assert "cut in two" not in found([[4.0, 0.1], [6.0, -0.1]], SIZES)
    lonely = _doubts(CENTROIDS, [990.0, 10.0]).warnings
    assert "and the other may hold two" in lonely[0]


def test_a_spread_that_may_be_larger_than_it_seems_is_doubted():
    # Two centres with a squared distance of 0.1 from their middle leave 87 % of a spread of 0.77 in ten features.
    centres, edge = np.zeros((2, 10)), np.ones(10)
    centres[:, 0] = -np.sqrt(0.1), np.sqrt(0.1)

    def found(spread, deviation=0.0):
        told = ResultNoise(centre_deviations=np.full((2, 10), 1e-3), spread=spread, spread_deviation=deviation)
        return judge(told, centroids=centres, sizes=[50.0, 50.0], lo=-edge, hi=edge).warnings

    assert not found(0.7)
    (warning,) = found(0.7, 0.1)
    assert "data without structure" in warning


def test_clusters_that_are_far_apart_for_what_they_leave_are_not_shapeless():
    def found(spread, sizes=(130.0, 100.0, 100.0, 100.0)):
        told = ResultNoise(centre_deviations=np.full((4, 2), 1e-3), spread=spread)
        return any("data without structure" in each for each in judged(told, SQUARE, list(sizes)).warnings)

    # Squared distance of neighbours 1, of all from their middle 0.61: a third of the first is left of 0.94.
    assert found(0.96) and not found(0.92)
    # Where one has most records, others far away are outliers: what data without structure leave is what counts.
    assert found(0.8, [250.0, 100.0, 100.0, 100.0]) and not found(0.7, [250.0, 100.0, 100.0, 100.0])


def test_what_was_released_on_the_clusters_is_said_and_takes_back_what_it_contradicts():
    def found(**measured):
        figures = {name: ((low + high) / 2, low, high) for name, (low, high) in measured.items()}
        told = ResultNoise(centre_deviations=np.full((4, 2), 1e-3), spread=0.96, measured=figures)
        return judged(told, SQUARE, [130.0, 100.0, 100.0, 100.0])

    def doubted(result):
        return any("data without structure" in warning for warning in result.warnings)

    # Four clusters in the plane of data without structure leave a quarter of the spread.
    assert doubted(found()) and doubted(found(explained=(0.74, 0.8), far=(0.0, 0.04)))
    assert doubted(found(explained=(0.76, 0.8), far=(0.0, 0.06)))  # distances of far records count less than they are
    clear = found(explained=(0.76, 0.8), far=(0.0, 0.04), silhouette=(0.52, 0.61))
    assert not doubted(clear) and clear.verdict == "good"
    ranges = "share of the spread explained 0.76 to 0.8, silhouette 0.52 to 0.61, share of far records 0 to 0.04"
    assert clear.sentence.endswith(f"; released with 95 % ranges: {ranges}")


def test_a_chosen_number_that_does_not_stand_out_is_doubted_and_one_that_was_given_is_not():
    for stands_out, doubted in ((None, False), (True, False), (False, True)):
        found = judged(noise(stands_out=stands_out))
        assert any("no number of clusters stands out, and 2" in warning for warning in found.warnings) == doubted
        assert all(warning.endswith(COST) for warning in found.warnings)
        assert (found.verdict == "good") == (not doubted)


def test_centres_on_a_bound_are_named_where_noise_may_have_put_them_there():
    edge = np.array([[2.0, 1.0], [8.0, -0.5]])
    assert judged(noise(0.02), edge).at_bounds == (0,)
    assert judged(noise(0.001), edge).at_bounds == ()  # records lie there
    nature = np.array([False, True])
    assert judge(noise(0.02), centroids=edge, sizes=SIZES, lo=LO, hi=HI, extreme=nature).at_bounds == ()
    assert judge(noise(0.02), centroids=edge, sizes=SIZES, lo=LO, hi=HI, extreme=~nature).at_bounds == (0,)


@pytest.mark.parametrize("side,edge", [("upper", 10.0), ("lower", 0.0)])
def test_a_feature_whose_centres_all_lie_on_one_bound_is_doubted(side, edge):
    near = edge + np.array([-0.08, 0.08]) * (1 if edge == 0.0 else -1)  # 1.6 deviations, in the units of the feature
    pinned = np.array([[edge, 0.5], [near[1], -0.5]])
    found = judge(noise(0.01), centroids=pinned, sizes=SIZES, lo=LO, hi=HI, names=("cost", "age"))
    assert found.verdict == "fair" and found.sentence.endswith("but a feature lies on its bound")
    (warning,) = found.warnings
    assert f"noise of the {side} bound in feature cost:" in warning
    # One centre elsewhere by more than noise, or one on each bound, or categories: nothing to say.
    assert judged(noise(0.01), np.array([[edge, 0.5], [abs(edge - 1.0), -0.5]])).verdict == "good"
    assert judged(noise(0.01), np.array([[0.0, 0.5], [10.0, -0.5]])).verdict == "good"
    nature = np.array([True, False])
    assert judge(noise(0.01), centroids=pinned, sizes=SIZES, lo=LO, hi=HI, extreme=nature).verdict == "good"
    # An empty cluster's centre is noise, wherever it lies.
    lost = np.array([[5.0, 0.5], [near[1], -0.5]])
    empty = judge(
        noise(0.01, size_ranges=np.array([[0.0, 30.0], [38.0, 42.0]])), centroids=lost, sizes=SIZES, lo=LO, hi=HI
    )
    assert any(f"{side} bound in feature 1:" in warning for warning in empty.warnings)


def test_margins_end_with_the_domain():
    found = judged(noise(math.inf))
    assert found.verdict == "noise"
    assert found.centre_margins == pytest.approx(np.array([[8.0, 1.5], [8.0, 1.5]]))
    assert np.isfinite(found.centre_margins).all()


def test_close_centres_cannot_be_told_apart_and_distant_ones_can():
    assert judged(noise(0.01), np.array([[2.0, 0.5], [2.1, 0.5]])).overlapping == ((0, 1),)
    assert judged(noise(0.01)).overlapping == ()


def test_two_equal_centres_are_told_apart_as_often_as_is_said():
    rng = np.random.default_rng(5)
    k, d, runs = 6, 3, 2000
    deviations = rng.uniform(0.01, 0.1, (k, d))
    pairs = k * (k - 1) // 2
    errors = sum(len(overlapping(rng.normal(0.0, deviations), deviations)) < pairs for _ in range(runs))
    assert errors <= 0.05 * runs + 4 * math.sqrt(0.05 * 0.95 * runs)
    assert errors >= 0.01 * runs  # and the test has not lost its power


@given(st.integers(1, 500), st.floats(1e-7, 0.1))
@example(3, 1e-7)
@example(3, 0.1)
@example(4, 0.1)
def test_the_quantile_of_chi_squared_is_near_scipys(degrees, tail):
    stats = pytest.importorskip("scipy.stats")
    assert 0.993 < chi_squared_quantile(1.0 - tail, degrees) / stats.chi2.isf(tail, degrees) < 1.09


def test_without_noise_nothing_is_judged_and_without_knowledge_neither():
    assert judged(EXACT).to_dict()["verdict"] == "exact" and not judged(EXACT).warnings
    assert judged(UNKNOWN).verdict == "unknown" and not judged(UNKNOWN).warnings
    (warning,) = judged(ResultNoise(expected=Expected(centre_noise=0.04, k=2, d=2))).warnings
    assert warning.startswith("the plan said: noise of 4 %")
    hidden = judged(noise(), None, None)
    assert hidden.verdict == "unknown" and "the plan expected" in hidden.sentence
    assert judged(ResultNoise(size_ranges=np.array([[0.0, 9.0], [1.0, 2.0]])), None, None).verdict == "poor"


@given(
    arrays(float, (3, 2), elements=st.floats(-1, 1)),
    arrays(float, (3, 2), elements=st.floats(0, 1e6) | st.just(math.inf)),
    arrays(float, 3, elements=st.floats(-1e6, 1e6)),
    st.none() | st.floats(0, 10),
    st.none() | arrays(float, (3, 2), elements=st.floats(-2, 2)),
    st.none() | st.floats(0, 10),
)
def test_every_verdict_fits_the_schema(scaled, deviations, sizes, spread, steps, expected):
    noise = ResultNoise(
        size_ranges=np.column_stack([sizes, sizes + 1.0]),
        centre_deviations=deviations,
        spread=spread,
        steps=steps,
        step_deviations=np.full(3, 0.1),
        expected=Expected(centre_noise=expected, k=3, d=2),
    )
    found = judge(noise, centroids=(LO + HI) / 2 + scaled * (HI - LO) / 2, sizes=list(sizes), lo=LO, hi=HI)
    entry = found.to_dict()
    assert set(entry) == set(schema()["$defs"]["quality"]["required"])
    from tests.unit.report.figures import report

    validate(report(quality=found.to_dict()))
    assert found.verdict in ("good", "fair", "poor", "noise")
    assert (found.verdict == "good") <= (not (found.empty or found.overlapping))


def test_tails_are_those_of_95_percent_ranges():
    rng = np.random.default_rng(3)
    draws = rng.laplace(0.0, 1.0, 200_000)
    assert np.mean(np.abs(draws) <= LAPLACE_TAIL * math.sqrt(2.0)) == pytest.approx(0.95, abs=0.003)
    assert np.mean(np.abs(rng.normal(size=200_000)) <= NORMAL_TAIL) == pytest.approx(0.95, abs=0.003)
