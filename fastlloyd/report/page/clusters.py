"""The clusters on the page of a result: centres as tables, profiles, plane and palette; sizes as bars.

Source: docs/report.md, "report.html".
"""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.report.page import chart
from fastlloyd.report.page.render import format_number
from fastlloyd.report.sight import about_ranges

MOST = 60
"""Largest number of clusters or features that are shown."""
_LAST_STEP = (
    "A range describes the mean and the number of the records that the last step counted. The records nearest to the "
    "released centre may have another mean and another number."
)
_COLUMNS = 6
# Share of a feature's range; smaller digits mean nothing to people.
_STEP = 1e-3
_AS_WRITTEN = "give the folder as the run wrote it"
_MOST_PICTURE_BYTES = 4_000_000
_PNG = b"\x89PNG\r\n\x1a\n"


def show_clusters(
    document: Mapping[str, Any],
    quality: Mapping[str, Any],
    centroids: NDArray[np.float64],
    files: Mapping[str, bytes],
) -> dict[str, Any]:
    """Return the centres for the page; parameters as for `result_page`, checked together.

    Raises
    ------
    ConfigError
        bounds.csv is wrong.
    """
    names, sizes = document["result"]["features"], show_sizes(document, quality)
    margins = quality["centre_margins"]
    margins = None if margins is None else np.array(margins, dtype=np.float64)
    k, d = centroids.shape
    finite = bool(np.isfinite(centroids).all() and (margins is None or np.isfinite(margins).all()))
    bounds = _bounds(files.get("bounds.csv"), d)
    panels, columns = chart.profiles(names, centroids[:MOST], None if margins is None else margins[:MOST], bounds)
    picture = files.get("palette.png", b"")
    shown = picture.startswith(_PNG) and len(picture) <= _MOST_PICTURE_BYTES
    return {
        "tables": list(_tables(names[:MOST], centroids[:MOST, :MOST], margins, bounds)),
        "left_out": (max(0, k - MOST), max(0, d - MOST)),
        "ranges": margins is not None,
        "about_ranges": about_ranges(document["protocol"]) or _LAST_STEP,
        "bounded": bounds is not None,
        "beyond": bounds is not None and _beyond(centroids, bounds),
        "panels": panels if finite and d > 1 else [],
        "features_drawn": len(columns),
        "label_width": chart.label_width([names[column] for column in columns]),
        "plane": _plane(names, centroids, margins, sizes, bounds) if finite and d == 2 and k <= MOST else None,
        "palette": _palette(centroids) if picture and finite and d in (1, 3) else [],
        "picture": base64.b64encode(picture).decode() if shown else None,
    }


def _bounds(content: bytes | None, d: int) -> NDArray[np.float64] | None:
    """Return the public bounds, shape (2, d), from bounds.csv; None without that file."""
    if content is None:
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"), newline="")))
        bounds = np.array([[float(row["lo"]), float(row["hi"])] for row in rows]).T
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"bounds.csv: expected feature, lo and hi, got another table ({error}); {_AS_WRITTEN}"
        ) from error
    if bounds.shape != (2, d) or not np.isfinite(bounds).all():
        raise ConfigError(f"bounds.csv: expected finite bounds of {d} features, got other ones; {_AS_WRITTEN}")
    return bounds


def _beyond(centroids: NDArray[np.float64], bounds: NDArray[np.float64]) -> bool:
    """Return whether a centre lies beyond the public bounds by more than rounding."""
    slack = _STEP * (bounds[1] - bounds[0])
    return bool(((centroids < bounds[0] - slack) | (centroids > bounds[1] + slack)).any())


def _tables(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    bounds: NDArray[np.float64] | None,
) -> Iterator[dict[str, Any]]:
    """Yield the centres as tables of few columns; many features, if more than clusters, are rows."""
    turned = len(names) > _COLUMNS and len(names) > len(centroids)
    clusters = [f"cluster {row}" if turned else str(row) for row in range(len(centroids))]
    rows, columns = (names, clusters) if turned else (clusters, names)
    steps = np.zeros(len(names)) if bounds is None else (bounds[1] - bounds[0]) * _STEP
    for start in range(0, len(columns), _COLUMNS):
        part = range(start, min(start + _COLUMNS, len(columns)))
        yield {
            "corner": "feature" if turned else "cluster",
            "columns": [columns[j] for j in part],
            "rows": [
                (name, [_cell(centroids, margins, steps, *((j, i) if turned else (i, j))) for j in part])
                for i, name in enumerate(rows)
            ],
        }


def _cell(
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    steps: NDArray[np.float64],
    row: int,
    column: int,
) -> tuple[str, str | None]:
    """Return a coordinate and the half-width of its range, with significant digits."""
    value = float(centroids[row, column])
    margin = math.inf if margins is None else float(margins[row, column])
    if not 0.0 < margin < math.inf:
        step = float(steps[column])
        return (format_rounded(value, step) if step > 0.0 else format_number(value, 5)), None
    return format_rounded(value, margin), f"\u00b1 {format_number(margin, 2)}"


def format_rounded(value: float, margin: float) -> str:
    """Return a value with at most two digits of its margin.

    Examples
    --------
    >>> format_rounded(12.3456, 0.034), format_rounded(12345.6, 250.0)
    ('12.346', '12346')
    """
    digits = min(max(1 - math.floor(math.log10(margin)), 0), 12)
    if not math.isfinite(value) or abs(value) >= 1e15:
        return format_number(value, 5)
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\u2212")


def _plane(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    margins: NDArray[np.float64] | None,
    sizes: Mapping[str, Any] | None,
    bounds: NDArray[np.float64] | None,
) -> dict[str, Any]:
    """Return the drawing of two features."""
    values = None if sizes is None else [bar.value for bar in sizes["bars"]]
    drawn, ends = chart.discs(centroids, margins, values, bounds)
    return {"discs": drawn, "ends": [[format_number(end, 3) for end in row] for row in ends], "names": names}


def _palette(centroids: NDArray[np.float64]) -> list[str]:
    """Return the centres as colours, dark to light."""
    whole = np.clip(np.rint(centroids), 0, 255).astype(int)
    colours = [tuple(row) * (3 // len(row)) for row in whole.tolist()]
    return ["#{:02x}{:02x}{:02x}".format(*each) for each in sorted(colours, key=sum)]


def show_sizes(document: Mapping[str, Any], quality: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the noisy sizes as bars; None without sizes, or if they are exact."""
    sizes = document["result"]["noisy_sizes"]
    if sizes is None or not noisy(document):
        return None
    bars = chart.size_bars(sizes, quality["size_ranges"])
    return {"bars": bars[:MOST], "left_out": max(0, len(bars) - MOST), "ranges": bars[0].lo is not None}


def noisy(document: Mapping[str, Any]) -> bool:
    """Return whether every release of a run carries noise; counts without noise never appear on a page."""
    return all(release["mechanism"] != "none" for release in document["privacy"]["releases"])
