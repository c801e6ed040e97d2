"""What people read about threshold masks: no more than is proved, and all who can do harm are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.__main__ import main
from fastlloyd.errors import EXIT_INPUT, ConfigError, InternalError
from fastlloyd.kmeans.update import join
from fastlloyd.lifecycle.masked_sums import NoisyMaskedSum, VectorFormat
from fastlloyd.masking.fixed import Ring
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.privacy.release import GAUSSIAN_SHARES
from fastlloyd.protocol.threshold import threshold_against, threshold_condition
from fastlloyd.protocols.fastlloyd.quality import noise_of
from fastlloyd.protocols.fastlloyd.rounds import Centers
from fastlloyd.report.sight import operator_words, who_sees
from fastlloyd.run.config import RunConfig
from fastlloyd.run.promise import site_words
from fastlloyd.run.run_file import load_config, with_values
from fastlloyd.run.session import find_protocol
from fastlloyd.wire.header import clients

CONFIG = RunConfig(protocol="fastlloyd", n_total=10_000, k=3, masking="threshold")


def claim(config, clients=5):
    return find_protocol(config.protocol).foresee(config, clients, 2).claim


@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd"])
def test_only_a_roster_protects_from_a_server_that_breaks_the_rules(protocol):
    config = with_values(CONFIG, {"protocol": protocol})
    without = claim(config).against
    assert "without a roster not against a server that breaks the rules" in without and "(3)" not in without
    with_roster = claim(with_values(config, {"roster": "roster.toml", "key": "key.pem"})).against
    assert with_roster.startswith("(1) a server that breaks the rules, with one client; (2) one client who reads all ")
    assert "(3) a server that follows the protocol, with one client;" in with_roster
    assert "without a roster" not in with_roster


def test_the_claim_says_down_to_how_many_clients_it_holds_and_what_may_be_set_back():
    found = claim(CONFIG)
    assert "for every loss of clients that leaves 4 of 5 in a round" in found.against
    assert "that older copies of the state of at most 1 client are restored" in " ".join(found.conditions)
    assert threshold_condition(Numbers.settle(3, lying=1)) == (
        "that older copies of the state of at most 1 client are restored in the run, together or in turn"
    )
    assert "no client is set back" in threshold_condition(Numbers.settle(2, lying=1))


def test_c_and_t_are_two_numbers():
    words = threshold_against(Numbers.settle(10, lying=1, known=3), roster=True)
    assert "(1) a server that breaks the rules, with one client" in words
    assert "(2) up to 3 clients who read" in words and "follows the protocol, with up to 3 clients" in words
    alone = threshold_against(Numbers.settle(3), roster=True)
    assert "(1) a server that breaks the rules, whom no client helps" in alone


def test_the_claim_of_common_and_pairwise_masks_is_as_it_was():
    common = claim(with_values(CONFIG, {"masking": "common", "roster": "roster.toml", "key": "key.pem"}))
    assert "not against the server" in common.against and not common.conditions
    assert "one client, the server, or both together" in claim(with_values(CONFIG, {"masking": "pairwise"})).against


def test_without_noise_nothing_is_claimed():
    found = claim(with_values(CONFIG, {"protocol": "lloyd"}))
    assert not found.private and not found.conditions


PLANNED = [
    (2, 2, 0, ("1.41", "")),
    (3, 2, 1, ("1.22", "1.41")),
    (5, 4, 1, ("1.12", "1.15")),
    (10, 6, 4, ("1.05", "1.1")),
    (50, 26, 24, ("1.01", "1.02")),
]
"""M, T, D, and all noise with nobody and with D lost, of the defaults: docs/guide.md has the same."""


def test_the_sentence_for_three_sites():
    assert site_words(Numbers.settle(3)) == (
        "One of three sites may fail in a round. The operator may be curious, alone or with one site; against an "
        "operator that lies and has a site with it, choose --colluding 1: then no site may fail."
    )
    assert site_words(Numbers.settle(3, lying=1)).startswith("No site may fail in a round.")
    assert "then one site may." in site_words(Numbers.settle(5, lying=0))
    assert "with a roster lie, alone or with one site; curious with three sites." in site_words(
        Numbers.settle(10, lying=1, known=3)
    )


def test_a_plan_prints_the_numbers_and_the_noise_beside_other_masks():
    lines = find_protocol("fastlloyd").plan_lines(CONFIG, 5, 2)
    texts = {line.name: line.text for line in lines if line.name}
    assert texts["threshold"].startswith("T = 4 of 5 clients open a round, D = 1 may be lost in it; c = 1 ")
    assert "1.12 with nobody lost, 1.15 with 1 lost" in texts["all noise"]
    assert "the guarantee rests on 4 of 5" in texts["shares"]
    assert any(line.text.strip() == site_words(Numbers.settle(5)) for line in lines)


def sights(masking="threshold", protocol="fastlloyd", roster=True, **parameters):
    found = who_sees(protocol, parameters, masking=masking, authenticated=roster)
    assert found is not None
    return {one.who: one for one in (*found.alone, *found.together)}


def test_who_sees_what_with_threshold_masks():
    found = sights(known_shares=2, colluding=1, min_clients=5, clients=8)
    assert "random numbers" in found["the server"].sees and "noise" in found["the server"].protection
    assert "promise" in found["the server, while it follows the protocol, and up to 2 clients"].protection
    assert "promise" in found["a server that breaks the rules, and one client"].protection
    assert found["a server that breaks the rules, and more than 1 of the clients"].weaker
    more = found["more than 2 of the clients, with or without the server"]
    assert more.weaker and "5 of them" in more.sees
    assert not any("published" in who for who in found)  # the server does not know the noise


def test_without_a_roster_a_server_that_breaks_the_rules_needs_no_client():
    found = sights(roster=False, colluding=1)
    who = next(who for who in found if who.startswith("a server that breaks the rules"))
    assert "without a roster" in who and found[who].weaker


def test_without_noise_threshold_masks_still_hide_single_clients():
    found = sights(protocol="lloyd", min_clients=3)
    assert found["the server, while it follows the protocol, and one client"].open
    assert "each client's" not in found["the server, while it follows the protocol, and one client"].sees
    assert "exact sums" in found["the server and 3 of the clients"].sees


def test_a_dossier_says_that_clients_draw_the_noise():
    flow = find_protocol("fastlloyd").data_flow("fastlloyd", {"masking": "threshold", "private": True})
    assert flow is not None and not flow.server_noise and "with a share of noise" in flow.records
    assert "no message shows it to the server" in flow.result


@pytest.mark.parametrize("protocol", ["fastlloyd", "glloyd"])
def test_a_plan_whose_smallest_part_of_noise_is_too_small_is_refused(protocol):
    adapter = find_protocol(protocol)
    # Little noise, because epsilon is large, among many clients that may be lost.
    config = with_values(CONFIG, {"protocol": protocol, "epsilon": 100.0, "n_total": 3_000_000, "rounds": 1})
    with pytest.raises(ConfigError, match=r"the smallest of the .* parts .* expected at least 5; set ring_bits = 64"):
        adapter.planned(config, 32, 2)
    assert adapter.planned(with_values(config, {"masking": "pairwise"}), 32, 2).masking == "pairwise"
    made = adapter.planned(with_values(config, {"ring_bits": 64}), 32, 2)
    least = min(one.noise_scale for one in made.all_releases() if one.mechanism == GAUSSIAN_SHARES)
    assert least > 5.0 * (31 * 30) ** 0.5


def test_the_noise_of_a_round_is_that_of_who_was_in_it_and_who_was_silent():
    plan = find_protocol("fastlloyd").planned(CONFIG, 6, 2)  # T = 4, t = 1
    assert plan.noise_with(6) == plan.all_noise == (6 / 5) ** 0.5
    assert plan.noise_with(5) == (5 / 4) ** 0.5 and plan.noise_with(4) == (4 / 3) ** 0.5
    # A silent client leaves in what the others took off: 1 / (T - t) - 1 / (u - t) of the counted variance.
    assert plan.noise_with(5, 2) == pytest.approx((5 / 4 + 2 * (1 / 3 - 1 / 4)) ** 0.5, rel=1e-12)
    assert plan.noise_with(4, 1) == plan.noise_with(4)  # nothing was to be taken off
    common = find_protocol("fastlloyd").planned(with_values(CONFIG, {"masking": "common", "min_clients": 4}), 6, 2)
    assert common.noise_with(4) == 1.0


def test_a_result_that_does_not_say_who_was_silent_is_a_bug_of_its_protocol():
    adapter = find_protocol("fastlloyd")
    plan = adapter.planned(CONFIG, 5, 2)
    with pytest.raises(InternalError, match="in each of its 2 rounds, got 0: pass silent=end.silent to make_result"):
        adapter.common(None, plan, [clients(5)] * 2)


def test_ranges_and_verdicts_know_the_noise_that_rounds_have_had():
    plan = find_protocol("fastlloyd").planned(CONFIG, 6, 2)
    rounds = len(plan.rounds)
    played = plan.played([plan.all_noise] * (rounds - 1) + [plan.noise_with(5, 2)])
    more = plan.noise_with(5, 2) / plan.all_noise
    assert played.noise_deviations(0) == plan.noise_deviations(0)
    assert played.noise_deviations(rounds - 1) == pytest.approx(
        [more * one for one in plan.noise_deviations(rounds - 1)]
    )
    assert plan.played([]).noise_deviations(0) == plan.noise_deviations(0)
    released = np.repeat([[200, 100, 3000]], 3, axis=0).astype(np.int64) << plan.fraction_bits
    centers = Centers(
        np.zeros((3, 2)), np.zeros((3, 2), np.int64), np.full(3, 3000.0), released=join(*_parts(released))
    )
    planned, had = (noise_of(one, centers).size_ranges for one in (plan, played))
    assert planned is not None and had is not None
    assert np.diff(had) == pytest.approx(more * np.diff(planned))


def _parts(released):
    return released[:, :2], released[:, 2]


def test_with_threshold_masks_a_sum_also_names_those_who_were_silent():
    ring, ranks = Ring(32), clients(9)
    shape = VectorFormat(ring, 2, 9, opened=True)
    reply = NoisyMaskedSum(bytes(8), ranks[:8], 9, ranks[6:8])
    assert reply.body() == bytes.fromhex("ff00c000") + bytes(8)
    assert NoisyMaskedSum.read(reply.body(), shape) == reply
    with pytest.raises(ValueError, match="silent clients are not all in the sum"):
        NoisyMaskedSum.read(bytes.fromhex("ff000001") + bytes(8), shape)
    # Other masks: the bytes are those of before.
    other = NoisyMaskedSum(bytes(8), ranks[:8], 9)
    assert other.body() == bytes.fromhex("ff00") + bytes(8)
    assert NoisyMaskedSum.read(other.body(), VectorFormat(ring, 2, 9)).silent is None


def test_the_table_of_the_guide_is_that_of_the_plans():
    text = (Path(__file__).parents[3] / "docs" / "guide.md").read_text("utf-8")
    rows = [list(map(str.strip, line.strip("|").split("|"))) for line in text.splitlines() if "| 1 | 1." in line]
    assert len(rows) == 6
    for M, c, t, T, D, _, pairwise, nobody, lost in rows:
        numbers = Numbers.settle(int(M), lying=int(c))
        assert (numbers.known, numbers.threshold, numbers.lost) == (int(t), int(T), int(D))
        plan = find_protocol("fastlloyd").planned(with_values(CONFIG, {"colluding": int(c)}), int(M), 2)
        assert f"{plan.noise_with(int(M)):.3g}" == pairwise == nobody
        assert lost == (f"{plan.noise_with(int(T)):.3g}" if int(D) else "")


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
@pytest.mark.parametrize("roster", [True, False])
def test_between_sites_with_common_masks_a_plan_says_what_the_operator_could_compute(masking, roster):
    files = {"roster": "roster.toml", "key": "key.pem"} if roster else {}
    lines = find_protocol("fastlloyd").plan_lines(with_values(CONFIG, {"masking": masking, **files}), 3, 2)
    said = [line.text for line in lines if line.name == "operator"]
    assert len(said) == (masking == "common" and roster)
    assert all("exact sizes of the last round" in text and "--masking threshold" in text for text in said)


def test_without_noise_there_is_none_that_the_operator_could_know():
    assert operator_words(masking="common", authenticated=True, private=False) is None
    assert operator_words(masking=None, authenticated=True, private=True) is None


@pytest.mark.parametrize("protocol", ["fastlloyd-plus", "feddp"])
def test_init_writes_threshold_masks_where_organisations_meet(tmp_path, protocol):
    def masking(clients, *flags):
        folder = tmp_path / f"{clients}{''.join(flags)}"
        assert main(["init", str(folder), "--protocol", protocol, "--clients", str(clients), *flags]) == 0
        return load_config(folder / "run.toml").masking

    assert [masking(M) for M in (2, 3, 200, 201)] == ["common", "threshold", "threshold", "common"]
    assert masking(3, "--masking", "pairwise") == "pairwise"


WITHOUT_MASKS = ["kfed", "secfc", "vertical-dp", "vertical-plain", "vertical-he"]


@pytest.mark.parametrize("protocol", WITHOUT_MASKS)
@pytest.mark.parametrize("flags", [("--masking", "threshold"), ("--masking", "pairwise"), ("--known-shares", "2")])
def test_a_protocol_without_such_masks_refuses_them(protocol, flags, capsys):
    assert find_protocol(protocol).site_masking(3) is None
    plan = ("plan", "-n", "4", "--d", "4", "--protocol", protocol, "--k", "3", "--n-total", "400", "--bounds", "-1,1")
    assert main([*plan]) == 0
    capsys.readouterr()
    assert main([*plan, *flags]) == EXIT_INPUT
    assert f"{flags[0]} means nothing in {protocol}: leave it out" in capsys.readouterr().err


def test_the_help_says_how_many_clients_a_round_needs_by_default(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help-all"])
    said = " ".join(capsys.readouterr().out.split())
    assert "go on without slow clients (default: all; threshold masks: as few as may open a round)" in said
    common = find_protocol("fastlloyd").planned(with_values(CONFIG, {"masking": "common"}), 5, 2)
    assert (common.min_clients, find_protocol("fastlloyd").planned(CONFIG, 5, 2).min_clients) == (5, 4)


@pytest.mark.parametrize("M,T,D,noises", PLANNED)
@pytest.mark.parametrize("protocol", ["fastlloyd", "fastlloyd-plus", "feddp"])
def test_a_plan_prints_the_numbers_of_a_run_of_so_many_clients(protocol, M, T, D, noises):
    config = with_values(CONFIG, {"protocol": protocol, "ring_bits": 64, "n_total": 100_000})
    lines = find_protocol(protocol).plan_lines(config, M, 2)
    texts = {line.name: line.text for line in lines if line.name}
    c, (nobody, most) = 0 if M <= 3 else 1, noises
    assert texts["threshold"].startswith(f"T = {T} of {M} clients open a round, D = {D} may be lost in it; c = {c} ")
    assert ", t = 1 with one that follows the protocol" in texts["threshold"]
    lost = f", {most} with {D} lost" if D else ""
    assert f"{nobody} with nobody lost{lost} (more" in texts["all noise"]
    assert "common masks 1 (the server knows that noise)" in texts["all noise"]
    assert f"pairwise masks {nobody} (nobody may be lost)" in texts["all noise"]
    said = [line.text.strip() for line in lines]
    assert site_words(Numbers.settle(M)) in said


def test_aggregators_are_for_common_masks():
    assert find_protocol("fastlloyd").adds_up(with_values(CONFIG, {"masking": "common"}))
    assert not find_protocol("fastlloyd").adds_up(CONFIG)
    with pytest.raises(ConfigError, match="at most 200 clients, got 201; use common masks, with aggregators"):
        claim(CONFIG, 201)


@pytest.mark.parametrize("protocol", ["fastlloyd", "glloyd"])
def test_a_client_refuses_a_plan_whose_smallest_part_of_noise_is_too_small(protocol):
    adapter = find_protocol(protocol)
    config = with_values(CONFIG, {"protocol": protocol, "epsilon": 100.0, "n_total": 10_000, "ring_bits": 64})
    plan = adapter.planned(config, 32, 2)
    public = adapter.public_parameters(config, 32, plan.n_total, plan.k)
    assert adapter.check_plan(plan, public, plan.names) <= 100.0
    # A share of 5 grid units, as pairwise masks need it, is too little in parts.
    little = 5.1 * 31**0.5
    rounds = tuple(replace(one, count_scale=little) for one in plan.rounds)
    with pytest.raises(ValueError, match=r"the plan's releases are impossible: .* the smallest of the .* parts"):
        adapter.check_plan(replace(plan, rounds=rounds), public, plan.names)
