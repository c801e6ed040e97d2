"""The site of the documents builds without a warning, fetches nothing, and has what the example protocol imports."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a browser loads by itself, and from which attribute; a link that people click is none of these.
LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class _Loads(HTMLParser):
    """Gathers the addresses that a page loads from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADS.get(tag, ""))
        if address is not None:
            self.found.append(address)


@pytest.mark.slow  # `make docs` builds it too, as CI does
@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", "docs", ".", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search.html").exists()
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loads = _Loads()
        loads.feed(page.read_text("utf-8"))
        assert [address for address in loads.found if "//" in address] == [], page
        text = page.read_text("utf-8")
        for lacking in ("<pre>", 'role="heading">', '<th class="head"><p></p></th>', '<div class="table-wrapper'):
            assert lacking not in text, page
        assert '<aside class="' not in text, page
    assert "docs/guide" in (tmp_path / "_static" / "searchtools.js").read_text("utf-8")
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import ['\"]?http", sheet.read_text("utf-8")), sheet


def test_the_reference_has_every_module_that_the_example_protocol_imports() -> None:
    text = "".join(path.read_text("utf-8") for path in (ROOT / "docs/api").glob("*.rst"))
    shown = set(re.findall(r"^\.\. auto\w+:: (?:fastlloyd\.)?(\S+)", text, re.MULTILINE))
    for path in (ROOT / "examples/kmedians").rglob("*.py"):
        for module in re.findall(r"^\s*from fastlloyd\.([\w.]+) import", path.read_text("utf-8"), re.MULTILINE):
            assert any(name == module or name.startswith(f"{module}.") for name in shown), (path.name, module)
