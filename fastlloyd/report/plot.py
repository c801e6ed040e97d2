"""Plots of released centroids, as PNG, SVG or PDF; a photograph redrawn with its clusters' colours.

Only released values are drawn; points, and the photograph, only where the data set is public. Plots need matplotlib,
which is loaded at the first one; the photograph needs the standard library alone.
"""

from __future__ import annotations

import io
import struct
import textwrap
import warnings
import zlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError, printable
from fastlloyd.report.labelling import nearest

FORMS = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
"""The forms of a plot, and what matplotlib would write about itself and the time."""

_DPI = 120
_MAX_POINTS = 5000
_MAX_TICKS = 40
_MAX_NUMBERS = 120
_LEAST_AREA = 110.0
_COLOURS = "RdBu_r"

_GAP = 12
_STRIP = 48
_FRAME = 5
_WARNING = (214, 39, 40)
_BACKGROUND = 255
_LUMINANCE = np.array([0.299, 0.587, 0.114])


def palette_picture(
    image_shape: tuple[int, ...],
    pixels: NDArray[np.float64],
    centroids: NDArray[np.float64],
    *,
    doubtful: bool = False,
) -> bytes:
    """Draw a picture, beside it the same picture with each pixel as its nearest centroid, and below it the palette.

    Parameters
    ----------
    image_shape : (height, width) or (height, width, channels)
    pixels : float64 array, shape (height * width, d), values 0..255, d = 3 (or 1: grey)
    centroids : float64 array, shape (k, d)
    doubtful : bool
        Draw a red frame; the report gives the reason.

    Returns
    -------
    bytes
        A PNG.

    Raises
    ------
    ConfigError
        The shapes do not match.
    """
    height, width = image_shape[:2]
    d = pixels.shape[1] if pixels.ndim == 2 else 0
    if d not in (1, 3) or len(pixels) != height * width or centroids.shape[1:] != (d,) or not len(centroids):
        raise ConfigError(
            f"a palette picture needs {height * width} pixels of 1 or 3 colours and the same for centroids, got shapes "
            f"{pixels.shape} and {centroids.shape}; leave --columns out"
        )
    palette = _bytes(centroids)
    original = _bytes(pixels).reshape(height, width, 3)
    redrawn = palette[nearest(pixels, centroids)].reshape(height, width, 3)
    canvas = np.full((3 * _GAP + height + _STRIP, 3 * _GAP + 2 * width, 3), _BACKGROUND, dtype=np.uint8)
    canvas[_GAP : _GAP + height, _GAP : _GAP + width] = original
    canvas[_GAP : _GAP + height, 2 * _GAP + width : 2 * _GAP + 2 * width] = redrawn
    canvas[2 * _GAP + height : 2 * _GAP + height + _STRIP, _GAP:-_GAP] = _strip(palette, 2 * width + _GAP)
    if doubtful:
        frame = np.ones(canvas.shape[:2], dtype=bool)
        frame[_FRAME:-_FRAME, _FRAME:-_FRAME] = False
        canvas[frame] = _WARNING
    return encode_png(canvas)


def encode_png(image: NDArray[np.uint8]) -> bytes:
    """Write an image as PNG.

    Parameters
    ----------
    image : uint8 array, shape (height, width, 3)

    Returns
    -------
    bytes
    """
    height, width, _ = image.shape
    left, above, corner = np.zeros_like(image), np.zeros_like(image), np.zeros_like(image)
    left[:, 1:], above[1:], corner[1:, 1:] = image[:, :-1], image[:-1], image[:-1, :-1]
    rows = np.empty((height, 1 + 3 * width), dtype=np.uint8)
    rows[:, 0] = 4
    rows[:, 1:] = (image - _paeth(left, above, corner)).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _paeth(left: NDArray[np.uint8], above: NDArray[np.uint8], corner: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Predict each byte by the neighbour nearest to left + above - corner (PNG specification, 9.4)."""
    a, b, c = (side.astype(np.int16) for side in (left, above, corner))
    to_a, to_b, to_c = np.abs(b - c), np.abs(a - c), np.abs(a + b - 2 * c)
    return np.where((to_a <= to_b) & (to_a <= to_c), left, np.where(to_b <= to_c, above, corner))


def _strip(palette: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Draw the colours side by side, dark to light, shape (_STRIP, width, 3)."""
    order = np.argsort(palette @ _LUMINANCE, kind="stable")
    column = np.arange(width) * len(palette) // width
    return np.broadcast_to(palette[order][column], (_STRIP, width, 3))


def _bytes(colours: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Round colours to bytes, grey ones to three equal channels."""
    whole = np.clip(np.rint(colours), 0, 255).astype(np.uint8)
    return np.repeat(whole, 3, axis=1) if whole.shape[1] == 1 else whole


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def heat_map(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    *,
    noisy_sizes: Sequence[float] | None = None,
    warning: str = "",
    form: str | None = "png",
) -> Any:
    """Draw all centroids as one table of colours: rows clusters, columns features.

    Parameters
    ----------
    names : sequence of str, length d
    centroids : float64 array, shape (k, d)
        In original units.
    lo, hi : float64 array, shape (d,)
        The public bounds: the ends of the colour scale.
    noisy_sizes : sequence of float, length k, optional
        Released sizes, written beside the rows.
    warning : str
        Written above the plot; empty for none.
    form : str or None
        Of `FORMS`.

    Returns
    -------
    bytes
        A file of that form; the figure itself where `form` is None.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    k, d = centroids.shape
    scaled = (2.0 * centroids - lo - hi) / (hi - lo)
    size = (min(2.6 + 0.62 * d, 16.0), min(1.9 + 0.34 * k, 16.0))
    figure, axes = make_figure(size)
    image = axes.imshow(scaled, cmap=_COLOURS, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    labels = [_short(name) for name in names]
    columns = _ticks(d)
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    narrow = d <= 12 and max(map(len, labels)) <= 6
    axes.set_xticks(columns, [labels[i] for i in columns], **({} if narrow else turned))
    rows = _ticks(k)
    sizes = {row: "" if noisy_sizes is None else f" ({round(noisy_sizes[row]):,})" for row in rows}
    axes.set_yticks(rows, [f"{row}{sizes[row]}" for row in rows])
    axes.set_ylabel("cluster" if noisy_sizes is None else "cluster (noisy size)")
    if k * d <= _MAX_NUMBERS:
        _write_numbers(axes, centroids, scaled)
    bar = figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], fraction=0.05, pad=0.03)
    bar.ax.set_yticklabels(["lower bound", "middle", "upper bound"])
    _write_warning(axes, size[0], warning)
    return render_figure(figure, form)


def plane(
    names: Sequence[str],
    centroids: NDArray[np.float64],
    lo: NDArray[np.float64],
    hi: NDArray[np.float64],
    *,
    noisy_sizes: Sequence[float] | None = None,
    public_points: NDArray[np.float64] | None = None,
    warning: str = "",
    form: str | None = "png",
) -> Any:
    """Draw centroids of two features in their plane, with areas that grow with the noisy sizes.

    Parameters
    ----------
    names, centroids, lo, hi, noisy_sizes, warning, form
        As for `heat_map`, with d = 2.
    public_points : float64 array, shape (n, 2), optional
        Of a public data set; at most 5,000 of them are drawn.

    Returns
    -------
    bytes
        A file of that form, or the figure.

    Raises
    ------
    ConfigError
        There are not two features, or matplotlib is not installed.
    """
    if centroids.shape[1] != 2:
        raise ConfigError(f"a plane has two features, got {centroids.shape[1]}; draw a heat map")
    figure, axes = make_figure((6.4, 5.4))
    if public_points is not None and len(public_points):
        shown = public_points[:: -(-len(public_points) // _MAX_POINTS)]
        axes.plot(shown[:, 0], shown[:, 1], ".", color="0.75", markersize=3, zorder=1, label="points (public data)")
    _draw_centroids(axes, centroids, _areas(noisy_sizes, len(centroids)))
    margin = 0.06 * (hi - lo)
    axes.set_xlim(lo[0] - margin[0], hi[0] + margin[0])
    axes.set_ylim(lo[1] - margin[1], hi[1] + margin[1])
    axes.set_xlabel(_short(names[0], 40))
    axes.set_ylabel(_short(names[1], 40))
    figure.legend(loc="outside upper center", ncols=2, frameon=False, markerscale=1)
    _write_warning(axes, 6.4, warning)
    return render_figure(figure, form)


def elbow_plot(costs: NDArray[np.float64], chosen: int, form: str | None = "png") -> Any:
    """Draw the curve of costs by which k was chosen (FedDP-KMeans, App. H.3); `form` as for `heat_map`."""
    figure, axes = make_figure((6.4, 4.0))
    numbers = np.arange(1, len(costs) + 1)
    axes.plot(numbers, costs, marker="o", color="#33658a")
    axes.axvline(chosen, color="#c1440e", linestyle="--", label=f"chosen: k = {chosen}")
    axes.set_xlabel("number of clusters k")
    axes.set_ylabel("noisy cost")
    axes.set_ylim(bottom=0.0)
    axes.legend()
    return render_figure(figure, form)


def _write_warning(axes: Any, width: float, warning: str) -> None:
    """Write a warning above a plot, in lines that fit a figure of this width in inches."""
    if warning:
        lines = textwrap.wrap(printable(warning).replace("$", r"\$"), max(24, int(width * 11)))
        axes.set_title("\n".join(lines), fontsize=8, color="tab:red")


def _draw_centroids(axes: Any, centroids: NDArray[np.float64], area: NDArray[np.float64]) -> None:
    """Draw centroids with their numbers inside, the large ones first so that they do not hide smaller ones."""
    for place, row in enumerate(np.argsort(-area, kind="stable")):
        axes.scatter(
            *centroids[row],
            s=area[row],
            color="tab:red",
            edgecolor="white",
            linewidth=0.8,
            zorder=2 + place,
            alpha=0.85,
            clip_on=False,
        )
        if len(centroids) <= _MAX_TICKS:
            axes.text(
                *centroids[row], str(row), ha="center", va="center", fontsize=7, color="white", zorder=3 + len(area)
            )
    axes.scatter([], [], s=_LEAST_AREA, color="tab:red", label="released centroids")


def make_figure(size: tuple[float, float], rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """Make a figure with its axes, on no screen and without global state.

    Parameters
    ----------
    size : pair of float
        Width and height in inches.
    rows, columns : int
        Several axes are returned as an array, shape (rows, columns) without dimensions of length 1.

    Raises
    ------
    ConfigError
        matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plots need matplotlib: install it with `pip install 'fastlloyd[plots]'`") from error
    figure = Figure(figsize=size, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns)


def render_png(figure: Any) -> bytes:
    """Render a figure as a PNG."""
    content: bytes = render_figure(figure, "png")
    return content


def render_figure(figure: Any, form: str | None) -> Any:
    """Render a figure in one of `FORMS`; letters of SVG and PDF stay letters, which a journal can set anew."""
    import matplotlib

    if form is None:
        return figure

    content = io.BytesIO()
    letters: Any = {"svg.fonttype": "none", "svg.hashsalt": "fastlloyd", "pdf.fonttype": 42}
    with warnings.catch_warnings(), matplotlib.rc_context(letters):
        # A name in letters that no font here has is drawn as boxes: a warning of Python for each helps nobody.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # No software name or date inside: the same values give the same file.
        figure.savefig(content, format=form, metadata=dict.fromkeys(FORMS[form]))
    return content.getvalue()


def _write_numbers(axes: Any, centroids: NDArray[np.float64], scaled: NDArray[np.float64]) -> None:
    """Write each value into its cell, in a colour that stands out."""
    for (row, column), value in np.ndenumerate(centroids):
        dark = abs(scaled[row, column]) > 0.6
        axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=7, color="white" if dark else "black")


def _areas(sizes: Sequence[float] | None, k: int) -> NDArray[np.float64]:
    """Return marker areas in square points, growing with the sizes; the smallest still holds its number."""
    if sizes is None:
        return np.full(k, _LEAST_AREA)
    weights = np.clip(np.asarray(sizes, dtype=np.float64), 0.0, None)
    top = weights.max(initial=0.0)
    return _LEAST_AREA + 4.0 * _LEAST_AREA * (weights / top if top > 0 else weights)


def _ticks(count: int) -> list[int]:
    """Choose at most `_MAX_TICKS` of `count` places, evenly."""
    return list(range(0, count, -(-count // _MAX_TICKS)))


def _short(name: str, limit: int = 18) -> str:
    name = printable(name)
    # A dollar sign would begin a formula.
    return (name if len(name) <= limit else f"{name[: limit - 6]}...{name[-3:]}").replace("$", r"\$")
