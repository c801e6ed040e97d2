"""Sets made of public files, on samples of the same form: as stated and whole, or not at all."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fastlloyd.cli.datasets import main
from fastlloyd.data.table import read_table
from fastlloyd.errors import ConfigError, DataError
from fastlloyd_papers.engine.registry import Options
from fastlloyd_papers.feddp.cost import run_figure
from fastlloyd_papers.feddp.data import file_source, is_there, load_problem
from fastlloyd_papers.feddp.design import Figure, Size
from fastlloyd_papers.feddp.run import KFED, OPTIMAL, STARTS
from fastlloyd_papers.sets import census, kaggle, make, posts
from fastlloyd_papers.sets.example import read_example
from fastlloyd_papers.sets.make import MAKERS, Maker, describe_made, make_sets
from papers.tests.sets.samples.make_samples import FOLDER, example, field, varint

TWO_STATES = {"AL": "01", "AK": "02"}


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """Stand in for the sentence model, which is not to be had here: four numbers that follow from the text."""
    digests = [hashlib.sha256(text.encode()).digest()[:4] for text in texts]
    return np.array([list(digest) for digest in digests], dtype=np.float32) / 255


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A copy of the samples, to be spoilt."""
    return Path(shutil.copytree(FOLDER, tmp_path / "files"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makers of two states, and without a sentence model."""
    for name, made in (
        ("census", lambda folder: census.make_census(folder, TWO_STATES)),
        ("stackoverflow", lambda folder: posts.make_posts(folder, embed)),
    ):
        monkeypatch.setitem(MAKERS, name, Maker(MAKERS[name].sets, MAKERS[name].needs, made))  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_the_census_sets_are_those_of_the_papers_text(tmp_path: Path) -> None:
    told = make_sets("census", FOLDER, tmp_path)
    columns = 4 + 4 + 4 + 4 + 4 + 3 + 4  # a feature for "no value" in each category
    for name, worker in census.WORKERS.items():
        source = file_source(name)
        assert is_there(source, str(tmp_path)) == ""
        problem = load_problem(source, str(tmp_path), 0)
        expected = [persons(state, worker) for state in TWO_STATES.values()]
        kept = [len(own) * 9 // 10 for own in expected]
        assert np.bincount(problem.owners).tolist() == kept
        assert any(f"{name}: {sum(kept)} records of 2 clients, {columns} features" in line for line in told)
        table = read_table(tmp_path / f"{name}.csv.gz")
        assert table.values.shape == (sum(kept), 1 + columns)
        # One value of each category: all records have the norm sqrt(7) of Table 1.
        assert set(np.unique(table.values[:, 1:])) == {0.0, 1.0}
        assert (table.values[:, 1:].sum(axis=1) == len(census.FEATURES)).all()
        first = {table.names[column] for column in np.flatnonzero(table.values[0, 1:]) + 1}
        assert first == {f"{feature}_{int(expected[0][0][feature])}" for feature in census.FEATURES}
        server = read_table(tmp_path / f"{name}-server.csv.gz")
        assert server.names == table.names[1:]
        assert len(server.values) == 1020
        own = {tuple(row) for row in table.values[:, 1:]}
        assert all(tuple(row) in own for row in server.values[:20])
        strangers = {tuple(row) for row in server.values[20:]}
        assert len(strangers - own) > 1


def persons(state: str, worker: int) -> list[dict[str, str]]:
    """Read a sample anew, by other means: who works in a class and is taken by ACSIncome."""
    plain = FOLDER / f"psam_p{state}.csv"
    if plain.is_file():
        text = plain.read_text()
    else:
        with zipfile.ZipFile(FOLDER / "csv_pak.zip") as archive:
            text = archive.read(f"psam_p{state}.csv").decode()
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) in (40, 48)
    least = {"AGEP": 17, "PINCP": 101, "WKHP": 1, "PWGTP": 1}
    taken = [row for row in rows if all(row[name] and int(row[name]) >= low for name, low in least.items())]
    assert len(taken) < len(rows)
    return [row for row in taken if row["COW"] == str(worker)]


@pytest.mark.usefixtures("small")
def test_the_posts_whose_first_tag_is_a_topic_are_the_clients(tmp_path: Path) -> None:
    make_sets("stackoverflow", FOLDER, tmp_path)
    with closing(sqlite3.connect(FOLDER / "stackoverflow.sqlite")) as database:
        rows = database.execute(
            "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = 'train'"
        ).fetchall()
    every = [(client, read_example(blob, ("tags", "tokens"))) for client, blob in rows]
    total = 0
    for name, topics in posts.TOPICS.items():
        own = [(client, post["tokens"]) for client, post in every if post["tags"].split("|")[0] in topics]
        table = read_table(tmp_path / f"{name}.csv.gz")
        assert table.names == ("owner", "e1", "e2", "e3", "e4")
        np.testing.assert_array_equal(table.values[:, 1:], embed([text for _, text in own]))
        users = list(dict.fromkeys(client for client, _ in own))
        assert table.values[:, 0].tolist() == [users.index(client) for client, _ in own]
        server = read_table(tmp_path / f"{name}-server.csv.gz").values
        strangers = [post["tokens"] for _, post in every if not set(post["tags"].split("|")) & set(topics)]
        assert len(server) == 20 + len(strangers)
        for place, topic in enumerate(topics):
            texts = [post["tokens"] for _, post in every if post["tags"].split("|")[0] == topic]
            allowed = {tuple(row) for row in embed(texts)}
            assert all(tuple(row) in allowed for row in server[10 * place : 10 * (place + 1)].astype(np.float32))
        assert {tuple(row) for row in server[20:].astype(np.float32)} == {tuple(row) for row in embed(strangers)}
        problem = load_problem(file_source(name), str(tmp_path), 0)
        assert problem.clients == len(users)
        total += len(own)
    assert 0 < total < len(every)


def test_strangers_are_a_draw_of_so_many_that_does_not_depend_on_the_order_of_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(posts, "_OUTSIDE", 5)
    drawn = posts._draw(FOLDER / "stackoverflow.sqlite")
    again = posts._draw(FOLDER / "stackoverflow.sqlite")
    for name, own in drawn.items():
        assert len(own.strangers) == 5
        assert sorted(own.strangers) == sorted(again[name].strangers)
    assert len({tuple(sorted(text for _, text in own.strangers)) for own in drawn.values()}) > 1


def test_taxi_and_loan_hold_what_the_text_says(tmp_path: Path) -> None:
    make_sets("taxi", FOLDER, tmp_path)
    taxi = read_table(tmp_path / "taxi.csv.gz")
    assert taxi.names == (*kaggle.TAXI_TIMES, *kaggle.TAXI_NUMBERS)
    rows = list(csv.DictReader((FOLDER / "train.csv").read_text().splitlines()))
    assert len(taxi.values) == len(rows) == 60
    assert taxi.values[:, 7].tolist() == [float(row["trip_duration"]) for row in rows]
    # From pick-up to drop-off as many seconds as the trip took: no sample trip crosses Sunday's midnight.
    np.testing.assert_array_equal(taxi.values[:, 1] - taxi.values[:, 0], taxi.values[:, 7])
    assert kaggle.second_of_week("2016-03-14 00:00:00") == 0.0  # a Monday
    assert kaggle.second_of_week("2016-03-20 23:59:59") == 7 * 24 * 3600 - 1.0
    told = make_sets("loan", FOLDER, tmp_path)
    loan = read_table(tmp_path / "loan.csv.gz")
    assert loan.names == kaggle.LOAN_COLUMNS
    assert loan.values.shape == (60, 16)
    assert "loan: 60 records; the paper has 60,000." in told
    # Cut at the 95 % quantile: the largest value stands more than once.
    assert ((loan.values == loan.values.max(axis=0)).sum(axis=0) >= 2).all()


@pytest.mark.usefixtures("small")
def test_checksums_are_told_recorded_and_shown_beside_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["make", "census", "--from", str(FOLDER), "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    used = ["PUMS_Data_Dictionary_2018.csv", "psam_p01.csv", "csv_pak.zip"]
    sums = {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in used}
    for name, digest in sums.items():
        assert f"{name}: {(FOLDER / name).stat().st_size:,} bytes, SHA-256 {digest}" in out
    for name in census.WORKERS:
        record = json.loads((tmp_path / f"{name}.made.json").read_text())
        assert {file["name"]: file["sha256"] for file in record["files"]} == sums
        content = gzip.decompress((tmp_path / f"{name}.csv.gz").read_bytes())
        assert record["tables"][f"{name}.csv.gz"] == hashlib.sha256(content).hexdigest()
        listed = "".join(f"{sums[used_name]}  {used_name}\n" for used_name in used)
        said = describe_made(name, tmp_path)
        assert hashlib.sha256(listed.encode()).hexdigest() in said
        assert record["tables"][f"{name}.csv.gz"] in said
    # Another table under the same name is not said to be the one that was made.
    (tmp_path / "census-self.csv.gz").write_bytes(gzip.compress(b"owner,a\n1,2\n"))
    assert "its record is that of another census-self.csv.gz" in describe_made("census-self", tmp_path)
    (tmp_path / "census-federal.made.json").write_text("[]")
    with pytest.raises(DataError, match="expected a record"):
        describe_made("census-federal", tmp_path)
    assert "nothing tells what it was made of" in describe_made("taxi", tmp_path)
    assert "nothing tells" in describe_made("taxi", None)


@pytest.mark.usefixtures("small")
def test_a_figure_is_measured_on_made_sets_and_tells_of_what(tmp_path: Path) -> None:
    panels = []
    for maker, name in (("census", "census-federal"), ("stackoverflow", "stackoverflow-github-pdf")):
        make_sets(maker, FOLDER, tmp_path)
        size = Size(epsilons=(4.0,), runs=1, own_rounds=(0,), baseline_rounds=(1,), published=False)
        panels.append((dataclasses.replace(file_source(name), k=3), size))
    figure = Figure(name="feddp-fig0", title="Figure 0", paper="nothing", quick=(), full=tuple(panels))
    text = run_figure(figure, Options(jobs=1, output=tmp_path, data_dir=str(tmp_path), progress=False))
    rows = list(csv.DictReader((tmp_path / "feddp-fig0.csv").read_text().splitlines()))
    for source, _ in panels:
        assert {row["method"] for row in rows if row["data"] == source.title} == {OPTIMAL, KFED, *STARTS}
        assert describe_made(str(source.file), tmp_path) in text


def test_the_same_files_make_the_same_bytes_and_nothing_is_replaced_unasked(tmp_path: Path) -> None:
    make_sets("taxi", FOLDER, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match="has taxi already; --force"):
        make_sets("taxi", FOLDER, tmp_path)
    make_sets("taxi", FOLDER, tmp_path, force=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "argv,text",
    [
        (["make"], "expected what to make, one of census, stackoverflow, taxi, loan"),
        (["make", "taxy", "--from", "."], "did you mean 'taxi'"),
        (["make", "census"], "expected --from DIR, a folder with the person files"),
        (["make", "taxi", "--from", "/nowhere", "--data-dir", "{here}"], "no such folder; expected train.csv"),
        (["make", "taxi", "--from", "{here}", "--data-dir", "{here}"], "no train.csv or train.zip in it"),
        (["make", "stackoverflow", "--from", "{here}", "--data-dir", "{here}"], "no stackoverflow.sqlite in it"),
        (["download", "s1", "--from", "."], "--from means nothing to a download"),
        (["--from", "."], "--from has no meaning for a list"),
    ],
)
def test_what_is_needed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], text: str) -> None:
    monkeypatch.delenv("FASTLLOYD_DATA", raising=False)
    with pytest.raises(ConfigError, match=text):
        main([part.replace("{here}", str(tmp_path)) for part in argv])
    assert list(tmp_path.iterdir()) == []


def test_all_51_states_are_asked_for(tmp_path: Path) -> None:
    assert len(census.STATES) == 51
    with pytest.raises(ConfigError, match=r"no psam_p04.csv or csv_paz.zip in it"):
        make_sets("census", FOLDER, tmp_path)


def test_without_the_sentence_model_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match="pip install sentence-transformers"):
        posts.make_posts(FOLDER)


def replace(folder: Path, name: str, old: bytes, new: bytes) -> None:
    path = folder / name
    assert old in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(old, new, 1))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name,file,old,new,text",
    [
        ("census", "psam_p01.csv", b",SCHL,", b",SCHOOL,", "expected the columns AGEP"),
        ("census", "psam_p01.csv", b",AGEP,", b",SCHL,", "each once"),
        ("census", "psam_p01.csv", b"\nP,", b"\nP,1,", "line 2: expected 15 cells, got 16"),
        ("census", "psam_p01.csv", b"\nP,201800000000", b'\nP,"201800000000', "expected CSV|expected 15 cells"),
        ("census", "psam_p01.csv", b"\nP", b"\n\xff", "not whole, or no such file"),
        ("census", "PUMS_Data_Dictionary_2018.csv", b'"0010","0010"', b'"0010","0011"', "one code twice"),
        ("census", "PUMS_Data_Dictionary_2018.csv", b'"9830","9830"', b'"20","20"', "a code of OCCP that stands once"),
        (
            "census",
            "PUMS_Data_Dictionary_2018.csv",
            b'VAL,SEX,C,1,"1","1"',
            b'VAL,SEX,C,1,"7","7"',
            "SEX is '1', which",
        ),
        ("census", "PUMS_Data_Dictionary_2018.csv", b"RELP", b"RELSHIPP", "RELP"),
        ("taxi", "train.csv", b"2016-03-14 ", b"2016-13-14 ", "line 2: expected two times"),
        ("taxi", "train.csv", b",N,", b",N,nan", "line 2: expected two times"),
        ("taxi", "train.csv", b"trip_duration", b"duration", "expected the columns"),
    ],
)
def test_another_file_than_expected_makes_nothing(
    tmp_path: Path, files: Path, name: str, file: str, old: bytes, new: bytes, text: str
) -> None:
    replace(files, file, old, new)
    if new == b"RELSHIPP":
        (files / file).write_bytes((files / file).read_bytes().replace(b",RELP,", b",RELSHIPP,"))
    with pytest.raises(DataError, match=text):
        make_sets(name, files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small")
def test_broken_archives_and_databases_make_nothing(tmp_path: Path, files: Path) -> None:
    out = tmp_path / "out"
    whole = (files / "csv_pak.zip").read_bytes()
    (files / "csv_pak.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"csv_pak.zip: is not whole"):
        make_sets("census", files, out)
    with zipfile.ZipFile(files / "csv_pak.zip", "w") as archive:
        archive.writestr("psam_p99.csv", "a,b\n")
    with pytest.raises(DataError, match=r"expected an archive with psam_p02.csv in it"):
        make_sets("census", files, out)
    for spoil, text in (
        ("UPDATE examples SET serialized_example_proto = x'0a05' WHERE rowid = 3", "row 3: expected a post"),
        ("UPDATE examples SET serialized_example_proto = 'text' WHERE rowid = 3", "row 3: expected a client's name"),
        ("DELETE FROM examples", "first tag machine-learning, got none"),
        ("DROP TABLE examples", "expected the archive's database"),
    ):
        shutil.copy(FOLDER / "stackoverflow.sqlite", files)
        database = sqlite3.connect(files / "stackoverflow.sqlite")
        database.execute(spoil)
        database.commit()
        database.close()
        with pytest.raises(DataError, match=text):
            make_sets("stackoverflow", files, out)
    (files / "stackoverflow.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(DataError, match="expected the archive's database"):
        make_sets("stackoverflow", files, out)
    assert not out.exists()


def test_a_state_with_too_few_of_a_class_is_named(files: Path) -> None:
    lines = (files / "psam_p01.csv").read_text().splitlines()
    place = lines[0].split(",").index("COW")
    kept = [line for line in lines if line.split(",")[place] != "5"]
    (files / "psam_p01.csv").write_text("\n".join(kept) + "\n")
    with pytest.raises(DataError, match="census-federal: expected at least 2 persons of class of worker 5 in AL"):
        census.make_census(files, TWO_STATES)


def test_an_example_is_read_as_protocol_buffers_encode_it() -> None:
    # Made by hand after the encoding's definition: {"a": bytes_list ["hi"], "n": int64_list [300]}.
    data = bytes.fromhex("0a1a 0a0b 0a0161 1206 0a04 0a02 6869 0a0b 0a016e 1206 1a04 0a02 ac02".replace(" ", ""))
    assert read_example(data, ("a",)) == {"a": "hi"}
    assert example({"a": "hi"}, 300)[2:15] == data[2:15]
    assert varint(300) == b"\xac\x02"
    # Unknown fields of other kinds are passed over.
    assert read_example(b"\x50\x01" + b"\x59" + bytes(8) + b"\x5d" + bytes(4) + data, ("a",)) == {"a": "hi"}
    for spoilt, text in (
        (data[:-1], "breaks off"),
        (b"\x0b" + data, "unknown kind 3"),
        (b"\x08\x01", "another kind"),
        (b"\xff" * 11, "breaks off"),
        (b"\x02\x00", "breaks off"),
        (data + field(1, field(1, field(1, b"a") + field(2, field(1, field(1, b"ho"))))), "got two"),
        (field(1, field(1, field(1, b"a") + field(2, field(1, field(1, b"x") + field(1, b"y"))))), "got 2"),
        (field(1, field(1, field(1, b"a") + field(2, field(1, field(1, b"\xff"))))), "utf-8"),
        (b"", "no a"),
    ):
        with pytest.raises(ValueError, match=text):
            read_example(spoilt, ("a",))


def test_samples_are_what_their_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from papers.tests.sets.samples import make_samples

    monkeypatch.setattr(make_samples, "FOLDER", tmp_path)
    make_samples.write_all()
    assert {path.name for path in FOLDER.iterdir() if path.suffix != ".py" and path.is_file()} == {
        path.name for path in tmp_path.iterdir()
    }
    for path in tmp_path.iterdir():
        if path.suffix == ".csv":
            assert path.read_bytes() == (FOLDER / path.name).read_bytes()
    assert make.RECORD == ".made.json"
