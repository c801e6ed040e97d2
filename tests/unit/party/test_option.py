"""Options that are declared once: what is read, what is refused with which sentence, and what the help shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from fastlloyd.cli.options import Parser, add_run_options, parse_run_options, show_all
from fastlloyd.errors import ConfigError
from fastlloyd.party.option import option, options_of
from fastlloyd.run.config import OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    rounds: int | None = option(None, "how many", "task", "T", auto=True, least=0, most=9, public=True)
    delta: float | str | None = option(
        None, "default %(default)s", "task", "D", auto=True, words=("paper",), least=0.1, most=2
    )
    columns: tuple[str, ...] = option((), "names", metavar="A,B")
    per_client: tuple[int, ...] = option((), "caps")
    mode: str = option("shm", "%(default)s or tcp", choices=("shm", "tcp"), common=True)
    quiet: bool = option(False, "say nothing")
    derived: bool = False


DECLARED = options_of(Config)


@pytest.mark.parametrize(
    "name,value,read",
    [
        ("rounds", 3, 3),
        ("rounds", None, None),
        ("rounds", "auto", None),
        ("delta", "auto", None),
        ("delta", "paper", "paper"),
        ("delta", 1, 1.0),
        ("columns", ["a", "b"], ("a", "b")),
        ("per_client", [1, 2], (1, 2)),
        ("mode", "tcp", "tcp"),
        ("quiet", True, True),
    ],
)
def test_what_fits_is_read_in_its_declared_kind(name: str, value: object, read: object) -> None:
    found = DECLARED[name].read(value)
    assert found == read and type(found) is type(read)


@pytest.mark.parametrize(
    "name,value,sentence",
    [
        ("rounds", 2.0, "--rounds: expected 'auto' or a whole number from 0 to 9, got 2.0"),
        ("rounds", "paper", "--rounds: expected 'auto' or a whole number from 0 to 9, got 'paper'"),
        ("delta", "x", "--delta: expected 'auto', 'paper' or a number from 0.1 to 2, got 'x'"),
        ("columns", ["a", 1], "--columns: expected a list of names, got ['a', 1]"),
        ("per_client", "1", "--per-client: expected a list of whole numbers, got '1'"),
        ("mode", None, "--mode: expected 'shm' or 'tcp', got None"),
        ("quiet", 1, "--quiet: expected true or false, got 1"),
    ],
)
def test_another_kind_is_refused(name: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DECLARED[name].read(value)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "name,value,sentence",
    [
        ("rounds", 10, "--rounds: expected 'auto' or a whole number from 0 to 9, got 10"),
        ("delta", math.nan, "--delta: expected 'auto', 'paper' or a number from 0.1 to 2, got nan"),
        ("mode", "udp", "--mode: expected 'shm' or 'tcp', got 'udp'"),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, value: object, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DECLARED[name].read(value)
    assert str(caught.value) == sentence
    for fitting in {"rounds": (None, 0, 9), "delta": (None, "paper", 0.1), "mode": ("tcp",)}[name]:
        DECLARED[name].read(fitting)


def test_a_field_without_a_declaration_is_no_option() -> None:
    assert list(DECLARED) == ["rounds", "delta", "columns", "per_client", "mode", "quiet"]
    assert (DECLARED["mode"].help, DECLARED["mode"].common, DECLARED["rounds"].public) == ("shm or tcp", True, True)


def test_what_all_parties_must_have_alike_is_no_path_of_one_of_them() -> None:
    assert {name for name, entry in OPTIONS.items() if entry.public} == {
        *("protocol", "columns", "k", "epsilon", "delta", "rounds", "n_total", "client_caps", "colluding", "seed"),
        *("masking", "known_shares", "ring_bits", "min_clients", "unit", "per_unit", "title", "min_size", "quality"),
        *("authors", "institution", "purpose"),
    }


def test_the_help_shows_every_option_but_the_hidden_ones() -> None:
    parser = Parser(prog="test")
    add_run_options(parser)
    show_all(parser)
    shown = parser.format_help()
    for entry in OPTIONS.values():
        assert (f"  {entry.flag}" in shown) == (not entry.hidden), entry.name
        assert entry.help and not (entry.hidden and entry.common), entry.name
    assert 8 <= sum(entry.common for entry in OPTIONS.values()) <= 16


@pytest.mark.parametrize(
    "argv,sentence",
    [
        (("--epsilon", "x"), "argument --epsilon: expected a number from 0.001 to 100, got 'x'; see test --help"),
        (
            ("--delta", "x"),
            "argument --delta: expected 'auto', 'paper' or a number from 1e-11 to 0.5, got 'x'; see test --help",
        ),
        (
            ("--k", "x"),
            "argument --k: expected 'auto:KMAX', '2..KMAX' or a whole number from 1 to 10000, got 'x'; see test --help",
        ),
        (
            ("--client-caps", "1,x"),
            "argument --client-caps: expected a list of whole numbers, got '1,x'; see test --help",
        ),
        (("--rounds", "autos"), "--rounds: expected 'auto' or a whole number from 0 to 1000, got 'autos'"),
    ],
)
def test_a_flag_that_cannot_be_read_says_what_the_key_expects(argv: tuple[str, str], sentence: str) -> None:
    parser = Parser(prog="test")
    add_run_options(parser)
    with pytest.raises(ConfigError) as caught:
        parse_run_options(parser, argv)
    assert str(caught.value) == sentence
