from __future__ import annotations

import re
import subprocess
import sys

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report.figure.drawing import COLOURS
from fastlloyd.report.page import render
from fastlloyd.report.page.render import format_number, keep_flags_whole
from tests.unit.report.page.palette import DARK, STYLE, colours, contrast

READABLE, SEEN = 4.5, 3.0  # WCAG 2.2, 1.4.3 and 1.4.11


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_every_paper(theme):
    found = colours()[theme]
    inks = [name.removesuffix("-ink") for name in found if name.endswith("-ink")]
    on_page = [(ink, paper) for ink in ("page", "soft", "link") for paper in ("page", "card")]
    pairs = on_page + [(name, name) for name in inks if f"{name}-paper" in found]
    assert len(pairs) >= 11
    for ink, paper in pairs:
        assert contrast(found[f"{ink}-ink"], found[f"{paper}-paper"]) >= READABLE, (ink, paper)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_every_colour_of_the_heat_map(theme):
    found = colours()[theme]
    scale = sorted(name for name in found if re.fullmatch("(up|down)[0-9]-paper", name))
    assert scale == sorted(f"{style}-paper" for style in COLOURS if re.fullmatch("(up|down)[0-9]", style))
    assert min(contrast(found["page-ink"], found[paper]) for paper in scale) >= READABLE
    assert contrast(found["page-paper"], found["mark"]) >= READABLE, "numbers stand on discs, too"


def test_text_of_figures_in_files_can_be_read():
    scale = [fill for style, (fill, _) in COLOURS.items() if re.fullmatch("(up|down)[0-9]", style)]
    assert len(scale) == 6 and min(contrast(COLOURS[""][0], fill) for fill in scale) >= READABLE
    assert contrast(COLOURS["on-mark"][0], COLOURS["mark"][0]) >= READABLE


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_are_seen_on_the_page(theme):
    found = colours()[theme]
    assert contrast(found["mark"], found["page-paper"]) >= SEEN


def test_contrast_of_known_colours():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_every_colour_is_a_variable_of_both_themes():
    light, dark = colours().values()
    assert light.keys() == dark.keys() and len(light) > 15
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE))
    assert used <= light.keys()
    rules = STYLE[STYLE.index("* {") :]
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgb|hsl", rules), "a colour outside the variables has no dark form"
    assert all(light[name] != dark[name] for name in light)
    # On paper there is no dark mode, whatever the screen prefers.
    assert DARK in STYLE


def test_whatever_a_value_says_it_is_text():
    environment = render._environment()
    hostile = "<script>\"'&\u202eevil\x1b[2J\ud800"
    text = environment.from_string('<p title="{{ value }}">{{ value }}</p>').render(value=hostile)
    assert "<script" not in text and "\u202e" not in text and "\x1b" not in text and "\ud800" not in text
    assert text.count("&lt;script&gt;") == 2 and text.count('"') == 2
    text.encode("utf-8")


def test_numbers_on_pages():
    assert [format_number(value) for value in (0.0, -0.0, -1.25, 123456.0, 1e-7, 2e20)] == [
        "0",
        "0",
        "−1.25",
        "123456",
        "1e−07",
        "2e+20",
    ]


@pytest.mark.process
def test_without_jinja2_the_sentence_says_how_to_get_it():
    program = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from fastlloyd.report.page import render\n"
        "try: render.render('base.html')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.startswith(ConfigError.__name__) and "pip install 'fastlloyd[report]'" in told


def test_flags_stay_on_one_line_and_nothing_else_becomes_markup():
    text = keep_flags_whole("<b>try</b> another --seed (--state-dir counts them) --<i>\x1b a--b")
    assert str(text) == (
        '&lt;b&gt;try&lt;/b&gt; another <span class="flag">--seed</span> (<span class="flag">--state-dir</span> counts '
        "them) --&lt;i&gt;\\x1b a--b"
    )
