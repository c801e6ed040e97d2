"""Whole runs in which the clients' files have several rows for a person, categories, and ids of their own."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.cli.check import main as check
from fastlloyd.cli.label import main as label
from fastlloyd.dossier.blocks import to_markdown
from fastlloyd.dossier.content import make_dossier
from fastlloyd.dossier.planned_run import plan_run
from fastlloyd.errors import ConfigError
from fastlloyd.run.config import RunConfig
from fastlloyd.run.promise import MERGED, ROW
from fastlloyd.run.session import find_protocol
from tests.protocols.whole import run_whole
from tests.reading import opens

LISTS = "feature,category,weight\nward,north,0.5\nward,south,0.5\nward,other,0\nsex,f,1\nsex,m,0\n"
UNIT = {"unit": "patient", "id": "visit", "k": 2, "n_total": 200, "missing": "drop"}
VISITS = 90


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Files of two clients: 30 people with up to five visits, another order of columns at each."""
    generator = np.random.default_rng(3)
    for client in (1, 2):
        names = ["visit", "patient", "note", "age", "ward", "sex"]
        order = generator.permutation(len(names))
        rows = [[names[at] for at in order]]
        for visit in range(VISITS):
            person = int(generator.integers(0, 30))
            ward = generator.choice(["north", "south", "x-ray", ""], p=[0.4, 0.4, 0.1, 0.1])
            age = "" if person == 7 or visit % 11 == 0 else f"{20 + 2 * person + generator.normal():.2f}"
            cells = [f"V{client}-{visit:04d}", f"=P{person}", "text, with comma", age, str(ward), "fm"[person % 2]]
            rows.append([cells[at] for at in order])
        with (tmp_path / f"site_{client}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    (tmp_path / "lists.csv").write_text(LISTS)
    (tmp_path / "limits.csv").write_text("feature,lo,hi\nage,0,100\n")
    return tmp_path


def options(site: Path, **more: object) -> dict[str, object]:
    data = {"dataset": None, "data": str(site / "site_{client}.csv")}
    public = {"bounds": str(site / "limits.csv"), "categories": str(site / "lists.csv")}
    return {**data, **public, **UNIT, **more}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("protocol", ["fastlloyd", "lloyd", "feddp", "kfed", "secfc"])
@pytest.mark.parametrize("per_unit", ["mean", "first"])
def test_one_record_for_a_person_and_a_label_for_each_row(site: Path, protocol: str, per_unit: str) -> None:
    settings = {"settings": {"feddp": {"start": "sphere-packing"}}} if protocol == "feddp" else {}
    parties = 6 if protocol == "secfc" else 3
    for client in range(3, parties):
        (site / f"site_{client}.csv").write_text((site / "site_1.csv").read_text())
    with opens() as counted:
        codes = run_whole(site, parties, **options(site, protocol=protocol, per_unit=per_unit, **settings))
    assert codes == [0] * parties
    assert [counted[f"site_{client}.csv"] for client in range(1, parties)] == [1] * (parties - 1)
    report = json.loads((site / "1" / "report.json").read_text())
    assert report["result"]["features"] == ["age", "ward=north", "ward=south", "sex=f"]
    assert (report["parameters"]["unit"], report["parameters"]["per_unit"]) == ("patient", per_unit)
    assert report["parameters"]["categories"]["ward"] == {"north": 0.5, "south": 0.5, "other": 0}
    text = (site / "1" / "report.json").read_text()
    assert "visit" not in text and "V1-" not in text and "=P" not in text
    assert (report["privacy"]["unit"] == MERGED) == (protocol in ("fastlloyd", "feddp"))
    for client in (1, 2):
        rows, labels = table(site / f"site_{client}.csv"), table(site / str(client) / f"labels_{client}.csv")
        assert [row["visit"] for row in rows] == [line["id"] for line in labels]
        assert [line["row"] for line in labels] == [str(row + 1) for row in range(VISITS)]
        by_person: dict[str, set[str]] = {}
        for row, line in zip(rows, labels, strict=True):
            by_person.setdefault(row["patient"], set()).add(line["label"])
        assert all(len(found) == 1 for found in by_person.values())
        assert by_person.get("=P7", {""}) == {""}  # nobody knows the age
        if protocol != "secfc":
            argv = [
                "--centroids",
                str(site / str(client) / "centroids.csv"),
                "--data",
                str(site / f"site_{client}.csv"),
            ]
            label([*argv, "--missing", "drop", "--id", "visit", "--out", str(site / "again.csv")])
            assert table(site / "again.csv") == labels


def test_without_an_id_people_are_named_and_without_a_name_each_row_is_one(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_whole(site, 3, **options(site, protocol="lloyd", id=None)) == [0, 0, 0]
    names = [row["patient"] for row in table(site / "site_1.csv")]
    assert [line["id"] for line in table(site / "1" / "labels_1.csv")] == names
    (site / "new.csv").write_text("sex,age,ward\nf,20,north\nm,70,south\n")
    argv = ["--centroids", str(site / "1" / "centroids.csv"), "--data", str(site / "new.csv")]
    assert label([*argv, "--out", str(site / "out.csv")]) == 0
    assert [list(line) for line in table(site / "out.csv")] == [["row", "label"]] * 2
    assert "each row is labelled as a separate person" in capsys.readouterr().out


def test_merged_files_give_what_files_with_one_row_each_give(site: Path) -> None:
    """The run is that on the people: rows merged beforehand, indicators written out, give the same centroids."""
    assert run_whole(site, 3, **options(site, protocol="lloyd")) == [0, 0, 0]
    for client in (1, 2):
        people: dict[str, list[list[float]]] = {}
        for row in table(site / f"site_{client}.csv"):
            number = float(row["age"] or "nan")
            ward = [float(row["ward"] == name) if row["ward"] else float("nan") for name in ("north", "south")]
            people.setdefault(row["patient"], []).append([number, *ward, float(row["sex"] == "f")])
        lines = ["age,ward=north,ward=south,sex=f"]
        for rows in people.values():
            with np.errstate(invalid="ignore"):
                means = [np.mean([v for v in column if v == v] or [np.nan]) for column in zip(*rows, strict=True)]
            lines.append(",".join("" if np.isnan(mean) else repr(float(mean)) for mean in means))
        (site / f"merged_{client}.csv").write_text("\n".join(lines) + "\n")
    plain = {"unit": None, "id": None, "categories": None, "data": str(site / "merged_{client}.csv")}
    (site / "second").mkdir()
    bounds = str(site / "1" / "bounds.csv")
    assert run_whole(site / "second", 3, **options(site, protocol="lloyd", **plain, bounds=bounds)) == [0, 0, 0]
    found, expected = (site / at / "1" / "centroids.csv" for at in (".", "second"))
    assert found.read_text().splitlines()[0] == expected.read_text().splitlines()[0]
    centroids = [np.loadtxt(path, delimiter=",", skiprows=1) for path in (found, expected)]
    np.testing.assert_allclose(centroids[0], centroids[1], atol=1e-3)


def test_files_that_differ_in_public_lists_do_not_run(site: Path) -> None:
    configs = [RunConfig(**options(site, protocol="fastlloyd", per_unit=rule)) for rule in ("mean", "first")]
    (site / "others.csv").write_text(LISTS.replace("0.5", "0.4"))
    configs.append(RunConfig(**options(site, protocol="fastlloyd", categories=str(site / "others.csv"))))
    protocol = find_protocol("fastlloyd")
    digests = {protocol.gather(config, 2)[1].digest(config, b"") for config in configs}
    assert len(digests) == len(configs)
    own = RunConfig(**options(site, protocol="fastlloyd", id=None))
    assert protocol.gather(own, 2)[1].digest(own, b"") in digests, "--id is each party's own"


def test_check_says_how_many_people_there_are(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--unit", "patient", "--id", "visit", "--categories", str(site / "lists.csv"), "--missing", "drop"]
    assert check(["--data", str(site / "site_1.csv"), "--bounds", str(site / "limits.csv"), *flags]) == 0
    out = capsys.readouterr().out
    people = len({row["patient"] for row in table(site / "site_1.csv")} - {"=P7"})
    assert f"rows      {VISITS}" in out and f"people    {people} with one record each (--unit patient, mean)" in out
    assert f"unit      {MERGED}; somebody with rows at g clients" in out
    assert "4 used: age, ward=north, ward=south, sex=f" in out
    assert ROW not in out
    assert re.search(r"missing   \d+ records? dropped", out)


def test_the_dossier_knows_people_and_categories(site: Path) -> None:
    for columns in ((), ("age", "ward")):
        run = plan_run(RunConfig(**options(site, protocol="fastlloyd", columns=columns)), 2, None, d=None)
        text = to_markdown(make_dossier(run))
        assert run.foreseen is not None and MERGED in run.foreseen.claim.unit
        assert "somebody with rows at g clients, or under g names in the column of " in text
        foresee = find_protocol(run.config.protocol).foresee
        assert run.foreseen == foresee(run.config, 2, 4) != foresee(run.config, 2, 2)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"protocol": "vertical-dp", "bounds": "0,1", "id": None}, "--unit is for parties that hold different people"),
        ({"protocol": "vertical-he", "bounds": "0,1", "unit": None}, "--id is for parties that .* vertical.id=COLUMN"),
        (
            {"protocol": "feddp", "settings": {"feddp": {"users": "patient", "privacy_level": "client"}}},
            "take one of them",
        ),
    ],
)
def test_protocols_that_have_another_unit(site: Path, more: dict[str, object], sentence: str) -> None:
    config = RunConfig(**options(site, **more))
    with pytest.raises(ConfigError, match=sentence):
        find_protocol(config.protocol).gather(config, 2)


def test_options_that_do_not_go_together(site: Path) -> None:
    with pytest.raises(ConfigError, match="--unit is about each party's own file"):
        RunConfig(dataset="iris", unit="species")
    with pytest.raises(ConfigError, match="--columns names 'visit'"):
        RunConfig(**options(site, columns=("age", "visit")))
    with pytest.raises(ConfigError, match="--bounds: expected a CSV file"):
        find_protocol("lloyd").gather(RunConfig(**options(site, protocol="lloyd", bounds="0,1")), 2)
