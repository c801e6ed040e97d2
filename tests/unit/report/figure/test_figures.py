"""Figures: what they say, that nothing is drawn over something else, and that all forms have the same marks."""

from __future__ import annotations

import io
import re
import sys
import warnings
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report.figure.drawing import COLOURS, WIDE, Disc, Drawing, Rectangle, Stroke, Writing, text_width
from fastlloyd.report.figure.heat import heat_map, heat_parts
from fastlloyd.report.figure.paint import file_of
from fastlloyd.report.figure.plane import elbow, plane
from fastlloyd.report.figure.profile import drawn_features, panels, profiles
from fastlloyd.report.figure.released import Centres, warning_words
from tests.unit.report.figures import report
from tests.unit.report.page.palette import colours

NAMES = {
    "Latin": "measurement_of_the_blood_value_number_{:03d}_at_the_first_visit",
    "right to left": "\u0636\u063a\u0637 \u0627\u0644\u062f\u0645 {}",
    "Chinese": "\u60a3\u8005\u306e\u5e74\u9f84\u3068\u8840\u5727\u306e\u5e73\u5747\u5024{}",
    "emoji": "\U0001fa7a \U0001f44d\U0001f3fd pressure {}",
}


def released(k: int, d: int, script: str = "Latin", **quality: Any) -> Centres:
    rng = np.random.default_rng(k * 100 + d)
    centres = rng.uniform(0.0, 1.0, (k, d))
    ranges = [[900.0, 1100.0]] * k
    made = report(features=[NAMES[script].format(i) for i in range(d)], noisy_sizes=[1000.0] * k)
    made["quality"] = {"centre_margins": np.full((k, d), 0.1).tolist(), "size_ranges": ranges, **quality}
    return Centres.of(made, centres, np.stack([np.zeros(d), np.ones(d)]))


def texts(drawing: Drawing) -> list[str]:
    return [mark.text for mark in drawing.marks if isinstance(mark, Writing)]


def overlapping(drawing: Drawing) -> list[tuple[str, str]]:
    """Texts that lie over each other, by their widest letters."""
    places = []
    for mark in drawing.marks:
        if isinstance(mark, Writing):
            width = text_width(mark.text) * 0.9
            start = {"start": 0.0, "middle": width / 2.0, "end": width}[mark.anchor]
            box = (
                (mark.x - 6.0, mark.y + start - width, mark.x, mark.y + start)
                if mark.turned
                else (mark.x - start, mark.y - 6.0, mark.x - start + width, mark.y)
            )
            places.append((*box, mark.text))
    places.sort(key=lambda place: (round(place[3]), place[0]))
    return [
        (one[4], other[4])
        for one, other in pairwise(places)
        if one[2] > other[0] + 0.5 and one[3] > other[1] + 0.5 and other[3] > one[1] + 0.5 and one[0] < other[2] - 0.5
    ]


@pytest.mark.parametrize("script", NAMES)
@pytest.mark.parametrize(("k", "d"), [(2, 2), (8, 10), (20, 40), (50, 100)])
def test_no_text_lies_over_another_and_all_is_within_the_figure(script: str, k: int, d: int) -> None:
    shown = released(k, d, script)
    for drawing in (heat_map(shown), *panels(shown)[:2], *([profiles(shown)] if k <= 20 else [])):
        assert not overlapping(drawing)
        assert drawing.width <= WIDE
        for mark in drawing.marks:
            if isinstance(mark, Writing) and not mark.turned:
                width = text_width(mark.text)
                start = mark.x - {"start": 0.0, "middle": width / 2.0, "end": width}[mark.anchor]
                assert start > -1.0 and start + width < drawing.width + 12.0 and 0.0 < mark.y <= drawing.height
            elif isinstance(mark, Writing):
                assert mark.y - text_width(mark.text) > -1.0


def test_a_cell_has_a_colour_only_where_its_range_does_not_hold_the_mean() -> None:
    made = report(features=["a", "b", "c"], noisy_sizes=[100.0, 300.0])
    made["quality"] = {"centre_margins": [[1.0, 1.0, 0.0]] * 2, "size_ranges": None}
    values = np.array([[0.0, 5.5, 5.0], [8.0, 4.5, 5.0]])
    shown = Centres.of(made, values, np.array([[0.0] * 3, [10.0] * 3]))
    assert shown.mean.tolist() == [6.0, 4.75, 5.0]  # weighted by size
    drawing = heat_map(shown)
    cells = [mark.style for mark in drawing.marks if isinstance(mark, Rectangle) and mark.y < 40.0]
    assert sorted(cells) == ["down3", "up1"]  # 60 and 20 % of the range, on a scale up to 60 %
    strong = [mark.text for mark in drawing.marks if isinstance(mark, Writing) and mark.style == "strong"]
    assert strong == ["0.0", "8.0"], "who sees no colour sees heavy numbers"
    assert "+60 %" in texts(drawing) and "\u221260 %" in texts(drawing)
    assert "No colour: the mean is within the centre's 95 % range" in drawing.caption


PAPER = 263.0 / 25.4 * 72.0 - 40.0  # an A4 page within the margins of style.css, less a heading


@pytest.mark.parametrize("script", NAMES)
def test_each_part_of_a_large_heat_map_fits_on_a_printed_page(script: str) -> None:
    shown = released(50, 100, script)
    parts, whole = heat_parts(shown), heat_map(shown)
    assert len(parts) > 1 and max(part.height for part in parts) < PAPER < whole.height
    assert [part.about.split(". ")[0][-6:] for part in parts] == [
        f"{i} of {len(parts)}" for i in range(1, len(parts) + 1)
    ]
    assert len(whole.marks) == sum(len(part.marks) for part in parts)
    scaled = [any(isinstance(mark, Writing) and mark.text == "near the mean" for mark in part.marks) for part in parts]
    assert scaled == [False] * (len(parts) - 1) + [True]


def test_many_columns_have_triangles_in_place_of_numbers() -> None:
    drawing = heat_map(released(8, 40))
    cells = [mark for mark in drawing.marks if isinstance(mark, Rectangle)]
    signs = [mark for mark in drawing.marks if isinstance(mark, Stroke) and mark.style == "strong"]
    assert len(cells) == len(signs) > 100
    up = sum(mark.points[0][1] > mark.points[2][1] for mark in signs)
    assert up == sum(cell.style.startswith("up") for cell in cells)
    assert drawing.marks.index(signs[0]) > drawing.marks.index(cells[-1]), "they lie above the colours"


def test_sizes_stand_in_per_cent_of_all_with_their_total() -> None:
    shown = texts(heat_map(released(4, 2)))
    assert shown.count("1,000 (25.0 %)") == 4 and "4,000" in shown
    made = report(features=["a"], noisy_sizes=[1000.0] * 2)
    made["privacy"]["releases"][0]["mechanism"] = "none"
    assert not any("1,000" in text for text in texts(heat_map(Centres.of(made, np.ones((2, 1))))))


def test_a_caption_says_epsilon_date_and_run() -> None:
    shown = released(3, 2)
    for drawing in (heat_map(shown), plane(shown), profiles(shown), elbow(np.array([3.0, 1.0]), 2, shown.made)):
        assert re.search(r"fastlloyd, epsilon [\d.]+, \d{4}-\d\d-\d\d, run [0-9a-f]{8}\.$", drawing.caption)


def test_profiles_have_axis_and_numbers_for_the_features_that_tell_clusters_apart() -> None:
    made = report(features=[f"f{i}" for i in range(40)], noisy_sizes=None)
    made["quality"] = {"centre_margins": None}
    centres = np.zeros((2, 40))
    centres[1, 7::2] = 1.0
    shown = Centres.of(made, centres)
    assert len(drawn_features(shown)) == 24 and set(range(7, 40, 2)) <= set(drawn_features(shown))
    words = texts(panels(shown)[1])
    assert {"0 %", "50 %", "100 %", "f7", "1"} <= set(words)
    discs = [mark for mark in panels(shown)[1].marks if isinstance(mark, Disc)]
    lines = [mark for mark in panels(shown)[1].marks if isinstance(mark, Stroke) and mark.style == "line"]
    assert len(discs) == 24 and max(disc.x for disc in discs) == max(x for line in lines for x, _ in line.points)


def test_the_plane_has_large_discs_below_and_points_only_where_they_are_given() -> None:
    made = report(features=["a", "b"], noisy_sizes=[1.0, 100.0])
    made["quality"] = {"centre_margins": [[0.9, 0.1], [0.1, 0.1]]}
    shown = Centres.of(made, np.array([[0.0, 1.0], [4.0, 3.0]]), np.array([[0.0, 0.0], [4.0, 4.0]]))
    discs = [mark for mark in plane(shown).marks if isinstance(mark, Disc)]
    assert [disc.style for disc in discs] == ["ring", "ring"] and discs[0].radius > discs[1].radius
    assert discs[0].x > discs[1].x and discs[0].y < discs[1].y, "upwards is more"
    assert any(isinstance(mark, Stroke) and mark.style == "range" for mark in plane(shown).marks)
    points = [
        mark for mark in plane(shown, np.ones((12_000, 2))).marks if isinstance(mark, Disc) and mark.style == "point"
    ]
    assert 3_000 < len(points) <= 5_000
    assert plane(released(2, 2)).height == plane(shown).height


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_same_values_give_the_same_file_in_each_form(form: str) -> None:
    pytest.importorskip("matplotlib")
    made = [file_of(heat_map(released(3, 2)), form, "Doubtful result. poor: 5 $ of it") for _ in range(2)]
    assert made[0] == made[1] and made[0].startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF-"}[form])
    assert b"Matplotlib" not in made[0] and b"CreationDate" not in made[0]


def test_the_svg_of_a_file_and_of_a_page_have_the_same_marks() -> None:
    drawing = heat_map(released(3, 10))
    alone, inline = (
        [re.sub(r"\{[^}]*\}", "", each.tag), each.attrib, each.text]
        for each in (ET.fromstring(drawing.svg()), ET.fromstring(drawing.inline("heat")))
    )
    assert alone[0] == inline[0] == "svg" and alone[1]["width"].endswith("pt")
    assert drawing._content() in drawing.svg() and drawing._content() in drawing.inline("heat")
    light = colours()["light"]
    for step in (*("down1", "down2", "down3"), *("up1", "up2", "up3")):
        assert COLOURS[step][0] == light[f"{step}-paper"], "the page in light mode has the colours of the files"
    # At 8 points a line of the caption is as wide as the figure.
    assert max(text_width(text) for text in texts(drawing.printed())) * 0.86 <= WIDE + 5.0


def test_a_png_has_the_marks_where_the_svg_has_them() -> None:
    pytest.importorskip("matplotlib")
    image_of = pytest.importorskip("PIL.Image")
    drawing = heat_map(released(3, 2))
    with image_of.open(io.BytesIO(file_of(drawing, "png"))) as image:
        pixels = np.array(image.convert("RGB"))
    scale = pixels.shape[1] / drawing.width
    for cell in (mark for mark in drawing.marks if isinstance(mark, Rectangle)):
        colour = pixels[round((cell.y + 1.5) * scale), round((cell.x + 1.5) * scale)]
        assert "#{:02x}{:02x}{:02x}".format(*colour) == COLOURS[cell.style][0]


def test_a_name_in_letters_that_no_font_has_becomes_its_number_without_a_warning() -> None:
    pytest.importorskip("matplotlib")
    names = ["\U0001fa7a\U0001fa7b", "age"]
    made = report(features=names, noisy_sizes=None)
    made["quality"] = {"centre_margins": None}
    drawing = heat_map(Centres.of(made, np.array([[0.0, 1.0], [1.0, 0.0]])))
    assert names[0] in drawing.svg()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        content = file_of(drawing, "pdf")
    assert content.startswith(b"%PDF-")


def test_names_are_text_in_a_file() -> None:
    made = report(features=["<script>alert(1)</script>&\u202e", "$x_"], noisy_sizes=None)
    made["quality"] = {"centre_margins": None}
    svg = heat_map(Centres.of(made, np.array([[0.0, 1.0], [1.0, 0.0]]))).svg()
    assert "<script" not in svg and "\u202e" not in svg and "&lt;script" in svg
    ET.fromstring(svg)


def test_doubt_stands_above_a_figure() -> None:
    made = report(noisy_sizes=None)
    made["quality"] = {"warnings": ["x"], "sentence": "poor: noise"}
    assert warning_words(made) == "Doubtful result. poor: noise"
    assert warning_words({**made, "quality": {"warnings": []}}) == ""
    above = heat_map(released(2, 2)).printed("Doubtful result. " + "poor: noise of 5 % of the range " * 8)
    lines = [mark for mark in above.marks if isinstance(mark, Writing) and mark.style == "warning"]
    assert len(lines) > 2 and max(line.y for line in lines) < min(m.y for m in above.marks if isinstance(m, Rectangle))


def test_without_matplotlib_there_is_svg_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    drawing = Drawing(10.0, 10.0, (Writing(0.0, 9.0, "a"),), "a")
    assert file_of(drawing, "svg").startswith(b"<?xml")
    with pytest.raises(ConfigError, match=r"fastlloyd\[plots\]"):
        file_of(drawing, "png")
