"""TOML of others: read as ever, and no text that takes hours or gives a number that nobody can write."""

from __future__ import annotations

import contextlib
import time
import tomllib

import pytest

from fastlloyd.wire.toml import MOST_BYTES, MOST_PARTS, parse_toml

LONG = MOST_BYTES // 4


@pytest.mark.parametrize(
    "text",
    [
        "",
        'k = 3\r\nbounds = [0, 1]\n[fastlloyd-plus]\nstart = "grid"\n[[party]]\nname = "x"\n',
        f"low = {-(1 << 63)}\nhigh = {(1 << 63) - 1}\nx = 0.5\nday = 1979-05-27\nyes = true\n",
        '"a.b"."c\\".d" = 1\n' + ".".join(["a"] * MOST_PARTS) + " = 1\n",
        "columns = [" + ", ".join(f'"sepal.length.{i}"' for i in range(500)) + "]\n",
        'text = """\n' + "a.b.c. \n" * 500 + '"""\n',
    ],
)
def test_ordinary_text_is_read_as_python_reads_it(text: str) -> None:
    assert parse_toml(text.encode()) == tomllib.loads(text)
    assert parse_toml(b"\xef\xbb\xbf" + text.encode()) == tomllib.loads(text), "an editor's byte order mark"


@pytest.mark.parametrize(
    "form",
    [
        "{key} = 1",
        "[{key}]",
        "[[{key}]]",
        "x = {{{key} = 1}}",
        "x = [{{{key} = 1}}]",
        "  {key}.b = 1",
    ],
)
@pytest.mark.parametrize("part", ["a", '"a"', "'a'", '"\\""', '"."', '""', "a \t", ' "\\\\" ', "-", "'\"'"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_read(form: str, part: str) -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="keys of at most 64 parts"):
        parse_toml(form.format(key=".".join([part] * (LONG // len(part)))).encode())
    assert time.process_time() - begun < 10.0


@pytest.mark.parametrize(
    "text",
    [
        "a" * LONG,
        '"' * LONG,
        "'\"" * (LONG // 2),
        "a." * 60 + " " * LONG,
        ('a."' * (LONG // 3)),
        ("a." * 63 + "\n") * (LONG // 127),
        "x = '" + "a" * LONG + "'",
        "\\" * LONG,
        "# " + '\\" ' * (LONG // 3),
    ],
    ids=range(9),
)
def test_the_look_for_such_keys_takes_little_time(text: str) -> None:
    begun = time.process_time()
    with contextlib.suppress(ValueError):
        parse_toml(text.encode())
    assert time.process_time() - begun < 10.0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"#" * (MOST_BYTES + 1), "expected at most 1048576 bytes"),
        (b"\xff = 1", "codec can't decode"),
        (b"x = " + b"[" * 9000, "brackets|Unexpected|Invalid"),
        (b"x = 1" + b"0" * 30, "more than 64 bits"),
        (b"x = 0x" + b"f" * 9000, "more than 64 bits"),
        (b"x = [{y = -9223372036854775809}]", "more than 64 bits"),
        (b"x = " + b"9" * 9000, "more than 64 bits"),
        (b"x = ", "Invalid value"),
    ],
)
def test_what_is_refused(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_toml(content)
