"""Sentences with a count, in the singular and the plural."""

from __future__ import annotations

import pytest

from fastlloyd.errors import format_count


@pytest.mark.parametrize(
    ("count", "noun", "verb", "text"),
    [
        (0, "record", "", "0 records"),
        (1, "record", "", "1 record"),
        (2, "record", "", "2 records"),
        (12345, "record", "", "12,345 records"),
        (1, "record", "lack", "1 record lacks"),
        (2, "record", "lack", "2 records lack"),
        (1, "party", "have", "1 party has"),
        (3, "party", "have", "3 parties have"),
        (1, "more entry", "are", "1 more entry is"),
        (2, "more entry", "are", "2 more entries are"),
        (1, "person", "", "1 person"),
        (2, "person", "carry", "2 people carry"),
    ],
)
def test_a_count_agrees_with_its_noun_and_its_verb(count: int, noun: str, verb: str, text: str) -> None:
    assert format_count(count, noun, verb) == text
