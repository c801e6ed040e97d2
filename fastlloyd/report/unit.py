"""Bytes, seconds, counts and epsilon for people."""

from __future__ import annotations

import math

from fastlloyd.errors import format_count

__all__ = ["format_bytes", "format_count", "format_delta", "format_epsilon", "format_left", "format_seconds"]


def format_bytes(count: float) -> str:
    """Return a number of bytes in decimal units, like network equipment: `96 B`, `1.5 MB`."""
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:.1f} TB"


def format_seconds(seconds: float) -> str:
    """Return a duration: `12 ms`, `3.4 s`, `2 min 5 s`."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def format_delta(delta: float) -> str:
    """Return delta with three digits, as claims, plans and pages have it."""
    return f"{delta:.3g}"


def format_epsilon(epsilon: float) -> str:
    """Return epsilon with four digits, rounded up, so that it is never below what is spent."""
    return _format_on_side(epsilon, 1.0)


def format_left(epsilon: float) -> str:
    """Return what is left of a budget with four digits, rounded down, so that it is never above the true rest."""
    return _format_on_side(epsilon, -1.0)


def _format_on_side(value: float, side: float) -> str:
    """Return four digits of a value, on the side of 1 (not below it) or -1 (not above it)."""
    text = f"{value:.4g}"
    if not 0 < value < math.inf or float(text) * side >= value * side:
        return text
    return f"{value + side * 0.5 * 10.0 ** (math.floor(math.log10(value)) - 3):.4g}"
