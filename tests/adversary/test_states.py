"""Every damaged state is refused with a sentence: never an unforeseen error, never a hang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("play", ["fastlloyd", "pairwise", "feddp"])
def test_damaged_states_are_refused(play: str, tmp_path: Path) -> None:
    words = ["--out", str(tmp_path), "--plays", play, "--most", "30"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversary.states", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    kept = [json.loads(text) for text in (tmp_path / "states.jsonl").read_text().splitlines()]
    assert len(kept) == 30, done.stderr
    wrong = [each for each in kept if each["faults"]]
    assert not wrong, "\n".join(map(str, wrong))
