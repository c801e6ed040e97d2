"""Write the tables of docs/run-file.md as the code declares keys and settings: `python scripts/run_file_keys.py`.

`tests/documents/test_run_file.py` fails where page and code differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fastlloyd.party.option import Option
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.run.config import OPTIONS
from fastlloyd.run.session import find_protocol

PAGE = Path(__file__).parents[1] / "docs/run-file.md"
MARK = "<!-- scripts/run_file_keys.py writes what follows -->\n"


def page() -> str:
    """Return the whole page: what people have written, then the tables."""
    written, mark, _ = PAGE.read_text("utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{PAGE}: expected the line {MARK.strip()}")
    return written + mark + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    """Write the options of a run as `RunConfig` declares them, and each protocol's settings."""
    groups: dict[str, list[Option]] = {}
    for option in OPTIONS.values():
        if not option.hidden:
            groups.setdefault(option.group or "what runs", []).append(option)
    for group, options in groups.items():
        yield from (f"\n## Keys: {group}\n", "| key | value | whose | meaning |", "|---|---|---|---|")
        for option in options:
            value = " or ".join(f"`{choice}`" for choice in option.choices) or option.expected
            whose = "same" if option.public else "shared" if option.shared else "own"
            yield f"| `{option.name}` | {value} | {whose} | {_cell(option.help)} |"
    for protocol in PROTOCOLS:
        settings = find_protocol(protocol).settings_help(protocol)
        if settings:
            yield from (f"\n## Settings of {protocol}\n", "| setting | meaning |", "|---|---|")
            yield from (f"| `{name}` | {_cell(text)} |" for name, text in settings.items())


def _cell(text: str) -> str:
    """Let a text stand in a table, where a bar would end its cell."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("$", "\\$")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
