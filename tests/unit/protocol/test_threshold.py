"""What people read about threshold masks: no more than is proved, and all who can do harm are named."""

from __future__ import annotations

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.masking.threshold.numbers import Numbers
from fastlloyd.privacy.release import GAUSSIAN_SHARES
from fastlloyd.protocol.threshold import site_words, threshold_against, threshold_condition
from fastlloyd.report.sight import who_sees
from fastlloyd.run.config import RunConfig
from fastlloyd.run.run_file import with_values
from fastlloyd.run.session import find_protocol

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
    assert "that at most 1 client at a time are set back" in " ".join(found.conditions)
    assert threshold_condition(Numbers.settle(3, lying=1)) == (
        "that at most 1 client at a time are set back to older copies of their state"
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
