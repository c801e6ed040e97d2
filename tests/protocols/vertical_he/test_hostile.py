"""Changed messages end no process and name their sender; played in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tenseal")

from fastlloyd.protocols.vertical_he.messages import _ByteStrings


def play(first: int, count: int, limit_s: float) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.protocols.vertical_he.hostile", str(first), str(count)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr[-2000:])
    ends: dict[str, int] = json.loads(ended.stdout)
    assert sum(ends.values()) == count
    return ends


@pytest.mark.timeout(300)
def test_changed_messages_end_no_process_and_name_their_sender() -> None:
    ends = play(0, 25, 280.0)
    assert ends["named"] >= 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_changed_messages_end_no_process_and_name_their_sender() -> None:
    ends = play(1000, 3000, 3500.0)
    assert ends["named"] > 1000


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=4), st.binary(max_size=24))
def test_a_list_of_byte_strings_is_its_lengths_or_refused(lengths: list[int], body: bytes) -> None:
    form = tuple(lengths)
    if len(body) != sum(lengths):
        with pytest.raises(ValueError, match="ciphertexts or keys"):
            _ByteStrings.read(body, form)
        return
    parts = _ByteStrings.read(body, form).parts
    assert [len(part) for part in parts] == lengths and b"".join(parts) == body
