"""A protocol of masked sums: what one record moves, the noise that is drawn, and plans that are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastlloyd.errors import ConfigError, InternalError
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.noise.sampler import round_normal
from fastlloyd.privacy.release import GAUSSIAN_SHARES, LEAST_SHARE
from fastlloyd.protocol import Floats, MaskedSums, Part, SumsPlan
from fastlloyd.protocol.sums import SumsParameters
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.run.config import RunConfig

NAMES = ("a", "b")


class Means(MaskedSums):
    """Counts of records right of the middle, in one cluster and in all features together: no settings, no sizes."""

    def parts(self, k: int, d: int, chosen: None) -> tuple[Part, ...]:
        return Part("signs", (k, d), math.sqrt(d)), Part("number", (), 1.0)

    def start(self, plan: SumsPlan) -> Floats:
        return np.zeros((plan.k, plan.d))

    def local(self, raw_points: Floats, state: Floats, plan: SumsPlan) -> Mapping[str, Any]:
        signs = np.sign(raw_points).astype(np.int64).sum(axis=0)
        return {"signs": np.tile(signs, (plan.k, 1)) // plan.k, "number": np.array(len(raw_points))}

    def step(self, noisy: Mapping[str, Floats], state: Floats, plan: SumsPlan, t: int) -> Floats:
        return np.clip(noisy["signs"] / max(1.0, float(noisy["number"])), -1.0, 1.0)

    def labels(self, raw_points: Floats, state: Floats) -> Any:
        return np.zeros(len(raw_points), dtype=np.int64)


def public(**changes: Any) -> SumsParameters:
    config = RunConfig(**{"epsilon": 2.0, "n_total": 1000, "k": 1, **changes})
    return Means().public_parameters(config, changes.get("clients_", 3), 1000, 1)


def plan_of(**changes: Any) -> SumsPlan:
    return Means().make_plan(public(**changes), NAMES)


@pytest.mark.parametrize("masking", ["common", "pairwise"])
def test_a_plan_spends_what_was_asked_for_and_travels(masking: str) -> None:
    plan = plan_of(masking=masking, rounds=3)
    assert SumsPlan.from_json(plan.to_json()) == plan
    assert 1.99 <= spent(plan.all_releases(), plan.delta) <= 2.0
    assert [release.name for release in plan.releases(0)] == ["signs", "number"]
    assert len(plan.rounds) == 3 and plan.elements(0) == 3
    assert Means().check_plan(plan, public(masking=masking, rounds=3), NAMES) <= 2.0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rounds": (0.5,) * 8}, "spends epsilon"),
        ({"rounds": (60.0,) * 8}, "has noise .* expected at most"),
        ({"rounds": (9.0,) * 7}, "7 rounds, expected 8"),
        ({"parts": (Part("signs", (1, 2), 0.5), Part("number", (), 1.0))}, "has parts"),
        ({"delta": 0.5}, "delta 0.5, expected at most"),
        ({"fraction_bits": 3}, "fraction_bits = 3, expected 16"),
        ({"names": ("a", "c")}, "names"),
    ],
)
def test_a_plan_that_promises_less_or_is_another_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Means().check_plan(replace(plan_of(), **change), public(), NAMES)


def test_shares_too_narrow_for_the_grid_are_refused() -> None:
    plan = plan_of(masking="pairwise")
    narrow = replace(plan, fraction_bits=0, rounds=(0.5 * LEAST_SHARE,) * 8)
    assert plan.releases(0)[0].mechanism == GAUSSIAN_SHARES
    with pytest.raises(ConfigError, match="shares of at least 5 grid units"):
        narrow.releases(0)


def drawn(plan: SumsPlan, draw: Any) -> Iterator[tuple[float, float]]:
    """Standard deviation of the noise on each part, drawn and planned, in the protocol's units."""
    wide = replace(plan, parts=tuple(replace(part, shape=(20_000,)) for part in plan.parts))
    values = draw(wide, 0, SecretRandom()) / float(1 << plan.fraction_bits)
    for part, piece in zip(plan.parts, np.split(values, 2), strict=True):
        yield float(piece.std()), plan.rounds[0] * part.sensitivity


def test_the_noise_that_is_drawn_is_the_plan_s() -> None:
    # Of 20,000 numbers a standard deviation is off by 3 % with a chance below 1e-8.
    plan = plan_of()
    for got, planned in drawn(plan, Means().noise):
        assert got == pytest.approx(planned, rel=0.03)
    shared = plan_of(masking="pairwise", known_shares=1)

    def share(one: SumsPlan, t: int, secret: SecretRandom) -> Any:
        return Means().noise_parts(one, t, [one.share], [secret])[0]

    for got, planned in drawn(shared, share):  # two of the three shares count
        assert got == pytest.approx(planned / math.sqrt(2), rel=0.03)
    assert not Means().noise(shared, 0, SecretRandom()).any()
    assert shared.noise_on("number", 0) == pytest.approx(shared.rounds[0] * math.sqrt(3 / 2))


def test_what_a_record_adds_is_on_the_grid_and_of_the_stated_shape() -> None:
    plan, points = plan_of(), np.array([[0.5, -0.5], [0.25, 0.75]])
    vector = Means().vector(points, Means().start(plan), plan)
    np.testing.assert_array_equal(vector >> plan.fraction_bits, [2, 0, 2])

    class Real(Means):
        def local(self, raw_points: Floats, state: Floats, plan: SumsPlan) -> Mapping[str, Any]:
            return {**super().local(raw_points, state, plan), "signs": raw_points[:1]}

    with pytest.raises(InternalError, match="expected whole numbers of shape .* for 'signs', got float64"):
        Real().vector(points, Means().start(plan), plan)


def test_the_range_of_a_result_covers_what_other_noise_would_have_given() -> None:
    # A centre is the last round's sum over the number: 200 draws, of which a 95 % range holds 180 or more with a chance
    # above 1 - 1e-3 (deviations are from 32 draws of 4 rounds, each as large as the last: twice the last alone).
    plan, secret = plan_of(epsilon=4.0), SecretRandom()
    exact = {"signs": np.array([[300.0, -200.0]]), "number": np.array(1000.0)}
    start = Means().start(plan)
    result = Means().step(exact, start, plan, 7)
    noise = Means().result_noise(plan, [(exact, start)] * 8, result)
    assert noise.size_ranges is None and noise.centre_deviations is not None
    grid = float(1 << plan.fraction_bits)
    others = [
        exact["signs"] + round_normal(plan.noise_on("signs", 0) * grid, (1, 2), secret) / grid for _ in range(200)
    ]
    off = np.abs([Means().step({**exact, "signs": other}, start, plan, 7) - result for other in others])
    assert (off <= 2.0 * noise.centre_deviations).mean() >= 0.9
    assert noise.centre_deviations.max() < 0.1
    assert noise.unsettled is not None
    np.testing.assert_array_equal(noise.unsettled, np.abs(result - start))
    assert "another run may come to other clusters" in Means().about_ranges("means")


def test_the_dossier_names_sizes_only_where_a_part_holds_them() -> None:
    class Sized(Means):
        counts = "number"

    assert "sizes" in Sized().data_flow("sized", {}).result
    assert "sizes" not in Means().data_flow("means", {}).result


def test_pairwise_masks_need_every_client() -> None:
    with pytest.raises(ConfigError, match="--min-clients 2 does not go with --masking pairwise"):
        public(masking="pairwise", min_clients=2)
