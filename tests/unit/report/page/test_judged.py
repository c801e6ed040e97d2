"""The quality of the clusters on the page: number and range, a curve of silhouettes, and what it supports."""

from __future__ import annotations

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report.page.judged import CURVE, FIGURES, show_quality, tell_apart
from fastlloyd.report.page.result import FILES, result_page
from tests.unit.report.figures import report

QUALITY = b"""measure,estimate,low,high,shown
records,1195.3,1150.2,1240.4,fine
silhouette,0.6123,0.5921,0.6325,fine
nicv,0.0412,0.031,0.0514,fine
far,,,,nothing
explained,0.81,0.7,0.92,coarse
"""
SILHOUETTES = b"""k,estimate,low,high,shown,chosen
2,0.71,0.69,0.73,fine,0
3,0.62,0.6,0.64,fine,1
4,0.61,0.59,0.63,fine,0
5,0.5,0.48,0.52,fine,0
6,,,,nothing,0
"""


def test_figures_stand_with_their_ranges_and_noise_is_not_shown() -> None:
    shown = show_quality({FIGURES: QUALITY})
    assert shown is not None and shown["curve"] is None
    words = {figure.name: figure.words for figure in shown["figures"]}
    assert words["silhouette"] == "0.612 (0.592 to 0.632)"
    assert words["share of far records"] == "too few records for this budget"
    assert show_quality({}) is None


def test_a_curve_has_bars_on_one_scale_and_says_what_it_supports() -> None:
    shown = show_quality({CURVE: SILHOUETTES})
    assert shown is not None
    curve = shown["curve"]
    assert [k for k, _, bar in curve.rows if bar is None] == [6] and curve.chosen == 3
    assert curve.sentence.startswith(
        "The silhouette of the 3 clusters that the run chose is 0.60 to 0.64; it is higher with 2, lower with 5, not "
        "told apart from it by this release with 4."
    )


@pytest.mark.parametrize("ranges", [{2: (0.7, 0.8), 3: (0.5, 0.6)}, {3: (0.5, 0.6)}, {2: (0.7, 0.8)}])
def test_no_sentence_says_which_number_is_right(ranges: dict[int, tuple[float, float]]) -> None:
    """Not even where another number has the larger silhouette."""
    sentence = tell_apart(ranges, 3)
    assert sentence.endswith(
        "does not say which number is right: the largest silhouette often belongs to too few clusters."
    )
    assert "best" not in sentence


def test_both_are_on_the_page() -> None:
    page = result_page(report(), None, {FIGURES: QUALITY, CURVE: SILHOUETTES})
    assert "0.612 (0.592 to 0.632)" in page and "Other numbers of clusters" in page and "3, chosen" in page
    assert {FIGURES, CURVE} <= set(FILES)
    assert "Other numbers" not in result_page(report(), None, {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (FIGURES, b"measure,estimate\nnicv,1\n"),
        (FIGURES, QUALITY.replace(b"nicv", b"best")),
        (CURVE, SILHOUETTES.replace(b"0.71", b"x")),
        (CURVE, SILHOUETTES.replace(b"\n2,", b"\ntwo,")),
        (CURVE, b"\xff"),
    ],
)
def test_another_table_is_refused_by_name(name: str, content: bytes) -> None:
    with pytest.raises(ConfigError, match=f"{name}: expected the figures of a run"):
        show_quality({name: content})
