"""docs/run-file.md has the keys and settings that the code declares, in the repository as on the site."""

from __future__ import annotations

from scripts.run_file_keys import PAGE, page


def test_the_page_has_every_key_and_setting() -> None:
    written = PAGE.read_text("utf-8")
    assert written == page(), "run: python scripts/run_file_keys.py"
    assert "| `n_total` |" in written and "## Settings of fastlloyd-plus" in written
