"""Who can read what: the documents have the same tables, and every message that is sent stands in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.report.flow import Flow
from fastlloyd.run.session import find_protocol
from fastlloyd.wire import numbers

DOCS = Path(__file__).parents[3] / "docs"


def flow(protocol: str, facts: dict[str, Any]) -> Flow:
    found = find_protocol(protocol).data_flow(protocol, facts)
    assert found is not None
    return found


GENERAL = "security.md"
# Whose page a protocol's own messages stand on; those of the others, and what several share, are on the general one.
PAGES = {
    "feddp": "feddp.md",
    "secfc": "secfc.md",
    "vertical-dp": "vertical-dp.md",
    "vertical-plain": "vertical-dp.md",
    "vertical-he": "vertical-he-privacy.md",
}
NUMBERS = {value: name for name, value in vars(numbers).items() if name.isupper()}


def plain(text: str) -> str:
    """Take the marks off a cell of a Markdown table: bold, code, links."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "").replace("`", "").strip()


def rows(page: str) -> list[tuple[str, ...]]:
    """The rows of a page's tables of messages: sender and receiver stand in their second column."""
    found: list[tuple[str, ...]] = []
    inside = False
    for line in (DOCS / page).read_text().splitlines():
        cells = tuple(plain(cell) for cell in line.strip().strip("|").split("|"))
        inside = line.startswith("|") and (inside or cells[:2] == ("message", "sender, receiver"))
        if inside and cells[0] != "message" and set(cells[0]) != {"-"}:
            found.append(cells[:4])
    return found


# A page may repeat rows that stand elsewhere for all systems.
SHARED = {"vertical-dp.md": [("PlanProposal", "server to parties", "public plan", "public plan")]}


def own_rows(page: str) -> list[tuple[str, ...]]:
    return [row for row in rows(page) if row not in SHARED.get(page, ())]


def told(protocol: str) -> set[tuple[str, ...]]:
    return {(one.name, one.route, one.server, one.others) for one in flow(protocol, {}).messages}


def test_each_message_stands_on_one_page_and_nothing_else_does() -> None:
    theirs = [row for page in {GENERAL, *PAGES.values()} for row in own_rows(page)]
    assert sorted(theirs) == sorted(set().union(*map(told, PROTOCOLS)))


@pytest.mark.parametrize("page", sorted(set(PAGES.values())))
def test_a_page_has_the_messages_of_its_protocols(page: str) -> None:
    ours = set().union(*(told(name) for name, own in PAGES.items() if own == page))
    assert set(own_rows(page)) <= ours
