"""Charts of benchmark figures."""

import io

import numpy as np
import pytest

from fastlloyd_papers.engine.chart import Bars, Panel, bar_chart, line_panels

pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")


def decode(content):
    with Image.open(io.BytesIO(content)) as image:
        return np.array(image.convert("RGB"))


def test_bars_with_gaps_and_whiskers():
    series = [
        Bars(label="published", heights=[1.0, 2.0, 3.0], errors=[0.1, None, 0.2]),
        Bars(label="ours", heights=[0.5, None, 1.0]),
    ]
    full = decode(bar_chart(["a", "b", "c"], series, y_label="ms"))
    assert full.std() > 0
    fewer = decode(bar_chart(["a", "b", "c"], series[:1], y_label="ms"))
    assert not np.array_equal(full, fewer)


def test_a_chart_is_the_same_file_for_the_same_figures():
    series = [Bars(label="x", heights=[1.0])]
    assert bar_chart(["a"], series, y_label="ms") == bar_chart(["a"], series, y_label="ms")


@pytest.mark.parametrize("count", [1, 2, 4])
def test_panels_of_lines(count):
    panels = [Panel(x_label="N", y_label="ms", lines={"ours": ([1, 10], [2.0, 20.0])})] * (count - 1)
    panels.append(Panel(x_label="k", y_label="bytes"))
    image = decode(line_panels(panels, columns=min(count, 2)))
    assert image.shape[1] > 300 * min(count, 2)
