"""The dossier: for every protocol, from public facts alone, never more than the run itself will claim."""

from __future__ import annotations

import html
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.crypto.link.identity import make_identity
from fastlloyd.crypto.link.roster import Roster, RosterEntry
from fastlloyd.dossier.blocks import escape, to_markdown
from fastlloyd.dossier.content import make_dossier, summarise
from fastlloyd.dossier.planned_run import plan_run
from fastlloyd.dossier.standing import factor_words, files, open_points, promise_words
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.report.page import render as page
from fastlloyd.report.page.render import render
from fastlloyd.run.budget_terms import Limit
from fastlloyd.run.config import RunConfig
from fastlloyd.run.promise import plan_words
from fastlloyd.run.run_file import with_values
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId

PRIVATE = {"fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "feddp", "vertical-dp", "vertical-he"}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in PROTOCOLS),
    ("fastlloyd", {"masking": "pairwise"}),
    ("lloyd", {"masking": "pairwise"}),
    ("feddp", {"feddp": {"privacy_level": "client"}}),
    ("secfc", {"secfc": {"membership": True, "reveal_centers": True}}),
    ("secfc", {"secfc": {"start": "random", "starts": 1}}),
    ("vertical-dp", {"vertical": {"align": "intersect"}, "vertical-dp": {"share_result": True}}),
    ("vertical-he", {"vertical-he": {"noise": "flooding"}}),
]
VOID = {"meta", "link", "br", "img", "hr"}


def config(protocol: str, values: dict[str, Any]) -> RunConfig:
    rounds = None if protocol in ("kfed", "vertical-dp", "vertical-plain") else 1
    public: dict[str, Any] = {"bounds": "0,10", "n_total": 1000, "k": 2, "rounds": rounds, "epsilon": 2.0}
    return with_values(RunConfig(protocol=protocol, **public), values)


def roster(names: list[str]) -> Roster:
    made = [make_identity(name, rank) for rank, name in enumerate(names)]
    entries = (
        RosterEntry(one.name, "client" if rank else "server", rank, one.certificate_pem)
        for rank, one in enumerate(made)
    )
    return Roster(tuple(entries))


class Page(HTMLParser):
    """Sees that tags are closed in order, and gathers what matters."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        self.ids += [values["id"] or ""] if "id" in values else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Page:
    found = Page()
    found.feed(text)
    found.close()
    assert not found.open
    return found


@pytest.mark.parametrize(("protocol", "values"), VARIANTS, ids=str)
def test_a_dossier_of_every_protocol_without_records_and_without_a_word_too_many(
    protocol: str, values: dict[str, Any]
) -> None:
    run = plan_run(config(protocol, values), 3, None, d=6, purpose="study asthma")
    assert run.foreseen is not None
    document = make_dossier(run)
    markdown, text = to_markdown(document), render("dossier.html", dossier=document)
    private = protocol in PRIVATE and values.get("vertical-he") is None
    assert document.private == private == run.foreseen.claim.private
    assert ("In plain words" in markdown) == private and ("No differential privacy is promised" in markdown) != private
    found = read(text)
    assert set(found.tags) & {"script", "iframe", "img", "object", "form"} == set()
    assert all(link.startswith("#") and link[1:] in found.ids for link in found.links)
    assert found.text.count("study asthma") == 1
    # Both forms say the same: every paragraph, item and cell of one stands in the other.
    for section in document.sections:
        for block in section.blocks:
            parts = [block.text] if block.kind == "text" else [*getattr(block, "items", ())]
            parts += [cell for row in getattr(block, "rows", ()) for cell in row]
            assert all(escape(part) in markdown and part in found.text for part in parts)
    assert not re.search(r"\b(None|nan|inf|True|False|Traceback)\b", re.sub(r"\{[^}]*\}", "", found.text))
    assert "<" not in html.unescape(re.sub(r"<[^>]*>", "", text[text.index("<body") :])).replace("\\<", "")


def test_without_the_number_of_features_it_says_what_is_missing() -> None:
    run = plan_run(config("fastlloyd", {}), 3, None, d=None)
    markdown = to_markdown(make_dossier(run))
    assert "(give it with --d)" in markdown and "epsilon 2" in markdown
    named = plan_run(config("fastlloyd", {"columns": ["age", "dose"]}), 3, None, d=None)
    assert named.foreseen is not None and len(named.foreseen.parameters["names"]) == 2


def test_hostile_names_stand_there_as_text() -> None:
    names = ["op|erator", "<b>*clinic*", "[south](javascript:alert(1))", "_west_ `x`"]
    run = plan_run(config("fastlloyd", {}), 3, roster(names), d=2, purpose="# <script> | *x* \x1b[2J")
    document = make_dossier(run)
    text = render("dossier.html", dossier=document)
    found = read(text)
    assert "script" not in found.tags and "b" not in found.tags and "\x1b" not in text
    assert all(name in found.text for name in names)
    markdown = to_markdown(document)
    assert "<script>" not in markdown.replace("\\<", "") and "\x1b" not in markdown
    assert r"\[south\](javascript:alert(1))" in markdown and r"op\|erator" in markdown
    table = markdown[markdown.index("| name | role") :].splitlines()[:6]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {5}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("# head", r"\# head"),
        ("1. one", r"1\. one"),
        ("12.5 and 0.1.0", "12.5 and 0.1.0"),
        ("- item", r"\- item"),
        ("a_b _c_", r"a_b \_c\_"),
        ("a&lt;b", r"a\&lt;b"),
        ("a\nb", r"a\\nb"),
    ],
)
def test_markdown_obeys_no_text(text: str, written: str) -> None:
    assert escape(text) == written


def test_epsilon_in_plain_words_is_rounded_up_and_hides_nothing() -> None:
    for epsilon in (0.001, 0.1, 0.5, 1.0, 2.0, 3.3, 8.0):
        assert float(factor_words(epsilon)) >= math.exp(epsilon) * (1 - 1e-12)
    assert "more than a million" in promise_words(14.0, 0.0, "one record")[0]
    first, second, third = promise_words(1.0, 1e-5, "one record")
    assert "plus 1e-05" in first and "takes part in the run" in first and "2.72 %" in second and "1e-05" in third
    assert "certainty" in promise_words(5.0, 0.0, "one record")[1] and len(promise_words(5.0, 0.0, "one record")) == 2
    assert "known in both" in promise_words(1.0, 0.0, "one person's row", "zero-out of one user's row")[0]


def test_the_summary_names_whom_everything_rests_on() -> None:
    lines = "\n".join(summarise(plan_run(config("fastlloyd", {}), 3, None, d=2)))
    assert "no protection left: the server and any one client" in lines
    lines = "\n".join(summarise(plan_run(config("secfc", {}), 5, None, d=2)))
    assert "No differential privacy" in lines and "count all records as known" in lines


RUN_FILE = 'bounds = "bounds.csv"\nn_total = 150\nk = 3\nrounds = 1\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run.toml").write_text(RUN_FILE)
    (tmp_path / "bounds.csv").write_text("feature,lo,hi\nage,0,100\n")
    roster(["operator", "north", "south"]).save(tmp_path / "roster.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_writes_both_forms_or_prints_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["dossier", "--config", "run.toml", "--roster", "roster.toml"]
    assert main([*asked, "--output", "out", "--purpose", "study asthma"]) == 0
    assert capsys.readouterr().out.split() == [str(Path("out") / name) for name in ("dossier.md", "dossier.html")]
    written = (folder / "out" / "dossier.md").read_text()
    assert (
        "study asthma" in written
        and "| north | client, holds records | 1 |" in written
        and "| age | 0 | 100 |" in written
    )
    for flags in (["--format", "md"], []):
        assert main([*asked, *flags, "--purpose", "study asthma"]) == 0
        assert capsys.readouterr().out == written
    assert main(["dossier", "--config", "run.toml", "--clients", "2", "--format", "md"]) == 0
    assert "no roster was given" in capsys.readouterr().out


def test_a_dossier_states_no_other_purpose_than_its_run_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.toml").write_text(f'purpose = "plan beds"\n{RUN_FILE}')
    asked = ["dossier", "--config", "run.toml", "--roster", "roster.toml"]
    assert main([*asked, "--purpose", "study asthma"]) == 2
    assert (
        "--purpose: run.toml states another purpose, which all parties agree on (plan beds)" in capsys.readouterr().err
    )
    assert main([*asked, "--purpose", "plan  beds"]) == main(asked) == 0


@pytest.mark.parametrize("masking", ["common", "pairwise", "threshold"])
@pytest.mark.parametrize("roster", [True, False])
def test_between_sites_with_common_masks_a_dossier_says_what_the_operator_could_compute(
    folder: Path, capsys: pytest.CaptureFixture[str], masking: str, roster: bool
) -> None:
    (folder / "run.toml").write_text(f'{RUN_FILE}masking = "{masking}"\n')
    flags = ["--roster", "roster.toml"] if roster else ["--clients", "2"]
    assert main(["dossier", "--config", "run.toml", *flags]) == 0
    said = capsys.readouterr().out
    sentence = (
        "Decide whether this is acceptable: masks are common, so the operator knows the noise: with the published"
    )
    assert (sentence in said) == (masking == "common" and roster)
    assert ("--masking threshold prevents both" in said) == (masking == "common" and roster)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ([], "--clients: expected the number of clients"),
        (["--roster", "roster.toml", "--clients", "3"], "the roster lacks client 3"),
        (["--clients", "2", "--format", "pdf"], "expected md, html or md,html"),
        (["--clients", "2", "--format", "html"], "--output: expected a folder"),
        (["--clients", "2", "--output", "run.toml"], "cannot be made"),
        (["--clients", "2", "--d", "0"], "--d"),
        (["--roster", "nothing.toml"], "cannot read the roster"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], sentence: str
) -> None:
    assert main(["dossier", "--config", "run.toml", *flags]) == 2
    assert sentence in capsys.readouterr().err


def test_without_jinja2_there_is_markdown(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("fastlloyd.cli.dossier.available", lambda: False)
    assert main(["dossier", "--config", "run.toml", "--clients", "2", "--output", "out"]) == 0
    assert [path.name for path in (folder / "out").iterdir()] == ["dossier.md"]
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    page._environment.cache_clear()
    try:
        assert main(["dossier", "--config", "run.toml", "--clients", "2", "--output", "other", "--format", "html"]) == 2
    finally:
        page._environment.cache_clear()
    assert "pip install 'fastlloyd[report]'" in capsys.readouterr().err and not (folder / "other").exists()


def test_a_demonstration_says_that_it_is_one() -> None:
    asked = replace(RunConfig(), dataset="iris", bounds="0,10", k=3)
    assert "a demonstration" in to_markdown(make_dossier(plan_run(asked, 2, None, d=None)))


def test_it_says_what_to_expect_and_asks_whether_that_is_worth_it() -> None:
    good = plan_run(config("fastlloyd", {"n_total": 100_000}), 3, None, d=2)
    assert any("What to expect of the result: noise of" in line for line in summarise(good))
    assert "worth the processing" not in to_markdown(make_dossier(good))
    poor = plan_run(config("fastlloyd", {"epsilon": 0.01}), 3, None, d=6)
    document = to_markdown(make_dossier(poor))
    assert "Decide whether such a result is worth the processing: noise of" in document
    assert "this result would be noise; good would be " in document and " or N = " in document
    assert any("; good would be " in line for line in summarise(poor))
    assert plan_words(poor.config, 3, 6)["expected"] == poor.expected


def test_one_record_of_many_rows_is_the_unit_where_the_run_merges_them() -> None:
    merged = to_markdown(make_dossier(plan_run(config("fastlloyd", {"unit": "person"}), 3, None, d=2)))
    assert "identified by the column person, merged" in merged and "all rows of one person at one client" in merged
    plain = to_markdown(make_dossier(plan_run(config("fastlloyd", {}), 3, None, d=2)))
    assert "merged" not in plain and "somebody with g rows has g times the epsilon" in plain


def test_parties_are_named_with_what_they_hold_and_do() -> None:
    two = plan_run(config("vertical-he", {}), 1, roster(["lab", "clinic"]), d=4)
    text = to_markdown(make_dossier(two))
    assert (
        "| lab | server, holds columns, expected to " in text
        and "| clinic | client, holds columns, expected to " in text
    )
    three = to_markdown(make_dossier(plan_run(config("vertical-he", {}), 2, roster(["hub", "lab", "clinic"]), d=4)))
    assert "| hub | server, holds no columns, expected to compute |" in three
    shared = config("vertical-he", {"vertical-he": {"mode": "threshold"}})
    for names, rest in ((["lab", "clinic"], "the other party"), (["hub", "lab", "clinic"], "other parties")):
        text = to_markdown(make_dossier(plan_run(shared, len(names) - 1, roster(names), d=4)))
        assert "key holder" not in text and f"{rest.removeprefix('the ')} can read" in text
        route = "each of the two to the other" if len(names) == 2 else "computing party to owners"
        assert re.search(rf"\| KeyMaterial [^|]*\|[^|]*\| {route} \|", text)
    plain = to_markdown(make_dossier(plan_run(config("fastlloyd", {}), 1, roster(["hub", "lab"]), d=4)))
    assert "| hub | server, holds no records |" in plain and "| lab | client, holds records |" in plain


def test_the_columns_are_those_that_the_bounds_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dossier", "--config", "run.toml", "--clients", "2"]) == 0
    assert "Columns used: age, which are those that the bounds name." in capsys.readouterr().out
    (folder / "run.toml").write_text(RUN_FILE.replace("bounds.csv", "0,100"))
    assert main(["dossier", "--config", "run.toml", "--clients", "2", "--d", "2"]) == 0
    assert "all numeric columns of each site's file; neither run file nor bounds" in capsys.readouterr().out


def test_the_dossier_says_of_each_file_of_docs_security_how_long_it_stays_and_how_to_delete() -> None:
    text = (Path(__file__).parents[3] / "docs/security.md").read_text("utf-8").partition("\n## Files\n")[2]
    rows = [line.split("|")[1] for line in text.partition("\n\n`")[0].splitlines() if line.startswith("| ")]
    named = {name.rpartition("/")[2] or name.split("/")[-2] for row in rows for name in re.findall("`([^`]+)`", row)}
    assert {"labels_i.csv", "decisions.jsonl", "RUN"} <= named and len(rows) > 10
    listed = files(labels=True)
    shown = " ".join(row[0].replace("RUN-I", "RUN-i") for row in listed.rows)
    missing = {
        name for name in named - {"RUN"} if name.removeprefix(".") not in shown
    }  # held/RUN/ is named by its folder
    assert not missing and "held/" in shown
    assert all(row[3] for row in listed.rows)
    run = plan_run(config("fastlloyd", {}), 2, None, d=2)
    assert "fastlloyd discard deletes it" in to_markdown(make_dossier(run))


def test_the_title_of_the_study_stands_in_the_dossier_s_title_and_among_the_values() -> None:
    run = plan_run(config("fastlloyd", {"title": "Who comes back?"}), 2, None, d=2)
    assert make_dossier(run).title.startswith("Data protection dossier: Who comes back?, a run of fastlloyd")
    assert ("title", "Who comes back?") in run.rows


def test_who_reads_a_dossier_reads_whose_study_it_is_and_what_for() -> None:
    said = {"authors": ["A. Meyer", "B. Roy"], "institution": "North clinic", "purpose": "plan beds"}
    run = plan_run(config("fastlloyd", said), 2, None, d=2)
    assert next(iter(summarise(run))) == "Study: by A. Meyer, B. Roy; at North clinic; purpose: plan beds."
    assert make_dossier(run).sections[0].blocks[0].text == "plan beds"
    assert not any("State the purpose" in point for point in open_points(run))


def test_the_dossier_says_what_a_least_size_keeps_back_and_what_it_does_not() -> None:
    run = plan_run(config("fastlloyd", {"min_size": 20}), 2, None, d=2)
    text = to_markdown(make_dossier(run))
    assert "no cluster whose noisy size is below 20" in text and "sees those of small clusters, too" in text
    assert ("min_size", "20") in run.rows
    assert "no cluster whose size is below 20" in to_markdown(
        make_dossier(plan_run(config("lloyd", {"min_size": 20}), 2, None, d=2))
    )


BUDGET = "Agree on a lifetime budget"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["dossier", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_budget_that_the_site_has_is_known_however_it_was_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ("--config", str(folder / "run.toml"), "--roster", str(folder / "roster.toml"), "--d", "2")
    assert BUDGET in (said := printed(capsys, *run)) and "names no state directory and sets no lifetime limit" in said
    state = StateDir(str(folder / "state"), PartyId(1), new=True)
    state.open_ledger().close()
    named = (*run, "--state-dir", str(folder / "state"))
    # A state directory of which nobody has said a limit is none yet.
    assert BUDGET in (said := printed(capsys, *named)) and "names a state directory and sets no lifetime limit" in said
    said = printed(capsys, *named, "--budget", "3")
    assert BUDGET not in said and "sets the limit epsilon 3" in said
    (folder / "own.toml").write_text('state_dir = "state"\nbudget = 4\n')
    said = printed(capsys, *run, "--site", str(folder / "own.toml"))
    assert BUDGET not in said and "sets the limit epsilon 4" in said
    # An earlier run had the flag, and its limit holds.
    state.terms.keep_limit(Limit(2, 2.5, 1e-6))
    said = printed(capsys, *named)
    assert BUDGET not in said and "An earlier run set a limit in the state directory, which holds: epsilon 2.5" in said
