"""What the documents tell people to type, typed as it is written.

Each block that begins with ```sh is run by bash, in the order of the page, in one new folder, with real mpirun. A
comment `<!-- not run: WHY -->` in the line before it leaves a block out, for what needs other machines, Docker or an
hour. Other blocks show output, files or pictures.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.mpi.support import QUICK, quick

ROOT = Path(__file__).parents[2]
LIMIT_S = 110
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    text: str
    why_not: str | None


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in its order."""
    text = (ROOT / page).read_text("utf-8")
    found = [Block(match["kind"], match["text"], match["why"]) for match in BLOCK.finditer(text)]
    assert 2 * len(found) == len(re.findall("^```", text, re.MULTILINE)), f"{page}: a fence is not closed"
    return found


def run_page(page: str, folder: Path, *, first: int | None = None, fresh: str | None = None) -> None:
    """Run what a page tells to type, or its first blocks alone, and stop at the first command that fails.

    Programs are forked, but for those of blocks with the text `fresh`, which start as they stand there.
    """
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in blocks(page)[:first]:
        if block.kind == "sh" and block.why_not is None:
            env = {"PYTHONPATH": QUICK} if fresh is not None and fresh in block.text else quick()
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env={**os.environ, **own, **env},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == 0, f"{page}:\n{block.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.mpi
@pytest.mark.timeout(3 * LIMIT_S)
def test_the_first_run_as_written(tmp_path: Path) -> None:
    run_page("docs/first-run.md", tmp_path)
    assert not (tmp_path / "second/centroids.csv").exists(), "the page says that the budget refuses this run"


@pytest.mark.mpi
@pytest.mark.timeout(3 * LIMIT_S)
def test_the_commands_of_the_readme_as_written(tmp_path: Path) -> None:
    run_page("docs/first-run.md", tmp_path, first=3)  # three hospitals' tables, and their bounds
    shutil.copy(tmp_path / "hospital_2.csv", tmp_path / "new.csv")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    run_page("README.md", tmp_path, fresh="mpirun -n 4")  # own data
    assert json.loads((tmp_path / "result/report.json").read_text())["parties"]["clients"] == 3
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 1 + 1200
    assert (tmp_path / "keys/hospital-3.pem").exists()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # noise has no seed
def test_the_readme_is_short_and_its_python_runs() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    assert (ROOT / "docs/result-page.png").stat().st_size < 200_000 and "docs/result-page.png" in text
    (python,) = (block for block in blocks("README.md") if block.kind == "python")
    generator = np.random.default_rng(0)
    X = np.repeat([[1.0, 1.0], [4.0, 7.0], [7.0, 2.0]], 600, axis=0) + generator.normal(0, 0.3, (1800, 2))
    generator.shuffle(X)
    names: dict[str, Any] = {"X": X} | {f"X{i}": part for i, part in enumerate(np.split(X, 3), 1)}
    exec(compile(python.text, "README.md", "exec"), names)
    assert names["model"].cluster_centers_.shape == (3, 2)


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    for page in ("README.md", "docs/first-run.md"):
        for block in blocks(page):
            assert block.kind or not re.search(r"^(fastlloyd|mpirun|make|pip|python3?) ", block.text, re.M), block.text
            assert block.why_not is None or (block.kind == "sh" and len(block.why_not) > 10)
