"""What the documents tell people to type, typed as it is written.

Each block that begins with ```sh is run by bash, in the order of the page, in one new folder, with real mpirun. A
comment `<!-- not run: WHY -->` in the line before it leaves a block out, for what needs other machines, Docker or an
hour. Other blocks show output, files or pictures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 110
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
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


def run_page(page: str, folder: Path) -> None:
    """Run what a page tells to type, and stop at the first command that fails."""
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in blocks(page):
        if block.kind == "sh" and block.why_not is None:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env={**os.environ, **own},
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            assert done.returncode == 0, f"{page}:\n{block.text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.mpi
def test_the_first_run_as_written(tmp_path: Path) -> None:
    run_page("docs/first-run.md", tmp_path)
    assert not (tmp_path / "second/centroids.csv").exists(), "the page says that the budget refuses this run"
