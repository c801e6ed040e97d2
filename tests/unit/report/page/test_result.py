from __future__ import annotations

import re

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.kmeans.update import Movement
from fastlloyd.report.page.render import format_rounded
from fastlloyd.report.page.result import NAME, result_page
from fastlloyd.report.plot import encode_png
from tests.contracts import page
from tests.unit.report.figures import NO_NOISE, common, privacy, releases, report, round_entry

CENTRES = np.array([[1.0, 20.0], [2.5, -40.25], [9.0, 3.0]])
BOUNDS = b"feature,lo,hi\nage,0,10\ndose,-50,50\n"
HOSTILE = "<script>alert(1)</script>\u202e\x1b[2J\"'&"


def document(quality=(), **changes):
    made = report(**changes)
    made["quality"] = {
        "verdict": "good",
        "sentence": "good: noise of 0.4 % of the range on a centre",
        "warnings": [],
        "expected": None,
        "size_ranges": [[4.0, 16.0], [-9.0, 3.0], [11994.0, 12006.0]],
        "centre_margins": [[0.1, 2.0], [0.5, 30.0], [0.001, 0.02]],
        "empty": [],
        "at_bounds": [],
        "overlapping": [],
        **dict(quality),
    }
    return made


def shown(made, centroids=CENTRES, files=()):
    """The page, checked, and its words in one line."""
    text = result_page(made, centroids, dict(files))
    root = page.check(text)
    return root, re.sub(r"\s+", " ", " ".join(root.find("body").itertext()))


def section(root, name):
    return next(each for each in root.iter("section") if each.attrib["aria-labelledby"] == name)


def test_the_verdict_comes_before_everything_but_what_was_asked():
    root, _ = shown(document())
    sections = [each.attrib["aria-labelledby"] for each in root.iter("section")]
    assert sections == [
        *("verdict", "promise", "clusters", "error", "files", "methods", "cite", "sight", "parties", "budget", "cost"),
        *("settings", "versions", "verify"),
    ]
    contents = [each.attrib["href"] for each in root.find("body/main/nav").iter("a")]
    assert contents == [f"#{name}" for name in sections]
    assert (
        "".join(next(section(root, "verdict").iter("p")).itertext()) == "Good Noise of 0.4 % of the range on a centre."
    )
    assert root.find("body/header/h1").text == "3 clusters of records that clients kept to themselves"


def test_ranges_stand_beside_values_with_digits_that_mean_something():
    root, words = shown(document())
    cells = ["".join(cell.itertext()).strip() for cell in section(root, "clusters").iter("td")]
    assert cells[:6] == [
        *("1.00 0.90 to 1.10", "20.0 18.0 to 22.0", "2.50 2.00 to 3.00", "−40 −70 to −10"),
        *("9.0000 8.9990 to 9.0010", "3.000 2.980 to 3.020"),
    ]
    # A reader of medical papers takes "1.00 ± 0.1" for a standard deviation.
    heads = ["".join(cell.itertext()) for cell in next(section(root, "clusters").iter("thead")).iter("th")]
    assert heads[1].endswith(" centre, 95 % range") and "\u00b1" not in words
    assert "how well the centre is known, not how records spread about it" in words
    bounded, _ = shown(document(), files={"bounds.csv": BOUNDS})
    cells = ["".join(cell.itertext()).strip() for cell in section(bounded, "clusters").iter("td")]
    assert cells[3] == "−40 −50 to −10"
    assert "−9 to 3" in words and "11,994 to 12,006" in words
    assert format_rounded(-0.0001, 0.5) == "0.00"


@pytest.mark.parametrize(("d", "widths"), [(6, [6]), (7, [4, 3]), (8, [4, 4]), (13, [5, 4, 4])])
def test_tables_of_many_columns_are_cut_into_parts_about_as_wide(d, widths):
    made = document(
        {"centre_margins": None, "size_ranges": None}, features=[f"f{i}" for i in range(d)], noisy_sizes=None
    )
    root, _ = shown(made, np.zeros((20, d)))
    heads = [len(list(each.iter("th"))) - 1 for each in section(root, "clusters").iter("thead")]
    assert heads == widths


def test_a_long_name_may_break_and_stands_in_full_below_what_is_shortened():
    names = ["systolic_blood_pressure_first_visit_mmHg", "x" * 60]
    root, words = shown(document({"centre_margins": None}, features=names))
    first, second = list(next(section(root, "clusters").iter("thead")).iter("bdi"))
    assert "".join(first.itertext()) == names[0] and len(list(first.iter("wbr"))) == 5
    assert second.attrib["title"] == names[1] and len("".join(second.itertext())) == 48
    assert "2 names in full" in words and names[1] in words
    assert "in full" not in shown(document())[1]


def test_a_number_and_its_unit_stay_on_one_line():
    text = result_page(document(), CENTRES)
    assert "25\u00a0%" in text and "250\u00a0ms" in text and not re.search(r"\d (%|ms|s|B|kB)[^\w-]", text)


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
@pytest.mark.parametrize("roster", [True, False])
def test_between_sites_with_common_masks_the_page_says_what_the_operator_could_compute(masking, roster):
    rounds = [
        round_entry(t) | ({"clients_silent": [], "noise": 1.4} if masking == "threshold" else {}) for t in range(2)
    ]
    made = document(common=common(rounds=rounds))
    made["parties"] = {"clients": 2, "authenticated": roster, "masking": masking}
    _, words = shown(made)
    said = "Note that masks are common, so the operator knows the noise: with the published result it can compute"
    assert (said in words) == (masking == "common" and roster)
    assert ("--masking threshold prevents both" in words) == (masking == "common" and roster)


def test_what_ranges_are_about_stands_below_them():
    made = document()
    assert "the records that the last step counted" in shown({**made, "protocol": "fastlloyd"})[1]
    plus = shown({**made, "protocol": "fastlloyd-plus"})[1]
    assert "shortening of far records" in plus and "last step counted" not in plus
    assert "A range is" not in shown(document({"centre_margins": None, "size_ranges": None}))[1]


def test_without_ranges_the_bounds_say_how_many_digits_mean_something():
    made = document({"centre_margins": None})
    root, _ = shown(made, np.array([[1e-5, 1.0], [2.0 / 3.0, -12.345678], [9.0, 0.0]]), {"bounds.csv": BOUNDS})
    cells = ["".join(cell.itertext()).strip() for cell in section(root, "clusters").iter("td")]
    assert cells[:6] == ["0.000", "1.00", "0.667", "−12.35", "9.000", "0.00"]


def test_what_the_plan_said_and_what_to_doubt():
    expected = {"centre_noise": 4.79, "verdict": "noise", "sentence": "479 %: this result would be noise."}
    doubt = ["Cluster 1 cannot be told from an empty one.", "Centres 0 and 2 cannot be told apart."]
    root, words = shown(document({"verdict": "noise", "warnings": doubt, "expected": expected}))
    first = section(root, "verdict")
    assert [each.text for each in first.iter("li")] == doubt
    assert "bad" in next(first.iter("div")).attrib["class"]
    assert "Before the run the plan said: 479 %: this result" in words
    told = {"warnings": ["the plan said: 479 %: this result would be noise."], "expected": expected}
    assert shown(document(told))[1].count("479") == 1
    assert root.findtext("head/title").startswith("Noise")


def test_a_run_without_noise_is_called_not_private_and_its_sizes_stay_away():
    exact = [release.to_dict() for release in releases(mechanism="none", scale=0.0)]
    made = document(
        {"verdict": "exact", "size_ranges": None, "centre_margins": None},
        privacy=privacy(**NO_NOISE, releases=exact),
        noisy_sizes=[4711.0, 815.0, 99.0],
    )
    root, words = shown(made)
    assert "Not private This protocol adds no noise" in words
    assert not {"4711", "4,711", "815", "99"} & page.numbers(section(root, "clusters"))
    assert "without noise the numbers are exact" in words
    assert "toss a coin" not in words


def test_the_promise_in_plain_words_is_the_bound_of_a_guess():
    _, words = shown(document(privacy=privacy(spent_epsilon=1.0, epsilon=1.0, delta=0.0)))
    assert "73.2 of 100" in words  # e / (1 + e) = 0.7311, rounded up
    _, words = shown(document(privacy=privacy(spent_epsilon=5.0, epsilon=5.0)))
    assert "weak promise" in words
    _, words = shown(document(privacy=privacy(spent_epsilon=20.0, epsilon=20.0)))
    assert "next to nothing" in words and "100.0" not in words


def test_names_from_peers_and_files_are_text():
    made = document(
        features=[HOSTILE, "b"], common=common(parameters={**common()["parameters"], "settings": {"a": HOSTILE}})
    )
    made["signatures"] = {
        "roster": "ab" * 32,
        "agreed": "cd" * 32,
        "files": {},
        "parties": [
            {"rank": 0, "name": HOSTILE, "covers": "public", "signature": "ef" * 64, "problem": None},
            {"rank": 1, "name": "Klinik 北", "covers": "result", "signature": None, "problem": HOSTILE},
        ],
        "writer": {"rank": 1, "signature": "ef" * 64},
    }
    made["network"]["transport"] = made["traffic"]["incomplete"] = made["machine"]["mpi"] = HOSTILE
    made["quality"] |= {"sentence": HOSTILE, "warnings": [HOSTILE]}
    text = result_page(made, CENTRES)
    page.check(text)
    assert "<script" not in text and "\u202e" not in text and "\x1b" not in text
    assert text.count("&lt;script&gt;") > 8 and "Klinik 北" in text and "\\u202e" in text


def test_signed_runs_show_names_roster_and_the_command():
    made = document()
    made["parties"]["authenticated"] = True
    made["signatures"] = {
        "roster": "ab" * 32,
        "agreed": "cd" * 32,
        "files": {},
        "parties": [{"rank": 1, "name": "St Mary", "covers": "result", "signature": "ef" * 64, "problem": None}],
        "writer": {"rank": 1, "signature": "ef" * 64},
    }
    _, words = shown(made)
    assert "St Mary" in words and " ".join(["abab"] * 16) in words and "--verify --roster FILE" in words
    assert "nobody checked" not in words
    _, words = shown(document())
    assert "Not authenticated: a demonstration." in words and "--roster FILE" not in words


def test_what_is_left_of_the_budget_is_rounded_down():
    _, words = shown(document(privacy=privacy(lifetime_epsilon=2.00001, lifetime_delta=1e-6, budget=3.0)))
    assert re.search(r"Left of the budget 0\.9999\b", words)
    _, words = shown(document(privacy=privacy(lifetime_epsilon=2.0, lifetime_delta=1e-6)))
    assert "no limit" in words and "Left of" not in words


def test_clients_that_missed_rounds_are_named():
    made = document()
    made["rounds"] = [
        {"round": t, "seconds": None, "clients_included": [1] if t in (1, 2, 4) else [1, 2]} for t in range(6)
    ]
    made["result"]["movement"] = None
    _, words = shown(made)
    assert "client 2: round 2–3, 5" in words and "before a resume" in words
    assert "round clients time" in words and "clients sent" not in shown(document())[1]


def test_movement_bytes_and_time_stand_by_round():
    expected = {"centre_noise": 0.004, "verdict": "good", "sentence": "good"}
    root, words = shown(document({"expected": expected}))
    assert "In round 2 the released centres moved by up to 3 % of a feature's range, and by 1.2 % on average" in words
    assert "; in round 1 by up to 25 %. By the plan, noise alone moves a centre of average size by some 0.4 %:" in words
    assert table(root, "error") == [
        ["round", "largest", "mean", ""],
        ["1", "25 %", "12 %", "from the public start"],
        ["2", "3 %", "1.2 %", ""],
    ]
    assert table(root, "cost") == [
        ["round", "sent", "received", "time", ""],
        ["1", "95 B", "96 B", "250 ms", ""],
        ["2", "95 B", "96 B", "250 ms", ""],
    ]
    assert not folded(root) and "was interrupted" not in words


def test_of_rounds_before_a_resume_neither_time_nor_bytes_are_known():
    earlier = [round_entry(0, seconds=None, sent_bytes=None, received_bytes=None)]
    later = [round_entry(1, seconds=0.5, received_bytes=2000)]
    root, words = shown(document(common=common(rounds=earlier + later)))
    assert "The run was interrupted and resumed. Of rounds that were done before" in words
    assert table(root, "cost")[1:] == [
        ["1", "unknown", "unknown", "before a resume", ""],
        ["2", "95 B", "2.0 kB", "500 ms", ""],
    ]
    assert len(table(root, "error")) == 3, "what was released before is known"


def test_steps_without_centres_have_no_movement_and_no_run_without_any():
    steps = {**common()["parameters"], "steps": ["weights", "centres"]}
    made = document(common=common(parameters=steps), movement=[None, Movement(0.5, 0.25)])
    root, words = shown(made)
    assert table(root, "error") == [["round", "step", "largest", "mean", ""], ["2", "centres", "50 %", "25 %", ""]]
    assert "Movement by round In round 2 the released centres moved by up to 50 %" in words
    for none in ([None, None], None):
        assert "Movement" not in shown(document(movement=none))[1]


def test_a_round_that_merges_clusters_is_missing_with_a_reason():
    for stages, said in (([{"clusters": 6}, {"clusters": 3}], True), ([{"clusters": 3}], False), (7, False)):
        parameters = {**common()["parameters"], "plus": {"stages": stages}}
        words = shown(document(common=common(parameters=parameters), movement=[Movement(0.5, 0.25)] * 2))[1]
        assert ("Where clusters were merged nothing moved." in words) is said


def test_a_report_of_the_schema_before_has_times_alone():
    made = document()
    made["schema"] = 3
    del made["result"]["movement"]
    made["rounds"] = [{"round": t, "seconds": 0.25, "clients_included": [1, 2]} for t in range(2)]
    root, words = shown(made)
    assert "Movement" not in words and table(root, "cost")[0] == ["round", "time", ""]


def test_many_rounds_are_folded_away():
    rounds = [round_entry(t, 0.1, 1, 2) for t in range(13)]
    root, words = shown(document(common=common(rounds=rounds), movement=[Movement(0.5, 0.25)] * 13))
    assert len(folded(root)) == 2 and words.count("13 rounds, one by one") == 2
    assert "Not shown" not in words


def folded(root):
    """The rounds that are folded away."""
    return [each for each in root.iter("details") if "one by one" in each.findtext("summary")]


def table(root, name):
    """The last table of a section, as text."""
    rows = list(section(root, name).iter("table"))[-1].iter("tr")
    return [["".join(cell.itertext()).strip() for cell in row] for row in rows]


def test_a_plane_for_two_features_and_profiles_for_more():
    root, _ = shown(document())
    assert {"plane", "profile-0"} <= {each.attrib.get("id") for each in root.iter()}
    names = [f"feature {i}" for i in range(40)]
    made = document({"centre_margins": None}, features=names)
    root, words = shown(made, np.arange(120.0).reshape(3, 40))
    assert "plane" not in {each.attrib.get("id") for each in root.iter()}
    assert "Drawn are the 24 features" in words
    heads = ["".join(each.itertext()) for each in next(section(root, "clusters").iter("thead")).iter("th")]
    assert heads == ["feature", "cluster 0", "cluster 1", "cluster 2"]


def test_pictures_show_their_palette():
    picture = encode_png(np.zeros((2, 3, 3), dtype=np.uint8))
    colours = np.array([[255.0, 0.0, 16.0], [-5.0, 300.0, 1.4], [0.0, 0.0, 0.0]])
    made = document({"centre_margins": None}, features=["red", "green", "blue"])
    root, words = shown(made, colours, {"palette.png": picture})
    assert "#000000 #00ff01 #ff0010" in words
    (image,) = root.iter("img")
    assert image.attrib["src"].startswith("data:image/png;base64,")
    root, _ = shown(made, colours, {"palette.png": b"<svg onload=alert(1)>"})
    assert not list(root.iter("img"))


def test_the_curve_behind_a_chosen_number_of_clusters():
    curve = b"k,cost,chosen\n1,10.5,0\n2,4.25,1\n3,4.0,0\n"
    _, words = shown(document(), files={"elbow.csv": curve})
    assert "2 was chosen" in words and "4.25" in words
    with pytest.raises(ConfigError, match="elbow"):
        result_page(document(), CENTRES, {"elbow.csv": b"nonsense"})


def test_values_beyond_their_bounds_are_called_noise():
    inside = np.array([[1.0, 20.0], [2.5, -40.0], [9.0, 3.0]])
    for centres, said in ((inside, False), (inside - [[1.0005, 0.0]], False), (inside - [[1.5, 0.0]], True)):
        assert ("beyond the bounds" in shown(document(), centres, {"bounds.csv": BOUNDS})[1]) is said
    assert "beyond the bounds" not in shown(document(), inside - 100.0)[1]


def test_profiles_say_what_their_lines_are():
    _, words = shown(document(), files={"bounds.csv": BOUNDS})
    assert "from its lower to its upper bound" in words
    _, words = shown(document())
    assert "from the least to the greatest" in words


@pytest.mark.parametrize(
    "content", [b"nonsense", b"feature,lo,hi\nage,0,1\n", b"feature,lo,hi\na,0,1\nb,x,1\n", b"\xff"]
)
def test_bounds_of_another_result_are_refused(content):
    with pytest.raises(ConfigError, match=r"bounds\.csv: expected"):
        result_page(document(), CENTRES, {"bounds.csv": content})


def test_releases_alike_stand_in_one_line():
    root, _ = shown(document())
    rows = [["".join(cell.itertext()) for cell in row] for row in section(root, "budget").iter("tr")][1:]
    assert [row[:2] for row in rows] == [["counts", "1–2"], ["relative sums", "1–2"]]


def test_results_without_centres_sizes_or_verdict():
    old = report(noisy_sizes=None)
    del old["quality"]
    root, words = shown(old, None)
    assert "This run shows no centres" in words and "Not judged" in words
    assert not list(section(root, "clusters").iter("table"))


def test_a_description_says_where_its_centres_are():
    """With a smallest size it has no sizes either: the heading stood above nothing."""
    described = report(noisy_sizes=None)
    described["parameters"]["described_run"] = "ab" * 16
    root, words = shown(described, None)
    assert "The centres are those of the run that is described, abababababababab: its page shows them." in words
    assert "This run shows no centres" not in words and not list(section(root, "clusters").iter("table"))


def test_values_that_are_no_numbers_are_shown_and_not_drawn():
    root, words = shown(document({"centre_margins": None}), np.array([[np.nan, 1.0], [np.inf, 2.0], [1.0, 1.0]]))
    assert "nan" in words and not list(section(root, "clusters").iter("circle"))


def test_one_cluster_of_one_feature():
    made = document({"size_ranges": [[0.0, 0.0]], "centre_margins": [[0.0]]}, features=["age"], noisy_sizes=[0.0])
    shown(made, np.array([[5.0]]))


@pytest.mark.parametrize(
    "quality",
    [
        {"size_ranges": [[1.0, 2.0]]},
        {"size_ranges": [[1.0, 2.0], [1.0], [1.0, 2.0]]},
        {"centre_margins": [[1.0, 2.0]]},
        {"centre_margins": [[1.0], [1.0], [1.0]]},
    ],
)
def test_lists_that_do_not_belong_together_are_refused(quality):
    with pytest.raises(ConfigError, match=r"report\.json: expected one size"):
        result_page(document(quality), CENTRES)


def test_a_movement_for_each_round_is_expected():
    with pytest.raises(ConfigError, match="one movement for each round"):
        result_page(document(movement=[None]), CENTRES)


def test_two_parties_of_which_one_is_rank_0_are_two():
    made = document(common=common(protocol="vertical-he", parties={"clients": 1, "authenticated": False}))
    made["parameters"]["names"] = [["age"], ["dose"]]
    _, words = shown(made)
    assert "2 parties hold different features of the same people" in words


def test_the_steps_of_a_single_round_are_not_called_rounds():
    made = document()
    assert "release rounds noise" in shown(made)[1]
    made["rounds"], made["result"]["movement"] = made["rounds"][:1], None
    assert "release step noise" in shown(made)[1]


def test_settings_are_written_for_people():
    made = document()
    made["parameters"] |= {
        "client_caps": [7000, 5345],
        "plus": None,
        "least_revealed": 5,
        "private": True,
        "seed": 12345,
    }
    made["parameters"]["categories"] = {"ward": {"north": 1.0, "south": 0.5}, "sex": {"f": 1.0}}
    root, _ = shown(made)
    set_, planned = (
        dict(["".join(cell.itertext()) for cell in row] for row in each.iter("tr"))
        for each in section(root, "settings").iter("table")
    )
    assert set_["records of each client, at most"] == "7,000; 5,345" and set_["clusters"] == "3"
    assert set_["weights of categories"] == "ward: (north: 1; south: 0.5); sex: (f: 1)"
    assert set_["seed of public randomness"] == "12345"
    # What the plan made of them stands by itself, folded away, under the names of the report.
    _, folded = section(root, "settings").iter("details")
    assert "".join(folded.itertext()).count("fraction_bits") == 1
    assert planned["least_revealed"] == "5" and planned["private"] == "yes" and planned["ring_bits"] == "32"
    assert "plus" not in planned and not set_.keys() & planned.keys() - {"name"}
    made["parameters"] = {"k": 3, "d": 2, "n_total": 12345}
    assert len(list(section(shown(made)[0], "settings").iter("details"))) == 1
    for masking, said in (("common", False), ("pairwise", True)):
        made["parameters"] |= {"masking": masking, "known_shares": 1}
        assert ("whose share of the noise" in shown(made)[1]) is said


def test_a_chosen_number_of_clusters_is_told_from_the_most_that_was_asked_for():
    made = document()
    made["parameters"] |= {"k": 12, "k_max": 12, "choose_k": True}
    root, words = shown(made)
    assert root.find("body/header/h1").text.startswith("3 clusters of records")
    assert root.findtext("head/title").startswith("Good: 3 clusters by")
    assert "They asked for at most 12 clusters of at most 12,345 records" in words
    assert "Clusters, chosen 3 of at most 12" in words
    rows = [["".join(cell.itertext()) for cell in row] for row in section(root, "settings").iter("tr")]
    assert ["clusters, at most", "12"] in rows and not any(row[0] == "clusters" for row in rows)


@pytest.mark.parametrize(
    ("transport", "words"),
    [("shm", "Joined by MPI "), ("tcp", "MPI over TCP"), ("serve/join", "TCP, by serve and join"), ("own", "own")],
)
def test_how_parties_were_joined_is_said_in_words(transport, words):
    made = document()
    made["network"]["transport"] = transport
    assert words in shown(made)[1]


def test_long_runs_and_many_clusters_stay_readable():
    k, d = 130, 130
    sizes = [float(i) for i in range(k)]
    made = document(
        {"size_ranges": None, "centre_margins": None}, noisy_sizes=sizes, features=[f"f{i}" for i in range(d)]
    )
    made["rounds"] = [{"round": t, "seconds": 0.1, "clients_included": [1, 2]} for t in range(300)]
    made["result"]["movement"] = None
    root, words = shown(made, np.random.default_rng(0).normal(size=(k, d)))
    assert "Not shown: 70 clusters and 30 features" in words and "Not shown: 200 further rounds" in words
    assert len(list(section(root, "clusters").iter("svg"))) < 200


def test_the_name_is_that_of_the_documentation():
    assert NAME == "report.html"


def test_the_title_of_the_study_is_text_on_the_page():
    root, words = shown(document(common=common(title="<b>Who</b> comes back?")))
    assert "<b>Who</b> comes back?" in words
    assert root.find("head/title").text.startswith("<b>Who</b> comes back?: ")
    assert root.findtext("body/header/h1/bdi") == "<b>Who</b> comes back?"


def test_a_page_begins_with_whose_study_it_is_and_says_how_to_cite_it():
    said = {"title": "Who comes back?", "authors": ["A. Meyer", "B. {Roy"], "institution": "North", "purpose": "beds"}
    root, words = shown(document(common=common(**said)))
    header = " ".join(" ".join(root.find("body/header").itertext()).split())
    assert header.startswith("Who comes back? A. Meyer , B. {Roy North 3 clusters of records that clients kept")
    assert "Purpose: beds" in header and "A. Meyer, B. {Roy. Who comes back? North. Run 0" in words
    assert "author = {{A. Meyer} and {B. \\{Roy}}," in words and "[1] A. Diaa, T. Humphries" in words


def test_sites_stand_at_the_top_by_their_names_in_the_roster():
    made = document()
    made["signatures"] = {
        "roster": "ab" * 32,
        "agreed": "cd" * 32,
        "files": {},
        "parties": [
            {
                "rank": rank,
                "name": name,
                "covers": "result",
                "signature": "ef" * 64,
                "problem": None,
                "opening": "0" * 64,
            }
            for rank, name in enumerate(["operator", "North <b>", "South"])
        ],
    }
    root, _ = shown(made)
    sites = next(each for each in root.find("body/header").iter("p") if (each.text or "").startswith("Sites: "))
    assert [each.text for each in sites.iter("bdi")] == ["North <b>", "South"]


def test_tables_and_figures_have_numbers_and_no_number_parts_from_its_unit():
    text = result_page(document(), CENTRES, {"bounds.csv": BOUNDS})
    root = page.check(text)
    captions = ["".join(each.itertext()) for each in root.iter("caption")]
    assert [caption.split(". ")[0] for caption in captions] == [f"Table {n}" for n in range(1, len(captions) + 1)]
    figures = ["".join(each.itertext()) for each in root.iter("figcaption")]
    assert figures[0].startswith("Figure 1. Rows are clusters") and figures[1].startswith("Figure 2. Each disc is")
    assert figures[-1].startswith("Figure 3. Each line is a feature")
    body = text.partition("<body>")[2]
    assert "95\u00a0% range" in body and not re.search("[0-9] (%|ms|kB)", body)


@pytest.mark.parametrize(
    ("start", "said", "label"),
    [
        ("private", "starts from proxy points drawn from noisy sums, the server has no records", "proxy points"),
        ("feddp", "FedDP-KMeans: starts from points of the server)", "points that the server starts from"),
        ("sphere-packing", "FedDP-KMeans: starts from a sphere packing", "points that the server starts from"),
    ],
)
def test_what_feddp_starts_from_is_said_as_it_was_started(start, said, label):
    made = document()
    made["protocol"] = "feddp"
    made["parameters"] |= {"start": start, "n_server": 187}
    words = shown(made)[1]
    assert said in words and f" {label} 187 " in words
    assert ("points of the server" in words or "the server starts from" in words) == (start != "private")


def test_why_the_same_noise_is_good_in_one_run_and_fair_in_another_stands_below_the_limit():
    sentence = "fair: noise of 1.3 % of the range on a centre (good is up to 0.97 % for 3 clusters and 2 features)"
    assert "the less noise hides one from the next" in shown(document({"verdict": "fair", "sentence": sentence}))[1]
    assert "hides one" not in shown(document())[1]


def test_links_lead_to_public_files_beside_the_page_alone():
    names = ["centroids.csv", "report.json", "labels_1.csv", "javascript:alert(1)", "..csv", "A.csv", "x.html"]
    root, words = shown(document(output=names))
    links = [each.attrib["href"] for each in section(root, "files").iter("a")]
    assert links == ["centroids.csv", "report.json"] and all(name in words for name in names)
