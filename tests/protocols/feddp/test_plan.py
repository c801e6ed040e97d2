"""Settings, budget, plan and the clients' check of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.party.declaration import MOST_MESSAGE_BYTES
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.accountant import SAMPLER_DELTA, spent
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.feddp.math.projection import (
    ROW_NORM,
    choose_outer_bits,
    choose_projected_bits,
    projected_limit,
)
from fastlloyd.protocols.feddp.plan import Plan, StepPlan
from fastlloyd.protocols.feddp.proposal import check_plan, make_plan
from fastlloyd.protocols.feddp.settings import (
    CENTERS,
    LLOYD,
    OUTER,
    PROPORTIONS,
    START,
    WEIGHTS,
    Settings,
    default_rounds,
    epsilon_shares,
    multipliers,
    settings_from,
    steps_of,
)
from tests.protocols.feddp.support import USERS, louder, mixture, names, parameters, plan_for

CASES = {
    "record": {},
    "record, one step, 5 clients, 2 known": {"rounds": 1, "clients": 5, "known_shares": 2},
    "record, small epsilon": {"epsilon": 0.1},
    "record, large epsilon": {"epsilon": 20.0, "rounds": 2},
    "client": {"settings": USERS, "choose_k": True},
    "baseline": {"settings": {"start": "server-lloyds"}, "rounds": 2},
    "own shares": {"settings": {"outer_share": 0.5, "lloyd_share": 0.1}, "rounds": 1, "delta": None},
}


@pytest.fixture(scope="module")
def data():
    return mixture(300, 4, 6)


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_plan_spends_its_epsilon_and_no_more(data, changes) -> None:
    public = parameters(300, 4, **changes)
    plan = plan_for(data, 4, **changes)
    found = check_plan(plan, public, d=6, names=names(6))
    assert 0.995 * public.epsilon <= found <= public.epsilon
    assert found == spent(plan.all_releases(), plan.delta)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    neighbours = "add-remove user" if plan.by_user else "add-remove record"
    for release in plan.all_releases():
        assert release.neighbours == neighbours
        assert (release.clients, release.known) == (plan.clients, plan.known_shares)
    # The price of several clients' shares against one who adds all, sqrt(m / (m - t)), and hardly anything else.
    assert plan.noise_price == pytest.approx(math.sqrt(plan.clients * plan.share), rel=2e-2)


def test_a_message_that_no_frame_can_carry_is_refused_before_anything_is_spent() -> None:
    public = parameters(300, 2, rounds=1, ring_bits=64, settings={"start": "private"})
    with pytest.raises(ConfigError, match=r"16500 features make .* at most 16350 features \(--columns\), or --set"):
        make_plan(public, d=16500, names=names(16500))
    # The outer product of d numbers and the lift, of 8 bytes.
    assert 16351 * 16352 // 2 * 8 <= MOST_MESSAGE_BYTES < 16352 * 16353 // 2 * 8


def test_releases_of_the_default_run_are_those_of_algorithm_1(data) -> None:
    plan = plan_for(data, 4)
    releases = plan.all_releases()
    assert [(r.round, r.name, r.norm) for r in releases] == [
        (0, "outer product", "l2"),
        (1, "weights", "l1"),
        (2, "sums", "l2"),
        (2, "counts", "l1"),
    ]
    limit = math.floor(plan.norm_bound * 2**plan.fraction_bits)
    grid = 2**plan.fraction_bits
    assert plan.outer_bits == plan.fraction_bits
    assert [r.sensitivity for r in releases] == [limit**2, grid, limit, grid]
    largest = np.linalg.norm(np.clip(data.server_points, -1, 1), axis=1).max()
    assert plan.norm_bound == pytest.approx(largest, rel=1e-12)
    # Proportions of App. H.1: what each release would spend alone.
    alone = [spent((r,), plan.delta if r.norm == "l2" else 0.0) for r in releases]
    assert np.allclose(np.array(alone) / sum(alone), PROPORTIONS["record"], rtol=2e-3)


def test_client_level_releases_have_the_bounds_of_the_users(data) -> None:
    plan = plan_for(data, 4, settings=USERS)
    assert [r.name for r in plan.all_releases()] == ["outer product", "weights", "means", "counts"]
    grid, norm = 2**plan.fraction_bits, plan.norm_bound
    expected = [norm**2 * 4**plan.outer_bits, grid, norm / 2 * grid, 2 * grid]
    for release, bound in zip(plan.all_releases(), expected, strict=True):
        assert bound - 1 <= release.sensitivity <= bound


@pytest.mark.parametrize("rounds,share", [(0, None), (1, None), (3, 0.25)])
@pytest.mark.parametrize("start", ["feddp", "server-lloyds"])
@pytest.mark.parametrize("level", ["record", "client"])
def test_shares_of_epsilon_add_up_to_one(rounds: int, share, start: str, level: str) -> None:
    if start != "feddp" and rounds == 0:
        return
    settings = Settings(start=start, privacy_level=level, lloyd_share=share)
    shares = epsilon_shares(settings, rounds)
    kinds = steps_of(settings, rounds)
    assert math.fsum(part for kind in kinds for part in shares[kind]) == pytest.approx(1.0, rel=1e-12)
    if start == "feddp" and rounds and share is None:
        assert shares[LLOYD] == pytest.approx(shares[CENTERS])
    if start == "feddp" and share is not None:
        assert math.fsum(shares[LLOYD]) * rounds == pytest.approx(share)
    for kind in kinds:
        ratio = shares[kind][0] / max(shares[kind][1], 1e-300)
        if kind in (CENTERS, LLOYD):
            assert ratio == pytest.approx(PROPORTIONS[level][2] / PROPORTIONS[level][3])


def test_steps_follow_the_start() -> None:
    assert steps_of(Settings(), 1) == (OUTER, WEIGHTS, CENTERS, LLOYD)
    assert steps_of(Settings(start="sphere-packing"), 2) == (START, LLOYD, LLOYD)
    assert default_rounds(Settings()) == 0 and default_rounds(Settings(start="server-lloyds")) == 2


def test_every_setting_has_help_and_a_default() -> None:
    names = {f"feddp.{name}" for name in Settings.__dataclass_fields__}
    assert describe_settings(Settings, "feddp").keys() == names
    assert settings_from({}) == Settings()
    assert settings_from({"norm_bound": "auto", "restarts": 3, "outer_share": 0.5}).restarts == 3
    assert settings_from({"norm_bound": 1}).norm_bound == 1.0


@pytest.mark.parametrize(
    "values,text",
    [
        ({"privacy_level": "user"}, "'record' or 'client'"),
        ({"start": "random"}, "'feddp', 'private', 'server-kmeans\\+\\+'"),
        ({"norm_bound": 0}, "from 0.015625 to 1048576"),
        ({"norm_bound": float("nan")}, "from 0.015625 to 1048576"),
        ({"norm_bound": "big"}, "'auto' or a number from"),
        ({"outer_share": 1.0}, "0.001"),
        ({"restarts": 0}, "1 to 1000"),
        ({"restarts": 2.5}, "a whole number from 1 to 1000"),
        ({"mean_clip": 1.0}, "left out at record level"),
        ({"epsilon": 1.0}, "no setting 'epsilon'"),
    ],
)
def test_wrong_settings_are_refused(values, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings_from(values)


@pytest.mark.parametrize(
    "changes,text",
    [
        ({"clients": 1}, "at least 2 clients"),
        ({"masking": "common"}, "expects 'pairwise'"),
        ({"min_clients": 2}, "leave --min-clients out"),
        ({"known_shares": 3}, "at least one unknown share"),
        ({"k": 0}, "--k"),
        ({"k": 301}, "--k"),
        ({"epsilon": 0.0}, "--epsilon"),
        ({"delta": 1e-13}, "--delta"),
        ({"rounds": -1}, "--rounds"),
        ({"rounds": 0, "settings": {"start": "server-lloyds"}}, "a number of Lloyd steps from 1 to 1000"),
        ({"choose_k": True, "settings": {"start": "server-lloyds"}}, "elbow"),
        ({"choose_k": True, "settings": {"start": "private"}}, "'private' does without"),
        ({"n_total": 2, "k": 2}, "--n-total"),
    ],
)
def test_wrong_public_parameters_are_refused_with_a_mend(changes, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parameters(**{"n": 300, **{"n" if key == "n_total" else key: v for key, v in {"k": 4, **changes}.items()}})


@pytest.mark.parametrize(
    "points,text",
    [
        (None, "needs the server's own data"),
        (np.zeros((40, 5)), "expected 6 features"),
        (np.zeros((3, 6)), "expected 4"),
        (np.full((40, 6), np.inf), "finite"),
    ],
)
def test_server_data_that_do_not_fit_are_refused(points, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_plan(parameters(300, 4), d=6, names=names(6), server_points=points)


def test_sphere_packing_needs_no_server_data() -> None:
    public = parameters(300, 4, settings={"start": "sphere-packing"}, rounds=1)
    plan = make_plan(public, d=6, names=names(6))
    assert plan.norm_bound == math.sqrt(6) and plan.n_server == 0
    assert [step.kind for step in plan.rounds] == [START, LLOYD]
    assert check_plan(plan, public, d=6, names=names(6)) <= 1.0


PRIVATE = {"start": "private"}


def test_the_private_start_needs_no_server_data_and_takes_none(data) -> None:
    public = parameters(300, 4, settings=PRIVATE)
    plan = make_plan(public, d=6, names=names(6))
    assert plan == make_plan(public, d=6, names=names(6), server_points=data.server_points)
    assert plan.norm_bound == math.sqrt(6) and plan.lift == math.floor(math.sqrt(6) / 2 * 2**plan.outer_bits)
    assert [step.kind for step in plan.rounds] == [OUTER, WEIGHTS, CENTERS]
    assert plan.elements(0) == 28 and plan.elements(1) == plan.n_server
    assert 0.995 <= check_plan(plan, public, d=6, names=names(6)) <= 1.0


def test_the_number_of_proxy_points_follows_from_public_numbers() -> None:
    def count(n: int, **settings) -> int:
        return make_plan(parameters(n, 4, settings={**PRIVATE, **settings}), d=6, names=names(6)).n_server

    assert count(300) < count(3000) < count(30_000) <= 4096
    assert count(30_000, privacy_level="client") < count(30_000)
    assert count(300, proxies=77) == 77 and count(300, proxies=1) == 4


@pytest.mark.parametrize("change", [{"n_server": 9}, {"norm_bound": 2.0}, {"start": "feddp"}])
def test_a_client_refuses_another_private_start(change) -> None:
    public = parameters(300, 4, settings=PRIVATE)
    plan = make_plan(public, d=6, names=names(6))
    assert plan.n_server != 9
    with pytest.raises(ValueError, match="plan"):
        check_plan(replace(plan, **change), public, d=6, names=names(6))


def _change_step(plan: Plan, t: int, **values) -> Plan:
    steps = list(plan.rounds)
    steps[t] = replace(steps[t], **values)
    return replace(plan, rounds=tuple(steps))


CHANGES = {
    "k": lambda plan: replace(plan, k=5),
    "choose_k": lambda plan: replace(plan, choose_k=True),
    "names": lambda plan: replace(plan, names=names(5)),
    "n_total": lambda plan: replace(plan, n_total=10),
    "epsilon": lambda plan: replace(plan, epsilon=2.0),
    "delta": lambda plan: replace(plan, delta=1e-3),
    "level": lambda plan: replace(plan, privacy_level="client"),
    "start": lambda plan: replace(plan, start="server-lloyds"),
    "known": lambda plan: replace(plan, known_shares=2),
    "less noise": lambda plan: louder(plan, 0.99),
    "less noise in one": lambda plan: _change_step(plan, 1, scale=plan.rounds[1].scale * 0.9),
    "a step more": lambda plan: replace(plan, rounds=(*plan.rounds, StepPlan(kind=LLOYD, sigma=1e9, scale=1e9))),
    "steps swapped": lambda plan: replace(plan, rounds=plan.rounds[::-1]),
    "norm": lambda plan: replace(plan, norm_bound=3.0),
    "clip": lambda plan: replace(plan, mean_clip=1.0),
    "no server points": lambda plan: replace(plan, n_server=0),
    "fraction bits": lambda plan: replace(plan, fraction_bits=40),
    "outer bits": lambda plan: replace(plan, outer_bits=17),
    "projected bits": lambda plan: replace(plan, projected_bits=30),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_client_refuses_a_plan_that_is_not_its_own(data, change) -> None:
    plan, public = plan_for(data, 4), parameters(300, 4)
    with pytest.raises(ValueError, match="plan"):
        check_plan(change(plan), public, d=6, names=names(6))


def test_a_configured_norm_bound_is_kept_and_checked(data) -> None:
    settings = {"norm_bound": 0.8}
    plan, public = plan_for(data, 4, settings=settings), parameters(300, 4, settings=settings)
    assert plan.norm_bound == 0.8
    assert check_plan(plan, public, d=6, names=names(6)) <= 1.0
    with pytest.raises(ValueError, match="norm_bound"):
        check_plan(replace(plan, norm_bound=0.9), public, d=6, names=names(6))


@pytest.mark.parametrize(
    "change",
    [
        lambda v: {key: value for key, value in v.items() if key != "k"},
        lambda v: {**v, "extra": 1},
        lambda v: {**v, "k": 4.0},
        lambda v: {**v, "choose_k": 1},
        lambda v: {**v, "norm_bound": "1"},
        lambda v: {**v, "rounds": [{"kind": OUTER, "sigma": 1.0}]},
        lambda v: {**v, "rounds": [{"kind": "other", "sigma": 1.0, "scale": 0.0}]},
        lambda v: {**v, "rounds": [{"kind": OUTER, "sigma": "1", "scale": 0.0}]},
    ],
)
def test_a_plan_that_is_none_is_refused(data, change) -> None:
    with pytest.raises(ValueError, match="plan"):
        Plan.from_json(change(plan_for(data, 4).to_json()))


def test_grids_keep_every_sum_inside_its_ring() -> None:
    for n, norm, noise in [(10**5, 7.6, 1e3), (10**9, 28.6, 1e6), (10**6, 1.0, 1.0)]:
        bits = choose_outer_bits(n_total=n, largest=norm**2, noise=noise, tail=12 * noise, most=16)
        assert (n * norm**2 + 12 * noise) * 4.0**bits < 2.0**63
        assert (
            bits == 16
            or (n * norm**2 + 12 * noise) * 4.0 ** (bits + 1) >= 2.0**63
            or noise * 4.0 ** (bits + 1) >= 2**43
        )
    with pytest.raises(RangeError, match="more than 64 bits"):
        choose_outer_bits(n_total=10**13, largest=819.0, noise=1.0, tail=12.0, most=16)


@pytest.mark.parametrize("norm,rank", [(0.1, 1), (2.4, 10), (28.6, 20), (28.6, 819)])
def test_scores_in_the_projected_space_are_exact(norm: float, rank: int) -> None:
    bits = choose_projected_bits(norm, rank)
    limit = projected_limit(norm, rank, bits)
    assert 3 * limit**2 < 2**53
    # No record of norm at most Delta, seen through rows of norm at most 17/16, is longer.
    assert math.hypot(*([ROW_NORM * norm * 2**bits + 0.5] * rank)) <= limit
    with pytest.raises(RangeError, match="norm_bound"):
        choose_projected_bits(2.0**20, rank)


def test_the_sum_of_d_819_fits(data) -> None:
    points = np.zeros((1020, 819))
    points[:, :30] = 1.0
    public = parameters(127_491, 10, clients=51, epsilon=1.0)
    plan = make_plan(public, d=819, names=names(819), server_points=points)
    assert plan.elements(0) == 335_790 and plan.ring_of(0) == 64 and plan.ring_of(1) == 32
    assert plan.outer_bits >= 10
    assert check_plan(plan, public, d=819, names=names(819)) <= 1.0


@pytest.mark.parametrize("start", ["feddp", "server-kmeans++"])
@pytest.mark.parametrize("rounds", [0, 1, 5])
@pytest.mark.parametrize("lloyd_share", [None, 0.3])
def test_the_parts_of_all_steps_together_are_the_whole(start: str, rounds: int, lloyd_share: float | None) -> None:
    settings = replace(Settings(), start=start, lloyd_share=lloyd_share)
    shares = epsilon_shares(settings, rounds)
    total = sum(sum(shares[kind]) for kind in steps_of(settings, rounds))
    assert total == pytest.approx(1.0 if rounds or start == "feddp" else 0.0, rel=1e-12)


def test_a_part_of_epsilon_becomes_noise_by_its_mechanism() -> None:
    shares = {"x": (0.25, 0.5), "y": (0.0, 0.125), "z": (0.5, 0.0)}
    found = multipliers(shares, epsilon=2.0, delta=1e-6, factor=0.5)
    sigma = [gaussian_noise_multiplier(part * 4.0, 1e-6 - SAMPLER_DELTA) for part in (0.25, 0.5)]
    assert found == {"x": (sigma[0], 0.5), "y": (0.0, 2.0), "z": (sigma[1], 0.0)}
