"""What a document shows as said by a command is what that command says.

In docs/guide.md a block that begins with ```console has commands behind `$ `, and what they say; a line `...` leaves
lines out. docs/sites.md shows what parties of a run see: tests/documents/test_sites.py starts them, here are numbers.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.report.unit import format_bytes
from tests.documents.test_commands import blocks
from tests.documents.test_sites import PAGE, file_in, typed

GUIDE = [block.text for block in blocks("docs/guide.md") if block.kind == "console"]


@pytest.mark.parametrize("text", GUIDE, ids=lambda text: text.partition("\n")[0])
def test_the_guide_shows_what_plan_says(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for sample in text.removeprefix("$ ").split("\n$ "):
        command, *shown = sample.strip().splitlines()
        assert main(shlex.split(command)[1:]) == 0
        said = capsys.readouterr().out
        assert re.fullmatch(
            "\n".join(".*" if line == "..." else re.escape(line) for line in shown), said.strip(), re.S
        ), said


def test_the_guide_has_such_samples() -> None:
    assert len(GUIDE) == 2


def test_the_page_of_sites_shows_as_many_rounds_and_bytes_as_its_run_file_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run.toml", "bounds.csv"):
        Path(name).write_text(file_in(PAGE, name))
    commands = [command for block in blocks(PAGE) if block.kind == "console" for _, command, _ in typed(block.text)]
    (plan,) = (command for command in commands if command.startswith("fastlloyd plan"))
    assert main(shlex.split(plan)[1:]) == 0
    said = capsys.readouterr().out
    rounds, payload = re.search(r"(?m)^rounds: (\d+)$", said), re.search(r"([\d,]+) in round 1\b", said)
    assert rounds is not None and payload is not None
    whole = int(payload[1].replace(",", ""))
    shown = re.findall(r"round 1 of (\d+): 3 clients, [\d.]+ ms, (.+)", "".join(block.text for block in blocks(PAGE)))
    assert shown == [(rounds[1], format_bytes(whole)), (rounds[1], format_bytes(whole // 3))]
