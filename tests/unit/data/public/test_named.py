"""Public data sets by name, by folder and by path."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from fastlloyd.data.public.embedded import FOLDER, PHOTO, load_photo, unpack_photo
from fastlloyd.data.public.named import FACTS, dataset_bounds, list_named, load_named
from fastlloyd.errors import ConfigError, DataError

SHARED = Path(__file__).parents[5] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the folder of data sets is not here")


def put(folder, name, text):
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_the_photo():
    photo = load_named("photo")
    assert photo.values.shape == (273_280, 3)
    assert photo.values.dtype == np.float64
    assert photo.values.flags.c_contiguous
    assert photo.names == ("red", "green", "blue")
    assert photo.image_shape == (427, 640, 3)
    assert photo.k == 8
    assert photo.labels is None
    assert "danielbuechele" in photo.licence
    np.testing.assert_array_equal(photo.bounds.lo, [0, 0, 0])
    np.testing.assert_array_equal(photo.bounds.hi, [255, 255, 255])
    digest = hashlib.sha256(photo.values.astype(np.uint8).tobytes()).hexdigest()
    assert digest == "e701459344fd69797154c91add3bb5d70e5ed1a61d8bed889bab3a796104698d"


def test_nobody_can_change_the_set_that_others_get():
    iris = load_named("iris")
    assert load_named("iris") is iris
    for array in (iris.values, iris.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_photo_is_the_one_of_scikit_learn():
    datasets = pytest.importorskip("sklearn.datasets")
    pytest.importorskip("PIL")
    # Another JPEG decoder may round a colour differently by a few steps.
    difference = load_photo().astype(int) - datasets.load_sample_image("china.jpg").astype(int)
    assert np.abs(difference).mean() < 0.1
    assert np.abs(difference).max() <= 8


def test_the_photo_is_small_and_carries_its_attribution():
    assert PHOTO.stat().st_size < 550_000
    text = (FOLDER / "ATTRIBUTION.md").read_text()
    for word in (
        "danielbuechele",
        "creativecommons.org/licenses/by/2.0",
        "creativecommons.org/licenses/by/4.0",
        "Fisher",
    ):
        assert word in text


def pack_photo(pixels):
    """Turn pixels, shape (height, width, 3), into what the package stores: planes of small differences."""
    red, green, blue = np.moveaxis(pixels, 2, 0)
    planes = np.stack([green, red - green, blue - green])
    planes[:, :, 1:] -= planes[:, :, :-1].copy()
    return planes


def test_unpacking_loses_nothing():
    pixels = np.random.default_rng(4).integers(0, 256, size=(5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(unpack_photo(pack_photo(pixels)), pixels)


def test_iris():
    datasets = pytest.importorskip("sklearn.datasets")
    iris = load_named("iris")
    reference = datasets.load_iris()
    np.testing.assert_array_equal(iris.values, reference.data)
    np.testing.assert_array_equal(iris.labels, reference.target)
    assert iris.k == 3
    assert iris.bounds is None


def test_columns_of_an_embedded_set():
    photo = load_named("photo", columns=["blue", "red"])
    np.testing.assert_array_equal(photo.values, load_named("photo").values[:, [2, 0]])
    assert photo.bounds.names == photo.names == ("blue", "red")
    assert photo.image_shape is None
    with pytest.raises(DataError, match="photo: no column 'alpha'; it has 'red', 'green', 'blue'"):
        load_named("photo", columns=["alpha"])
    assert load_named("iris", columns=["petal_width"]).values.shape == (150, 1)


def test_a_folder_of_sets(tmp_path):
    put(tmp_path, "toy.csv.gz", "a,b\n1,2\n3,4\n")
    put(tmp_path, "toy.labels.csv.gz", "label\n1\n0\n")
    put(tmp_path, "house.csv.gz", "r,g,b\n1,2,3\n")
    toy = load_named("toy", tmp_path)
    np.testing.assert_array_equal(toy.values, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(toy.labels, [1, 0])
    assert (toy.name, toy.k, toy.bounds) == ("toy", None, None)
    house = load_named("house", tmp_path)
    assert house.k == 3
    np.testing.assert_array_equal(house.bounds.hi, [255, 255, 255])
    names = [one.name for one in list_named(tmp_path)]
    assert names == ["photo", "iris", "house", "toy"]
    listed = list_named(tmp_path)[3]
    assert (listed.rows, listed.features, listed.has_labels, listed.embedded) == (2, 2, True, False)


def test_what_is_known_of_a_name_is_not_applied_to_a_file_called_alike(tmp_path):
    put(tmp_path, "house.csv.gz", "price\n900000\n100000\n")
    by_path = load_named(str(tmp_path / "house.csv.gz"))
    assert (by_path.name, by_path.k, by_path.bounds) == ("house", None, None)
    assert load_named("house", tmp_path).bounds is None


def test_a_path_with_labels_beside_it(tmp_path):
    np.save(tmp_path / "mine.npy", np.ones((2, 3)))
    put(tmp_path, "mine.labels.csv", "label\n5\n5\n")
    mine = load_named(str(tmp_path / "mine.npy"))
    np.testing.assert_array_equal(mine.labels, [5, 5])
    assert mine.values.shape == (2, 3)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ("label\n1\n", "2 rows but its labels have 1"),
        ("label\n1\n1.5\n", "whole numbers"),
        ("a,b\n1,1\n2,2\n", "one column"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, labels, sentence):
    put(tmp_path, "toy.csv.gz", "a\n1\n2\n")
    put(tmp_path, "toy.labels.csv.gz", labels)
    with pytest.raises(DataError, match=sentence):
        load_named("toy", tmp_path)


def test_rows_with_labels_are_not_dropped(tmp_path):
    put(tmp_path, "toy.csv.gz", "a,b\n1,\n2,2\n")
    put(tmp_path, "toy.labels.csv.gz", "label\n0\n1\n")
    with pytest.raises(ConfigError, match="would not match"):
        load_named("toy", tmp_path, missing="drop")


def test_sets_that_do_not_exist(tmp_path):
    with pytest.raises(ConfigError, match=r"\$FASTLLOYD_DATA"):
        load_named("mnist")
    with pytest.raises(ConfigError, match="looked among the embedded ones"):
        load_named("mnist", tmp_path)
    with pytest.raises(DataError, match="no file"):
        load_named(str(tmp_path / "gone.csv"))
    with pytest.raises(ConfigError, match="no folder"):
        list_named(tmp_path / "gone")


def test_a_damaged_set_is_named_in_the_list(tmp_path):
    (tmp_path / "bad.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match=r"bad\.csv\.gz is not a whole gzip file"):
        list_named(tmp_path)


def test_bounds_of_a_set():
    iris, photo = load_named("iris"), load_named("photo")
    np.testing.assert_array_equal(dataset_bounds(photo, None).hi, [255, 255, 255])
    np.testing.assert_array_equal(dataset_bounds(photo, "auto-public").lo, photo.values.min(axis=0))
    np.testing.assert_array_equal(dataset_bounds(iris, None).lo, iris.values.min(axis=0))
    np.testing.assert_array_equal(dataset_bounds(iris, "0,10").hi, [10, 10, 10, 10])


@needs_shared
def test_the_real_sets_load():
    listed = {one.name: one for one in list_named(SHARED)}
    assert listed["mnist"].rows == 10_000
    assert listed["mnist"].features == 784
    assert set(listed) <= set(FACTS)
    for name in ("adult", "lsun", "letter", "house", "breast", "g2_16_30"):
        real = load_named(name, SHARED)
        assert real.values.shape == (listed[name].rows, listed[name].features)
        assert (real.labels is not None) == listed[name].has_labels
        assert (real.bounds is None) == (FACTS[name].limits is None)
