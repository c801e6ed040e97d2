"""Drawings as PNG, PDF or figures of matplotlib: the marks of their SVG, in the same places.

matplotlib is loaded at the first one.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Any

from fastlloyd.report.figure.drawing import COLOURS, FONT, STROKE, Disc, Drawing, Mark, Rectangle, Stroke, Writing
from fastlloyd.report.plot import new_figure

_DPI = 200
_DEFAULT = "DejaVu Sans"
# Besides the default, which comes with matplotlib and has Latin, Greek, Cyrillic, Arabic and Hebrew letters.
_FAMILIES = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP", "Source Han Sans SC"),
    *("WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "PingFang SC", "Hiragino Sans"),
    *("Microsoft YaHei", "MS Gothic", "Malgun Gothic", "Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai"),
    *("Noto Emoji", "Symbola", "Segoe UI Emoji", "Segoe UI Symbol"),
)
_NUMBERED = "Numbers stand for names whose letters no font of this machine has."


def file_of(drawing: Drawing, form: str, warning: str = "") -> bytes:
    """Return a drawing with warning and caption as a file.

    Parameters
    ----------
    drawing : Drawing
    form : {'svg', 'png', 'pdf'}
    warning : str
        Written above; empty for none.

    Raises
    ------
    ConfigError
        matplotlib is not installed, which PNG and PDF need.
    """
    if form == "svg":
        return drawing.printed(warning).svg().encode()
    content, figure = io.BytesIO(), figure_of(drawing, warning)
    import matplotlib

    # No software name or date inside: the same values give the same file. Letters stay letters.
    metadata: dict[str, Any] = dict.fromkeys(
        ("Software",) if form == "png" else ("CreationDate", "Creator", "Producer")
    )
    with _silent(), matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(content, format=form, dpi=_DPI, metadata=metadata)
    return content.getvalue()


def figure_of(drawing: Drawing, warning: str = "") -> Any:
    """Return a drawing with warning and caption as a figure of matplotlib; errors as for `file_of`."""
    with _silent():
        shown = tuple(_with_letters(mark) for mark in drawing.marks)
    if shown != drawing.marks:
        drawing = Drawing(
            drawing.width, drawing.height, shown, drawing.about, f"{drawing.caption} {_NUMBERED}".lstrip()
        )
    drawing = drawing.printed(warning)
    figure = new_figure((drawing.width / 72.0, drawing.height / 72.0), _DPI)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, drawing.width)
    axes.set_ylim(drawing.height, 0.0)
    axes.axis("off")
    for order, (_, same) in enumerate(groupby(drawing.marks, key=lambda mark: (type(mark), mark.style))):
        _paint(axes, list(same), order)
    return figure


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep matplotlib's log from saying that a font has no weight `normal`."""
    log = logging.getLogger("matplotlib.font_manager")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _paint(axes: Any, marks: list[Mark], order: int) -> None:
    """Paint marks of one kind and style."""
    from matplotlib import collections, patches

    fill, stroke = COLOURS[marks[0].style]
    look: dict[str, Any] = {"facecolors": fill or "none", "edgecolors": stroke or "none", "linewidths": STROKE}
    corners = [_corners(mark) for mark in marks if isinstance(mark, Rectangle)]
    discs = [patches.Circle((mark.x, mark.y), mark.radius) for mark in marks if isinstance(mark, Disc)]
    lines = [mark.points for mark in marks if isinstance(mark, Stroke)]
    if corners or (lines and fill):
        axes.add_collection(collections.PolyCollection([*corners, *lines], zorder=order, **look))
    elif lines:
        axes.add_collection(collections.LineCollection(lines, colors=stroke, linewidths=STROKE, zorder=order))
    if discs:
        axes.add_collection(collections.PatchCollection(discs, zorder=order, **look))
    for mark in marks:
        if isinstance(mark, Writing):
            # A dollar sign would begin a formula.
            axes.text(
                mark.x,
                mark.y,
                mark.text.replace("$", r"\$"),
                fontsize=FONT,
                fontfamily=_families(mark.text) or [_DEFAULT],
                fontweight="bold" if mark.style in ("strong", "on-mark") else "normal",
                color=fill,
                ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
                va="baseline",
                rotation=90 if mark.turned else 0,
                rotation_mode="anchor",
                zorder=order,
                clip_on=False,
            )


def _corners(box: Rectangle) -> list[tuple[float, float]]:
    right, bottom = box.x + box.width, box.y + box.height
    return [(box.x, box.y), (right, box.y), (right, bottom), (box.x, bottom)]


def _with_letters(mark: Mark) -> Mark:
    """Return a mark with letters that fonts here have: a name that they lack becomes its number."""
    if not isinstance(mark, Writing) or _covered(mark.text):
        return mark
    spare = mark.spare or "".join(each if _covered(each) else "?" for each in mark.text)
    return Writing(mark.x, mark.y, spare, mark.anchor, mark.style, mark.title, turned=mark.turned)


def _covered(text: str) -> bool:
    return _families(text) is not None


def _families(text: str) -> list[str] | None:
    """Return the fonts for a text; None if they lack a letter."""
    missing = {ord(each) for each in text if not each.isascii()} - _letters(_DEFAULT)
    if not missing:
        return [_DEFAULT]
    others = {name: _letters(name) for name in _others()}
    return None if missing - frozenset().union(*others.values()) else [_DEFAULT, *others]


@cache
def _others() -> tuple[str, ...]:
    """Return which of `_FAMILIES` this machine has, also those newer than matplotlib's list of fonts."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    for path in {*font_manager.findSystemFonts()} - {font.fname for font in manager.ttflist}:
        with contextlib.suppress(OSError, RuntimeError):  # fonts of pictures cannot be read
            manager.addfont(path)
    there = {font.name for font in manager.ttflist}
    return tuple(name for name in _FAMILIES if name in there)


@cache
def _letters(name: str) -> frozenset[int]:
    """Return the letters of a font that is there."""
    from matplotlib import font_manager

    return frozenset(font_manager.get_font(font_manager.findfont(name)).get_charmap())
