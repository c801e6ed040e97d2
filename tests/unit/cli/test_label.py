"""`fastlloyd label`: nearest centroid, by name, in the space of the run."""

from __future__ import annotations

import numpy as np
import pytest

from fastlloyd.cli.label import main
from fastlloyd.errors import ConfigError, DataError
from fastlloyd.report.document import encode
from fastlloyd.report.labelling import nearest
from tests.unit.report.figures import report


@pytest.fixture
def files(tmp_path):
    (tmp_path / "centroids.csv").write_text("a,b\n0,0\n10,1000\n")
    (tmp_path / "new.csv").write_text("id,b,a\n1,0,9\n2,900,9\n3,100,1\n")
    return tmp_path


def run(folder, *more):
    argv = ["--centroids", str(folder / "centroids.csv"), "--data", str(folder / "new.csv")]
    assert main([*argv, "--out", str(folder / "labels.csv"), *more]) == 0
    text = (folder / "labels.csv").read_text().splitlines()
    assert text[0] == "row,label"
    assert [line.partition(",")[0] for line in text[1:]] == [str(row) for row in range(1, len(text))]
    return [int(line.partition(",")[2]) for line in text[1:]]


def test_original_units_when_no_bounds_are_known(files, capsys):
    assert run(files) == [0, 1, 0]
    assert "in original units, since no bounds are known" in capsys.readouterr().out


def test_bounds_change_what_is_near(files, tmp_path, capsys):
    (tmp_path / "given.csv").write_text("feature,lo,hi\nb,-10000,10000\na,0,10\n")
    assert run(files, "--bounds", str(tmp_path / "given.csv")) == [1, 1, 0]
    assert "scaled by the bounds" in capsys.readouterr().out


def test_negative_bounds_as_typed(files):
    assert run(files, "--bounds", "-1000,1000") == [0, 1, 0]


def test_the_run_file_brings_the_bounds_and_the_rule(files, tmp_path):
    (tmp_path / "new.csv").write_text("a,b\n9,\n0,0\n")
    (tmp_path / "run.toml").write_text('data = "x.csv"\nbounds = "0,2000"\nk = 2\nn_total = 20\nmissing = "midpoint"\n')
    assert run(files, "--config", str(tmp_path / "run.toml")) == [1, 0]


def test_the_run_file_of_a_public_data_set(files, tmp_path):
    (tmp_path / "centroids.csv").write_text("red,green,blue\n0,0,0\n255,255,255\n")
    (tmp_path / "new.csv").write_text("blue,green,red\n20,10,200\n250,250,20\n")
    (tmp_path / "run.toml").write_text('dataset = "photo"\nk = 2\n')
    assert run(files, "--config", str(tmp_path / "run.toml")) == [0, 1]


def test_the_labels_are_their_owners_alone(files):
    run(files)
    assert (files / "labels.csv").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in files.iterdir()) == ["centroids.csv", "labels.csv", "new.csv"]


def test_a_missing_column_or_value_writes_nothing(files):
    (files / "new.csv").write_text("a,c\n1,2\n")
    with pytest.raises(DataError, match="no column 'b'"):
        run(files)
    (files / "new.csv").write_text("a,b\n1,\n")
    with pytest.raises(DataError, match="row 1"):
        run(files)
    assert not (files / "labels.csv").exists()


def test_a_place_that_cannot_be_written(files):
    (files / "taken").mkdir()
    for out in (files / "gone" / "labels.csv", files / "taken"):
        with pytest.raises(ConfigError, match="--out: .* cannot be written"):
            run(files, "--out", str(out))
    assert sorted(path.name for path in files.iterdir()) == ["centroids.csv", "new.csv", "taken"]


def test_flags_that_exclude_each_other(files):
    with pytest.raises(ConfigError, match="not allowed with"):
        run(files, "--bounds", "0,1", "--config", "run.toml")


def test_nearest_is_the_brute_force_answer(monkeypatch):
    generator = np.random.default_rng(5)
    points, centers = generator.normal(size=(500, 3)), generator.normal(size=(7, 3))
    brute = ((points[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(nearest(points, centers), brute)
    monkeypatch.setattr("fastlloyd.report.labelling._BLOCK_VALUES", 30)
    np.testing.assert_array_equal(nearest(points, centers), brute)


def test_nearest_far_from_zero_and_at_ties():
    centers = np.array([[1e8], [1e8 + 1], [1e8 + 2]])
    np.testing.assert_array_equal(nearest(centers + 0.25, centers), [0, 1, 2])
    np.testing.assert_array_equal(nearest(np.array([[1e8 + 0.5], [1e8 + 1.5]]), centers), [0, 1])


def test_a_label_follows_from_its_point_alone():
    """On the border of two clusters, too: descriptions rest on it. A product of matrices failed for hundreds."""
    generator = np.random.default_rng(6)
    for d in (2, 5, 17):
        centers = generator.uniform(-1, 1, (5, d))
        apart, away = centers[1] - centers[0], 0.2 * generator.normal(size=(300, d))
        points = centers[:2].mean(axis=0) + away - np.outer(away @ apart, apart) / (apart @ apart)
        labels = nearest(points, centers)
        assert {0, 1} <= set(labels.tolist())
        np.testing.assert_array_equal(nearest(points[1:], centers), labels[1:])
        np.testing.assert_array_equal([nearest(point[None], centers)[0] for point in points], labels)


def test_a_name_that_was_kept_from_being_a_formula_finds_its_column(files):
    (files / "centroids.csv").write_text("'=a,b\n0,0\n10,1000\n")
    (files / "new.csv").write_text("id,b,=a\n1,0,9\n2,900,9\n3,100,1\n")
    assert run(files) == [0, 1, 0]


def test_bounds_beside_the_centroids_are_taken(files, capsys):
    (files / "bounds.csv").write_text("feature,lo,hi\nb,-10000,10000\na,0,10\n")
    assert run(files) == [1, 1, 0]
    assert "scaled by the bounds" in capsys.readouterr().out
    assert run(files, "--bounds", "-1000,1000") == [0, 1, 0]


def test_every_row_stands_in_the_file_with_its_id(files, capsys):
    (files / "new.csv").write_text("b,patient,a\n0,P-7,9\n,x,9\n900,007,9\n")
    with pytest.raises(DataError, match="row 2"):
        run(files)
    argv = ["--centroids", str(files / "centroids.csv"), "--data", str(files / "new.csv")]
    main([*argv, "--missing", "drop", "--id", "patient", "--out", str(files / "labels.csv")])
    assert (files / "labels.csv").read_text() == "row,id,label\n1,P-7,0\n2,x,\n3,007,1\n"
    assert "1 record lacks a value: left without a label (--missing drop)" in capsys.readouterr().out


def test_own_columns_of_a_vertical_result(files, capsys):
    (files / "new.csv").write_text("id,c,a\n1,5,9\n2,5,1\n")
    with pytest.raises(DataError, match="no column 'b'"):
        run(files)
    assert run(files, "--own-columns") == [1, 0]
    assert "by 1 of 2 features alone" in capsys.readouterr().out
    (files / "new.csv").write_text("id,c\n1,5\n")
    with pytest.raises(ConfigError, match="none of the centroids' features"):
        run(files, "--own-columns")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"unit": "id"}, "expected unit and per_unit together"),
        ({"unit": "id", "per_unit": "median"}, "per_unit: expected one of"),
        ({"categories": {"sex": {"f": 1.0}}}, r"expected centroids of the features a, b, sex=f"),
        ({"categories": {"sex": ["f"]}}, "categories.sex: expected object"),
    ],
)
def test_a_report_that_does_not_fit_its_centroids(files, parameters, words):
    made = report()
    made["parameters"].update(parameters)
    (files / "report.json").write_text(encode(made))
    (files / "bounds.csv").write_text("feature,lo,hi\na,0,10\nb,0,1000\n")
    (files / "new.csv").write_text("id,b,a,sex\n1,0,9,f\n2,900,9,f\n")
    with pytest.raises(ConfigError, match=words):
        run(files)
    assert not (files / "labels.csv").exists()


def test_bounds_of_numbers_suffice_where_the_report_knows_the_categories(files):
    made = report()
    made["parameters"]["categories"] = {"sex": {"f": 1.0}}
    (files / "report.json").write_text(encode(made))
    (files / "bounds.csv").write_text("feature,lo,hi\na,0,10\nb,0,1000\nsex=f,0,1\n")
    (files / "numbers.csv").write_text("feature,lo,hi\na,0,10\nb,0,1000\n")
    (files / "centroids.csv").write_text("a,b,sex=f\n5,500,0\n5,500,1\n")
    (files / "new.csv").write_text("id,b,a,sex\n1,0,9,f\n2,900,9,\n3,900,9,f\n")
    flags = ("--bounds", str(files / "numbers.csv"), "--missing", "midpoint")
    assert run(files, *flags) == run(files, "--missing", "midpoint") == [1, 0, 1]


def test_names_that_people_chose_stand_beside_the_labels(files, tmp_path):
    path = tmp_path / "names.toml"
    path.write_text('1 = "=frail"\n')
    argv = [
        "--centroids",
        str(files / "centroids.csv"),
        "--data",
        str(files / "new.csv"),
        "--out",
        str(files / "l.csv"),
    ]
    assert main([*argv, "--names", str(path), "--id", "id"]) == 0
    assert (files / "l.csv").read_text() == "row,id,label,name\n1,1,0,\n2,2,1,'=frail\n3,3,0,\n"
    path.write_text('2 = "old"\n')
    with pytest.raises(ConfigError, match="from 0 to 1 as key, got '2'"):
        main([*argv, "--names", str(path)])
