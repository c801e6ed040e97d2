"""Sentences with a count, in the singular and the plural."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import did_you_mean, format_count, name_some, printable


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


def test_of_very_many_names_the_first_stand_in_a_sentence() -> None:
    assert name_some(range(10)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert name_some(dict.fromkeys(range(1000))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more"
    assert name_some(()) == ""


def test_a_word_is_not_said_to_be_meant_for_itself() -> None:
    assert did_you_mean("s1", ["s1", "s2"]) == ""
    assert did_you_mean("irs", ["iris"]) == " (did you mean 'iris'?)"
    assert did_you_mean("epsilom" * 100, ["epsilon"]) == "" and did_you_mean("epsilom", ["x" * 10**6]) == ""


@given(st.lists(st.sampled_from(["://", ":", "/", "@", " ", "\t", "u", "pw"]), max_size=16).map("".join))
def test_a_password_is_what_stands_before_the_next_at_sign(text: str) -> None:
    assert printable(text).replace("\\t", "\t") == re.sub(r"(://[^\s/@:]*:)[^\s@]+@", r"\1***@", text)
