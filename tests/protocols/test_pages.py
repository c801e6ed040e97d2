"""The page of every protocol, from whole runs in memory: valid, alone, and of nothing that is not public."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
import pytest

import fastlloyd
from fastlloyd.cli.report import main
from fastlloyd.protocols.registry import PROTOCOLS, find
from fastlloyd.report.citation import bibtex
from fastlloyd.report.figure.heat import _SCALES
from fastlloyd.report.page.language import Language, catalogue
from tests.contracts import page
from tests.contracts.whole_run import CLIENTS, SETTINGS
from tests.protocols.whole import run_whole

QUICK = {"vertical-dp": {"epsilon": 8.0, "settings": {"vertical-dp": {"rows": 64, "local_clusters": 3}}}}
# Unmistakable where they must not be: a path, an id, sizes of clusters.
FOLDER, PERSON = "xenolith", "quagmire"
SIZES = (23, 31, 43)
NAMES = ("age", "dose", "weight", "height")
# Values of a protocol's own settings stand as they are typed, in every language.
SETTING = re.compile(r"[a-z_]+: .*|\(.*\)")
# Whose released centres carry noise in each round.
BY_ROUND = {"fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "feddp", "vertical-he"}
PACKAGE = Path(fastlloyd.__file__).parent
# Where protocols say who sees what.
SIGHTS = sorted(path for path in PACKAGE.rglob("*.py") if "fastlloyd.report.sight import" in path.read_text("utf-8"))
CODE = (
    *(f"report/figure/{name}.py" for name in ("heat", "plane", "profile", "released")),
    "report/page/result.py",
    "report/unit.py",
    "report/sight.py",
    "protocols/registry.py",
)


def write_data(folder: Path, protocol: str, clients: int) -> dict[str, Any]:
    """Three groups far apart, in unequal files at private paths; gives the configuration."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    centres = np.array([[1.0, 1.0, 2.0, 1.0], [5.0, 8.0, 5.0, 2.0], [9.0, 2.0, 8.0, 8.0]])
    rows = np.concatenate([rng.normal(centre, 0.3, (size, 4)) for centre, size in zip(centres, SIZES, strict=True)])
    rows = rng.permutation(rows).clip(0.0, 10.0)
    config: dict[str, Any] = {"dataset": None, "data": f"{folder}/{{client}}.csv", "bounds": "0,10", "n_total": 500}
    if find(protocol).partition == "vertical":
        for rank, columns in ((1, slice(0, 2)), (2, slice(2, 4))):
            people = [[f"{PERSON}{i:03d}", *row] for i, row in enumerate(rows[:, columns].tolist())]
            write_table(folder / f"{rank}.csv", ["id", *NAMES[columns]], people)
        return config
    first = len(rows) // clients + 3
    parts = np.split(rows, [first + i * ((len(rows) - first) // (clients - 1)) for i in range(clients - 1)])
    for rank, part in enumerate(parts, start=1):
        write_table(folder / f"{rank}.csv", list(NAMES), part.tolist())
    if protocol == "feddp":
        write_table(folder / "server.csv", list(NAMES), (centres + 0.1).tolist())
        config["server_data"] = str(folder / "server.csv")
    return config


def write_table(path: Path, header: list[str], rows: list[Any]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@cache
def vocabulary() -> frozenset[str]:
    """Every word of templates and of the code that fills them in."""
    templates = resources.files("fastlloyd.report.page").joinpath("templates")
    texts = [each.read_text("utf-8") for each in templates.iterdir()]
    texts += [(PACKAGE / name).read_text("utf-8") for name in CODE]
    texts += [bibtex(), *(path.read_text("utf-8") for path in SIGHTS)]
    return frozenset(word.lower() for text in texts for word in re.findall(r"[^\W\d_]{2,}", text))


def finished(tmp_path: Path, protocol: str, **options: Any) -> tuple[Path, dict[str, Any]]:
    """The folder of a party that wrote the result, and its report."""
    clients = CLIENTS.get(protocol, 2)
    settings = QUICK.get(protocol, SETTINGS.get(protocol, {}))
    config = {"k": 3, **settings, **write_data(tmp_path / FOLDER, protocol, clients), **options}
    assert set(run_whole(tmp_path, clients + 1, protocol=protocol, **config)) == {0}
    folder = next(path.parent for path in sorted(tmp_path.glob("*/report.json")))
    return folder, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_page_of_every_protocol_is_valid_and_says_what_is_public_alone(
    protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, report = finished(tmp_path, protocol)
    text = (folder / "report.html").read_text("utf-8")
    root = page.check(text)
    assert "report.html" in report["output"]
    assert FOLDER not in text and PERSON not in text and str(tmp_path) not in text

    exact = any(release["mechanism"] == "none" for release in report["privacy"]["releases"])
    if exact:
        report["result"]["noisy_sizes"] = None
    centroids = folder / "centroids.csv"
    cited = page.known_numbers(bibtex(find(protocol), report["version"]))
    known = {*page.known_numbers(report), *cited, *page.known_numbers(vocabulary_numbers()), *derived(report)}
    if centroids.exists():
        known |= known_of_centres(folder, report)
    strange = {number for number in page.numbers(root) if not page.is_rounded(number, known)}
    assert not strange
    told = {word.lower() for word in re.findall(r"[^\W\d_]{2,}", json.dumps(report))}
    assert page.words(root) <= vocabulary() | told

    german = Language(catalogue("de"), "de")
    german.page(text)
    values = {"feddp", "server-aided", "separated", "record", *NAMES}
    assert {each for each in german.unsaid if each not in values and not SETTING.fullmatch(each)} == set()

    counts = exact_counts(tmp_path)
    if exact:
        assert counts or protocol in ("kfed", "vertical-plain")
        assert {str(count) for count in counts} & about_clusters(root) == set()
    check_rounds(report, root)
    # The same page comes out of the files alone, and nothing that was signed or counted is disturbed by it.
    assert main([str(folder), "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text("utf-8") == text
    assert main([str(folder), "--verify"]) == 0
    assert "verified" in capsys.readouterr().out


def check_rounds(report: dict[str, Any], root: Element) -> None:
    """Each round has time and bytes, and where noisy centres were released in each, their movement."""
    protocol, rounds, movement = report["protocol"], report["rounds"], report["result"]["movement"]
    assert all(entry["sent_bytes"] + entry["received_bytes"] > 0 for entry in rounds)
    own = sum(entry["sent_bytes"] for entry in rounds)
    assert own <= report["traffic"]["link_bytes"] - report["traffic"]["setup_bytes"]
    assert (movement is not None) == (protocol in BY_ROUND)
    steps = report["parameters"]["steps"] if protocol == "feddp" else ["lloyd"] * len(rounds)
    for step, moved in zip(steps, movement or [], strict=movement is not None):
        # Where fastlloyd-plus merges clusters nothing moves.
        assert (moved is not None) == (step == "lloyd") or protocol == "fastlloyd-plus"
        assert moved is None or 0 <= moved["mean"] <= moved["largest"]
    tables = {table.find("caption").attrib.get("id"): table for table in root.iter("table")}
    assert len(list(tables["rounds"].iter("tr"))) == len(rounds) + 1
    if protocol == "fastlloyd-plus":
        assert sum(moved is None for moved in movement or []) == len(report["parameters"]["plus"]["stages"]) - 1
    assert ("movement" in tables) == any(movement or [])


def about_clusters(root: Element) -> set[str]:
    """Numbers of the sections that speak of clusters, but the heat map's scale; elsewhere are clocks."""
    sections = [each for each in root.iter("section") if each.attrib["aria-labelledby"] in ("verdict", "clusters")]
    assert len(sections) == 2
    for mark in (each for section in sections for each in section.iter()):
        if mark.tag.endswith("}text") and (mark.text or "").endswith(" %"):
            mark.text = ""
    return {number for section in sections for number in page.numbers(section)}


def vocabulary_numbers() -> list[str]:
    """Texts in which templates and sentences name numbers."""
    templates = resources.files("fastlloyd.report.page").joinpath("templates")
    sentences = templates.joinpath("report.html").read_text("utf-8")
    words = [path.read_text("utf-8") for path in (PACKAGE / "report/sight.py", *SIGHTS)]
    return [re.sub(r"\{[%#{].*?[%#}]\}", " ", sentences), *words]


def derived(report: dict[str, Any]) -> set[float]:
    """What a page computes from the public part: counts, chance of a guess, shares of all, the heat map's scale."""
    epsilon, delta = report["privacy"]["spent_epsilon"], report["privacy"]["delta"]
    counted = {0.0, *(float(i) for i in range(1 + max(len(report["rounds"]), report["parameters"]["k"])))}
    sizes = report["result"]["noisy_sizes"] or []
    counted |= {sum(sizes), *(size / sum(sizes) for size in sizes)}
    counted |= {end * step / 3 for end in (*_SCALES, 1.0) for step in (1, 2, 3)}
    if epsilon is None:
        return counted
    chance = 1 - (1 - delta) / (1 + np.exp(epsilon))
    return counted | {float(np.ceil(chance * 1000) / 1000)}


def known_of_centres(folder: Path, report: dict[str, Any]) -> set[float]:
    """The released centres and the ends of their ranges, which end where the bounds do."""
    centres, bounds = (
        np.array([[float(cell) for cell in line.split(",")[skipped:]] for line in text.splitlines()[1:]])
        for text, skipped in (((folder / "centroids.csv").read_text(), 0), ((folder / "bounds.csv").read_text(), 1))
    )
    margins = np.array(report["quality"]["centre_margins"] or np.zeros(centres.shape))
    return {float(value) for values in (centres, centres - margins, centres + margins, bounds) for value in values.flat}


def exact_counts(tmp_path: Path) -> set[int]:
    """How many records each cluster truly has, over all clients and at each; from labels and exact sizes.

    Without those below nine, which stand in sentences: 2 clients, 3 clusters, 8 starts.
    """
    labels = [
        [row["label"] for row in csv.DictReader(path.read_text().splitlines())]
        for path in tmp_path.glob("*/labels_*.csv")
    ]
    everybody = [label for own in labels for label in own]
    return {part.count(label) for part in [*labels, everybody] for label in set(everybody)} - set(range(9))


def test_the_secrets_of_these_runs_would_be_found(tmp_path: Path) -> None:
    """The checks above can fail: exact sizes, a path or a person on a page are seen."""
    folder, report = finished(tmp_path, "lloyd")
    counts = exact_counts(tmp_path)
    assert set(SIZES) <= counts
    assert {round(size) for size in report["result"]["noisy_sizes"]} == set(SIZES)
    text = (folder / "report.html").read_text("utf-8")
    assert "the numbers are exact" in text
    leaky = page.parse(text.replace("<h3>Profiles", f"<p>{SIZES[0]} records in {tmp_path / FOLDER}</p><h3>Profiles"))
    assert str(SIZES[0]) in about_clusters(leaky) and FOLDER in page.words(leaky) - vocabulary()


@pytest.mark.parametrize("damage", ["<p>", "<p onclick=x()>a</p>", "<img src='https://a.example/b.png' alt=a>"])
def test_a_page_with_a_fault_does_not_pass(damage: str, tmp_path: Path) -> None:
    folder, _ = finished(tmp_path, "kfed")
    text = (folder / "report.html").read_text("utf-8")
    page.check(text)
    with pytest.raises((AssertionError, page.html5lib.html5parser.ParseError)):
        page.check(text.replace("</main>", f"{damage}</section></main>"))


def test_without_jinja2_a_run_writes_all_but_the_page_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fastlloyd.run.files.available", lambda: False)
    folder, report = finished(tmp_path, "kfed", quiet=False)
    assert not (folder / "report.html").exists() and "report.html" not in report["output"]
    assert (folder / "centroids.csv").exists()
    told = {line for line in capsys.readouterr().out.splitlines() if "pages need" in line}
    assert told == {"no report.html: pages need jinja2: install it with `pip install 'fastlloyd[report]'`"}
