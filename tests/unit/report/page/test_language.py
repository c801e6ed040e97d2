"""Other languages: what a catalogue makes of a page, and what the German one must be."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fastlloyd.cli.report import main
from fastlloyd.describe.estimates import Consistent
from fastlloyd.errors import ConfigError
from fastlloyd.protocols.describe.protocol import _of_clusters
from fastlloyd.report.document import encode
from fastlloyd.report.figure.heat import heat_parts
from fastlloyd.report.figure.profile import caption
from fastlloyd.report.files import centroids_csv
from fastlloyd.report.page.judged import tell_apart
from fastlloyd.report.page.language import Language, catalogue, language
from fastlloyd.report.page.result import result_page
from tests.contracts import page
from tests.unit.report.figure.test_figures import released
from tests.unit.report.page.test_result import BOUNDS, CENTRES, common, document

LINES = {
    "{n} clusters": "{n} Cluster",
    "{s} of at most {n} records": "{s} von h\u00f6chstens {n} Datens\u00e4tzen",
    "by <code>{x}</code> ({s})": "mit <code>{x}</code> ({s})",
    "noise in each round": "Rauschen in jeder Runde",
    "take it": "nehmen Sie es",
}


@pytest.mark.parametrize(
    ("english", "said"),
    [
        ("1,234 clusters", "1.234 Cluster"),
        ("\u22121.5 clusters", "\u22121,5 Cluster"),
        ("3 clusters of at most 6,000 records", "3 Cluster von h\u00f6chstens 6.000 Datens\u00e4tzen"),
        ("Take it.", "Nehmen Sie es."),
        ("3 clusters. Take it.", "3 Cluster. Nehmen Sie es."),
        ("By <code>a.b</code> (noise in each round)", "Mit <code>a.b</code> (Rauschen in jeder Runde)"),
        ("1.5", "1,5"),
        ("1.26.4", "1.26.4"),
    ],
)
def test_a_piece_is_said_with_its_parts(english: str, said: str) -> None:
    german = Language(LINES, "de")
    assert german.say(english) == said and not german.unsaid


@pytest.mark.parametrize("english", ["3 apples", "Take it. Leave it.", "some of at most 6,000 records", "age 1.5"])
def test_what_has_no_line_stays_whole_and_is_known(english: str) -> None:
    german = Language(LINES, "de")
    assert german.say(english) == english and english in german.unsaid


def test_a_text_of_hundreds_of_pieces_within_pieces_stays_in_english() -> None:
    text = f"3 clusters{' of at most 9 records' * 90}"
    assert language("de").say(text) == Language(LINES, "de").say(text) == text
    deeper = "missing: " * 200
    assert language("de").say(deeper) == deeper


def test_of_a_page_names_code_and_numbers_stay_or_change_as_they_must() -> None:
    made = (
        '<html lang="en"><style>p { margin: 1.5rem }</style><p><bdi>take it</bdi></p><pre>take it 1.5</pre>'
        '<p aria-label="Take it.">\n <strong>take it</strong>\n</p><td>1.5</td><td><code>1.5</code></td></html>'
    )
    assert Language(LINES, "de").page(made) == (
        '<html lang="de"><style>p { margin: 1.5rem }</style><p><bdi>take it</bdi></p><pre>take it 1.5</pre>'
        '<p aria-label="Nehmen Sie es.">\n <strong>nehmen Sie es</strong>\n</p><td>1,5</td><td><code>1.5</code></td>'
        "</html>"
    )


def test_german_figures_of_a_large_result_and_comparisons_of_silhouettes_are_whole() -> None:
    german = Language(catalogue("de"), "de")
    shown = released(50, 100)
    for drawing in heat_parts(shown):
        assert "Teil " in german.say(drawing.about) and "Dreiecke" in german.say(drawing.caption)
    assert "gezeichnet" in german.say(caption(shown)).lower()
    ranges = {2: (0.4, 0.5), 3: (0.6, 0.7), 4: (0.1, 0.2), 5: (0.1, 0.3), 6: (0.45, 0.55)}
    for chosen in (2, 3, 4, 6):
        german.say(tell_apart(ranges, chosen))
    assert not german.unsaid


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([9e5] * 2, "2 mit Zahlen"),
        ([9e5, 0.0], "1 mit Zahlen, 1 zu klein"),
        ([0.0] * 3, "3 zu klein f\u00fcr dieses Budget"),
    ],
)
def test_a_german_page_says_how_much_of_a_description_is_shown(sizes: list[float], said: str) -> None:
    found = Consistent(
        sizes=np.array(sizes), size_deviation=1.0, blocks=[], halves=np.zeros((len(sizes), 0)), noise=10.0
    )
    german = Language(catalogue("de"), "de")
    assert said in german.say(_of_clusters(found, found.sizes)[1]) and not german.unsaid


def test_each_line_of_the_catalogue_has_the_same_places_in_both_languages() -> None:
    lines = catalogue("de")
    for english, said in lines.items():
        places = sorted(re.findall(r"\{[^}]*\}", english))
        assert places == sorted(re.findall(r"\{[^}]*\}", said)), english
        assert len({*places}) == len(places) and all(re.fullmatch(r"\{[nxsw]\d?\}", each) for each in places), english
        assert re.findall("<[^>]*>", english) == re.findall("<[^>]*>", said), english
        assert english == english.strip() and said == said.strip() and not english.endswith("."), english


def test_a_german_page_is_a_valid_page_that_keeps_names_of_people(tmp_path) -> None:
    hostile = "3 clusters <b>'&"
    column = f'dose" onmouseover="alert(1)" lang="{"long" * 20}'  # shown in short, and in full by an attribute
    made = document(features=[column, "b"], common=common(title=hostile, authors=["Take it."], purpose="good"))
    german = language("de")
    text = result_page(made, CENTRES, {"bounds.csv": BOUNDS}, language=german)
    root = page.check(text)
    assert {head.get("title") for head in root.iter("bdi")} == {None, column}
    assert not any("onmouseover" in each.attrib for each in root.iter())
    assert root.attrib["lang"] == "de" and root.findtext("body/header/h1/bdi") == hostile
    words = " ".join(" ".join(root.find("body").itertext()).split())
    assert (
        "Gut" in words and "Was zugesichert ist" in words and "Tabelle 1. Zentren, in den Einheiten der Daten" in words
    )
    assert "Take it." in words and "Zweck: good" in words
    # What a phone shows before the cells of a table that it folds.
    assert {cell.attrib["data-head"] for cell in root.iter("td") if "data-head" in cell.attrib} == {
        "sieht",
        "gesch\u00fctzt durch",
    }
    (tmp_path / "report.json").write_text(encode(made))
    (tmp_path / "centroids.csv").write_text(centroids_csv(made["result"]["features"], CENTRES))
    assert main([str(tmp_path), "--html", "--language", "de"]) == 0
    assert '<html lang="de">' in (tmp_path / "report.html").read_text("utf-8")
    with pytest.raises(ConfigError, match="--language: expected with --html"):
        main([str(tmp_path), "--language", "de"])
