"""The cards of a description: what is drawn follows the noise, and words about differences are the file's."""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.protocols.describe.rounds import PROFILE
from fastlloyd.report.page.cards import show_cards
from fastlloyd.report.page.result import result_page
from tests.contracts import page
from tests.unit.report.figures import report

Row = dict[str, Any]


def share(value: str, number: float, margin: float, **more: Any) -> Row:
    ends = {"low": number - margin / 2, "high": number + margin / 2}
    wide = {"wide_low": max(number - margin, 0.0), "wide_high": number + margin}
    return {"measure": "share", "value": value, "estimate": number, "shown": "fine", **ends, **wide, **more}


def apart(rest: float, low: float, high: float, differs: str) -> Row:
    return {"rest": rest, "difference_low": low, "difference_high": high, "differs": differs}


def mean(number: float, margin: float, **more: Any) -> list[Row]:
    """A column of numbers in two bins."""
    lines = [share("0 to 50", 0.6, 0.05), share("50 to 100", 0.35, 0.05), share("missing", 0.05, 0.01)]
    first = share("", number, margin, **more) | {"measure": "mean"}
    quartiles = [
        share("", number + add, margin) | {"measure": name}
        for name, add in (("quartile 1", -9), ("median", 1), ("quartile 3", 9))
    ]
    return [*lines, first, *quartiles]


def whole(size: float = 1234.4) -> list[tuple[str, Row]]:
    ends = {"low": size - 40, "high": size + 40, "wide_low": size - 40, "wide_high": size + 40}
    size_line = {"measure": "size", "value": "", "estimate": size, "shown": "fine", **ends}
    return [("", size_line), ("", share("", 0.234, 0.012))]


def profile(*clusters: list[tuple[str, Row]]) -> bytes:
    text = io.StringIO()
    table = csv.DictWriter(text, PROFILE, lineterminator="\n")
    table.writeheader()
    for cluster, lines in enumerate(clusters):
        for column, line in lines:
            table.writerow({"cluster": cluster, "column": column, **line})
    return text.getvalue().encode()


def shown(content: bytes) -> tuple[Element, str]:
    """The section of the cards, of a checked page, and its words in one line."""
    root = page.check(result_page({**report(), "protocol": "describe"}, None, {"profile.csv": content}))
    sections = [each for each in root.iter("section") if each.attrib["aria-labelledby"] == "described"]
    return sections[0], re.sub(r"\s+", " ", " ".join("".join(sections[0].itertext()).split()))


SEX = [
    ("sex", share("f", 0.52, 0.03, **apart(0.31, 0.13, 0.29, "more"))),
    ("sex", share("m", 0.47, 0.03, **apart(0.68, -0.29, -0.13, "less"))),
    ("sex", share("missing", 0.01, 0.01, **apart(0.01, -0.04, 0.04, "not shown"))),
]
AGE = [("age", line) for line in mean(58.0, 2.0, **apart(41.0, 12.0, 22.0, "more"))]
DOSE = [("dose", {**line, "differs": "made by"}) for line in mean(20.0, 2.0)]


def test_a_card_says_size_differences_and_wide_ranges() -> None:
    section, words = shown(profile([*whole(), *SEX, *AGE, *DOSE], [*whole(), *SEX]))
    assert "1,234 records (1,194 to 1,274), 23.4 % (22.2 to 24.6) of all" in words
    assert (
        "Compared with all other clusters together: age higher on average, by 12.0 to 22.0; sex \u201cf\u201d more "
        "often, by 13.0 to 29.0 points." in words
    )
    assert "52.0 % (49.0 to 55.0), more often by 13.0 to 29.0 points" in words
    assert "Mean 58.0 (56.0 to 60.0); the others 41.0, higher by 12.0 to 22.0. " in words
    # Of quantiles the bins are known, and no number within them; where each number has its own bin, the number.
    assert "Median 57.0 to 61.0. Quartiles 47.0 to 51.0 and 65.0 to 69.0." in words
    own_bins = [("visits", {**line, "value": line["value"].partition(" to ")[0]}) for _, line in AGE]
    assert "Median 59.0 (57.0 to 61.0). Quartiles 49.0 (47.0 to 51.0) and" in shown(profile([*whole(), *own_bins]))[1]
    # The narrow range of f is 50.5 to 53.5.
    assert "50.5" not in words and "(49.0 to 55.0)" in words
    # What differs comes first, features last, and each card has its bars.
    names = [each.findtext("bdi") for each in section.iter("h4")]
    assert names[:3] == ["age", "sex", "dose"]
    ticks = [each for each in section.iter() if each.attrib.get("class") == "rest"]
    assert len(ticks) == 2 * 3


def test_a_column_that_made_the_clusters_has_no_word_of_a_difference() -> None:
    _, words = shown(profile([*whole(), *DOSE]))
    assert "Of the columns here, dose made the clusters, so these differ in it by construction" in words
    assert "Described only by columns that made the clusters." in words
    assert "higher" not in words and "the others" not in words and "0.2 standard deviations" not in words


def test_a_range_that_ends_at_0_has_no_digits_that_nobody_reads() -> None:
    short = share("yes", 0.0, 2.3e-8) | {"wide_low": 0.0}
    assert "0.00 % (0.00 to 0.00)" in shown(profile([*whole(), ("sex", short)]))[1]


def test_without_a_difference_the_card_says_so() -> None:
    calm = [("sex", share("f", 0.5, 0.03, **apart(0.5, -0.04, 0.05, "not shown")))]
    assert "No difference from the other clusters is beyond noise and sampling." in shown(profile([*whole(), *calm]))[1]


def test_what_is_drawn_follows_the_noise() -> None:
    coarse = [(name, {**line, "shown": "coarse"} | apart(0.0, 0.0, 0.0, "")) for name, line in [*SEX, *AGE]]
    for _, line in coarse:
        line.update(rest="", difference_low="", difference_high="")
    section, words = shown(profile([*whole(), *coarse]))
    assert "49.0 to 55.0 %" in words and "mean 56.0 to 60.0" in words.lower() and "(49.0 to" not in words
    assert not list(section.iter("svg")) and "Few records for this budget, so only ranges are shown" in words
    empty = dict.fromkeys(PROFILE, "") | {"shown": "nothing"}
    nothing = [(name, {**empty, "measure": line["measure"], "value": line["value"]}) for name, line in [*SEX, *AGE]]
    for _, line in nothing:
        del line["cluster"], line["column"]
    section, words = shown(profile([*whole(), *nothing]))
    assert "Too few records for this budget: only the size is shown." in words
    assert not list(section.iter("svg")) and not list(section.iter("h4"))


def test_many_columns_and_values_are_folded_away_and_all_are_there() -> None:
    wards = [("ward", share(f"ward {at}", 0.05, 0.01)) for at in range(20)]
    many = [(f"c{at}", line) for at in range(40) for _, line in SEX[:1]]
    section, words = shown(profile([*whole(), *wards, *many]))
    assert "12 more values of ward" in words and "35 more columns of cluster 0" in words
    assert len(list(section.iter("h4"))) == 41 and words.count("ward 1") >= 11


def test_bins_of_numbers_stand_side_by_side_and_are_read_aloud() -> None:
    lines = [share(f"{at * 10} to {at * 10 + 10}", 0.1 + 0.01 * (at == 4), 0.02) for at in range(10)]
    of_age = [("age", line) for line in [*lines, *mean(58.0, 2.0)[2:]]]
    section, _ = shown(profile([*whole(), *of_age]))
    title = next(each.text for each in section.iter() if each.tag.endswith("title"))
    assert title == (
        "age in cluster 0: the share of each bin from 0 to 100. Most are in 40 to 50, 11.0 % (9.0 to 13.0). "
        "profile.csv has all."
    )
    assert len([each for each in section.iter() if each.attrib.get("class") == "fill"]) == 10


@pytest.mark.parametrize("name", ["<script>alert(1)</script>\u202e", "年齢（入院時）", "الجنس", "x" * 200])
def test_names_of_columns_and_values_are_text(name: str) -> None:
    line = share("f", 0.5, 0.03, **apart(0.2, 0.2, 0.4, "more"))
    content = profile([*whole(), (name, {**line, "value": name})])
    text = result_page({**report(), "protocol": "describe"}, None, {"profile.csv": content})
    page.check(text)
    assert "<script" not in text and "\u202e" not in text


@pytest.mark.parametrize(
    "content",
    [b"", b"a,b\n1,2\n", profile([("sex", SEX[0][1])]), profile(whole()).replace(b"1234.4", b"many"), b"\xff"],
)
def test_another_table_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"profile\.csv: expected"):
        show_cards(content)


def test_without_a_description_there_are_no_cards() -> None:
    assert show_cards(None) is None
    assert "described" not in result_page(report(), None)


def test_numbers_of_few_records_say_so_and_a_page_without_clusters_too() -> None:
    few = [("sex", {**dict.fromkeys(("estimate", "low", "high", "wide_low", "wide_high"), ""), "shown": "below"})]
    few[0][1].update(measure="share", value="x", differs="")
    made = report()
    made["parameters"] = {**made["parameters"], "min_size": 20}
    for content, words in (
        (profile([*whole(), *SEX, *few]), "below 20 records"),
        (profile(), "No cluster is described: Clusters of fewer than 20 records"),
    ):
        root = page.check(result_page({**made, "protocol": "describe"}, None, {"profile.csv": content}))
        assert words in re.sub(r"\s+", " ", " ".join("".join(root.itertext()).split()))
