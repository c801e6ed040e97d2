"""A photograph redrawn with its clusters' colours, only where the data set is public; plots by matplotlib.

Plots need matplotlib, which is loaded at the first one; the photograph needs the standard library alone.
"""

from __future__ import annotations

import io
import struct
import zlib
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastlloyd.errors import ConfigError
from fastlloyd.report.labelling import nearest

_DPI = 120

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
    figure = new_figure(size, layout="constrained")
    return figure, figure.subplots(rows, columns)


def new_figure(size: tuple[float, float], dpi: int = _DPI, layout: Any = None) -> Any:
    """Make an empty figure; parameters and errors as for `make_figure`."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("plots need matplotlib: install it with `pip install 'fastlloyd[plots]'`") from error
    figure = Figure(figsize=size, dpi=dpi, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def render_png(figure: Any) -> bytes:
    """Render a figure as a PNG, without software name or date inside: the same values give the same file."""
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()
