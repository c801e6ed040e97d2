"""What a document shows as said by a command is what that command says.

In docs/guide.md a block that begins with ```console has commands behind `$ `, and what they say; a line `...` leaves
lines out; its tables have what `plan` prints, and errors measured. docs/sites.md shows what parties of a run see:
tests/documents/test_sites.py starts them, here are numbers. In docs/adding-a-protocol.md the code below
`<!-- from: FILE -->` is lines of that file, in their order.
"""

from __future__ import annotations

import csv
import re
import shlex
import statistics
from pathlib import Path

import pytest

from fastlloyd.__main__ import main
from fastlloyd.report.unit import format_bytes
from tests.documents.test_commands import ROOT, blocks
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


def planned(capsys: pytest.CaptureFixture[str], protocol: str, n: int, d: int, k: int, epsilon: str, *more: str) -> str:
    """Return the noise of the last round that `plan` prints, in per cent, and the number of rounds in brackets."""
    numbers = ["--n-total", str(n), "--d", str(d), "--k", str(k), "--epsilon", epsilon]
    assert main(["plan", "-n", "3", "--protocol", protocol, *numbers, *more]) == 0
    said = capsys.readouterr().out
    noise = re.findall(r"([\d.]+) % of the feature's range", said)[-1]
    rounds = re.search(r"(?m)^rounds: (\d+)$", said)
    assert rounds is not None
    return f"{'< 0.01' if noise == '0.00' else noise} % ({rounds[1]})"


def table(head: str) -> list[list[str]]:
    """Return the lines of the guide's tables with this head."""
    lines = (Path(__file__).parents[2] / "docs/guide.md").read_text("utf-8").splitlines()
    found = []
    for place, line in enumerate(lines):
        if line.startswith(head):
            rows = lines[place + 2 :]
            end = next(i for i, row in enumerate(rows) if not row.startswith("|"))
            found += [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[:end]]
    return found


def test_the_guides_tables_of_noise_are_what_plan_prints(capsys: pytest.CaptureFixture[str]) -> None:
    lines = table("| N | d | k = 3, epsilon 0.5 |")
    assert len(lines) == 24
    for place, (n, d, *shown) in enumerate(lines):
        protocol = "fastlloyd-plus" if place < 12 else "fastlloyd"
        settings = [(k, epsilon) for k in (3, 10) for epsilon in ("0.5", "1")]
        for own, (k, epsilon) in zip(shown, settings, strict=True):
            made = planned(capsys, protocol, int(n.replace(",", "")), int(d), k, epsilon)
            assert own in (made, made.removesuffix(" (10)")), (protocol, n, d, k, epsilon)


def test_the_guides_table_of_errors_is_made_of_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    results = Path(__file__).parents[2] / "papers/benchmarks/results"

    def rows(name: str) -> list[dict[str, str]]:
        lines = (results / name).read_text("utf-8").splitlines()
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))  # those say how it was made

    runs: dict[tuple[str, str, float], list[float]] = {}
    for row in rows("fastlloyd-plus.csv"):
        key = (row["dataset"], row["protocol"], float(row["epsilon"]))
        runs.setdefault(key, []).append(float(row["nicv"]))
    plain = {
        (row["dataset"], float(row["epsilon"])): float(row["mean"])
        for row in rows("fastlloyd-fig2.csv")
        if (row["protocol"], row["metric"]) == ("lloyd", "nicv")
    }
    lines = table("| set | N | d | k | noise, epsilon 0.1 |")
    assert len(lines) == 10
    for name, n, d, k, *shown in lines:
        for epsilon, (noise, *ratios) in ((0.1, shown[:3]), (1.0, shown[3:])):
            made = planned(
                capsys, "fastlloyd-plus", int(n.replace(",", "")), int(d), int(k), f"{epsilon:g}", "--delta", "paper"
            )
            assert noise == made.removesuffix(" (10)"), (name, epsilon)
            for protocol, ratio in zip(("fastlloyd-plus", "fastlloyd"), ratios, strict=True):
                found = statistics.fmean(runs[name, protocol, epsilon]) / plain[name, epsilon]
                assert ratio == f"{found:.2f}", (name, epsilon, protocol)


def test_code_that_a_page_quotes_stands_in_the_file_that_it_names() -> None:
    text = (ROOT / "docs/adding-a-protocol.md").read_text("utf-8")
    quoted = re.findall(r"^<!-- from: (\S+) -->\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(quoted) == 3
    for file, code in quoted:
        there = iter((ROOT / file).read_text("utf-8").splitlines())  # `in` goes on where the line before was found
        for line in code.splitlines():
            assert line in there, line


def test_the_guide_has_such_samples() -> None:
    assert len(GUIDE) == 1


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
