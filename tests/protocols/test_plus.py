"""fastlloyd-plus: the parties against the reference, its plan, its ledger, and what its parts do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.grid import quantise
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import SAMPLER_DELTA, gdp_delta
from fastlloyd.protocols.fastlloyd import plus
from fastlloyd.protocols.fastlloyd.plan import Plan, check_plan, make_plan
from fastlloyd.protocols.fastlloyd.plus import (
    _feature_variances,
    _weigh_counts,
    advance,
    first_state,
    radius,
    survey_update,
)
from fastlloyd.protocols.fastlloyd.rounds import Centers, draw_noise, first_centers, post_process
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SERVER, clients
from tests.protocols.support import blobs, central_plus, no_noise, parameters, plan_for, run

PLUS = "fastlloyd-plus"
SURVEY = {"start": "survey"}
NOTHING_FIRST = {"survey": 0.0, "grid": 0.0}
VARIANTS = [
    {"start": "grid"},
    {**SURVEY},
    NOTHING_FIRST,
    {"far": "drop", "swap": False},
    {"shrink": False, "reach": 0.5},
]


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("m,bits,k", [(1, 32, 4), (2, 32, 1), (3, 64, 6)])
def test_parties_equal_the_reference_bit_by_bit(settings, m, bits, k) -> None:
    points = blobs(150, 4, 3, seed=m)
    plan = plan_for(points, k, protocol=PLUS, settings=settings, clients=m, ring_bits=bits, rounds=6)
    secret = SecretRandom()
    noise = [draw_noise(plan, t, secret) for t in range(6)]
    outcome = run(points, plan, noise=lambda t: noise[t])
    expected = central_plus(points, plan, noise.__getitem__)
    for party in clients(m):
        got = outcome.results[party].centers
        assert (got.grid == expected.grid).all()
        assert got.exact.tobytes() == expected.exact.tobytes()
        assert got.noisy_counts.tobytes() == expected.noisy_counts.tobytes()


def test_with_pairwise_masks_all_clients_end_alike() -> None:
    points = blobs(300, 3, 2)
    plan = plan_for(points, 3, protocol=PLUS, clients=3, masking="pairwise", epsilon=50.0)
    outcome = run(points, plan)
    bits = {outcome.results[party].centers.exact.tobytes() for party in clients(3)}
    assert len(bits) == 1


@pytest.mark.parametrize("k,d", [(2, 2), (15, 2), (3, 5)])
def test_its_messages_are_those_of_fastlloyd(k: int, d: int) -> None:
    points = blobs(200, 3, d)
    sizes = set()
    for protocol, settings in (("fastlloyd", {}), (PLUS, {**SURVEY, "wide": 1.0})):
        outcome = run(points, plan_for(points, k, protocol=protocol, settings=settings, rounds=4))
        counts = [meter.sent for meter in outcome.simulation.meters.values()]
        sizes.add(tuple(sum(c.payload_bytes for s in counts for (_, r), c in s.items() if r == t) for t in range(4)))
    assert sizes == {(4 * k * (d + 1) * 4,) * 4}


SHAPES = [(0.1, 150, 3, 4), (1.0, 5000, 15, 2), (5.0, 1000, 2, 20), (1.0, 500, 1, 3)]


@pytest.mark.parametrize(
    ("epsilon", "n", "k", "d", "settings"),
    [
        (*shape, settings)
        for shape in SHAPES
        for settings in ({}, {"start": "grid"}, SURVEY, NOTHING_FIRST)
        if settings.get("start") != "grid" or shape[3] < 4
    ],
)
def test_a_plan_spends_its_epsilon_and_no_more(epsilon, n, k, d, settings) -> None:
    public = parameters(n, k, protocol=PLUS, epsilon=epsilon, settings=settings)
    names = tuple(f"x{i}" for i in range(d))
    plan = make_plan(public, d=d, names=names)
    assert 0.995 * epsilon <= check_plan(plan, public, d=d, names=names) <= epsilon
    assert Plan.from_json(plan.to_json()) == plan
    # By the public rule: 2 features, 333 records a cluster at epsilon 1; or 3 and 500. Neither with 150 records at 0.1.
    first = "histogram" if d < 4 and settings in ({}, {"start": "grid"}) else "sums and squares"
    nothing = settings == NOTHING_FIRST or (settings == {} and n == 150)
    assert plan.releases(0)[0].name == ("relative sums" if nothing else first)
    assert plan.is_survey(0) == (plan.releases(0)[0].name == "sums and squares")


@pytest.mark.parametrize(
    ("n", "d", "k", "rounds", "settings", "first"),
    [
        # Sigma is 15.94. The noise on the surveyed middle has a deviation of 0.474 at most: from 223.3 records on. With
        # one cluster, or up to three features, there always is a survey.
        (224, 4, 3, 10, {}, "sums and squares"),
        (223, 4, 3, 10, {}, "relative sums"),
        (157, 2, 3, 10, {}, "sums and squares"),
        (150, 4, 1, 10, {}, "sums and squares"),
        (223, 4, 3, 10, SURVEY, "sums and squares"),
        (223, 4, 3, 2, SURVEY, "relative sums"),
        (223, 4, 3, 10, {"survey": 0.3}, "sums and squares"),
        (224, 4, 3, 10, {"survey": 0.1}, "relative sums"),
        # The noise on a whole step is above 5: up to 100.8 records.
        (101, 4, 5, 10, {}, "relative sums"),
        (100, 4, 5, 10, {}, "sums and squares"),
    ],
)
def test_there_is_no_survey_where_it_would_be_mostly_noise(n, d, k, rounds, settings, first) -> None:
    delta = gdp_delta(1.0 / 15.94, 0.1) + SAMPLER_DELTA
    public = parameters(n, k, protocol=PLUS, epsilon=0.1, delta=delta, rounds=rounds, settings=settings)
    plan = make_plan(public, d=d, names=tuple(f"x{i}" for i in range(d)))
    assert [release.name for release in plan.releases(0)] == [first, "counts"]
    assert {release.name for t in range(1, rounds) for release in plan.releases(t)} == {"relative sums", "counts"}
    if first == "relative sums" and rounds > 2:
        # The whole budget goes to the rounds, as if no survey had been asked for: plan, ledger and proofs are the same.
        asked = dataclasses.replace(public, settings={"survey": 0.0, "grid": 0.0})
        assert plan == make_plan(asked, d=d, names=plan.names)
        assert len({(planned.sum_scale, planned.count_scale) for planned in plan.rounds}) == 1


@pytest.mark.parametrize("d", [3, 4])
def test_without_survey_and_histogram_the_start_is_half_as_far_from_the_middle(d: int) -> None:
    points = np.zeros((300, d))
    wide, near = (plan_for(points, 5, protocol=PLUS, settings={**s, "wide": 1.0}) for s in (SURVEY, NOTHING_FIRST))
    assert wide.fraction_bits == near.fraction_bits == 16
    start, half = (first_centers(plan).grid for plan in (wide, near))
    assert (start == first_centers(plan_for(points, 5)).grid).all()
    assert (np.abs(2 * half - start) <= 1).all() if d > 3 else (half == start).all()
    given = np.full((5, d), 0.75)
    assert (first_centers(near, given).exact == given).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"d": 4}, "at most 3 features, got 4; name fewer with --columns"),
        ({"k": 1025}, "at most 1,024 clusters, got 1,025; take fewer with --k"),
        ({"settings": {"start": "grid", "grid": 0.0}}, "got fastlloyd-plus.grid = 0; raise it"),
        ({"rounds": 2}, "at least 3 rounds, of which it is the first, got 2; give more --rounds"),
    ],
)
def test_a_histogram_that_cannot_be_is_refused_where_it_was_asked_for(changes, said) -> None:
    asked = {"d": 2, "k": 3, "rounds": 5, "settings": {"start": "grid"}, **changes}
    d, k = asked.pop("d"), asked.pop("k")
    names = tuple(f"x{i}" for i in range(d))
    with pytest.raises(ConfigError, match=rf"--set fastlloyd-plus\.start=grid: expected .*{said}, or leave start out"):
        make_plan(parameters(5000, k, protocol=PLUS, **asked), d=d, names=names)
    asked["settings"] = {**asked["settings"], "start": "auto"}
    plan = make_plan(parameters(5000, k, protocol=PLUS, **asked), d=d, names=names)
    assert not plan.rounds[0].cells


def test_every_party_records_what_the_plan_says_and_that_is_epsilon() -> None:
    points = blobs(200, 3, 2)
    plan = plan_for(points, 3, protocol=PLUS, epsilon=0.7)
    outcome = run(points, plan)
    for party in (SERVER, *clients(2)):
        recorded = tuple(outcome.simulation.releases[party])
        assert recorded == plan.all_releases()
        assert 0.995 * 0.7 <= spent(recorded, plan.delta) <= 0.7


def _plus(plan: Plan, **changes) -> Plan:
    assert plan.plus is not None
    return dataclasses.replace(plan, plus=dataclasses.replace(plan.plus, **changes))


def _stage(plan: Plan, place: int, **changes) -> Plan:
    assert plan.plus is not None
    stages = list(plan.plus.stages)
    stages[place] = dataclasses.replace(stages[place], **changes)
    return _plus(plan, stages=tuple(stages))


def _first(plan: Plan, **changes) -> Plan:
    return dataclasses.replace(plan, rounds=(dataclasses.replace(plan.rounds[0], **changes), *plan.rounds[1:]))


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: dataclasses.replace(plan, plus=None),
        lambda plan: dataclasses.replace(plan, clip=True),
        lambda plan: dataclasses.replace(plan, domain="fold"),
        lambda plan: _stage(plan, 0, reach=plan.plus.stages[0].reach * 1.01),
        lambda plan: _stage(plan, 1, reach=plan.plus.stages[1].reach * 1.01),
        lambda plan: _stage(plan, 0, cell=0.25),
        lambda plan: _stage(plan, 0, clusters=7),
        lambda plan: _stage(_stage(plan, 0, rounds=2), 1, rounds=1),
        lambda plan: _plus(plan, stages=plan.plus.stages[1:]),
        lambda plan: _first(plan, clusters=7),
        lambda plan: dataclasses.replace(
            plan, rounds=tuple(dataclasses.replace(r, clusters=r.clusters + 1) for r in plan.rounds)
        ),
        lambda plan: _plus(plan, survey=not plan.plus.survey),
        lambda plan: _plus(plan, cells=plan.plus.cells + 1),
        lambda plan: _first(plan, cells=(plan.plus.cells + 1) ** 2),
        lambda plan: _plus(plan, shorten=False),
        lambda plan: dataclasses.replace(
            plan, rounds=tuple(dataclasses.replace(r, radius=(r.radius or 0) * 2) for r in plan.rounds)
        ),
        lambda plan: dataclasses.replace(
            plan,
            rounds=tuple(dataclasses.replace(r, sum_scale=r.sum_scale * 0.8) for r in plan.rounds),
        ),
        lambda plan: _first(plan, count_scale=plan.rounds[0].count_scale * 0.8),
        lambda plan: _first(plan, count_scale=plan.rounds[0].count_scale * 1.1),
        lambda plan: dataclasses.replace(
            plan, rounds=(*plan.rounds[:-1], dataclasses.replace(plan.rounds[-1], sum_scale=1e14, count_scale=1e14))
        ),
        lambda plan: dataclasses.replace(
            plan, rounds=tuple(dataclasses.replace(r, count_scale=r.count_scale * 0.9) for r in plan.rounds)
        ),
    ],
)
@pytest.mark.parametrize("start", [SURVEY, {"start": "grid"}, NOTHING_FIRST])
def test_a_client_refuses_a_plan_that_is_not_its_configuration(change, start) -> None:
    points, settings = blobs(90, 3, 2), {**start, "wide": 2.0}
    plan = plan_for(points, 3, protocol=PLUS, settings=settings)
    public = parameters(90, 3, protocol=PLUS, settings=settings)
    check_plan(plan, public, d=2, names=("x1", "x2"))
    with pytest.raises(ValueError, match="plan"):
        check_plan(change(plan), public, d=2, names=("x1", "x2"))


@pytest.mark.parametrize("values", [3, {}, {"survey": True}, {"reach": "x"}])
def test_a_malformed_part_of_the_plan_is_refused(values) -> None:
    plain = plan_for(blobs(90, 3, 2), 3, protocol=PLUS).to_json()
    with pytest.raises(ValueError, match=r"^plan\.plus: expected"):
        Plan.from_json({**plain, "plus": values})


@pytest.mark.parametrize(
    "settings,text",
    [
        ({"survey": 0.6}, "survey"),
        ({"reach": 0.0}, "reach"),
        ({"far": "keep"}, "far"),
        ({"shrink": 1}, "shrink"),
        ({"alpha": 0.8}, "no setting 'alpha'"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(settings, text) -> None:
    with pytest.raises(ConfigError, match=text):
        parameters(90, 3, protocol=PLUS, settings=settings)


def test_automatic_reach_may_be_named() -> None:
    named = plan_for(blobs(90, 3, 2), 3, protocol=PLUS, settings={"reach": "auto"})
    assert named == plan_for(blobs(90, 3, 2), 3, protocol=PLUS)


def test_without_noise_it_finds_separated_clusters() -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8], [0.0, 0.0]])
    points = np.clip(np.repeat(corners, 100, axis=0) + rng.normal(0, 0.02, (500, 2)), -1, 1)
    plan = plan_for(points, 5, protocol=PLUS, epsilon=20.0)
    found = run(points, plan, noise=no_noise(plan)).first.centers
    away = np.sqrt(((found.exact[:, None] - corners[None]) ** 2).sum(axis=2))
    assert (away.min(axis=0) < 0.02).all()


def test_the_survey_measures_middle_spread_and_number() -> None:
    rng = np.random.default_rng(0)
    points = np.clip(rng.normal([0.3, -0.5], [0.1, 0.3], (4000, 2)), -1, 1)
    plan = plan_for(points, 3, protocol=PLUS, epsilon=20.0, settings=SURVEY)
    from fastlloyd.kmeans.grid import quantise
    from fastlloyd.protocols.fastlloyd.rounds import local_update

    start = first_centers(plan)
    update = local_update(quantise(points, plan.fraction_bits), start, plan, 0)
    state = post_process(update, start, plan, 0).state
    assert state is not None
    assert state.records == 4000
    # Up to what the known noise makes the clients doubt.
    assert np.abs(state.middle - points.mean(axis=0)).max() < 1e-3
    assert np.abs(state.deviation - points.std(axis=0)).max() < 0.05
    reach, multiple = radius(state, plan, 1)
    assert plan.plus is not None
    wanted = state.spread * plan.plus.stage(1)[0].reach * 2**plan.fraction_bits
    assert reach * multiple <= plan.rounds[1].radius
    assert abs(reach / wanted - 1.0) < 0.5


def test_a_given_start_is_kept_by_the_survey() -> None:
    points = blobs(100, 2, 2)
    plan = plan_for(points, 2, protocol=PLUS)
    start = first_centers(plan, np.array([[0.5, 0.5], [-0.25, 0.5]]))
    after = post_process(draw_noise(plan, 0, SecretRandom()), start, plan, 0)
    assert (after.exact == start.exact).all()


def test_noise_of_any_size_leaves_finite_centres_inside() -> None:
    plan = plan_for(blobs(90, 3, 2), 5, protocol=PLUS, epsilon=0.1)
    rng = np.random.default_rng(0)
    for scale in (0.0, 1e3, 1e9):
        centers: Centers = first_centers(plan)
        for t in range(len(plan.rounds)):
            noisy = np.rint(rng.normal(0.0, scale, plan.elements(t))).astype(np.int64)
            centers = post_process(noisy, centers, plan, t)
        assert np.isfinite(centers.exact).all()
        assert (np.abs(centers.exact) <= 1.0).all()


def test_a_plan_of_another_protocol_has_no_steps_of_plus() -> None:
    points = blobs(90, 3, 2)
    plan, plain = plan_for(points, 3, protocol=PLUS), plan_for(points, 3)
    state = first_state(plan, given=False)
    for t, which in ((0, plan), (1, plain)):
        with pytest.raises(ValueError, match=f"round {t} of this plan has no radius"):
            radius(state, which, t)
    with pytest.raises(ValueError, match="not one of fastlloyd-plus"):
        advance(np.zeros((3, 2)), np.ones(3), np.zeros((3, 2)), state, plain, t=1)


def test_variances_that_are_known_well_stay_as_measured_up_to_that_of_the_corners() -> None:
    measured = _feature_variances(np.array([0.9, 0.2, 1.2]), 1e-9)
    assert measured == pytest.approx([0.9, 0.2, 1.0], rel=1e-4)


@pytest.mark.parametrize("n", [1, 4, 5])
def test_a_survey_in_blocks_is_that_of_all_records(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(blobs(90, 3, 2), 3, protocol=PLUS)
    points = quantise(blobs(n, 1, 2), plan.fraction_bits)
    whole = survey_update(points, plan)
    assert whole[: plan.d].tolist() == points.raw_coordinates.sum(axis=1).tolist()
    for values in (1, 4, 5):
        monkeypatch.setattr(plus, "_BLOCK", values)
        assert (survey_update(points, plan) == whole).all()


def test_a_square_is_a_product_on_every_machine() -> None:
    plan = plan_for(blobs(200, 3, 5), 3, protocol=PLUS, settings={"wide": 1.0})
    state = dataclasses.replace(first_state(plan, given=False), counts=np.zeros(3), count_variance=np.zeros(3))
    # The pow of some C libraries is off for some of these.
    for records in np.random.default_rng(0).uniform(10, 1e6, 20_000).tolist():
        _, variance = _weigh_counts(np.zeros(3), 1e100, dataclasses.replace(state, records=records), plan, 1)
        step = 0.25 * 0.5 * (records / 3)
        assert variance[0] == step * step
