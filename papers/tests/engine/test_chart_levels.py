"""Panels with levels, linear axes and many marks."""

from __future__ import annotations

from fastlloyd_papers.engine.chart import Panel, line_panels


def _draw(count: int, **changes: object) -> bytes:
    lines = {"ours": (list(range(1, 21)), [float(x) for x in range(1, 21)])}
    made = Panel(x_label="k", y_label="cost", lines=lines, title="data", **changes)  # type: ignore[arg-type]
    return line_panels([made] * count, columns=1)


def test_levels_titles_and_linear_axes_are_drawn() -> None:
    plain = _draw(1)
    assert plain.startswith(b"\x89PNG")
    assert _draw(1, log_y=False) != plain
    assert _draw(1, log_x=False) != plain
    assert _draw(2, levels={"optimal": 3.0}) != _draw(2, levels={"optimal": 4.0})
