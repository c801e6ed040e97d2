"""Command lines with extremes, lost output, little room on the disk and a locale of ASCII: documented codes only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adversary.extremes import campaign

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lines", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_command_line_ends_with_a_documented_code(lines: int) -> None:
    ends, _, faults = campaign(lines, 1)
    assert not faults
    assert sum(ends.values()) == lines and any(end.endswith(" 0") for end in ends)


def ascii_locale(folder: Path, *words: str, program: tuple[str, ...] = ("-m", "fastlloyd")) -> tuple[int, str]:
    """Run a command where Python takes everything for ASCII; return its code, and what it said."""
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *program, *words],
        cwd=folder,
        env={**os.environ, **plain},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).decode("utf-8")


IN_THREADS = """
import sys
from pathlib import Path
from fastlloyd.report.stream import guard_streams
from tests.adversary.extremes import run_parties
guard_streams()
sys.exit(run_parties(sys.argv[1:], 3, Path()))
"""


def test_letters_that_a_locale_lacks_end_no_run(tmp_path: Path) -> None:
    for rank in (1, 2):
        (tmp_path / f"own_{rank}.csv").write_text("β-HCG,é\n" + "1,2\n2,1\n8,9\n9,8\n" * 5, "utf-8")
    flags = ("--data", "own_{client}.csv", "--bounds", "0,10", "--k", "2", "--n-total", "60")
    code, said = ascii_locale(tmp_path, *flags, "--protocol", "fastlloyd", program=("-c", IN_THREADS))
    assert code == 0 and "β-HCG" in said, said
    assert "β-HCG,é" in (tmp_path / "out-1" / "centroids.csv").read_text("utf-8")
    code, said = ascii_locale(tmp_path, "check", *flags, "--client", "1")
    assert code == 0 and "β-HCG" in said, said


def test_a_file_that_a_locale_cannot_name_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('k = 2\nbounds = "0,1"\nn_total = 100\ndata = "β.csv"\n', "utf-8")
    code, said = ascii_locale(tmp_path, "check", "--config", "run.toml")
    assert code == 2 and "β.csv: this locale (ascii) has no such letters in the names of files" in said, said
