"""Names that people chose for clusters: what is refused, and where they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report.names import MOST_CHARACTERS, ClusterNames

FILE = '0 = "young, few visits"\n2 = "高齢 =SUM"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "names.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_named_cluster_keeps_its_number_beside_its_name(tmp_path: Path) -> None:
    names = ClusterNames.read(write(tmp_path, FILE), 3)
    assert [names.short(cluster) for cluster in range(3)] == ["young, few visits (0)", "1", "高齢 =SUM (2)"]
    assert (names.heading(0), names.heading(1)) == ("young, few visits (cluster 0)", "Cluster 1")
    assert (names.mention(0), names.mention(1)) == ("young, few visits (cluster 0)", "cluster 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "got none"),
        ("0;a", "docs/report.md shows how to write it"),
        ('3 = "a"', "from 0 to 2 as key, got '3'"),
        ('-1 = "a"', "got '-1'"),
        ('00 = "a"', "got '00'"),
        ('frail = "a"', "got 'frail'"),
        ("[clusters]\n0 = 'a'", "got 'clusters'"),
        ("0 = 1", "cluster 0: expected a name .* got a value of type int"),
        ('0 = ""', "cluster 0: expected a name .* got ''"),
        ('0 = " a"', "without blanks at its ends"),
        ('0 = "7"', "no number alone"),
        ('0 = "７"', "no number alone"),
        (f'0 = "{"x" * (MOST_CHARACTERS + 1)}"', "got 61 characters"),
        ('0 = "a\\u202eb"', "characters that print"),
        ('0 = "a\\nb"', "characters that print"),
        ('0 = "Frail"\n1 = "frail"', "clusters 0 and 1 have the same name"),
        ('0 = "Ａ"\n1 = "a"', "clusters 0 and 1 have the same name"),
    ],
)
def test_what_is_no_name_is_refused_with_its_cluster(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClusterNames.read(write(tmp_path, text), 3)


def test_a_profile_gets_a_column_of_names_that_no_spreadsheet_runs() -> None:
    names = ClusterNames.check({"0": "=1+1", "1": "frail"}, "the test")
    text = names.into("cluster,column,measure\n0,age,mean\n1,'=x,mean\n2,age,mean\n")
    assert text == "cluster,name,column,measure\n0,'=1+1,age,mean\n1,frail,'=x,mean\n2,,age,mean\n"
    assert ClusterNames.check({"0": "b"}, "the test").into(text).splitlines()[:2] == [
        "cluster,name,column,measure",
        "0,b,age,mean",
    ]
    with pytest.raises(ConfigError, match="expected the lines of a description"):
        names.into("a,b\n1,2\n")
