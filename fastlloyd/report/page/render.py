"""Fill in the package's templates; every value appears on the page as text.

Names of features and parties come from files and peers. Each value is first made printable, so that control characters
and marks of text direction show as escapes, and is then escaped for HTML.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastlloyd.errors import ConfigError, printable
from fastlloyd.report.unit import format_bytes, format_count, format_delta, format_epsilon, format_seconds

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_FLAG = re.compile(r"(?<![\w-])(--[a-z]+(?:-[a-z]+)*)")
_BREAKS = re.compile(r"(?<=[_./:;,-])")
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|[kMGT]?B|us|ms|s|min)(?![\w-]))")
_CAPTION = re.compile("<(caption|figcaption)(?: [^<>]*)?>(?!<strong>)")
HOW_TO_INSTALL = "pages need jinja2: install it with `pip install 'fastlloyd[report]'`"


def available() -> bool:
    """Return whether jinja2 is installed."""
    return find_spec("jinja2") is not None


def render(template: str, **values: Any) -> str:
    """Return a page as text.

    Parameters
    ----------
    template : str
        Name of a file in `templates/`; pages extend `base.html`.
    **values
        The variables of the template. The filters `bytes`, `count` (with a noun), `delta`, `epsilon`, `number`,
        `seconds` and `whole` format numbers; `wrap` lets a name break at its signs, `sentence` adds capital letter and
        full stop, `flags` keeps flags on one line.

    Raises
    ------
    ConfigError
        jinja2 is not installed.
    """
    return _environment().get_template(template).render(**values)


def format_number(value: float, digits: int = 4) -> str:
    """Write a number with the given number of digits, and a true minus sign.

    Examples
    --------
    >>> format_number(-1234.5678), format_number(0.5, 2)
    ('\u22121235', '0.5')
    """
    # Adding zero removes the sign of a negative zero.
    text = f"{float(value) + 0.0:.{digits}g}"
    whole = abs(value) < 1e15 and "e+" in text
    return (f"{value:.0f}" if whole else text).replace("-", "\u2212")


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


def format_whole(value: float) -> str:
    """Return a number without its fraction, with a true minus sign: `1,234`."""
    return f"{round(value):,}".replace("-", "\u2212")


def sentence(text: str) -> str:
    """Write a text with a capital letter and a full stop.

    Examples
    --------
    >>> sentence("noise of 4 %: good")
    'Noise of 4 %: good.'
    """
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def keep_units(page: str) -> str:
    """Keep a browser from breaking a line between a number and its unit."""
    return _BEFORE_UNIT.sub("\u00a0", page)


def keep_flags_whole(text: str) -> Markup:
    """Keep a browser from breaking a line inside a flag; escape the rest of the text.

    Examples
    --------
    >>> str(keep_flags_whole("a < b: try --state-dir"))
    'a &lt; b: try <span class="flag">--state-dir</span>'
    """
    from markupsafe import Markup

    span = Markup('<span class="flag">{}</span>')
    parts = _FLAG.split(printable(text, lines=True))  # every second one is a flag; `join` escapes the others
    return Markup("").join(span.format(part) if at % 2 else part for at, part in enumerate(parts))


def wrap_name(text: str) -> Markup:
    """Let a browser break a name after its signs; escape the rest of the text.

    Examples
    --------
    >>> str(wrap_name("blood_pressure <mmHg>"))
    'blood_<wbr>pressure &lt;mmHg&gt;'
    """
    from markupsafe import Markup

    return Markup("<wbr>").join(filter(None, _BREAKS.split(printable(text))))


def number_captions(page: str, say: Callable[[str], str] = str) -> str:
    """Number the tables and figures of a page; `say` puts `Table 1` into the page's language.

    A figure whose caption begins with strong letters is a part of others and has no number.

    Examples
    --------
    >>> number_captions("<caption>Sizes.</caption><caption>Costs.</caption>")
    '<caption>Table 1. Sizes.</caption><caption>Table 2. Costs.</caption>'
    """
    counts = {"caption": itertools.count(1), "figcaption": itertools.count(1)}

    def numbered(found: re.Match[str]) -> str:
        kind = "Table" if found[1] == "caption" else "Figure"
        return f"{found[0]}{say(f'{kind} {next(counts[found[1]])}')}. "

    return _CAPTION.sub(numbered, page)


@cache
def _environment() -> Environment:
    """Return jinja2's environment for all pages."""
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise ConfigError(HOW_TO_INSTALL) from error
    folder = resources.files("fastlloyd.report.page").joinpath("templates")
    environment = Environment(
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
    )
    environment.filters.update(
        bytes=format_bytes,
        count=format_count,
        delta=format_delta,
        epsilon=format_epsilon,
        flags=keep_flags_whole,
        number=format_number,
        seconds=format_seconds,
        sentence=sentence,
        wrap=wrap_name,
        whole=format_whole,
    )
    return environment


def _shown(value: Any) -> Any:
    """Return a value as printable text; leave markup unchanged."""
    return value if hasattr(value, "__html__") else printable(str(value), lines=True)
