"""Labels are distinct, fit, and cut no letter, whatever the names."""

from __future__ import annotations

import random

import pytest

from fastlloyd.errors import printable
from fastlloyd.report.label import graphemes, in_full, short_labels, width_of

SCRIPTS = {
    "Latin": ("systolic", "pressure", "_", "visit", "\u00e9", "e\u0301", "A", "7", "12", ".", "mmHg"),
    "right to left": ("\u0636\u063a\u0637", "\u0627\u0644\u062f\u0645", " ", "\u05dc\u05d7\u05e5", "\u05b8", "3"),
    "Chinese": ("\u5e74\u9f84", "\u60a3\u8005", "\u306e", "\u8840\u5727", "1", "\uac01"),
    "emoji": ("\U0001fa7a", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "x", "2"),
}


def drawn(script: str, count: int, longest: int, draw: random.Random) -> list[str]:
    """Distinct names that mostly begin and end in the same way."""
    parts = SCRIPTS[script]

    def words(length: int) -> str:
        text = ""
        while len(text) < length:
            text += draw.choice(parts)
        return text[:length]

    shared = words(longest), words(longest)
    found: dict[str, None] = {}
    while len(found) < count:
        middle = (words(draw.randint(1, 8)) + str(draw.randint(0, 10**6)))[-longest:]
        room = draw.choice((0, longest, longest)), draw.choice((0, longest))
        start = shared[0][: min(room[0], longest - len(middle))]
        found[start + middle + shared[1][: min(room[1], longest - len(start + middle))]] = None
        longest += longest < 4  # there are not enough names of one letter
    return list(found)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("count", [2, 10, 40, 200])
@pytest.mark.parametrize("longest", [1, 12, 30, 200])
def test_labels_are_distinct_and_narrow_and_split_no_letter(script: str, count: int, longest: int) -> None:
    draw = random.Random(f"{script} {count} {longest}")
    names = drawn(script, count, longest, draw)
    for width in (8, 20):
        labels = short_labels(names, width)
        assert len(set(labels)) == count
        assert max(map(width_of, labels)) <= width
        for name, label in zip(names, labels, strict=True):
            letters = [*graphemes(printable(name)), *"\u2026 #'0123456789"]
            # Each piece of a label is a run of whole letters of its name.
            assert not set(graphemes(label)) - set(letters), (name, label)
            assert (label == printable(name)) == (width_of(printable(name)) <= width) or "#" not in label


def test_what_tells_names_apart_stays() -> None:
    numbered = [f"measurement_of_the_blood_value_number_{i:02d}_at_the_first_visit" for i in range(1, 41)]
    assert all(f"{i:02d}" in label for i, label in enumerate(short_labels(numbered), start=1))
    two = [f"patient_reported_outcome_question_{i}_score_at_visit_{j}_in_hospital" for i in (1, 10) for j in (1, 2)]
    assert short_labels(two) == [
        *("\u20261_score_at_visit_1\u2026", "\u20261_score_at_visit_2\u2026"),
        *("\u202610_score_at\u2026isit_1\u2026", "\u202610_score_at\u2026isit_2\u2026"),
    ]
    assert short_labels(["systolic_blood_pressure_first_visit_mmHg", "age"]) == ["systolic_blo\u2026it_mmHg", "age"]


def test_a_name_that_fits_keeps_itself_whatever_others_are_cut_to() -> None:
    cut = short_labels(["a" * 30, "b" * 30])[0]
    labels = short_labels([cut, "a" * 30, f"{'a' * 29}b", "#2"])
    assert labels[0] == cut and labels[3] == "#2" and len(set(labels)) == 4


def test_the_last_resort_is_a_number() -> None:
    # Differences in the middle, further apart than a label is wide, and pairwise in other places.
    names = ["ab" * 100, "ab" * 99 + "aa", "ab" * 50 + "ba" * 50, "x" + "ab" * 99 + "a"]
    assert len(set(short_labels(names, 8))) == 4
    assert short_labels(["x" * 200, "x" * 199], 8)[1].endswith(("x", "#2", "\u2026"))


def test_names_that_do_not_print_are_escaped_and_escapes_stay_whole() -> None:
    (label, other) = short_labels(["dose\u202e" + "x" * 40, "dose\u202e" + "x" * 41], 12)
    assert "\u202e" not in label + other and label != other
    assert graphemes("e\u0301\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\u1112\u1161\u11ab") == [
        *("e\u0301", "\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7", "\u1112\u1161\u11ab")
    ]
    assert graphemes("") == [] and graphemes("\u0915\u094d\u0937") == ["\u0915\u094d\u0937"]


def test_the_list_of_names_in_full_has_what_was_shortened() -> None:
    names = ["age", "systolic_blood_pressure_first_visit"]
    assert in_full(names, short_labels(names)) == [("systolic_blo\u2026t_visit", names[1])]
