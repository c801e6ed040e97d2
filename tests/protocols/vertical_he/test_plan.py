from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from typing import Any

import pytest

from fastlloyd.cli.plan import main
from fastlloyd.crypto.link.tls import MAX_MESSAGE_BYTES
from fastlloyd.errors import ConfigError, RangeError
from fastlloyd.net.transport import MAX_FRAME_BYTES
from fastlloyd.party.option import describe_settings, read_settings
from fastlloyd.privacy.accountant import spent
from fastlloyd.privacy.calibration import automatic_delta
from fastlloyd.protocols.vertical_he.frame import MOST_MESSAGE_BYTES, block_format
from fastlloyd.protocols.vertical_he.he.lattice import ERROR_VARIANCE
from fastlloyd.protocols.vertical_he.math.choose import options, planned_option
from fastlloyd.protocols.vertical_he.math.hints import FLOODING, HINT_SHARE, MOST_HINTED, Openings, hinted_share
from fastlloyd.protocols.vertical_he.math.scales import MAX_ERROR, NOISE_TAIL, record_error
from fastlloyd.protocols.vertical_he.math.workers import round_seconds, shape_of
from fastlloyd.protocols.vertical_he.plan import Plan
from fastlloyd.protocols.vertical_he.proposal import change_epsilon, check_plan, make_plan, try_options
from fastlloyd.protocols.vertical_he.settings import Settings
from fastlloyd.run.work import machine_factor
from tests.protocols.vertical_he.support import names, parameters


@pytest.mark.parametrize(
    ("scheme", "k", "widths"),
    [
        ("linear", 5, (1, 1)),
        ("linear", 5, (3, 1)),
        ("linear", 5, (2, 2)),
        ("projection", 2, (2, 2)),
        ("landmarks", 5, (4, 3)),
        ("pairwise", 5, (2, 2)),
    ],
)
def test_the_noise_spends_the_budget_and_no_more(scheme: str, k: int, widths: tuple[int, int]) -> None:
    plan = make_plan(parameters(10_000, k, rounds=10, scheme=scheme), names(*widths))
    assert plan.scheme == scheme
    epsilon = spent(plan.all_releases(), plan.delta)
    assert 0.999 <= epsilon <= 1.0
    # Any change of values: at most what twice the sensitivity gives, and more than one neighbour.
    assert 1.2 < change_epsilon(plan) < 2.6
    assert plan.scales.error <= MAX_ERROR


def test_plans_travel_and_are_checked() -> None:
    public = parameters(10_000, 5, rounds=10)
    plan = make_plan(public, names(1, 1))
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert check_plan(again, public, names(1, 1)) <= 1.0
    for change in (
        {"count_scale": plan.count_scale * 0.99},
        {"k": 6},
        {"holder": 0, "computing": 1},
        {"scales": dataclasses.replace(plan.scales, weight_bits=plan.scales.weight_bits - 1)},
        {"scales": dataclasses.replace(plan.scales, unit=plan.unit * (1.0 - 9e-7))},
    ):
        with pytest.raises(ValueError, match="expected"):
            check_plan(dataclasses.replace(plan, **change), public, names(1, 1))
    # Within what two machines may differ by, but more than epsilon.
    quieter = {name: getattr(plan, name) * (1.0 - 9e-7) for name in ("count_scale", "sum_scale")}
    with pytest.raises(ValueError, match="spends epsilon"):
        check_plan(dataclasses.replace(plan, **quieter), public, names(1, 1))
    # What a record moves is not the sender's to say.
    smaller = dataclasses.replace(plan.scales, error=plan.scales.error * (1.0 - 9e-7))
    assert check_plan(dataclasses.replace(plan, scales=smaller), public, names(1, 1)) == spent(
        plan.all_releases(), plan.delta
    )
    with pytest.raises(ValueError, match="fields"):
        Plan.from_json({"k": 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n_total", 10_000.0),
        ("n_total", 10**400),
        ("n_total", True),
        ("delta", 10**400),
        ("delta", math.nan),
        ("delta", "0.1"),
        ("epsilon", None),
        ("private", 1),
        ("mode", 3),
        ("owners", "01"),
        ("owners", [0, 1.0]),
        ("names", [["x"], [1]]),
        ("scales", []),
    ],
)
def test_plans_of_other_types_are_the_sender_s_fault(field: str, value: object) -> None:
    values = make_plan(parameters(10_000, 5, rounds=10), names(1, 1)).to_json()
    with pytest.raises(ValueError, match=rf"^plan\.{field}[^ ]*: expected"):
        Plan.from_json({**values, field: value})
    with pytest.raises(ValueError, match="ring"):
        Plan.from_json({**values, "scales": {**values["scales"], "ring": 2048.0}})


@pytest.mark.parametrize(
    ("n", "k", "epsilon"),
    [(10**5, 2, 10.0), (10**6, 2, 10.0), (10**6, 8, 10.0), (10**4, 2, 100.0), (10**6, 8, 1.0), (10**4, 8, 1.0)],
)
def test_a_split_is_found_whose_errors_the_noise_hides(n: int, k: int, epsilon: float) -> None:
    plan = make_plan(dataclasses.replace(parameters(n, k, rounds=10, scheme="linear"), epsilon=epsilon), names(1, 1))
    assert hinted(plan) <= MOST_HINTED
    assert plan.scales.error <= MAX_ERROR


@pytest.mark.parametrize(
    ("scheme", "mode", "k", "widths"),
    [
        ("linear", "two-party", 5, (1, 1)),
        ("linear", "threshold", 5, (1, 1)),
        ("linear", "two-party", 5, (2, 2)),
        ("linear", "threshold", 5, (2, 2)),
        ("projection", "two-party", 2, (2, 2)),
        ("projection", "threshold", 2, (2, 3)),
        ("landmarks", "two-party", 6, (5, 5)),
        ("landmarks", "threshold", 6, (3, 3)),
        ("pairwise", "two-party", 5, (2, 2)),
    ],
)
def test_the_noise_hides_errors_and_key_in_all_rounds_together(
    scheme: str, mode: str, k: int, widths: tuple[int, int]
) -> None:
    for rounds in (1, 10, 200):
        plan = make_plan(parameters(10_000, k, rounds=rounds, scheme=scheme, mode=mode), names(*widths))
        assert hinted(plan) <= MOST_HINTED
        # Opened again as often with the same noise, it says twice as much; what a key says grows with the switch.
        assert hinted(plan, rounds=2 * rounds) == pytest.approx(2.0 * hinted(plan), rel=1e-12)
        coarse = dataclasses.replace(plan, scales=dataclasses.replace(plan.scales, wire_bits=8))
        outputs, ring = rounds * k * (plan.d + 1), plan.scales.ring
        key = outputs * ring / 12.0 * 4.0 ** (plan.scales.prime_bits[0] - 8) * 2.0 / 3.0
        least = min(plan.count_scale, plan.sum_scale)
        assert hinted(coarse) == pytest.approx(key / (HINT_SHARE * least**2), rel=1e-6)


def hinted(plan: Plan, rounds: int | None = None) -> float:
    openings = Openings(
        rounds=rounds or plan.rounds,
        n=plan.n_total,
        k=plan.k,
        d=plan.d,
        corners=plan.corners if plan.scheme != "pairwise" else 0,
        keys=plan.parties if plan.mode == "threshold" else 1,
    )
    return hinted_share(plan.scales, openings, min(plan.count_scale, plan.sum_scale), private=plan.private)


@pytest.mark.parametrize(("n", "epsilon", "scheme"), [(10**5, 10.0, "projection"), (10**6, 1.0, "projection")])
def test_a_cheaper_option_without_parameters_gives_way_to_one_that_has_them(
    n: int, epsilon: float, scheme: str
) -> None:
    public = dataclasses.replace(parameters(n, 2, rounds=10), epsilon=epsilon)
    assert options(public, (3, 3))[0].scheme == "pairwise"
    plan, refused = try_options(public, names(3, 3))
    assert plan.scheme == scheme and plan == make_plan(public, names(3, 3))
    assert [choice.scheme for choice, _ in refused] == ["pairwise", "pairwise"]
    assert hinted(plan) <= MOST_HINTED
    assert check_plan(Plan.from_json(plan.to_json()), public, names(3, 3)) == epsilon
    chosen = planned_option(public, (3, 3), plan.scheme, plan.computing)
    assert chosen.line(10).startswith("scheme projection: rank 0 computes")
    assert round_seconds(plan, 1) == pytest.approx(chosen.round_seconds)
    # Where no option has parameters, the error is that of the cheapest.
    with pytest.raises(RangeError, match="lower --epsilon$"):
        make_plan(dataclasses.replace(public, parties=3), names(3, 3))
    with pytest.raises(RangeError, match="lower --epsilon$"):
        make_plan(dataclasses.replace(public, settings={"scheme": "pairwise"}), names(3, 3))


def test_the_printed_cost_is_that_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    public, numbers = parameters(10_000, 5, rounds=10), ["--n-total", "10000", "--d", "3", "--k", "5"]
    plan = make_plan(public, names(2, 1))
    assert plan.stepping and round_seconds(plan, 1) == options(public, (2, 1))[0].round_seconds
    assert main(["-n", "2", "--protocol", "vertical-he", *numbers]) == 0
    assert f"about {machine_factor() * round_seconds(plan, 1):.2g} processor seconds a round" in capsys.readouterr().out


def test_the_printed_choice_is_the_one_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--n-total", "100000", "--d", "6", "--k", "2", "--rounds", "10"]
    assert main(["-n", "2", "--protocol", "vertical-he", *flags, "--epsilon", "10"]) == 0
    said = capsys.readouterr().out
    assert "choice: scheme projection: rank 0 computes" in said and "primes of 48 bits" in said
    assert "instead of scheme projection: rank 1 computes" in said and "instead of scheme pairwise" not in said
    assert "not scheme pairwise, rank 0 computing: the noise of this epsilon is too small" in said
    assert main(["-n", "2", "--protocol", "vertical-he", *flags, "--epsilon", "1"]) == 0
    said = capsys.readouterr().out
    assert "choice: scheme pairwise: rank 0 computes" in said and "not scheme" not in said


def test_messages_that_no_link_carries_are_refused_before_the_run() -> None:
    assert min(MAX_FRAME_BYTES, MAX_MESSAGE_BYTES) > MOST_MESSAGE_BYTES
    public = parameters(10_000, 2, rounds=10, scheme="projection", computing=0)
    wide = make_plan(public, names(1, 2610))
    assert 0.95 * MOST_MESSAGE_BYTES < sum(block_format(wide, 1)) <= MOST_MESSAGE_BYTES
    with pytest.raises(RangeError, match=r"2700 columns of rank 1 .* lower vertical-he.degree"):
        make_plan(public, names(1, 2700))
    assert make_plan(dataclasses.replace(public, settings={**public.settings, "degree": 50}), names(1, 2700))
    # Where it may, another option takes its place.
    other = dataclasses.replace(public, settings={"scheme": "projection"})
    assert make_plan(other, names(2, 2700)).computing == 1
    with pytest.raises(RangeError, match="columns of rank . make messages .* with scheme pairwise"):
        make_plan(parameters(10_000, 3, rounds=10, scheme="pairwise"), names(1200, 1200))
    with pytest.raises(RangeError, match="in each round.*lower --k"):
        make_plan(parameters(10_000, 256, rounds=10, scheme="linear"), names(1000, 1))


@pytest.mark.parametrize("variance", [ERROR_VARIANCE, 2.0 / 3.0])
def test_the_largest_hint_leaves_half_of_the_variance(variance: float) -> None:
    norms = MOST_HINTED / variance  # over a flooding variance of 1
    assert 1.0 / (1.0 / variance + 2.0 * norms) == pytest.approx(variance / 2.0)


def test_more_rounds_do_not_mend_too_little_noise_and_a_smaller_epsilon_does() -> None:
    for rounds in (10, 1000):
        public = parameters(10**6, 5, rounds=rounds, scheme="linear", mode="threshold")
        with pytest.raises(RangeError, match="lower --epsilon$"):
            make_plan(dataclasses.replace(public, epsilon=30.0), names(2, 2))
        assert make_plan(public, names(2, 2)).private


def test_delta_is_the_same_automatic_one_as_everywhere() -> None:
    assert make_plan(parameters(10_000, 5, rounds=10), names(1, 1)).delta == automatic_delta(10_000)


def shared(plan: Plan, workers: int) -> float:
    """The share of adding up that the busiest of several workers has; the rest of a round is nobody's to share."""
    return 1.0 - (round_seconds(plan, 1) - round_seconds(plan, workers)) / shape_of(plan).adding


def test_the_seconds_of_a_round_are_known_before_it() -> None:
    public = parameters(10_000, 5, rounds=10)
    plan = make_plan(public, names(1, 1))
    assert round_seconds(plan, 1) == options(public, (1, 1))[0].round_seconds
    # Products for the counts with the encrypted columns, and for each own column.
    wide = make_plan(public, names(3, 1))
    assert round_seconds(wide, 1) > round_seconds(plan, 1)
    shape = shape_of(plan, 10_000)
    adding = [dataclasses.replace(shape, k=k, corners=17).adding for k in (5, 10, 15)]
    assert dataclasses.replace(shape, k=10, corners=289).adding == pytest.approx(17 * adding[1])
    assert adding[2] - adding[1] == pytest.approx(adding[1] - adding[0]) and 1.8 < adding[1] / adding[0] < 2.0
    assert (plan.blocks, plan.k) == (5, 5)
    assert shared(plan, 4) == pytest.approx((1 + 2 / 5) / 5)
    assert shared(plan, 5) == shared(plan, 256) == pytest.approx(1 / 5)
    few = make_plan(parameters(10_000, 2), names(1, 1))
    assert few.scheme == "linear" and shared(few, 8) == pytest.approx(1 / 5)
    circuit = make_plan(parameters(20_000, 3, scheme="pairwise"), names(3, 3))
    assert circuit.blocks == 3
    assert shared(circuit, 2) == pytest.approx(2 / 3)
    assert shared(circuit, 3) == shared(circuit, 8) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("widths", "k"), [((1, 1), 15), ((2, 2), 3)])
def test_without_privacy_the_noise_still_floods(widths: tuple[int, int], k: int) -> None:
    plan = make_plan(parameters(5000, k, rounds=10, noise="flooding"), names(*widths))
    assert not plan.private
    assert plan.count_scale == plan.sum_scale == FLOODING * plan.scales.flood * plan.unit
    assert spent(plan.all_releases(), plan.delta) == math.inf


@pytest.mark.parametrize("n", [100, 10_000, 1_000_000])
@pytest.mark.parametrize("k", [1, 2, 8, 30])
def test_the_prime_has_room_for_sums_and_noise(n: int, k: int) -> None:
    for noise in ("dp", "flooding"):
        plan = make_plan(parameters(n, k, rounds=10, noise=noise, scheme="linear"), names(2, 1))
        scales = plan.scales
        noisiest = max(plan.count_scale, plan.sum_scale, plan.step_scale)
        largest = n * (1 + scales.error) + scales.flood + NOISE_TAIL * noisiest / plan.unit
        assert largest * plan.unit < 2.0 ** (scales.prime_bits[0] - 1.5)
        b = partial(record_error, k, plan.corners, scales.data_bits, scales.weight_bits)
        assert scales.error == b(prime_bits=scales.prime_bits[0], wire_bits=scales.wire_bits) <= MAX_ERROR
        # The roundings of the switch of a record's own part are in b.
        exact = b(prime_bits=8, wire_bits=40)
        step = 2.0 ** (scales.prime_bits[0] - scales.wire_bits)
        assert scales.error - exact == pytest.approx(math.sqrt(k) * step / plan.unit, rel=1e-3, abs=1e-12)


def test_who_plays_which_part_follows_the_columns() -> None:
    plan = make_plan(parameters(1000, 5), names(1, 4))
    assert (plan.scheme, plan.computing, plan.holder) == ("linear", 1, 0)
    assert plan.columns(0) == (0,) and plan.columns(1) == (1, 2, 3, 4)
    assert make_plan(parameters(1000, 3), names(3, 3)).scheme == "landmarks"
    assert make_plan(parameters(1000, 3), names(2, 2)).scheme == "linear"
    assert make_plan(parameters(1000, 3), names(2, 3)).computing == 1
    aided = make_plan(parameters(1000, 2, parties=4), names(1, 2, 1))
    assert (aided.mode, aided.computing, aided.holder, aided.owners) == ("server-aided", 0, 1, (1, 2, 3))
    assert aided.columns(0) == () and aided.columns(2) == (1, 2)
    best, *others = options(parameters(10_000, 5), (1, 1))
    assert all(best.total_seconds(2) <= other.total_seconds(2) for other in others)
    assert "rank 0 computes" in best.line(10)


@pytest.mark.parametrize(
    ("k", "widths", "settings", "mend"),
    [
        (3, (3, 3), {"scheme": "linear"}, "leave scheme at 'auto'"),
        (2, (1, 1), {"scheme": "projection"}, "leave scheme at 'auto'"),
        (2, (2, 1), {"scheme": "projection", "computing": 0}, "leave scheme at 'auto', or leave computing at 'auto'"),
        (
            3,
            (3, 1),
            {"mode": "threshold", "scheme": "linear", "computing": 1},
            "leave scheme at 'auto', or leave computing at 'auto'",
        ),
        (3, (2, 1), {"scheme": "projection", "computing": 1}, "leave scheme at 'auto'"),
        (3, (3, 1), {"scheme": "linear", "computing": 1}, "leave scheme at 'auto', or leave computing at 'auto'"),
        (
            1,
            (3, 3),
            {"mode": "threshold", "scheme": "pairwise"},
            "leave scheme and computing at 'auto', and ask for two clusters (--k 2), or let one of the owners have one "
            "or two columns",
        ),
        (1, (3, 3), {}, "ask for two clusters (--k 2), or let one of the owners have one or two columns"),
        (1, (2, 2, 2), {}, "ask for two clusters (--k 2)"),
        (2, (3, 3), {"mode": "threshold", "scheme": "linear", "computing": 0}, "leave scheme at 'auto'"),
    ],
)
def test_what_is_not_possible_is_refused_with_what_would_be(
    k: int, widths: tuple[int, ...], settings: dict[str, object], mend: str
) -> None:
    public = parameters(1000, k, parties=len(widths) + (len(widths) > 2), **settings)
    with pytest.raises(ConfigError, match="not possible") as caught:
        make_plan(public, names(*widths))
    assert str(caught.value).endswith(f"to run it, {mend}")


def test_what_does_not_fit_is_refused_with_the_mend() -> None:
    with pytest.raises(ConfigError, match="start with -n 3"):
        parameters(1000, 3, mode="server-aided")
    with pytest.raises(ConfigError, match="has no column"):
        make_plan(parameters(1000, 3), names(2, 0))
    with pytest.raises(RangeError, match="lower"):
        make_plan(parameters(10**9, 8, scheme="pairwise"), names(2, 2))
    with pytest.raises(RangeError, match="lower --k"):
        make_plan(parameters(5 * 10**9, 200, scheme="linear"), names(1, 1))


def test_settings_are_checked() -> None:
    assert read_settings(Settings(), "vertical-he", {"computing": "auto", "tolerance": 1}).tolerance == 1.0
    names = {f"vertical-he.{field.name}" for field in dataclasses.fields(Settings)}
    assert describe_settings(Settings, "vertical-he").keys() == names
    for wrong in ({"mode": "three-party"}, {"degree": "62"}, {"degree": 3}, {"windows": 1}, {"noise": True}):
        with pytest.raises(ConfigError, match="vertical-he"):
            read_settings(Settings(), "vertical-he", wrong)


def test_rounds_are_fewer_where_noise_would_drown_them_and_nothing_is_weighed() -> None:
    assert make_plan(parameters(10**5, 5, rounds=None), names(1, 1)).rounds == 10
    assert make_plan(parameters(5000, 15, rounds=None, shrink=False), names(1, 1)).rounds == 4
    assert make_plan(parameters(5000, 15, rounds=None), names(1, 1)).rounds == 10
    assert make_plan(parameters(5000, 15, rounds=None, noise="flooding"), names(1, 1)).rounds == 10
    assert make_plan(parameters(5000, 15, rounds=7), names(1, 1)).rounds == 7


@pytest.mark.parametrize(
    ("widths", "settings", "stepping"),
    [
        ((3, 1), {}, (0, 1, 2)),
        ((1, 2), {}, (1, 2)),
        ((2, 1), {"mode": "threshold"}, (0, 1)),
        ((1, 1), {}, ()),
        ((2, 1), {"rounds": 5}, ()),
        ((2, 1), {"shrink": False}, ()),
        ((2, 1), {"noise": "flooding"}, ()),
        ((3, 3), {}, (0, 1, 2)),
        ((3, 3), {"scheme": "pairwise"}, ()),
        ((2, 2), {}, (0, 1)),
    ],
)
def test_whose_columns_enter_as_steps(
    widths: tuple[int, ...], settings: dict[str, Any], stepping: tuple[int, ...]
) -> None:
    plan = make_plan(parameters(2000, 3, **{"rounds": 10, **settings}), names(*widths))
    assert plan.stepping == stepping and (plan.radius > 0.0) == (plan.step_scale > 0.0) == bool(stepping)
    names_of = [release.name for release in plan.releases(0, seen_by="-")]
    assert names_of == ["soft counts", "soft sums", "soft steps"][: 3 if stepping else 2]
    if plan.private:
        assert 0.999 * plan.epsilon <= spent(plan.all_releases(), plan.delta) <= plan.epsilon


@pytest.mark.parametrize("change", ["radius", "step_scale"])
def test_a_plan_with_another_radius_or_less_noise_on_steps_is_refused(change: str) -> None:
    public = parameters(2000, 3, rounds=10)
    plan = make_plan(public, names(3, 1))
    worse = dataclasses.replace(plan, **{change: 0.99 * getattr(plan, change)})
    with pytest.raises(ValueError, match=f"the plan has {change}"):
        check_plan(worse, public, names(3, 1))


@pytest.mark.parametrize("own", [2, 3, 5])
def test_rounding_is_counted_for_every_column_that_steps(own: int) -> None:
    plan = make_plan(parameters(3000, 4, rounds=6, scheme="linear", computing=0), names(own, 2))
    counts, sums, steps = plan.releases(0, seen_by="another party")
    b = plan.scales.error
    assert len(plan.stepping) == own and b > 0.0
    # b / sqrt(k) on each of k a outputs; of counts a = 1, of sums of other columns as many as there are.
    assert counts.sensitivity == pytest.approx(plan.unit * (1.0 + b), rel=1e-12)
    assert sums.sensitivity == pytest.approx(plan.unit * (1.0 + b) * math.sqrt(2), rel=1e-12)
    assert steps.sensitivity == pytest.approx(plan.unit * (1.0 + math.sqrt(own) * b), rel=1e-12)
