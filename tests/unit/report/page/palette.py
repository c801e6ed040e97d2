"""Reads the colours of the pages' style, and computes their contrast."""

from __future__ import annotations

import re
from importlib import resources

STYLE = resources.files("fastlloyd.report.page").joinpath("templates/style.css").read_text("utf-8")
DARK = "@media screen and (prefers-color-scheme: dark)"


def colours() -> dict[str, dict[str, str]]:
    """Name to colour, of each theme."""
    light, _, rest = STYLE.partition(DARK)
    return {"light": _variables(light), "dark": _variables(light) | _variables(rest.partition("\n}\n")[0])}


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2, "contrast ratio"): 1 to 21."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _variables(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))


def _luminance(colour: str) -> float:
    levels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
