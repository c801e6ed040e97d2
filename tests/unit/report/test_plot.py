import io
import sys
import warnings

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report import plot

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib")


def decode(content):
    with Image.open(io.BytesIO(content)) as image:
        return np.array(image.convert("RGB"))


def arguments(k, d):
    centers = np.random.default_rng(0).uniform(-1, 1, (k, d))
    return [f"a feature with a long name {i}" for i in range(d)], centers, np.full(d, -1.0), np.full(d, 1.0)


@pytest.mark.parametrize(("k", "d"), [(1, 1), (50, 20)])
def test_heat_map_of_any_size(matplotlib, k, d):
    image = decode(plot.heat_map(*arguments(k, d), noisy_sizes=[float(i - 1) for i in range(k)]))
    assert image.std() > 5


def test_heat_map_shows_the_bounds_as_the_ends_of_its_colours(matplotlib):
    names, lo, hi = ["x"], np.array([10.0]), np.array([20.0])
    at_lower = decode(plot.heat_map(names, np.array([[10.0]]), lo, hi))
    at_upper = decode(plot.heat_map(names, np.array([[20.0]]), lo, hi))
    place = at_lower.shape[0] // 3, at_lower.shape[1] // 3
    assert at_lower[place][2] > at_lower[place][0] and at_upper[place][0] > at_upper[place][2]


def test_a_name_that_no_font_has_makes_no_warning_of_python(matplotlib):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.heat_map(["\u5e74\u9f84", "\U0001fa7a"], *arguments(1, 2)[1:])


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF-")])
def test_same_values_give_the_same_file_in_each_form(matplotlib, form, start):
    pictures = [plot.heat_map(*arguments(3, 2), form=form) for _ in range(2)]
    assert pictures[0] == pictures[1] and pictures[0].startswith(start)
    assert b"Matplotlib v" not in pictures[0] and b"dc:date" not in pictures[0] and b"CreationDate" not in pictures[0]
    if form == "svg":  # letters stay letters
        assert b"a feature" in pictures[0]


def test_plane_shows_points_only_where_they_are_given(matplotlib):
    points = np.random.default_rng(1).uniform(-1, 1, (12_000, 2))
    with_points = decode(plot.plane(*arguments(5, 2), noisy_sizes=[1.0, 2.0, 3.0, -4.0, 0.0], public_points=points))
    without = decode(plot.plane(*arguments(5, 2)))
    grey = np.array([191, 191, 191])
    # The edges of letters may hit the same grey here and there.
    assert np.count_nonzero(np.all(with_points == grey, axis=2)) > 10_000
    assert np.count_nonzero(np.all(without == grey, axis=2)) < 500


def test_plane_needs_two_features(matplotlib):
    with pytest.raises(ConfigError, match="two features"):
        plot.plane(*arguments(5, 3))


def test_no_noisy_size_above_zero(matplotlib):
    assert plot.plane(*arguments(2, 2), noisy_sizes=[-1.0, -2.0])


def test_without_matplotlib_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ConfigError, match=r"fastlloyd\[plots\]"):
        plot.heat_map(*arguments(2, 2))


def test_available(matplotlib):
    assert plot.available()


@pytest.mark.parametrize("draw", [plot.heat_map, plot.plane])
def test_a_warning_is_written_in_red_and_only_where_there_is_one(draw):
    def red(**options):
        image = decode(draw(*arguments(3, 2), **options)).astype(int)
        top = image[: len(image) // 6]
        return ((top[..., 0] > 180) & (top[..., 1] < 90) & (top[..., 2] < 90)).sum()

    assert red(warning="Doubtful result. " + "poor: noise of 5 $ of the range " * 4) > red() + 50
