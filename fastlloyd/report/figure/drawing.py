"""A drawing as marks, in points from the upper left corner, and its SVG: alone in a file, or within a page.

A mark has a style by name. Within a page the page's style sheet gives its colours, light or dark; elsewhere `COLOURS`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from fastlloyd.errors import printable
from fastlloyd.report.label import width_of

NARROW, WIDE = 240.9, 481.9
"""One and two columns of a journal: 85 and 170 mm."""
FONT = 8.0
LETTER = 5.1
"""Most letters of 8 points are narrower."""
LINE = 11.0
COLOURS = {
    "": ("#1b1f24", None),
    "strong": ("#1b1f24", None),
    "soft": ("#566069", None),
    "warning": ("#9b1c1c", None),
    "line": (None, "#d3d9df"),
    "rest": (None, "#1b1f24"),
    "range": (None, "#2b6cb0"),
    "mark": ("#2b6cb0", None),
    "ring": ("#2b6cb0", "#ffffff"),
    "on-mark": ("#ffffff", None),
    "point": ("#c3c9cf", None),
    "down3": ("#4393c3", None),
    "down2": ("#92c5de", None),
    "down1": ("#d1e5f0", None),
    "up1": ("#fddbc7", None),
    "up2": ("#f4a582", None),
    "up3": ("#e0705a", None),
}
"""Fill and stroke by style, on white paper."""
STROKE = 0.8
_FAMILY = "Arial, Helvetica, 'DejaVu Sans', 'Noto Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    style: str


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line through points; filled if its style has a fill."""

    points: tuple[tuple[float, float], ...]
    style: str


@dataclass(frozen=True, slots=True)
class Disc:
    """A disc."""

    x: float
    y: float
    radius: float
    style: str


@dataclass(frozen=True, slots=True)
class Writing:
    """A line of text on its base line.

    Attributes
    ----------
    x, y : float
    text : str
    anchor : {'start', 'middle', 'end'}
    style : str
    title : str
        Shown where a pointer rests: a name in full.
    spare : str
        Written instead where no font has the letters.
    turned : bool
        Read from below.
    """

    x: float
    y: float
    text: str
    anchor: str = "start"
    style: str = ""
    title: str = ""
    spare: str = ""
    turned: bool = False


Mark = Rectangle | Stroke | Disc | Writing


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure.

    Attributes
    ----------
    width, height : float
        In points.
    marks : tuple of marks
    about : str
        What a reader hears who does not see it.
    caption : str
    """

    width: float
    height: float
    marks: tuple[Mark, ...]
    about: str
    caption: str = ""

    def inline(self, name: str) -> str:
        """Return it as SVG for a page, with `name` as id of its title."""
        return (
            f'<svg class="figure" role="img" aria-labelledby="{name}" viewBox="0 0 {_short(self.width)} '
            f'{_short(self.height)}" width="{round(1.5 * self.width)}">\n'
            f'<title id="{name}">{escape(self.about)}</title>\n{self._content()}</svg>'
        )

    def svg(self) -> str:
        """Return it as a separate file, which fetches nothing."""
        colours = "".join(
            f".{style}{{fill:{fill or 'none'};stroke:{stroke or 'none'};stroke-width:{STROKE}}}"
            for style, (fill, stroke) in COLOURS.items()
            if style
        )
        plain = f"text{{font:{FONT:g}px {_FAMILY};fill:{COLOURS[''][0]};unicode-bidi:plaintext}}"
        width, height = _short(self.width), _short(self.height)
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}">\n'
            f"<title>{escape(self.about)}</title>\n<style>{plain}{colours}text.strong{{font-weight:bold}}</style>\n"
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{self._content()}</svg>\n'
        )

    def printed(self, warning: str = "") -> Drawing:
        """Return it with a warning above and its caption below, as a file has it."""
        most = int(self.width / (0.86 * LETTER))
        above, below = (
            [line.replace("\u00a0", " ") for line in textwrap.wrap(text.replace(" %", "\u00a0%"), most)]
            for text in (printable(warning), self.caption)
        )
        top = LINE * len(above) + 4.0 * bool(above)
        marks = [
            *(Writing(2.0, LINE * (at + 1), line, style="warning") for at, line in enumerate(above)),
            *moved(self.marks, 0.0, top),
            *(Writing(2.0, top + self.height + LINE * (at + 1), line) for at, line in enumerate(below)),
        ]
        height = top + self.height + LINE * len(below) + 4.0
        return replace(self, height=height, marks=tuple(marks), caption="")

    def _content(self) -> str:
        return "".join(f"{_element(mark)}\n" for mark in self.marks)


def moved(marks: Iterable[Mark], x: float, y: float) -> Iterator[Mark]:
    """Yield marks moved to the right and down."""
    for mark in marks:
        if isinstance(mark, Stroke):
            yield replace(mark, points=tuple((a + x, b + y) for a, b in mark.points))
        else:
            yield replace(mark, x=mark.x + x, y=mark.y + y)


def beside(drawings: Sequence[Drawing], columns: int, about: str, caption: str) -> Drawing:
    """Return one drawing of several, row by row."""
    marks, top = list[Mark](), 0.0
    for start in range(0, len(drawings), columns):
        row = drawings[start : start + columns]
        for at, one in enumerate(row):
            marks += moved(one.marks, at * WIDE / columns, top)
        top += max(one.height for one in row) + LINE
    return Drawing(WIDE if len(drawings) > 1 else NARROW, top, tuple(marks), about, caption)


def text_width(text: str) -> float:
    """Return how wide a line of text is at most, in points."""
    return LETTER * width_of(text)


def _short(number: float) -> str:
    return f"{round(number, 1):g}"


def _element(mark: Mark) -> str:
    kind = f' class="{mark.style}"' if mark.style else ""
    if isinstance(mark, Rectangle):
        place = f'x="{_short(mark.x)}" y="{_short(mark.y)}" width="{_short(mark.width)}"'
        return f'<rect{kind} {place} height="{_short(mark.height)}"/>'
    if isinstance(mark, Disc):
        return f'<circle{kind} cx="{_short(mark.x)}" cy="{_short(mark.y)}" r="{_short(mark.radius)}"/>'
    if isinstance(mark, Stroke):
        return f'<path{kind} d="M{"L".join(f"{_short(x)} {_short(y)}" for x, y in mark.points)}"/>'
    place = f'x="{_short(mark.x)}" y="{_short(mark.y)}"'
    if mark.turned:
        place = f'transform="translate({_short(mark.x)} {_short(mark.y)}) rotate(-90)"'
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    title = f"<title>{escape(mark.title)}</title>" if mark.title else ""
    return f"<text{kind} {place}{anchor}>{title}{escape(mark.text)}</text>"
