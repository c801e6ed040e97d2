"""What to cite: each protocol's paper, the same in BibTeX and in CITATION.cff."""

import re
from pathlib import Path

import yaml

from fastlloyd.cli.cite import main
from fastlloyd.protocols.registry import FOLLOWING, ROWS, find
from fastlloyd.report.citation import bibtex, papers
from fastlloyd.report.document import encode
from tests.unit.report.figures import common, report

CFF = yaml.safe_load((Path(__file__).parents[3] / "CITATION.cff").read_text("utf-8"))


def field(entry, name):
    found = re.search(rf"^  {name} +=  ?{{(.*)}},?$", entry, re.MULTILINE)
    return None if found is None else found[1].replace("{", "").replace("}", "")


def test_every_protocol_of_ours_has_a_paper_and_every_paper_a_protocol():
    assert {row.paper for row in ROWS} == papers().keys()
    assert all(entry.count("{") == entry.count("}") and entry.endswith("}") for entry in papers().values())
    for row in ROWS:
        assert bibtex(row, "3.2.1").count("@") == 2 and "version   = {3.2.1}" in bibtex(row, "3.2.1")
    assert bibtex(FOLLOWING[0]).count("@") == 1
    assert bibtex().count("@") == 1 + len(papers())


def test_the_two_forms_name_the_same_papers():
    cited = {each["title"]: each for each in CFF["references"]}
    assert cited.keys() == {field(entry, "title") for entry in papers().values()}
    for entry in papers().values():
        other = cited[field(entry, "title")]
        authors = " and ".join(f"{each['family-names']}, {each['given-names']}" for each in other["authors"])
        assert field(entry, "author") == authors and field(entry, "year") == str(other["year"])
        number = other.get("doi") or other["identifiers"][0]["value"]
        assert number in (field(entry, "doi"), field(entry, "note"))
    assert CFF["cff-version"] == "1.2.0" and {"message", "title", "authors"} <= CFF.keys()


def test_the_command_prints_one_or_all(tmp_path, capsys):
    assert main(["feddp"]) == 0
    assert capsys.readouterr().out == bibtex(find("feddp"))
    (tmp_path / "report.json").write_text(encode(report(common=common(title="Who comes back?"))))
    assert main([str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("@misc{run-") and "{{Who comes back?}}" in printed and printed.count("@") == 3
    assert main([]) == 0
    assert capsys.readouterr().out == bibtex()
