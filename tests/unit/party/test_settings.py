"""Settings that are declared once: what is read, what is refused with which sentence, and the lines of help."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastlloyd.errors import ConfigError
from fastlloyd.party.option import describe_settings, option, read_settings
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.run.session import find_protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    start: str = option("random", "how to start", choices=("random", "separated", "far"))
    local: int | None = option(None, "clusters of each client", least=1, most=10_000, auto=True)
    shown: bool = option(False, "show it")
    rank: int = option(-1, "who computes", choices=(0, 1), auto=True)
    alpha: float = option(0.5, "scale", above=0, most=10, of=("one",))
    share: float | None = option(None, "part of epsilon", least=0.001, below=1, auto=True, of=("one", "two"))
    least: int = option(5, "smallest cluster", least=0)
    column: str | None = option(None, "name of a column", auto=True)
    slope: float = option(0.0, "any number")

    def __post_init__(self) -> None:
        if self.shown and self.start == "far":
            raise ConfigError("--set shown: expected false with start = 'far'")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["auto", "far"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
NAMES = [field.name for field in dataclasses.fields(Settings)]


@pytest.mark.parametrize(
    "name,value,read",
    [
        ("start", "far", "far"),
        ("local", 1, 1),
        ("local", 10_000, 10_000),
        ("local", "auto", None),
        ("local", None, None),
        ("rank", "auto", -1),
        ("rank", None, -1),
        ("rank", 1, 1),
        ("shown", True, True),
        ("alpha", 10, 10.0),
        ("alpha", 5e-324, 5e-324),
        ("share", 0.001, 0.001),
        ("share", math.nextafter(1, 0), math.nextafter(1, 0)),
        ("least", 10**30, 10**30),
        ("column", "", ""),
        ("slope", -(2**53), -(2.0**53)),
    ],
)
def test_what_fits_is_read_in_its_declared_type(name: str, value: object, read: object) -> None:
    found = getattr(read_settings(Settings(), "one", {name: value}), name)
    assert found == read and type(found) is type(read)


@pytest.mark.parametrize(
    "name,value,sentence",
    [
        ("start", "near", "expected 'random', 'separated' or 'far', got 'near'"),
        ("start", "auto", "expected 'random', 'separated' or 'far', got 'auto'"),
        ("local", 0, "expected 'auto' or a whole number from 1 to 10000, got 0"),
        ("local", 10_001, "expected 'auto' or a whole number from 1 to 10000, got 10001"),
        ("local", 2.0, "expected 'auto' or a whole number from 1 to 10000, got 2.0"),
        ("local", True, "expected 'auto' or a whole number from 1 to 10000, got True"),
        ("rank", -1, "expected 'auto', 0 or 1, got -1"),
        ("rank", False, "expected 'auto', 0 or 1, got False"),
        ("shown", 1, "expected true or false, got 1"),
        ("shown", None, "expected true or false, got None"),
        ("alpha", 0, "expected a number, above 0 and at most 10, got 0"),
        ("alpha", 10.5, "expected a number, above 0 and at most 10, got 10.5"),
        ("alpha", math.nan, "expected a number, above 0 and at most 10, got nan"),
        ("alpha", 10**400, "expected a number, above 0 and at most 10, got 1000"),
        ("share", 1, "expected 'auto' or a number, at least 0.001 and below 1, got 1"),
        ("share", "0.5", "expected 'auto' or a number, at least 0.001 and below 1, got '0.5'"),
        ("least", -1, "expected a whole number, at least 0, got -1"),
        ("column", ["x"], "expected 'auto' or text, got ['x']"),
        ("slope", math.inf, "expected a number, got inf"),
        ("slope", 2**53 + 1, "expected a number, got 9007199254740993"),
    ],
)
def test_the_error_follows_from_the_declaration(name: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(Settings(), "one", {name: value})
    assert str(caught.value).startswith(f"--set one.{name}: {sentence}")


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(Settings(), "one", {"start": "x\n" * 10_000})
    assert len(str(caught.value)) < 200 and str(caught.value).isprintable()


def test_a_protocol_has_the_settings_that_name_it_or_none() -> None:
    assert list(describe_settings(Settings, "one")) == [f"one.{name}" for name in NAMES]
    assert list(describe_settings(Settings, "two")) == [f"two.{name}" for name in NAMES if name != "alpha"]
    assert describe_settings(Settings, "two")["two.share"] == "part of epsilon"
    with pytest.raises(ConfigError) as caught:
        read_settings(Settings(), "three", {"least": 1, "alpha": 1.0})
    known = "column, least, local, rank, shown, slope, start"
    assert str(caught.value) == f"three has no setting 'alpha'; it has {known}"


def test_defaults_may_differ_between_the_protocols_of_a_folder() -> None:
    own = Settings(start="separated", local=7)
    assert read_settings(own, "one", {}) == own
    assert read_settings(own, "one", {"local": "auto", "least": 1}) == dataclasses.replace(own, least=1)


def test_what_the_class_refuses_stays_refused() -> None:
    with pytest.raises(ConfigError, match="expected false with start"):
        read_settings(Settings(), "one", {"shown": True, "start": "far"})


@given(st.dictionaries(st.sampled_from([*NAMES, "other"]), PLAIN, max_size=3))
def test_any_table_is_read_or_refused_by_name(values: dict[str, object]) -> None:
    try:
        found = read_settings(Settings(), "one", values)
    except ConfigError as error:
        assert any(name in str(error) for name in values)
        assert str(error).isprintable()
        return
    assert read_settings(Settings(), "one", dataclasses.asdict(found) | {"rank": values.get("rank")}) == found
    for name, value in values.items():
        got = getattr(found, name)
        assert got == (getattr(Settings(), name) if value in (None, "auto") else value)


@given(st.integers(-100, 100), st.integers(0, 100), st.integers(-300, 300), st.booleans(), st.booleans())
def test_ends_belong_to_a_range_unless_they_are_open(low: int, width: int, value: int, left: bool, right: bool) -> None:
    @dataclass(frozen=True, kw_only=True)
    class One:
        x: float = option(
            0.0,
            "a number",
            least=-math.inf if left else low,
            above=low if left else -math.inf,
            most=math.inf if right else low + width,
            below=low + width if right else math.inf,
        )

    fits = (low < value if left else low <= value) and (value < low + width if right else value <= low + width)
    if fits:
        assert read_settings(One(), "one", {"x": value}).x == value
    else:
        with pytest.raises(ConfigError, match="expected a number.* got"):
            read_settings(One(), "one", {"x": value})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_explains_its_settings_and_takes_its_own_defaults(protocol: str) -> None:
    defaults = find_protocol(protocol).settings()
    for path, about in find_protocol(protocol).settings_help(protocol).items():
        owner, _, name = path.partition(".")
        assert about.strip() == about and "\n" not in about and len(about) > 10
        if owner == protocol:
            value = getattr(defaults, name)
            assert read_settings(defaults, owner, {name: "auto" if value in (None, -1) else value}) == defaults
        else:
            assert owner == "vertical"
