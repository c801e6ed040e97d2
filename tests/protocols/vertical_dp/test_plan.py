"""Settings and plans of vertical-dp: what is claimed, and what a party refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import lru_cache

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.party.option import describe_settings
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.privacy.release import SKETCH_ROWS, Release
from fastlloyd.protocols.vertical_dp.plan import (
    Plan,
    Split,
    automatic_clusters,
    check_plan,
    first_split,
    make_plan,
    tighten,
)
from fastlloyd.protocols.vertical_dp.settings import Settings, settings_from
from fastlloyd.protocols.vertical_dp.sketch.sketch import paper_phantoms
from tests.protocols.vertical_dp.support import features_of, parameters

COLUMNS = [np.zeros((1, 2)), np.zeros((1, 3)), np.zeros((1, 1)), np.zeros((1, 2))]


def make(parties: int = 2, n: int = 20_000, **changes):
    return _make(parties, n, json.dumps(changes, sort_keys=True))


@lru_cache(maxsize=64)
def _make(parties: int, n: int, written: str):
    changes = json.loads(written)
    features = features_of(COLUMNS[:parties])
    public = parameters(n, 5, parties, **changes)
    return make_plan(public, features), public, features


@pytest.mark.parametrize(
    "parties,settings,epsilon",
    [
        (2, {}, 0.2),
        (2, {}, 8.0),
        (2, {"local": "lloyd"}, 1.0),
        (4, {"local": "box-tree"}, 1.0),
        (3, {"weights": "basic"}, 8.0),
    ],
)
def test_the_composed_total_is_epsilon_or_up_to_half_a_percent_less(parties, settings, epsilon) -> None:
    plan, _, _ = make(parties, epsilon=epsilon, settings={**settings, "local_clusters": 3})
    assert 0.995 * epsilon <= spent(plan.all_releases(), plan.delta) <= epsilon
    assert epsilon < plan.change_epsilon() < 3.0 * epsilon


def test_sketches_are_not_split_over_two_parties_and_need_fewer_phantoms() -> None:
    tight, _, _ = make(epsilon=1.0)
    paper, _, _ = make(epsilon=1.0, settings={"composition": "paper"})
    rest = 0.98 / 2
    assert paper.phantoms == paper_phantoms(4096, rest / 2, paper.delta / 2)
    assert paper.local_epsilon == pytest.approx(rest / 2) and paper.total_scale == pytest.approx(50.0)
    assert paper.private and spent(paper.all_releases(), paper.delta) < 1.0
    assert paper.phantoms > 5 * tight.phantoms
    (rows,) = [release for release in tight.all_releases() if release.mechanism == SKETCH_ROWS]
    assert rows.rows == 4096


def test_pairs_are_counted() -> None:
    fixed = {"composition": "paper", "local_clusters": 3}
    plan, _, _ = make(4, epsilon=1.0, settings=fixed)
    (rows,) = [release for release in plan.all_releases() if release.mechanism == SKETCH_ROWS]
    assert rows.rows == 6 * 4096 and plan.shape.parties == 2
    whole, _, _ = make(4, epsilon=1.0, settings={**fixed, "weights": "basic"})
    assert whole.key_groups == ((0, 1, 2, 3),) and whole.shape.parties == 4


def test_the_papers_phantoms_carry_no_claim() -> None:
    plan, public, features = make(4, settings={"phantoms": "paper", "local_clusters": 3})
    assert not plan.private and "Theorem 4" in plan.note
    assert spent(plan.all_releases(), plan.delta) == math.inf
    assert plan.key_groups == ((0, 1, 2, 3),) and len(plan.table_groups) == 6 and plan.shape.parties == 2
    assert plan.estimator == "basic"
    assert check_plan(plan, public, place=0, own=features[0]) == math.inf


def test_a_plan_survives_the_wire() -> None:
    plan, public, features = make(3)
    again = Plan.from_json(json.loads(json.dumps(plan.to_json(), allow_nan=False)))
    assert again == plan
    epsilon = check_plan(again, public, place=1, own=features[1])
    assert epsilon == spent(plan.all_releases(), plan.delta)
    plain, _, _ = make(protocol="vertical-plain")
    assert Plan.from_json(json.loads(json.dumps(plain.to_json(), allow_nan=False))) == plain


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"k": 6}, "k = 6"),
        ({"rows": 8192}, "rows = 8192"),
        ({"delta": 0.1}, "delta = 0.1"),
        ({"epsilon": 2.0}, "epsilon = 2.0"),
        ({"share_result": True}, "share_result = True"),
        ({"scheme": "paper"}, "scheme = 'paper'"),
        ({"local_clusters": 3}, "local_clusters = 3"),
        ({"phantoms": 1}, "spends epsilon"),
        ({"local_epsilon": 0.5}, "divides epsilon"),
        ({"clients": 3}, "clients = 3"),
        ({"names": (("a", "b"), ("c", "d", "e"))}, "differently from the party"),
        ({"lo": ((-2.0, -1.0), (-1.0, -1.0, -1.0))}, "differently from the party"),
        ({"lo": ((5.0, 5.0), (-1.0, -1.0, -1.0))}, "columns are inconsistent"),
    ],
)
def test_a_party_refuses_a_plan_that_differs(changes, message) -> None:
    plan, public, features = make(epsilon=1.0)
    with pytest.raises(ValueError, match=message):
        check_plan(dataclasses.replace(plan, **changes), public, place=0, own=features[0])


def test_a_plan_with_less_noise_on_everything_is_refused() -> None:
    plan, public, features = make(epsilon=1.0)
    louder = dataclasses.replace(
        plan, local_epsilon=plan.local_epsilon * 1.02, total_scale=plan.total_scale / 1.02, phantoms=plan.phantoms - 5
    )
    with pytest.raises(ValueError, match="spends epsilon"):
        check_plan(louder, public, place=0, own=features[0])


@pytest.mark.parametrize("values", [{}, {"plan": 1}, []])
def test_what_is_no_plan_is_refused(values) -> None:
    with pytest.raises(ValueError):
        Plan.from_json(values)


def test_local_clusters_grow_with_epsilon_and_with_k() -> None:
    paper = {"composition": "paper"}
    found = [make(epsilon=epsilon, settings=paper)[0].local_clusters for epsilon in (0.2, 1.0, 8.0)]
    assert found == sorted(found) and found[0] < found[-1]
    plan, _, _ = make(epsilon=0.2, settings=paper)
    assert automatic_clusters(dataclasses.replace(plan, k=900)) == 30
    assert make(epsilon=1.0, settings={**paper, "local_clusters": 7})[0].local_clusters == 7
    basic = make(epsilon=1.0, settings={**paper, "estimator": "basic"})[0].local_clusters
    assert 2 <= basic <= found[1]


@pytest.mark.parametrize(
    "values,message",
    [
        ({"rows": 0}, "rows"),
        ({"rows": 2.5}, "a whole number from 1 to"),
        ({"gamma": 9}, "gamma"),
        ({"local": "other"}, "'lloyd'"),
        ({"local_share": 1.0}, "above 0 and below 1"),
        ({"local_clusters": 1}, "local_clusters"),
        ({"share_result": "yes"}, "expected true or false"),
        ({"radius": 1}, "has no setting 'radius'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_from("vertical-dp", values)


def test_every_setting_is_explained() -> None:
    names = {field.name for field in dataclasses.fields(Settings)}
    assert describe_settings(Settings, "vertical-dp").keys() == {f"vertical-dp.{name}" for name in names}
    plain = {"vertical-plain.local_clusters", "vertical-plain.share_result"}
    assert describe_settings(Settings, "vertical-plain").keys() == plain
    with pytest.raises(ConfigError, match="vertical-plain has no setting 'rows'"):
        settings_from("vertical-plain", {"rows": 8})
    with pytest.raises(ConfigError, match="expected one of"):
        settings_from("lloyd", {})
    assert settings_from("vertical-dp", {"local_clusters": "auto", "gamma": 1}).gamma == 1.0


@pytest.mark.parametrize(
    "changes,message",
    [
        ({"clients": 1}, "columns of 2 to"),
        ({"k": 50_000}, "--k"),
        ({"epsilon": 0.0}, "--epsilon"),
        ({"delta": 1e-12}, "--delta"),
        ({"n_total": 2, "k": 1}, "--n-total"),
    ],
)
def test_public_parameters_that_do_not_fit_are_refused(changes, message) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(parameters(20_000, 5), **changes)


def test_likelihood_needs_pairs_and_fine_levels() -> None:
    for settings in ({"weights": "basic"}, {"phantoms": "paper"}, {"gamma": 0.5}):
        with pytest.raises(ConfigError, match="estimator"):
            make(3, settings={"estimator": "likelihood", **settings})
        fixed = {"composition": "paper", "local_clusters": 3}
        assert make(3, settings={**settings, **fixed})[0].estimator == "basic"


def test_gaussian_local_clusters_need_the_tight_composition() -> None:
    for settings in ({"composition": "paper"}, {"phantoms": "paper"}):
        assert settings_from("vertical-dp", settings).local == "lloyd"
        with pytest.raises(ConfigError, match="local=lloyd"):
            settings_from("vertical-dp", {"local": "shortened", **settings})
    ours = settings_from("vertical-dp", {"tree_share": 0.3})
    assert (ours.local, ours.local_share, ours.tree_share) == ("shortened", 0.65, 0.3)
    assert settings_from("vertical-dp", {"local": "box-tree"}).local_share == 0.5


def test_the_old_name_of_the_box_tree_is_refused_with_the_new_one() -> None:
    with pytest.raises(ConfigError, match="got 'dplsf'; it is called 'box-tree' now"):
        settings_from("vertical-dp", {"local": "dplsf"})


def test_shortened_local_clusters_follow_what_is_heard_above_the_noise() -> None:
    plan, _, _ = make(epsilon=1.0)
    heard = plan.n_total * 0.1 / math.sqrt(2.5)
    found = [automatic_clusters(dataclasses.replace(plan, k=k, local_epsilon=0.1)) for k in (2, 5, 16)]
    assert found[:2] == [round(math.sqrt(k * heard**0.4)) for k in (2, 5)]
    paper = automatic_clusters(dataclasses.replace(plan, k=5, local="lloyd"))
    assert found[1] < paper and found[2] == min(paper, round(math.sqrt(16 * heard**0.4)))


@pytest.mark.parametrize("parties", [2, 4])
def test_the_split_of_shortened_clusters_is_one_of_squares(parties: int) -> None:
    settings = settings_from("vertical-dp", {"local_share": 0.7})
    split = first_split(settings, parties=parties, groups=3, epsilon=1.0, delta=1e-6)
    mu = 1.0 / gaussian_noise_multiplier(0.98, 1e-6 - 2.0**-40)
    assert parties * split.local_epsilon**2 == pytest.approx(0.7 * mu**2, rel=1e-9)
    assert 3 * 4096 * split.row_epsilon**2 == pytest.approx(0.3 * mu**2, rel=1e-9)


def test_too_little_epsilon_for_the_rows_says_so() -> None:
    with pytest.raises(ConfigError, match="fewer rows"):
        first_split(Settings(rows=65_536), parties=4, groups=6, epsilon=1e-6, delta=1e-9)


def test_phantoms_are_added_until_whole_numbers_of_them_stay_within_epsilon() -> None:
    # With epsilon' as it stands, less seems to be spent than whole phantoms spend.
    def build(split: Split, exact: bool) -> list[Release]:
        scale = (1.5 if exact else 1.0) * split.phantoms / 100.0
        return [Release(round=0, name="x", mechanism="laplace", norm="l1", sensitivity=1.0, noise_scale=scale)]

    first = Split(total_epsilon=0.1, local_epsilon=0.1, row_epsilon=math.log1p(1.0 / 300.0), phantoms=300)
    found = tighten(first, build, epsilon=0.25, delta=0.0)
    assert found.phantoms == 400


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_all_rows_of_all_groups_share_the_epsilon_of_the_sketches(groups: int) -> None:
    settings = Settings(local="lloyd", local_share=0.5)
    split = first_split(settings, parties=4, groups=groups, epsilon=2.0, delta=1e-6)
    sketches = 2.0 * (1.0 - settings.total_share) * 0.5
    # Many rows together are as good as Gaussian: 1 / sigma is the root of rows times a row's epsilon.
    multiplier = 1.0 / (split.row_epsilon * math.sqrt(settings.rows * groups))
    assert multiplier == pytest.approx(gaussian_noise_multiplier(sketches, 1e-6), rel=1e-3)


def test_what_whole_phantoms_leave_of_epsilon_goes_to_the_laplace_noise() -> None:
    def build(split: Split, exact: bool) -> list[Release]:
        scales = (1.0 / split.row_epsilon if exact else float(split.phantoms), 1.0 / split.local_epsilon)
        return [
            Release(round=t, name="x", mechanism="laplace", norm="l1", sensitivity=1.0, noise_scale=scale)
            for t, scale in enumerate(scales)
        ]

    first = Split(total_epsilon=0.1, local_epsilon=0.2, row_epsilon=math.log1p(0.5), phantoms=2)
    found = tighten(first, build, epsilon=1.0, delta=0.0)
    assert found.phantoms == 2
    assert 0.4999 < found.local_epsilon <= 0.5
