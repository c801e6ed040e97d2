"""The history of a party: written beside the ledger, read strictly, and shown by `fastlloyd runs`."""

from __future__ import annotations

import csv
import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.__main__ import main
from fastlloyd.errors import ConfigError
from fastlloyd.gate.decisions import Decision, Decisions
from fastlloyd.privacy.release import Release
from fastlloyd.run.budget_terms import STATE_VERSION, Limit
from fastlloyd.run.history import NAME, LedgerSummary, latest_runs, note_begun, note_ended, past_runs, read_notes
from fastlloyd.run.state import StateDir
from fastlloyd.wire.header import PartyId

OLD, ONE, TWO, THREE = ("0" * 32, "1" * 32, "2" * 32, "3" * 32)


def release(run: str) -> Release:
    return Release(run=run, round=0, name="sums", mechanism="gaussian", sensitivity=1.0, norm="l2", noise_scale=10.0)


def begin(folder: Path, run: str, **changes: Any) -> None:
    values = {"protocol": "fastlloyd", "title": "Heights", "parties": ["the server", "ward b"], "output": Path("/o")}
    note_begun(folder, run, **{**values, **changes})


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A run without history, one that was resumed, one that failed before it spent anything, one that was held."""
    made = StateDir(str(tmp_path / "state"), PartyId(1), new=True)
    with made.open_ledger() as ledger:
        ledger.record([release(OLD), release(ONE), release(THREE)])
        made.terms.keep_limit(Limit(STATE_VERSION, 2.0, 1e-6))
        begin(made.path, ONE)
        note_ended(made.path, ONE, code=3, said="client 2 is gone")
        begin(made.path, ONE, output=Path("/second"))
        note_ended(made.path, ONE, code=0, said="good: noise of 0.1 % of the range on a centre")
        begin(made.path, TWO, title="=cmd|' /C calc'!A0")
        note_ended(made.path, TWO, code=2, said="did not start\x1b[2J")
        begin(made.path, THREE, title=None)
        Decisions(made.path).add(Decision(run=THREE, what="held", files={}), None)
    return made.path


def shown(folder: Path) -> Any:
    made = StateDir.of(folder)
    with made.open_ledger() as ledger:
        return past_runs(LedgerSummary.of(made, ledger))


def test_a_line_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    begin(tmp_path, ONE, output=Path("/out\udcff"))  # the name of a folder may be any bytes
    begin(tmp_path, TWO, title="\ud800")
    begin(tmp_path, THREE, parties=["n" * 2000] * 10_000)
    assert [(note.run, note.output) for note in read_notes(tmp_path)] == [(ONE, r"/out\udcff")]


def test_runs_come_from_history_ledger_and_decisions(state: Path) -> None:
    old, one, two, three = shown(state)
    assert [each.run for each in (old, one, two, three)] == [OLD, ONE, TWO, THREE]
    assert [each.outcome for each in (old, one, two, three)] == ["unknown", "done", "failed (2)", "held"]
    assert old.begun_at == "" and one.begun_at <= one.ended_at and one.output == "/second"
    assert one.parties == ("the server", "ward b") and one.said.startswith("good")
    assert two.epsilon == 0.0 and old.epsilon == one.epsilon > 0
    # What is left falls by what each run adds, and is the whole budget's rest at the end.
    assert 2.0 > old.left > one.left == two.left > three.left
    with StateDir.of(state).open_ledger() as ledger:
        assert three.left == LedgerSummary.of(StateDir.of(state), ledger).left
    assert stat.S_IMODE((state / NAME).stat().st_mode) == 0o600


def test_the_command_shows_text_json_csv_and_a_page(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(state.parent)]) == 0
    text = capsys.readouterr().out
    assert "budget 2 at delta 1e-06" in text and "failed (2)" in text and "\x1b" not in text
    assert '"Heights", with the server, ward b' in text and "result in /second" in text and "/o\n" not in text
    assert max(map(len, text.splitlines()[3:])) <= 80
    assert main(["runs", str(state), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == [OLD, ONE, TWO, THREE] and rows[1]["delta"] == 1e-6
    assert main(["runs", str(state), "--csv"]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert table[2]["title"].startswith("'=cmd") and table[1]["with"] == "the server; ward b"
    page = state.parent / "runs.html"
    assert main(["runs", str(state), "--html", str(page)]) == 0
    assert (
        "<script" not in page.read_text()
        and "ward b" in page.read_text()
        and stat.S_IMODE(page.stat().st_mode) == 0o600
    )
    assert main(["runs", str(state.parent / "elsewhere")]) == 2


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "not JSON",
        '{"history": 2, "run": "' + ONE + '", "what": "begun", "at": "2026-01-01T00:00:00Z"}',
        '{"history": 1, "run": "1", "what": "begun", "at": "2026-01-01T00:00:00Z"}',
        '{"history": 1, "run": "' + ONE + '", "what": "won", "at": "2026-01-01T00:00:00Z"}',
        '{"history": 1, "run": "' + ONE + '", "what": "ended", "at": "2026-01-01T00:00:00Z", "code": 300}',
        '{"history": 1, "run": "' + ONE + '", "what": "ended", "at": "2026-01-01T00:00:00Z", "more": 1}',
        '{"history": 1, "run": "' + ONE + '", "what": "ended", "at": "2026-13-01T00:00:00Z"}',
        '{"history": 1, "run": "' + ONE[:-1] + '/", "what": "ended", "at": "2026-01-01T00:00:00Z"}',
    ],
)
def test_a_line_that_no_run_writes_is_refused_and_ends_no_run(
    state: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = (state / NAME).read_text().splitlines(keepends=True)
    (state / NAME).write_text("".join([kept[0], line + "\n", *kept[1:]]))
    with pytest.raises(ConfigError, match=f"{NAME}, line 2: expected a line as a run writes it"):
        read_notes(state)
    assert main(["runs", str(state)]) == 2
    assert "Traceback" not in capsys.readouterr().err
    begin(state, "4" * 32)  # a run goes on


def test_a_last_line_that_a_crash_cut_short_is_left_out(state: Path) -> None:
    before = read_notes(state)
    with (state / NAME).open("a") as file:
        file.write('{"history": 1, "run"')
    assert read_notes(state) == before
    note_ended(state, THREE, code=0, said="")
    assert len(read_notes(state)) == len(before) + 1


def test_a_history_that_cannot_be_written_or_is_none_ends_nothing(
    state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (state / NAME).unlink()
    assert [one.outcome for one in shown(state)] == ["unknown", "unknown", "held"]
    (state / NAME).mkdir()
    begin(state, TWO)
    assert "is not written" in caplog.text
    with pytest.raises(ConfigError, match="cannot be read"):
        read_notes(state)


def test_an_operator_sees_the_latest_runs_without_cause_or_result(state: Path) -> None:
    latest = latest_runs(str(state.parent), PartyId(1))
    assert [one["run"] for one in latest] == [THREE[:8], TWO[:8], ONE[:8]]
    assert [one["outcome"] for one in latest] == ["not ended", "failed (2)", "done"]
    assert latest[2]["with"] == "the server, ward b" and "/second" not in str(latest) and "gone" not in str(latest)
    for number in range(30):
        begin(state, f"{number:032x}")
    assert len(latest_runs(str(state.parent), PartyId(1))) == 20
    assert latest_runs(str(state.parent), PartyId(7)) == ()
