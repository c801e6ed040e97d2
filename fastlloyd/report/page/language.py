"""Pages and dossiers in another language, from one catalogue of sentences.

A report keeps its sentences in English, for what was signed stays as it is. So a page and a dossier are made in English
first and then said in another language, piece by piece: a heading, a cell, a sentence. A catalogue in `languages/` has
a line for each::

    "{n} clusters" = "{n} Cluster"
    "{s} of at most {n} records" = "{s} von höchstens {n} Datensätzen"

`{n}` stands for a number, which is written as the language writes it; `{x}` for names and other text that stays as it
is (`{w}` if it has no space); `{s}` for a piece that has lines itself. Digits tell several from each other: `{n1}`.
Lines begin with a small letter where the first word may stand within a sentence. What has no line stays in English; a
test finds it.

Source: docs/report.md, "report.html".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources

from fastlloyd.wire.toml import parse_toml

ENGLISH = "en"
LANGUAGES = (ENGLISH, "de")
"""Of pages and dossiers."""
_NUMBER = "[-\u2212]?[0-9][0-9,]*(?:[.][0-9]+)?(?:e[-+\u2212]?[0-9]+)?"
_PLACE = re.compile(r"\{([nxsw][0-9]?)\}")
_KINDS = {"n": f"({_NUMBER})", "x": "(.+?)", "s": "(.+?)", "w": "([^ ]+?)"}
_ENDS = re.compile(r"(?<=[.!?]) (?=[A-Z\u201c<])")
_ALONE = re.compile(rf"{_NUMBER}(?:[ \u2013,;]+{_NUMBER})*(?: (?:%|[kMGT]?B|us|ms|s))?")
_MARK = re.compile("(<[^<>]*>)")
_INLINE = {"code", "strong", "bdi", "span", "em", "a", "wbr"}
_VERBATIM = {"style", "pre"}
_SPOKEN = re.compile('((?:aria-label|alt|data-head)=")([^"<>]*)(?=")')
_WRAPPED = re.compile("<([a-z]+)([^<>]*)>(.*)</([a-z]+)>")
# A longer piece stays in English: places of a line are looked for in all ways.
_MOST = 2_000
# Nor is a piece within more pieces looked up, for a text that somebody wrote to be one in another hundreds of times.
_DEEPEST = 20
_LETTERS = re.compile(r"[^\W\d_]{2,}")


class Language:
    """A language with its catalogue.

    Parameters
    ----------
    lines : mapping
        From English to this language.
    code : str
        For the attribute `lang` of a page.

    Attributes
    ----------
    code : str
    unsaid : set of str
        Pieces with words that had no line; names and other data are among them.
    """

    def __init__(self, lines: Mapping[str, str], code: str) -> None:
        self.code = code
        self.unsaid: set[str] = set()
        self._plain = {english: said for english, said in lines.items() if not _PLACE.search(english)}
        patterns = [(english, said) for english, said in lines.items() if _PLACE.search(english)]
        patterns.sort(key=lambda line: -len(_PLACE.sub("", line[0])))
        self._patterns = [(_literal(english), *_compiled(english), said) for english, said in patterns]
        self._known: dict[str, str | None] = {}
        self._depth = 0

    def say(self, text: str) -> str:
        """Return a piece of text in this language; what has no line stays as it is."""
        said = self._said(text) if len(text) <= _MOST else None
        if said is None:
            if _LETTERS.search(text):
                self.unsaid.add(text)
            return text
        return said

    def page(self, text: str) -> str:
        """Return a page of this package in this language."""
        spoken = _SPOKEN.sub(lambda found: found[1] + self.say(found[2]), text)
        return "".join(self._pieces(spoken)).replace('<html lang="en">', f'<html lang="{self.code}">', 1)

    def _pieces(self, text: str) -> Iterator[str]:
        """Yield the tags of blocks, and what stands between them in this language."""
        run: list[str] = []
        verbatim = ""
        for place, token in enumerate(_MARK.split(text)):
            name = token.strip("</>").split(" ")[0] if place % 2 else ""
            if verbatim:
                verbatim = "" if token == f"</{verbatim}>" else verbatim
                yield token
            elif name in _INLINE or not place % 2:
                run.append(token)
            else:
                yield self._run("".join(run))
                run = []
                verbatim = name if name in _VERBATIM else ""
                yield token
        yield self._run("".join(run))

    def _run(self, inner: str) -> str:
        """Return the content of a block, whose tags are all inline; space around it stays."""
        text = " ".join(inner.split())
        if not text or len(text) > _MOST:
            return inner
        before, after = inner[: len(inner) - len(inner.lstrip())], inner[len(inner.rstrip()) :]
        # Lines have plain quotation marks; in an attribute, a name with one would begin another attribute.
        pieces = _MARK.split(text)
        pieces[::2] = [piece.replace("&#39;", "'").replace("&#34;", '"') for piece in pieces[::2]]
        return f"{before}{self._wrapped(''.join(pieces))}{after}"

    def _wrapped(self, text: str) -> str:
        """Return it, within the inline element that it is, if it is one; code and names stay as they are."""
        whole = _WRAPPED.fullmatch(text)
        if whole is None or whole[1] != whole[4] or f"</{whole[1]}>" in whole[3]:
            return self.say(text)
        if whole[1] in ("code", "bdi") or "digest" in whole[2]:
            return text
        return f"<{whole[1]}{whole[2]}>{self.say(whole[3])}</{whole[1]}>"

    def _said(self, text: str) -> str | None:
        if text not in self._known:
            self._known[text] = None  # while it is looked for, so that no line leads back to itself
            if self._depth < _DEEPEST:
                self._depth += 1
                self._known[text] = self._find(text)
                self._depth -= 1
        return self._known[text]

    def _find(self, text: str) -> str | None:
        for form, back in _forms(text):
            said = self._line(form)
            if said is not None:
                return back(said)
        parts = _ENDS.split(text)
        if len(parts) > 1:
            found = [self._said(part) for part in parts]
            if None not in found:
                return " ".join(map(str, found))
        return None

    def _line(self, text: str) -> str | None:
        """Return what a line of the catalogue makes of a text; None if none fits."""
        if text in self._plain:
            return self._plain[text]
        if _ALONE.fullmatch(text):
            return self._number(text)
        for start, pattern, names, said in self._patterns:
            found = pattern.fullmatch(text) if text.startswith(start) else None
            if found is not None:
                values = dict(zip(names, found.groups(), strict=True))
                filled = {name: self._value(name, value) for name, value in values.items()}
                if None not in filled.values():
                    return "".join(str(filled[part]) if at % 2 else part for at, part in enumerate(_PLACE.split(said)))
        return None

    def _value(self, name: str, value: str) -> str | None:
        if name[0] in "xw":
            return value
        return self._number(value) if name[0] == "n" else self._inner(value)

    def _inner(self, value: str) -> str | None:
        whole = _WRAPPED.fullmatch(value)
        if whole is not None and whole[1] in ("code", "bdi"):
            return value
        return self._said(value)

    def _number(self, text: str) -> str:
        """Write numbers with a comma before the fraction and full stops between thousands."""
        return re.sub(_NUMBER, lambda found: found[0].translate(_COMMAS), text)


# So in German; a language that writes numbers in another way brings its own.
_COMMAS = str.maketrans(",.", ".,")


def _forms(text: str) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Yield the forms in which a piece may stand in the catalogue, each with the way back."""
    yield text, lambda said: said
    small = text[:1].lower() + text[1:]
    if text.endswith("."):
        yield text[:-1], lambda said: f"{said}."
    if small != text:
        yield small, lambda said: said[:1].upper() + said[1:]
        if text.endswith("."):
            yield small[:-1], lambda said: f"{said[:1].upper()}{said[1:]}."


def _literal(english: str) -> str:
    """Return what stands before the first place of a line."""
    return _PLACE.split(english, maxsplit=1)[0]


def _compiled(english: str) -> tuple[re.Pattern[str], list[str]]:
    """Return a line of the catalogue as a pattern, and the names of its places."""
    parts = _PLACE.split(english)
    pattern = "".join(_KINDS[part[0]] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile(pattern), parts[1::2]


@cache
def catalogue(code: str) -> Mapping[str, str]:
    """Return the lines of a language."""
    place = resources.files("fastlloyd.report.page").joinpath("languages", f"{code}.toml")
    return parse_toml(place.read_bytes())


def language(code: str) -> Language | None:
    """Return a language of this package; None for English, which needs no catalogue.

    Parameters
    ----------
    code : str
        One of `LANGUAGES`.
    """
    return None if code == ENGLISH else Language(catalogue(code), code)
