"""What the parties make of a round's numbers, and the noise that a plan's budget buys."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tenseal")

from fastlloyd.errors import InternalError
from fastlloyd.kmeans.initial import sphere_packing
from fastlloyd.party.effects import Receive, Record
from fastlloyd.privacy.accountant import SAMPLER_DELTA, spent
from fastlloyd.privacy.calibration import gaussian_noise_multiplier
from fastlloyd.protocols.vertical_he.budget import LEAST_ROUNDS, MOST_NOISE, automatic_rounds, multipliers
from fastlloyd.protocols.vertical_he.frame import sums_bytes
from fastlloyd.protocols.vertical_he.he.ckks import Context, KeyHolder
from fastlloyd.protocols.vertical_he.math.hints import Openings
from fastlloyd.protocols.vertical_he.math.lwe import errors_of
from fastlloyd.protocols.vertical_he.math.scales import flood_bound
from fastlloyd.protocols.vertical_he.math.workers import make_engine
from fastlloyd.protocols.vertical_he.messages import KeyMaterial, NoisySums
from fastlloyd.protocols.vertical_he.owner import owner
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import make_plan
from fastlloyd.protocols.vertical_he.protocol import against, conditions
from fastlloyd.protocols.vertical_he.rounds import begin, first_centers, post_process, settled
from fastlloyd.wire.header import PartyId
from tests.protocols.vertical_he.support import blobs, linear_plan, names, parameters, simulate

KNOWN = json.loads((Path(__file__).parents[2] / "vectors" / "vertical_he.json").read_text())


def plan_of(case: dict[str, Any], k: int, d: int, count_deviation: str, **more: Any) -> Plan:
    plan, unit = linear_plan(100, 2), 2.0 ** case["unit_bits"]
    return dataclasses.replace(
        plan,
        k=k,
        names=(tuple(f"x{h}" for h in range(d)), ()),
        scales=dataclasses.replace(plan.scales, unit=unit),
        count_scale=float(count_deviation) * unit,
        **more,
    )


@pytest.mark.parametrize("case", KNOWN["plain"], ids=lambda case: case["about"])
def test_known_answers_of_the_next_centres(case: dict[str, Any]) -> None:
    before = np.array(case["before"], dtype=np.float64)
    plan = plan_of(case, *before.shape, case["count_deviation"], tolerance=float(case["tolerance"]), cell=0.0)
    noisy = NoisySums(bytes.fromhex(case["noisy_sums"])).integers()
    after = post_process(noisy, begin(plan, before), plan, 0)
    np.testing.assert_array_equal(after.counts, np.array(case["counts"], dtype=np.float64))
    np.testing.assert_allclose(after.centers, np.array(case["after"], dtype=np.float64), rtol=0, atol=2**-52)
    assert settled(before, after.centers, plan) is case["stops"]


@pytest.mark.parametrize("case", KNOWN["weighed"], ids=lambda case: case["about"])
def test_known_answers_of_a_run_that_weighs(case: dict[str, Any]) -> None:
    counts, sums = case["deviations"]
    plan = plan_of(
        case,
        case["k"],
        case["d"],
        counts,
        n_total=case["n"],
        rounds=case["rounds"],
        seed=case["seed"],
        cell=float(case["cell"]),
        sum_scale=float(sums) * 2.0 ** case["unit_bits"],
    )
    if "radius" in case:
        own = case["own"]
        plan = dataclasses.replace(
            plan,
            names=(plan.names[0][:own], plan.names[0][own:]),
            radius=float(case["radius"]),
            step_scale=float(case["step_deviation"]) * 2.0 ** case["unit_bits"],
        )
    state = begin(plan)
    np.testing.assert_allclose(state.centers, np.array(case["start"], dtype=np.float64), rtol=0, atol=2**-52)
    for t, played in enumerate(case["played"]):
        state = post_process(NoisySums(bytes.fromhex(played["noisy_sums"])).integers(), state, plan, t)
        for name, value in dataclasses.asdict(state).items():
            np.testing.assert_allclose(value, np.array(played[name], dtype=np.float64), rtol=1e-11, atol=1e-12)


def test_without_differential_privacy_nothing_is_weighed() -> None:
    quiet = make_plan(parameters(300, 2, scheme="linear", degree=6, noise="flooding"), names(1, 1))
    assert not quiet.shrinks and not linear_plan(300, 2, shrink=False).shrinks and linear_plan(300, 2).shrinks
    exact = np.array([[100.0, 25.0, -50.0], [200.0, 20.0, 10.0]])
    state = post_process(np.rint(exact * quiet.unit).astype(np.int64).reshape(-1), begin(quiet), quiet, 0)
    np.testing.assert_allclose(state.centers, exact[:, 1:] / exact[:, :1], atol=1e-6)
    np.testing.assert_array_equal(first_centers(quiet), sphere_packing(2, 2, 1) / 2.0**20)


def test_where_noise_is_small_the_whole_step_is_taken_and_where_it_drowns_all_none_is() -> None:
    plan = linear_plan(300, 2)
    exact = np.array([[100.0, 25.0, -50.0], [200.0, 20.0, 10.0]])
    told = np.rint(exact * plan.unit).astype(np.int64).reshape(-1)
    clear = dataclasses.replace(plan, count_scale=1e-4 * plan.unit, sum_scale=1e-4 * plan.unit)
    np.testing.assert_allclose(
        post_process(told, begin(clear), clear, 0).centers, exact[:, 1:] / exact[:, :1], atol=1e-6
    )
    drowned = dataclasses.replace(plan, count_scale=1e7 * plan.unit, sum_scale=1e7 * plan.unit)
    kept = post_process(told, begin(drowned), drowned, 0)
    np.testing.assert_allclose(kept.centers, first_centers(drowned), atol=1e-6)
    np.testing.assert_allclose(kept.counts, 150.0, atol=1e-3)


def test_errors_under_a_common_key_count_with_its_largest_coefficient() -> None:
    ring = 4096
    assert [errors_of(ring, keys).key for keys in (2, 5)] == [2.0, 5.0]  # -1, 0 or 1 from each share
    plan = make_plan(parameters(1000, 2, mode="threshold", degree=8), names(1, 1))
    scales = plan.scales
    switched = 8.0 * 2.0 * math.sqrt((scales.ring + 1) / 4.0) * 2.0 ** (scales.prime_bits[0] - scales.wire_bits)
    sums = math.sqrt(plan.corners * 1000 * 10.5 * (1.0 + 8.0 * scales.ring / 3.0)) * 2.0**scales.weight_bits
    zero = math.sqrt(10.5 * (1.0 + 8.0 * scales.ring))
    expected = (8.0 * math.hypot(sums, zero) + switched + 1.0) / scales.unit
    assert scales.flood == pytest.approx(expected, rel=1e-12)
    assert flood_bound(1000, plan.corners, scales, errors_of(scales.ring, 2)) == scales.flood
    # Hints on the key: the switch's roundings and the fresh encryptions of zero; see docs/vertical-he-privacy.md.
    opened = Openings(rounds=3, n=1, k=2, d=1, keys=2, corners=1)
    tiny = dataclasses.replace(scales, weight_bits=0)
    step = 2.0 ** (scales.prime_bits[0] - scales.wire_bits)
    key = 12 * (scales.ring / 12.0 * step**2 * 2.0 / 3.0 + 10.5 * (1.0 + 8.0 * scales.ring))
    assert opened.hinted(tiny) == pytest.approx(key, rel=1e-12)


@pytest.mark.parametrize(("d", "rounds"), [(2, 3), (4, 7), (11, 10)])
def test_the_budget_is_split_so_that_a_centre_errs_least(d: int, rounds: int) -> None:
    public = parameters(5000, 3, rounds=rounds)
    counts, sums = multipliers(public, d, rounds)
    sigma = gaussian_noise_multiplier(public.epsilon, public.allowed_delta - SAMPLER_DELTA)
    # All rounds' counts and sums together are (1 / sigma)-GDP.
    assert rounds * (1.0 / counts**2 + 1.0 / sums**2) == pytest.approx(1.0 / sigma**2, rel=1e-9)

    def error(ratio: float) -> float:
        """Of a centre's d coordinates: noise sqrt(d) m on each sum, and c times the count's, |c|^2 = d / 3."""
        scale = 1.0 + 1.0 / ratio**2
        return scale * (d * d + d / 3.0 * ratio**2)

    ratio = counts / sums
    assert ratio == pytest.approx((3.0 * d) ** 0.25)
    assert error(ratio) <= min(error(0.99 * ratio), error(1.01 * ratio))


def test_the_samplers_delta_is_taken_off() -> None:
    """A delta that is barely above what the samplers take, so that the sign of the difference shows."""
    public = dataclasses.replace(parameters(5000, 3), delta=3 * SAMPLER_DELTA)
    _, sums = multipliers(public, 2, 1)
    wanted = gaussian_noise_multiplier(1.0, 2 * SAMPLER_DELTA) * math.sqrt(1.0 + 1.0 / math.sqrt(6.0))
    assert sums == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("d", [2, 5])
def test_rounds_are_as_many_as_keep_the_noise_small(d: int) -> None:
    found = set()
    for n in (300, 1_200, 1_600, 2_000, 3_000, 4_000):
        public = parameters(n, 3, rounds=None, shrink=False)
        rounds = automatic_rounds(public, d, 1.0)

        def small(count: int, public: Any = public) -> bool:
            _, sums = multipliers(public, d, count)
            return sums * math.sqrt(2 * d) <= MOST_NOISE * public.n_total / public.k

        assert rounds == max([count for count in range(LEAST_ROUNDS, 11) if small(count)], default=LEAST_ROUNDS)
        found.add(rounds)
    assert len(found) > 2
    assert automatic_rounds(parameters(300, 3, rounds=None), d, 1.0) == 10  # weighed: more rounds do no harm


def test_a_round_without_a_key_is_a_bug_and_its_progress_is_told_by_blocks() -> None:
    plan = make_plan(parameters(5000, 2, rounds=1, degree=6), names(1, 1))
    engine = make_engine(plan, np.zeros((1, 5000)))
    context = Context(plan.encryption)
    key = KeyHolder(context)
    empty = key.encrypt(context.encode_integers(context.transform(np.ones(context.degree))))
    for block in range(plan.blocks):
        engine.load(plan.holder, block, [empty] * plan.parts(plan.holder))
    start = np.array([[-0.5, -0.5], [0.5, 0.5]])
    assert list(engine.add_up(start)) == pytest.approx([(done + 1) / plan.blocks for done in range(plan.blocks)])
    work = engine.evaluate(start)
    with pytest.raises(InternalError, match="public key is missing"):
        for _ in work:
            pass
    assert sums_bytes(plan) == plan.outputs * (plan.scales.ring + 1) * plan.scales.wire_bits // 8


def test_with_a_tolerance_all_planned_rounds_are_charged_before_the_first_one() -> None:
    """The releases decide when the run stops, and the composition is for a fixed number of rounds."""
    plan = make_plan(parameters(300, 2, rounds=3, scheme="linear", degree=6, tolerance=1.9), names(1, 1))
    points, start = blobs(300, 2, 2, seed=3)
    results, simulation = simulate(plan, points, start, quiet=True)
    assert {result.rounds for result in results.values()} == {1}
    planned = [(t, name) for t in range(3) for name in ("soft counts", "soft sums")]
    for rank in plan.owners:
        assert [(release.round, release.name) for release in simulation.releases[PartyId(rank)]] == planned
    charged = plan.charged_releases(1)
    assert charged == plan.all_releases()
    assert 0.99 * plan.epsilon <= spent(charged, plan.delta) <= plan.epsilon
    fixed = dataclasses.replace(plan, tolerance=0.0)
    assert {release.round for release in fixed.charged_releases(1)} == {0}
    assert {release.round for release in fixed.charged(1, seen_by="-")} == {1}


@pytest.mark.parametrize("tolerance", [0.0, 1.9])
def test_an_owner_without_the_key_charges_them_before_its_columns_leave(tolerance: float) -> None:
    """With or without a tolerance: the others open every round, also when this owner is gone."""
    public = parameters(300, 2, parties=3, rounds=3, mode="server-aided", noise="flooding", tolerance=tolerance)
    plan = make_plan(public, names(1, 1))
    party = owner(PartyId(2), plan, np.zeros((1, 300)), lambda t, grid: np.zeros(plan.outputs, np.int64))
    assert isinstance(next(party), Receive)
    effect = party.send(KeyMaterial((KeyHolder(Context(plan.encryption)).public_key(),)))
    assert isinstance(effect, Record) and {release.round for release in effect.releases} == {0, 1, 2}


def test_the_claim_says_what_is_counted_and_on_what_it_rests() -> None:
    plan = linear_plan(300, 2, tolerance=0.5)
    assert "all 2 planned rounds counted" in against(plan, 1)
    assert "counted" not in against(plan, 2) and "counted" not in against(dataclasses.replace(plan, tolerance=0.0), 1)
    common = dataclasses.replace(plan, mode="threshold")
    circuit = make_plan(parameters(300, 2, scheme="pairwise"), names(2, 2))
    said = [" ".join(conditions(one)) for one in (plan, common, circuit)]
    assert all("follow the protocol" in one and "an assumption" in one and "for any change" in one for one in said)
    assert ["heuristic" in one for one in said] == [False, False, True]
    assert ["under the common key" in one for one in said] == [False, True, False]
