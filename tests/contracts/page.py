"""What every page must be: valid, accessible, complete in itself, without script, of public words and numbers alone.

Reads HTML with html5lib in strict mode, which follows the parser of the standard and refuses what that calls an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree.ElementTree import Element

import html5lib

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
FORBIDDEN = {
    *("script", "link", "iframe", "frame", "object", "embed", "form", "input", "button", "base", "template", "audio"),
    *("video", "source", "applet", "foreignObject", "use", "image", "animate", "set"),
}
ADDRESSES = ("href", "src", "srcset", "action", "data", "poster", "background", "xlink:href", "cite", "ping")
TEXTLESS = ("style", "script")
_NUMBER = re.compile(r"[\u2212-]?\d[\d,]*(?:\.\d+)?(?:e[\u2212+-]?\d+)?")
# A public file in the folder of the page: nothing is fetched until a person clicks, and then nothing from elsewhere.
_BESIDE = re.compile(r"(?!labels)[a-z][a-z0-9_-]*\.(csv|jsonl?|png|svg|pdf|toml)")
_WORD = re.compile(r"[^\W\d_]{2,}")
_DIGEST = re.compile(r"\b[0-9a-f]{32,}\b|#[0-9a-f]{6}\b|(?<=\brun )[0-9a-f]{8}\b")
# Units in which a page writes what a report has in bytes and seconds.
_UNITS = (1.0, 1e-3, 1e-6, 1e-9, 1e3, 1e6, 100.0)


def parse(text: str) -> Element:
    """Read a page; whatever the standard calls a parse error fails. Spaces that keep units at numbers become plain."""
    assert text.startswith("<!DOCTYPE html>")
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root: Element = parser.parse(text.replace("\u00a0", " "))
    return root


def check(text: str) -> Element:
    """Check a page, and return its root."""
    root = parse(text)
    _stands_alone(text, root)
    _can_be_heard(root)
    return root


def words(root: Element) -> set[str]:
    """Words of at least two letters that a reader meets, in texts and in what is read aloud."""
    return {word.lower() for text in _texts(root) for word in _WORD.findall(_DIGEST.sub(" ", text))}


def numbers(root: Element) -> set[str]:
    """Numbers that a reader meets, as they stand there; digests are words."""
    return {number for text in _texts(root) for number in written_numbers(text)}


def written_numbers(text: str) -> list[str]:
    """Numbers of a text, as they stand there."""
    return _NUMBER.findall(_DIGEST.sub(" ", text))


def is_rounded(written: str, known: Iterable[float]) -> bool:
    """Whether a number as written is one of those known, rounded, in bytes, seconds or their multiples, or per cent."""
    text = written.replace(",", "").replace("\u2212", "-")
    value, mantissa = float(text), text.partition("e")[0]
    digits = len(mantissa.partition(".")[2])
    scale = abs(value / float(mantissa)) if float(mantissa) else 1.0
    # A number without a fraction may have lost digits before the point too: four are kept.
    slack = max(0.51 * 10.0**-digits * scale, 0.51e-4 * abs(value) * (digits == 0))
    return any(abs(abs(value) - abs(each) * unit) <= slack * 1.02 + 1e-12 for each in known for unit in _UNITS)


def known_numbers(value: Any) -> Iterator[float]:
    """All numbers of a decoded JSON document, and those that its texts name."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from known_numbers(name)
            yield from known_numbers(each)
    elif isinstance(value, list):
        for each in value:
            yield from known_numbers(each)
    elif isinstance(value, str):
        yield from (float(number.replace(",", "")) for number in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def _stands_alone(text: str, root: Element) -> None:
    """Nothing is fetched, nothing runs."""
    metas = [element.attrib for element in root.iter("meta")]
    assert [meta["content"] for meta in metas if "http-equiv" in meta] == [POLICY]
    assert text.index(POLICY) < text.index("<style"), "a policy counts from where it stands"
    assert "@import" not in text and "url(" not in text
    for element in root.iter():
        if not isinstance(element.tag, str):  # a comment
            raise AssertionError("a page has no comments: nobody reads what they tell")
        tag = element.tag.rpartition("}")[2]
        assert tag not in FORBIDDEN, tag
        for name, value in element.attrib.items():
            assert not str(name).lower().startswith("on"), f"{tag} {name}"
            assert "javascript:" not in value.lower()
            if str(name).rpartition("}")[2] in ADDRESSES:
                beside = tag == "a" and _BESIDE.fullmatch(value) is not None
                assert beside or value.startswith(("data:image/png;base64,", "#")), f"{tag} {name} leads elsewhere"


def _can_be_heard(root: Element) -> None:
    """Headings in order, names for what is drawn, heads of tables, and no reference that leads nowhere."""
    assert root.attrib.get("lang") and (root.findtext("head/title") or "").strip()
    elements = [element for element in root.iter() if isinstance(element.tag, str)]
    tags = [element.tag.rpartition("}")[2] for element in elements]
    headings = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert headings.count(1) == 1 and headings[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings)), headings
    assert tags.count("main") == 1
    ids = [element.attrib["id"] for element in elements if "id" in element.attrib]
    assert len(ids) == len(set(ids)), "an id stands twice"
    for element, tag in zip(elements, tags, strict=True):
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(element.attrib.get(name, "").split()) <= set(ids), f"{tag} {name} leads nowhere"
        if tag == "img":
            assert element.attrib.get("alt")
        if tag == "svg" and element.attrib.get("aria-hidden") != "true":
            title = next((child for child in element if child.tag.rpartition("}")[2] == "title"), None)
            assert element.attrib["role"] == "img" and title is not None and (title.text or "").strip()
            assert element.attrib["aria-labelledby"] == title.attrib["id"]
        if tag == "table":
            assert (" ".join(element.find("caption").itertext())).strip(), "a table without a caption"
            _is_regular(element)
        if tag == "th":
            assert element.attrib.get("scope") in ("col", "row") and "".join(element.itertext()).strip()
        if element.attrib.get("role") == "region":
            assert element.attrib.get("tabindex") == "0", "who has no mouse must be able to scroll"


def _is_regular(table: Element) -> None:
    """Each row has as many cells as the others, and one head; none spans."""
    rows = list(table.iter("tr"))
    assert len(rows) > 1 and len({len(row) for row in rows}) == 1, "rows of different lengths"
    assert not any({"colspan", "rowspan"} & cell.attrib.keys() for row in rows for cell in row)
    assert all(sum(cell.tag == "th" for cell in row) == 1 for row in rows[1:])


def _texts(root: Element) -> Iterator[str]:
    for element in root.iter():
        if element.tag in TEXTLESS:
            continue
        yield element.text or ""
        yield from (element.attrib[name] for name in ("alt", "aria-label", "title") if name in element.attrib)
    for element in root.iter():
        yield element.tail or ""
