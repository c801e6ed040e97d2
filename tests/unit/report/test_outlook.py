"""What is said before a run, and that the settings it names are what it says they are."""

import re
from dataclasses import replace

import pytest

from fastlloyd.cli.plan import main
from fastlloyd.errors import ConfigError
from fastlloyd.report.outlook import Expected, PlanLine, outlook_line, planned_words


def simple(k, epsilon, n_total):
    """A plan whose noise is k / (epsilon N)."""
    return Expected(centre_noise=20.0 * k / (epsilon * n_total), k=k, d=10)


def test_a_good_plan_is_one_short_sentence():
    line = outlook_line(simple, k=2, epsilon=1.0, n_total=10_000)
    assert line == PlanLine("expected", "noise of 0.4 % of the range on an average centre: good")
    assert str(line) == "expected: noise of 0.4 % of the range on an average centre: good"


@pytest.mark.parametrize("n_total", [300, 6000])
def test_every_setting_that_is_named_is_good_and_a_little_less_is_not(n_total):
    k, epsilon = 8, 1.0
    line = outlook_line(simple, k=k, epsilon=epsilon, n_total=n_total)
    found = re.search(
        r"good would be (?:k = (\d+) or )?epsilon ([\d.]+) or N = ([\d,]+), the rest unchanged", line.text
    )
    assert found, line
    assert (found[1] is not None) == (n_total == 6000)
    if found[1]:
        assert simple(int(found[1]), epsilon, n_total).verdict == "good"
        assert simple(int(found[1]) + 1, epsilon, n_total).verdict != "good"
    more, records = float(found[2]), int(found[3].replace(",", ""))
    assert simple(k, more, n_total).verdict == "good" and simple(k, 0.85 * more, n_total).verdict != "good"
    assert simple(k, epsilon, records).verdict == "good" and simple(k, epsilon, int(0.85 * records)).verdict != "good"


def test_what_is_refused_is_no_way_out():
    def refuses(k, epsilon, n_total):
        if (k, epsilon, n_total) != (4, 1.0, 100):
            raise ConfigError("no")
        return simple(k, epsilon, n_total)

    line = outlook_line(refuses, k=4, epsilon=1.0, n_total=100)
    assert line.text.endswith("no other number of clusters, epsilon or N alone would make it good")


@pytest.mark.parametrize("off", [0.1, 0.8, 0.98, 1.0, 1.02, 1.3, 10.0])
@pytest.mark.parametrize("n_total", [50, 300, 6000])
def test_a_rough_guess_changes_no_answer_and_a_right_one_saves_asking(off, n_total):
    asked = []

    def slow(*run):
        asked.append(run)
        return simple(*run)

    def roughly(*run):
        return replace(simple(*run), centre_noise=off * simple(*run).centre_noise)

    line = outlook_line(slow, k=30, epsilon=1.0, n_total=n_total)
    without = len(asked)
    assert outlook_line(slow, k=30, epsilon=1.0, n_total=n_total, roughly=roughly) == line
    assert len(asked) - without <= (7 if off == 1.0 else 11 if 0.97 < off < 1.03 else without + 6)
    assert without > 14


def test_a_public_data_set_has_no_more_records():
    assert "N =" not in outlook_line(simple, k=4, epsilon=1.0, n_total=100, fixed_n=True).text


@pytest.mark.parametrize(
    "protocol", ["fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "feddp", "vertical-he", "vertical-dp"]
)
def test_every_protocol_with_noise_says_what_to_expect(protocol, capsys):
    words = ["--protocol", protocol, "-n", "3", "--d", "3", "--k", "3", "--n-total", "200", "--epsilon", "0.1"]
    assert main(words) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("expected: "))
    assert ("would be noise" in line or ": poor" in line) and "; good would be " in line


def test_without_noise_nothing_is_expected(capsys):
    assert main(["--protocol", "lloyd", "--d", "3", "--k", "3", "--n-total", "200"]) == 0
    assert "expected:" not in capsys.readouterr().out


def test_a_plan_and_a_verdict_that_differ_are_explained():
    expected = Expected(centre_noise=0.018, k=3, d=4).to_dict()
    quality = {"verdict": expected["verdict"], "warnings": [], "expected": expected}
    assert expected["verdict"] != "poor" and planned_words(quality) == expected["sentence"]
    other = planned_words({**quality, "verdict": "poor"})
    assert other.startswith(f"{expected['sentence']}. ") and "clusters of equal size" in other
    assert planned_words({**quality, "verdict": "poor", "warnings": [f"so: {expected['sentence']}"]}) is None
    unknown = Expected(centre_noise=None, k=3, d=4).to_dict()
    assert planned_words({**quality, "expected": unknown}) == unknown["sentence"]
    assert planned_words({**quality, "expected": None}) is None
