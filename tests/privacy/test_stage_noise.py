"""Each stage of each private protocol carries the noise that its ledger entry states; see `stage_noise`.

Noise divided by 4 (or 10) in one stage alone is caught in that stage and in no other.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest
from scipy import stats

from fastlloyd.protocols.fastlloyd.plan import Plan
from fastlloyd.protocols.fastlloyd.rounds import draw_noise, draw_share
from fastlloyd.protocols.feddp import client as feddp_noise
from fastlloyd.protocols.vertical_dp.client import noise_for
from fastlloyd.protocols.vertical_dp.math.weights import noisy_count
from fastlloyd.protocols.vertical_dp.sketch.sketch import make_sketch
from fastlloyd.protocols.vertical_he import rounds as he_rounds
from fastlloyd.protocols.vertical_he.math.hints import HINT_SHARE
from fastlloyd.protocols.vertical_he.messages import NoisySums
from fastlloyd.protocols.vertical_he.reference import soft_sums
from fastlloyd.wire.header import Header
from tests.privacy.stage_noise import (
    Stages,
    feddp_stages,
    has_unit_variance,
    join_stages,
    lloyd_stages,
    normal_scores,
    wrong_stages,
)
from tests.protocols.feddp import support as feddp
from tests.protocols.support import blobs, plan_for
from tests.protocols.vertical_dp import support as vertical_dp
from tests.protocols.vertical_dp.support import Replay
from tests.protocols.vertical_he import support as vertical_he

RUNS = 8
"""Runs of one test: at least 32 values in a stage. Noise divided by 4 leaves them a chi-square level below 1e-12."""
STARTS = {"survey": {"start": "survey"}, "grid": {"start": "grid"}, "nothing": {"survey": 0.0, "grid": 0.0}, "": {}}
LLOYDS = ["fastlloyd", "glloyd", "sulloyd", *(f"fastlloyd-plus {start}" for start in STARTS if start)]
"""Protocols, fastlloyd-plus with what it starts from."""
POINTS = blobs(240, 4, 3, seed=2)
SMALL = {"rows": 64, "local_clusters": 3}
Weaker = dict[int, tuple[float, float]]
"""Round to factors on the noise of its two parts."""


@cache
def lloyd_plan(protocol: str, masking: str) -> Plan:
    name, _, start = protocol.partition(" ")
    public = {"clients": 3, "rounds": 3, "delta": 1e-6, "ring_bits": 64}
    return plan_for(POINTS, 4, protocol=name, masking=masking, settings=STARTS[start], **public)


def stages_of_lloyd(protocol: str, masking: str, weaker: Weaker) -> Stages:
    plan = lloyd_plan(protocol, masking)
    rounds = [
        dataclasses.replace(r, sum_scale=r.sum_scale * sums, count_scale=r.count_scale * counts)
        for t, r in enumerate(plan.rounds)
        for sums, counts in [weaker.get(t, (1.0, 1.0))]
    ]
    broken = dataclasses.replace(plan, rounds=tuple(rounds))
    secret, coins = Replay(1), np.random.default_rng(1)

    def noise(t: int) -> np.ndarray:
        return draw_share(broken, t, broken.share, secret) if masking == "pairwise" else draw_noise(broken, t, secret)

    return join_stages(lloyd_stages(POINTS, plan, noise, coins) for _ in range(RUNS))


def stages_of_feddp(level: str, weaker: Weaker, start: str = "feddp") -> Stages:
    data = feddp.mixture(240, 4, 6, seed=3)
    plan = feddp.plan_for(data, 4, rounds=1, settings={"privacy_level": level, "start": start, "proxies": 40})
    steps = [
        dataclasses.replace(step, sigma=step.sigma * gauss, scale=step.scale * laplace)
        for t, step in enumerate(plan.rounds)
        for gauss, laplace in [weaker.get(t, (1.0, 1.0))]
    ]
    broken = dataclasses.replace(plan, rounds=tuple(steps))
    secret, coins = Replay(2), np.random.default_rng(2)

    def share(me: object, t: int, k: int) -> np.ndarray:
        return feddp_noise.draw_share(broken, t, k, secret)

    return join_stages(feddp_stages(data, plan, share, coins) for _ in range(RUNS))


@pytest.mark.parametrize("masking", ["common", "pairwise"])
@pytest.mark.parametrize("protocol", LLOYDS)
def test_every_round_of_fastlloyd_has_the_noise_of_its_ledger(protocol: str, masking: str) -> None:
    stages = stages_of_lloyd(protocol, masking, {})
    assert len(stages) == (5 if protocol.endswith("grid") else 6)
    assert wrong_stages(stages) == set()


@pytest.mark.parametrize("masking", ["common", "pairwise"])
@pytest.mark.parametrize("protocol", LLOYDS)
def test_a_quarter_of_the_noise_is_caught_in_every_round(protocol: str, masking: str) -> None:
    quarter = stages_of_lloyd(protocol, masking, dict.fromkeys(range(3), (0.25, 0.25)))
    assert wrong_stages(quarter) == set(quarter)


def test_a_start_with_a_tenth_of_its_noise_is_caught() -> None:
    survey, grid = "fastlloyd-plus survey", "fastlloyd-plus grid"
    assert wrong_stages(stages_of_lloyd(survey, "common", {0: (0.1, 1.0)})) == {(0, "sums and squares")}
    assert wrong_stages(stages_of_lloyd(survey, "common", {0: (1.0, 0.1)})) == {(0, "counts")}
    assert wrong_stages(stages_of_lloyd(grid, "common", {0: (1.0, 0.1)})) == {(0, "histogram")}


@pytest.mark.parametrize("level", ["record", "client"])
@pytest.mark.parametrize("start", ["feddp", "private"])
def test_every_step_of_feddp_has_the_noise_of_its_ledger(level: str, start: str) -> None:
    stages = stages_of_feddp(level, {}, start)
    assert [key[0] for key in sorted(stages)] == [0, 1, 2, 2, 3, 3]
    assert wrong_stages(stages) == set()


@pytest.mark.parametrize("level", ["record", "client"])
@pytest.mark.parametrize("start", ["feddp", "private"])
def test_a_quarter_of_the_noise_is_caught_in_every_step_of_feddp(level: str, start: str) -> None:
    quarter = stages_of_feddp(level, dict.fromkeys(range(4), (0.25, 0.25)), start)
    assert wrong_stages(quarter) == set(quarter)


def test_a_tenth_of_the_noise_on_the_moments_of_the_private_start_is_caught() -> None:
    assert wrong_stages(stages_of_feddp("record", {0: (0.1, 1.0)}, "private")) == {(0, "outer product")}


def test_an_outer_product_with_a_quarter_of_its_noise_is_caught() -> None:
    assert wrong_stages(stages_of_feddp("record", {0: (0.25, 1.0)})) == {(0, "outer product")}


def test_the_number_of_users_has_the_noise_of_its_ledger() -> None:
    columns = vertical_dp.split(vertical_dp.correlated(300, 2), 2)
    plan = vertical_dp.plan_for(columns, 4, settings=SMALL)
    (release,) = (r for r in plan.all_releases() if r.name == "number of users")
    secret, coins = Replay(3), np.random.default_rng(3)
    # The count is a multiple of 2^-8, its noise a rounded Laplace variable on that grid.
    fine = dataclasses.replace(release, noise_scale=256.0 * release.noise_scale)

    def scores(part: float) -> np.ndarray:
        drawn = [noisy_count(300, part * plan.total_scale, secret) - 300.0 for _ in range(100)]
        return normal_scores(fine, np.rint(256.0 * np.array(drawn)).astype(np.int64), coins)

    assert has_unit_variance(scores(1.0))
    assert not has_unit_variance(scores(0.25))


@pytest.mark.parametrize("method", ["shortened", "lloyd"])
def test_local_releases_have_the_noise_of_their_ledger(method: str) -> None:
    # That a party asks for the scales of its releases: tests/protocols/vertical_dp/test_local.py.
    columns = vertical_dp.split(vertical_dp.correlated(300, 2), 2)
    plan = vertical_dp.plan_for(columns, 4, settings={**SMALL, "local": method})
    local = [r for r in plan.all_releases() if "client" in r.name]
    draw, coins = noise_for(plan.local_plan(0), Replay(4)), np.random.default_rng(4)
    assert local
    for release in local:
        # Noise on shortened sums is drawn in units of the radius, on a fine grid.
        fine = 1000.0 if release.unit == "the radius" else 1.0
        scaled = dataclasses.replace(release, sensitivity=fine, noise_scale=fine * release.noise_scale)
        assert has_unit_variance(normal_scores(scaled, draw(scaled.noise_scale, 60), coins))
        assert not has_unit_variance(normal_scores(scaled, draw(scaled.noise_scale / 4.0, 60), coins))


def test_sketches_have_the_phantoms_of_their_ledger() -> None:
    columns = vertical_dp.split(vertical_dp.correlated(300, 2), 2)
    plan = vertical_dp.plan_for(columns, 4, settings=SMALL)
    release = plan.all_releases()[-1]
    # The ledger has one row's pure epsilon, ln(1 + 1 / n_p): so many phantoms are in each cell of the grid.
    phantoms = 1.0 / np.expm1(1.0 / release.noise_scale)
    assert phantoms == pytest.approx(plan.shape.phantoms, rel=1e-6)
    table = np.array(plan.shape.user_levels.totals, dtype=float) / 2.0**32
    below = table ** (phantoms * plan.shape.clusters ** (plan.shape.parties - 1))
    coins = np.random.default_rng(5)

    def scores(count: int) -> np.ndarray:
        shape = dataclasses.replace(plan.shape, rows=64, phantoms=count)
        levels = make_sketch(np.zeros(0, dtype=np.int64), 0, bytes(32), shape, Replay(5))
        first = np.where(levels == shape.floor, 0.0, below[levels - 1])
        return stats.norm.ppf(first + coins.random(levels.shape) * (below[levels] - first)).ravel()

    assert has_unit_variance(scores(plan.shape.phantoms))
    assert not has_unit_variance(scores(plan.shape.phantoms // 4))


@pytest.mark.parametrize("rounds", [2, 6])
def test_each_side_of_vertical_he_draws_the_noise_of_its_ledger(rounds: int) -> None:
    public = vertical_he.parameters(2000, 5, rounds=rounds, scheme="linear")
    plan = vertical_he.make_plan(public, vertical_he.names(2, 1))
    counts, sums, *steps = plan.releases(0, seen_by="another party")
    own = [1 + column for column in plan.stepping]
    others = [1 + column for column in range(plan.d) if column not in plan.stepping]
    assert len(steps) == (rounds == 6)
    # A part of the variance floods the errors of the encryption; the ledger has the rest.
    share = np.sqrt(1.0 - HINT_SHARE)

    def wrong(part: float) -> set[str]:
        secret = Replay(6)
        weaker = dataclasses.replace(
            plan,
            count_scale=part * plan.count_scale,
            sum_scale=part * plan.sum_scale,
            step_scale=part * plan.step_scale,
        )
        drawn = np.array([he_rounds.draw_noise(weaker, secret) for _ in range(8)]).reshape(-1, plan.k, plan.d + 1)
        parts = {
            "counts": drawn[..., 0] * share / counts.noise_scale,
            "sums": drawn[..., others] * share / sums.noise_scale,
            **{"steps": drawn[..., own] * share / release.noise_scale for release in steps},
        }
        return {name for name, scores in parts.items() if not has_unit_variance(scores)}

    assert wrong(1.0) == set()
    assert wrong(0.25) == {"counts", "sums", *(["steps"] if steps else [])}


# Fifteen values are few: a quarter of the noise would pass in one run of some hundreds, a sixteenth does not.
@pytest.mark.parametrize("part", [1.0, 1 / 16])
def test_what_vertical_he_opens_has_the_noise_of_both_sides(part: float, monkeypatch: pytest.MonkeyPatch) -> None:
    points, start = vertical_he.blobs(500, 5, 2, seed=1)
    plan = vertical_he.linear_plan(500, 5, degree=8)
    seen: list[np.ndarray] = []
    drawn, draw = Replay(8), he_rounds.draw_noise

    def tap(sender: object, receiver: object, header: Header, body: bytes) -> bytes:
        if header.type == NoisySums.TYPE and header.round == 0:
            seen.append(np.frombuffer(body, "<i8"))
        return body

    def weaker(whole: object, secret: object, grid: float) -> np.ndarray:
        less = dataclasses.replace(plan, count_scale=part * plan.count_scale, sum_scale=part * plan.sum_scale)
        return draw(less, drawn, grid)

    monkeypatch.setattr(he_rounds, "draw_noise", weaker)
    vertical_he.simulate(plan, points, start, tap)
    exact = soft_sums(points, start, hidden=(1,), grid=plan.grid) * plan.unit
    noise = seen[0].reshape(plan.k, plan.d + 1) - exact
    scale = np.array([plan.count_scale] + [plan.sum_scale] * plan.d) * np.sqrt(2.0)
    assert has_unit_variance(noise / scale) == (part == 1.0)
