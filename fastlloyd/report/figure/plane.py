"""The centres of two features in their plane, and the curve of costs by which the number of clusters was chosen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastlloyd.report.figure.drawing import NARROW, Disc, Drawing, Mark, Stroke, Writing, text_width
from fastlloyd.report.figure.released import Centres
from fastlloyd.report.page.render import format_number

_MOST_POINTS = 5000
_TOP, _HEIGHT, _PAD = 8.0, 160.0, 12.0


def plane(released: Centres, public_points: NDArray[np.float64] | None = None) -> Drawing:
    """Return the centres in their plane, the large ones first so that they do not hide smaller ones.

    Parameters
    ----------
    released : Centres
        Of two features.
    public_points : float64 array, shape (n, 2), optional
        Of a public data set; at most 5,000 of them are drawn.
    """
    frame = _Frame(released.ends, released.labels[0], released.labels[1], released.names)
    marks: list[Mark] = frame.marks()
    if public_points is not None and len(public_points):
        shown = public_points[:: -(-len(public_points) // _MOST_POINTS)]
        marks += [Disc(*frame.place(x, y), 0.8, "point") for x, y in shown.tolist()]
    weights = np.zeros(len(released.values)) if released.sizes is None else np.clip(released.sizes, 0.0, None)
    radii = 6.0 + 6.5 * np.sqrt(weights / max(weights.max(initial=0.0), 1e-12))
    for row in np.argsort(-radii, kind="stable").tolist():
        margins = np.zeros(2) if released.margins is None else released.margins[row]
        center = frame.place(*released.values[row].tolist())
        half = [float(margin) * scale for margin, scale in zip(margins, frame.scale, strict=True)]
        for side in (0, 1):
            if half[side] > radii[row]:
                across, up = (half[0], 0.0) if side == 0 else (0.0, half[1])
                ends = ((center[0] - across, center[1] - up), (center[0] + across, center[1] + up))
                marks.append(Stroke(ends, "range"))
        marks += [
            Disc(*center, float(radii[row]), "ring"),
            Writing(center[0], center[1] + 2.8, str(row), "middle", "on-mark"),
        ]
    return Drawing(
        NARROW,
        frame.height,
        tuple(marks),
        "Centres in the plane of the two features; the values are in the table.",
        _caption(released, public=public_points is not None),
    )


def elbow(costs: NDArray[np.float64], chosen: int, made: str) -> Drawing:
    """Return the curve of noisy costs by which the number of clusters was chosen (FedDP-KMeans, App. H.3)."""
    numbers = np.arange(1, len(costs) + 1)
    least, most = min(0.0, float(costs.min())), float(costs.max())
    frame = _Frame(np.array([[1.0, least], [float(len(costs)), most]]), "number of clusters k", "noisy cost")
    points = [frame.place(x, y) for x, y in zip(numbers.tolist(), costs.tolist(), strict=True)]
    x = frame.place(chosen, 0.0)[0]
    marks = [
        *frame.marks(),
        Stroke(((x, _TOP), (x, _TOP + _HEIGHT + 2 * _PAD)), "rest"),
        Stroke(tuple(points), "range"),
        *(Disc(*point, 2.4, "mark") for point in points),
        Writing(x, _TOP - 1.0, f"chosen: k = {chosen}", "start" if x < NARROW / 2 else "end"),
    ]
    return Drawing(NARROW, frame.height, tuple(marks), f"Noisy cost by number of clusters; {chosen} was chosen.", made)


class _Frame:
    """A frame with two axes and their numbers."""

    def __init__(self, ends: NDArray[np.float64], across: str, up: str, names: Sequence[str] | None = None) -> None:
        self._names = (across, up), tuple(names or (across, up))
        span = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
        self._least = ends[0]
        self._ticks = [[float(ends[0, side] + share * span[side]) for share in (0.0, 0.5, 1.0)] for side in (0, 1)]
        self._texts = [[format_number(tick, 3) for tick in side] for side in self._ticks]
        self._left = 14.0 + max(map(text_width, self._texts[1])) + 4.0
        width = NARROW - self._left - 2 * _PAD - 1.0
        self.scale = width / float(span[0]), _HEIGHT / float(span[1])
        self.height = _TOP + _HEIGHT + 2 * _PAD + 28.0

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a value stands."""
        return (
            self._left + _PAD + (x - float(self._least[0])) * self.scale[0],
            _TOP + _PAD + _HEIGHT - (y - float(self._least[1])) * self.scale[1],
        )

    def marks(self) -> list[Mark]:
        """Return the frame, its ticks and the names of its axes."""
        bottom, right = _TOP + _HEIGHT + 2 * _PAD, NARROW - 1.0
        corners = ((self._left, _TOP), (right, _TOP), (right, bottom), (self._left, bottom), (self._left, _TOP))
        (across, up), names = self._names
        marks: list[Mark] = [Stroke(corners, "line")]
        for tick, text in zip(*(side[0] for side in (self._ticks, self._texts)), strict=True):
            x = self.place(tick, 0.0)[0]
            marks += [
                Stroke(((x, bottom), (x, bottom + 3.0)), "line"),
                Writing(x, bottom + 11.0, text, "middle", "soft"),
            ]
        for tick, text in zip(*(side[1] for side in (self._ticks, self._texts)), strict=True):
            y = self.place(0.0, tick)[1]
            marks += [
                Stroke(((self._left - 3.0, y), (self._left, y)), "line"),
                Writing(self._left - 4.0, y + 2.8, text, "end", "soft"),
            ]
        titles = [name if name != label else "" for name, label in zip(names, (across, up), strict=True)]
        return [
            *marks,
            Writing((self._left + right) / 2, bottom + 23.0, across, "middle", title=titles[0], spare="column 1"),
            Writing(9.0, (_TOP + bottom) / 2, up, "middle", title=titles[1], spare="column 2", turned=True),
        ]


def _caption(released: Centres, *, public: bool) -> str:
    said = ["Each disc is a centre" + ("" if released.sizes is None else ", its area grows with the noisy size")]
    if released.margins is not None:
        said[0] += "; a 95 % range for the noise that is wider than its disc shows as a line"
    said[0] += "."
    if public:
        said.append("Small dots are records of a public data set.")
    return " ".join([*said, released.made])
