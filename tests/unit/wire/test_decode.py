"""The strict decoder: what it accepts, and that everything else ends in one clear ValueError."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError
from fastlloyd.wire.decode import (
    MOST_INTEGER,
    MOST_LEVELS,
    Amount,
    Misfit,
    Within,
    decode,
    load_json,
    plain,
    reader,
    show,
)


@dataclass(frozen=True, slots=True)
class Inner:
    flag: bool
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outer:
    k: Annotated[int, Within(1, 10)]
    n: Annotated[int, Within(0, MOST_INTEGER)]
    sigma: Amount
    name: Annotated[str, Within(1, 5)]
    mode: Literal["one", "two", 3]
    names: Annotated[tuple[str, ...], Within(1, 3)]
    pair: tuple[int, str]
    counts: Mapping[str, int]
    inner: Inner | None
    least: Annotated[int, Within(0, 5)] | None
    late: int = 7

    def __post_init__(self) -> None:
        if self.k == 9:
            raise ConfigError("k is nine")


GOOD: dict[str, Any] = {
    "k": 3,
    "n": 0,
    "sigma": 1.5,
    "name": "abc",
    "mode": "one",
    "names": ["x", "y"],
    "pair": [1, "p"],
    "counts": {"1": 5},
    "inner": {"flag": True, "rates": [0.5, 1, -2.5]},
    "least": None,
}


def test_everything_declared_is_read() -> None:
    found = decode(Outer, load_json(json.dumps(GOOD)), "the plan")
    inner = Inner(True, (0.5, 1.0, -2.5))
    assert found == Outer(3, 0, 1.5, "abc", "one", ("x", "y"), (1, "p"), {"1": 5}, inner, None)
    assert type(found.inner.rates[1]) is float if found.inner else False
    assert decode(Outer, {**GOOD, "late": 8, "mode": 3, "least": 5, "inner": None}, "the plan").late == 8


BAD: list[tuple[dict[str, Any], str]] = [
    ({"k": 3.0}, r"the plan\.k: expected a whole number from 1 to 10, got 3\.0"),
    ({"k": True}, r"the plan\.k: expected a whole number from 1 to 10, got True"),
    ({"k": 0}, r"the plan\.k: .* got 0"),
    ({"k": 11}, r"the plan\.k: .* got 11"),
    ({"k": "3"}, r"the plan\.k: .* got '3'"),
    ({"k": None}, r"the plan\.k: .* got None"),
    ({"k": 9}, r"the plan: k is nine"),
    ({"n": -1}, r"the plan\.n: .* got -1"),
    ({"n": MOST_INTEGER + 1}, r"the plan\.n: "),
    ({"sigma": -0.5}, r"the plan\.sigma: expected a number, at least 0, got -0\.5"),
    ({"sigma": math.inf}, r"the plan\.sigma: "),
    ({"sigma": math.nan}, r"the plan\.sigma: "),
    ({"sigma": False}, r"the plan\.sigma: "),
    ({"sigma": 2**53 + 1}, r"the plan\.sigma: "),
    ({"name": ""}, r"the plan\.name: expected text of 1 to 5 characters, got ''"),
    ({"name": "abcdef"}, r"the plan\.name: "),
    ({"name": "\ud800"}, r"the plan\.name: expected text in Unicode, got '\\ud800'"),
    ({"name": 5}, r"the plan\.name: "),
    ({"mode": "three"}, r"the plan\.mode: expected 'one', 'two' or 3, got 'three'"),
    ({"mode": 3.0}, r"the plan\.mode: "),
    ({"mode": []}, r"the plan\.mode: "),
    ({"names": []}, r"the plan\.names: expected a list of 1 to 3 entries, got \[\]"),
    ({"names": ["a"] * 4}, r"the plan\.names: "),
    ({"names": "ab"}, r"the plan\.names: "),
    ({"names": ["a", 1]}, r"the plan\.names\[1\]: expected text .*, got 1"),
    ({"pair": [1]}, r"the plan\.pair: expected a list of 2 entries"),
    ({"pair": ["p", 1]}, r"the plan\.pair\[0\]: expected a whole number"),
    ({"counts": []}, r"the plan\.counts: expected an object"),
    ({"counts": {"a\x1b[2J": "x"}}, r"the plan\.counts\['a\\x1b\[2J'\]: expected a whole number"),
    ({"inner": {}}, r"the plan\.inner: expected the fields flag, rates, got an object without \['flag', 'rates'\]"),
    ({"inner": {"flag": 1, "rates": []}}, r"the plan\.inner\.flag: expected true or false, got 1"),
    ({"inner": {"flag": True, "rates": [0.0, {}]}}, r"the plan\.inner\.rates\[1\]: expected a number, got \{\}"),
    ({"least": 6}, r"the plan\.least: expected a whole number from 0 to 5, got 6"),
    ({"late": None}, r"the plan\.late: expected a whole number, got None"),
    ({"more\n": 1}, r"the plan: expected the fields k, .* with \['more\\n'\] in addition"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_whatever_is_not_declared_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        decode(Outer, {**GOOD, **change}, "the plan")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("within", "inside", "outside", "words"),
    [
        (Within(1, 10), (1, 10), (0, 11, math.nan), "x from 1 to 10"),
        (Within(above=0, most=1), (5e-324, 1), (0, -1.0, 1.5, math.inf), "x, above 0 and at most 1"),
        (Within(0.25, below=1), (0.25, math.nextafter(1, 0)), (1, 0.2), "x, at least 0.25 and below 1"),
        (Within(0, 2**64 - 1), (0, 2**64 - 1), (-1, 2**64), "x from 0 to 18446744073709551615"),
        (Within(3), (3, 10**30), (2, math.inf), "x, at least 3"),
        (Within(), (0, -1e308), (math.inf, -math.inf, math.nan), "x"),
    ],
)
def test_a_range_is_one_thing_for_flags_settings_and_peers(
    within: Within, inside: tuple[float, ...], outside: tuple[float, ...], words: str
) -> None:
    assert within.of("x") == words
    for value in inside:
        assert value in within and reader(type(value), within)(value) == value
        within.check("--k", value)
    for value in outside:
        assert value not in within
        with pytest.raises(Misfit, match="expected a .*number"):
            reader(type(value), within)(value)
        with pytest.raises(ConfigError, match=f"--k: expected {words}, got ") as caught:
            within.check("--k", value, "x")
        assert str(caught.value).endswith(show(value))


def test_an_error_says_where_the_value_stands_however_deep_it_is() -> None:
    deep = {**GOOD, "inner": {"flag": True, "rates": [0.5, "x"]}}
    for name, place in (("", "inner.rates[1]"), ("the plan", "the plan.inner.rates[1]")):
        with pytest.raises(ValueError) as caught:
            decode(Outer, deep, name)
        assert str(caught.value) == f"{place}: expected a number, got 'x'"
    for counts, words in (({3: 1}, ": a key: expected text of"), ({": a key": "x"}, "[': a key']: expected a whole")):
        with pytest.raises(ValueError) as caught:
            decode(Outer, {**GOOD, "counts": counts}, "")
        assert str(caught.value).startswith(f"counts{words}")


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=rf"got an object without \['{name}'\]"):
        decode(Outer, {key: value for key, value in GOOD.items() if key != name}, "the plan")


def test_a_type_without_a_decoder_is_our_bug() -> None:
    @dataclass
    class Loose:
        anything: object

    globals()["Loose"] = Loose
    with pytest.raises(TypeError, match="no decoder"):
        decode(Loose, {"anything": 1}, "it")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe{\x00}\x00", "expected JSON in UTF-8"),
        (b"\xef\xbb\xbf{}", "got another text"),
        (b"", "got another text"),
        (b"{", "got another text"),
        (b"{} {}", "got another text"),
        (b'"a\nb"', "got another text"),
        (b'{"a": 1, "a": 2}', "each key once"),
        (b'{"a": {"b": 1, "b": 1}}', "each key once"),
        (b"NaN", "finite numbers, got NaN"),
        (b"[-Infinity]", "finite numbers, got -Infinity"),
        (b"1e400", "numbers that float64 can hold"),
        (b"-1e400", "numbers that float64 can hold"),
        (b"18446744073709551616", "integers of at most"),
        (b"-18446744073709551616", "integers of at most"),
        (b"1" + b"0" * 100_000, "integers of at most"),
        (b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1), "levels"),
        (b"[" * 1_000_000, "levels"),
        (b'{"a":' * 100_000, "levels"),
        (b"[" + b"0," * (1 << 22) + b"0]", "values"),
        (b'"' + b"x" * (1 << 24) + b'"', "at most 16777216 bytes, got 16777218"),
        (b'"' + b'\\"' * 1_000_000, "got another text"),
        (b'["' * 1_000_000, "got another text|levels"),
    ],
    ids=range(22),
)
def test_json_that_could_surprise_is_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        load_json(content)
    assert len(str(caught.value)) < 300


def test_json_at_its_limits_is_read() -> None:
    nested = b"[" * MOST_LEVELS + b"]" * MOST_LEVELS
    assert load_json(b" " + nested) is not None
    assert load_json(b"[18446744073709551615, -18446744073709551615, 1.7976931348623157e308]") == [
        MOST_INTEGER,
        -MOST_INTEGER,
        sys.float_info.max,
    ]
    # Brackets and quotation marks in a text are no structure.
    text = '[{"' * 100 + "\\"
    assert load_json(json.dumps({text: text})) == {text: text}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-MOST_INTEGER, MOST_INTEGER) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_what_our_own_writers_write_comes_back(value: Any) -> None:
    try:
        found = load_json(json.dumps(value, sort_keys=True, separators=(",", ":")))
    except ValueError as error:
        assert "levels" in str(error)
    else:
        assert found == value


@given(values, st.sampled_from(sorted(GOOD)))
def test_nothing_but_value_errors_comes_out(value: Any, name: str) -> None:
    for candidate in (value, {**GOOD, name: value}):
        try:
            found = decode(Outer, candidate, "it")
        except ValueError as error:
            assert str(error).isprintable()
        else:
            assert isinstance(found, Outer)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_surprise(content: bytes) -> None:
    try:
        load_json(content)
    except ValueError as error:
        assert str(error).isprintable()


@given(values)
def test_shown_values_are_short_and_printable(value: Any) -> None:
    assert show(value).isprintable()
    assert len(show(value)) < 1000


def test_a_huge_integer_can_be_shown() -> None:
    assert show(10**5000) == show(-(10**5000)) == "a very long int"
    assert show([1, 10**5000]) == "[1, a very long int]"
    assert show(10**100) == "100000000000000000...0000000000000000000"


def test_plain_values_are_those_of_the_standard_library_and_share_nothing_that_can_change() -> None:
    @dataclass(frozen=True, slots=True)
    class Inner:
        share: float
        names: tuple[str, ...]

    @dataclass
    class Outer:
        inner: Inner
        several: tuple[Inner | None, ...]
        by_name: dict[str, Inner]
        lists: list[list[int]]

    inner = Inner(0.5, ("a", "b"))
    outer = Outer(inner, (inner, None), {"one": inner}, [[1, 2], []])
    found = plain(outer)
    assert found == asdict(outer)
    assert type(found["several"]) is tuple and type(found["lists"][0]) is list
    found["lists"][0].append(3)
    found["by_name"]["one"]["share"] = 1.0
    assert outer == Outer(inner, (inner, None), {"one": inner}, [[1, 2], []])
