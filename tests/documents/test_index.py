"""The index of the committed results names each page as it names itself."""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "papers" / "benchmarks" / "results"


def test_the_index_says_which_pages_are_quick() -> None:
    entries = re.findall(r"- \[([^\]]+)\]\(([\w.-]+\.md)\)", (RESULTS / "README.md").read_text(encoding="utf-8"))
    assert len(entries) > 30
    for title, file in entries:
        first = (RESULTS / file).read_text(encoding="utf-8").partition("\n")[0]
        assert title.endswith("(quick)") == first.endswith("(quick)"), file
