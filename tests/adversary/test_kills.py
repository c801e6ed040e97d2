"""Whatever dies at whatever moment: a resumed run pays once and sends the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_runs_are_resumed_and_paid_for_once(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path / "kills"), "--kills", "100"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversary.kills", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    kept = [json.loads(text) for text in (tmp_path / "kills" / "kills.jsonl").read_text().splitlines()]
    assert sum(each["kills"] for each in kept) >= 100, done.stderr
    assert not [each for each in kept if each["faults"]], done.stdout
