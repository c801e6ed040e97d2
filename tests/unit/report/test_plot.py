from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from fastlloyd.errors import ConfigError
from fastlloyd.report import plot

Image = pytest.importorskip("PIL.Image")


def test_the_same_figure_gives_the_same_png():
    pytest.importorskip("matplotlib")
    pictures = []
    for _ in range(2):
        figure, axes = plot.make_figure((2.0, 1.0))
        axes.plot([0, 1], [0, 1])
        pictures.append(plot.render_png(figure))
    assert pictures[0] == pictures[1] and b"Matplotlib" not in pictures[0]
    with Image.open(io.BytesIO(pictures[0])) as image:
        assert np.array(image.convert("L")).std() > 5
    assert plot.available()


def test_without_matplotlib_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ConfigError, match=r"fastlloyd\[plots\]"):
        plot.make_figure((1.0, 1.0))
