import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report.table import render, render_server
from tests.unit.report.figures import NO_NOISE, common, privacy, report, server_report

CENTERS = np.array([[1.0, 2.5], [-0.0, 1e-7], [123456.789, -3.25]])


def test_table_of_a_run():
    text = render(report(), CENTERS)
    assert text.splitlines()[:6] == [
        "fastlloyd: k = 3, 2 clients, 2 rounds",
        "",
        "cluster  noisy size         age        dose",
        "      0          10           1         2.5",
        "      1          -3           0       1e-07",
        "      2      12,000  1.2346e+05       -3.25",
    ]
    assert text.splitlines()[6:8] == ["        a size below zero is noise", ""]
    assert "below zero" not in render(report(noisy_sizes=[10.4, 0.0, 12000.0]), CENTERS)
    words = " ".join(text.split())
    assert "epsilon 0.9877 spent of 1 at delta 8e-07, neighbours: add-remove record" in words
    assert "192 B of payload (96 B a round), 4.0 kB on the links in 20 messages" in words
    assert "set-up 1.5 s, rounds 500 ms (250 ms each)" in words
    assert "not authenticated" in text


@pytest.mark.parametrize(("k", "d"), [(1, 1), (12, 8), (13, 3), (100, 784)])
def test_large_results_are_cut_and_stay_within_80_columns(k, d):
    names = [f"a feature with a long name {i}" for i in range(d)]
    sizes = [float(10**9)] * k
    text = render(report(features=names, noisy_sizes=sizes), np.full((k, d), -1234.5678))
    assert max(map(len, text.splitlines())) <= 80
    rows = [line for line in text.splitlines() if "-1234.6" in line]
    assert len(rows) == (k if k <= 12 else 11)
    assert ("more in centroids.csv" in text) == (k > 12)
    assert ("more features in centroids.csv" in text) == (d > 4)


def test_a_chosen_number_of_clusters_stands_beside_the_most_that_was_asked_for():
    chosen = common(parameters={**common()["parameters"], "k": 12, "k_max": 12})
    assert render(report(common=chosen), CENTERS).startswith("fastlloyd: k = 3 (chosen, at most 12), 2 clients")
    assert render(report(common=chosen)).startswith("fastlloyd: k at most 12, 2 clients")


def test_run_without_centroids_or_sizes():
    assert "noisy size" not in render(report(noisy_sizes=None), CENTERS)
    assert "cluster" not in render(report(noisy_sizes=None))


def test_what_is_not_private_says_so():
    text = render(report(privacy=privacy(**NO_NOISE)), CENTERS)
    assert "none: epsilon is infinite" in text and "NOT PRIVATE: this protocol adds no noise" in text
    assert "claim" not in text


def test_quality_and_budget_are_shown():
    text = " ".join(
        render(
            report(
                privacy=privacy(lifetime_epsilon=2.5, lifetime_delta=1e-6, budget=3.0),
                evaluation={"nicv": 0.5, "nicv_central": 0.25, "accuracy": None},
            )
        ).split()
    )
    # One rounding for what is spent and what of: a plan's epsilon has more digits than people give.
    pair = render(report(privacy=privacy(spent_epsilon=0.944634, epsilon=0.944634)))
    assert "epsilon 0.9447 spent of 0.9447 at" in " ".join(pair.split())
    assert "spread (NICV) 0.5, of central k-means 0.25" in text and "accuracy" not in text
    assert "2.5 of a budget of 3 by all runs in the ledger, at delta 1e-06" in text


def test_authenticated_links_need_no_remark():
    parties = {"clients": 2, "authenticated": True}
    assert "links " not in render(report(common=common(parties=parties))).replace("on the links ", "")


def test_server_table_shows_cost_and_no_result():
    text = render_server(server_report())
    assert "the server sees no centroid" in text and "20 messages" in text
    assert "noisy" not in text and "epsilon" not in text


def test_noise_in_shares_and_what_the_server_could_see_are_told():
    plain, shared = report(), report()
    shared["parameters"] = {**shared["parameters"], "noise_price": 1.2247, "known_shares": 1}
    assert "in shares" not in render(plain)
    words = " ".join(render(shared).split())
    assert "of which 1 may be known to an observer: 22.5% more in all than a server alone would add" in words
    server = server_report()
    assert "the server sees no centroid" in " ".join(render_server(server).split())
    server["parties"] = {**server["parties"], "masking": "pairwise"}
    assert "the server could compute it from the noisy sums" in " ".join(render_server(server).split())


def test_the_title_of_the_study_stands_in_both_tables_and_its_length_is_bounded():
    named = common(title="Who comes back?")
    assert "\ntitle     Who comes back?\n" in render(report(common=named))
    assert "\ntitle     Who comes back?\n" in render_server(server_report(title="Who comes back?"))
    with pytest.raises(ConfigError, match=r"report\.title: expected"):
        report(common=common(title="x" * 101))


def test_authors_institution_and_purpose_stand_in_both_tables() -> None:
    said = {"authors": ["A. Meyer", "B. Roy"], "institution": "North clinic", "purpose": "plan beds"}
    rows = "\nauthors   A. Meyer, B. Roy\nat        North clinic\npurpose   plan beds\n"
    assert rows in render(report(common=common(**said))) and rows in render_server(server_report(**said))
    with pytest.raises(ConfigError, match=r"report\.authors: expected"):
        report(common=common(authors=[]))


def test_the_table_says_how_many_clusters_are_too_small():
    shared = common()
    shared["parameters"] = {**shared["parameters"], "min_size": 1000}
    text = render(report(common=shared, left_out=2, noisy_sizes=[12000.0]), CENTERS[:1])
    assert "\nleft out  2 clusters of a size below 1,000 records\n" in text
    assert "left out" not in render(report(), CENTERS)
