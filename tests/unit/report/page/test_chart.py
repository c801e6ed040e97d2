from __future__ import annotations

import pytest

from fastlloyd.report.page.chart import share_bar, size_bars


def test_bars_share_one_scale_with_zero_on_it():
    small, large = size_bars([-10.0, 90.0], [[-20.0, 0.0], [80.0, 180.0]])
    assert (small.start, small.end, small.low, small.high) == (5.0, 10.0, 0.0, 10.0)
    assert (large.start, large.end, large.low, large.high) == (10.0, 55.0, 50.0, 100.0)
    (nothing,) = size_bars([0.0], None)
    assert (nothing.start, nothing.end, nothing.lo) == (0.0, 0.0, None)


@pytest.mark.parametrize(("share", "end"), [(0.25, 25.0), (0.0, 0.0), (7.0, 100.0), (-1.0, 0.0)])
def test_a_share_fills_its_part(share, end):
    assert share_bar(share).end == end
