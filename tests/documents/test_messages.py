"""Who can read what: the documents' tables of messages say what the message classes declare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from fastlloyd.party.declaration import Seen
from fastlloyd.protocols.registry import PROTOCOLS
from fastlloyd.run.session import find_protocol
from tests.test_tables import messages

DOCS = Path(__file__).parents[2] / "docs"
GENERAL = "security.md"
# Whose page a protocol's own messages stand on; those of the others, and what several share, are on the general one.
PAGES = {
    "feddp": "feddp.md",
    "secfc": "secfc.md",
    "vertical-dp": "vertical-dp.md",
    "vertical-plain": "vertical-dp.md",
    "vertical-he": "vertical-he-privacy.md",
}
Row = tuple[str, ...]


def declared(protocol: str) -> list[Row]:
    """The rows that the classes of a protocol's messages declare."""
    flow = find_protocol(protocol).data_flow(protocol, {})
    assert flow is not None
    return [cells(row) for row in flow.rows]


def cells(row: Seen) -> Row:
    return (row.name, row.route, row.server, row.others, row.network)


def plain(text: str) -> str:
    """Take the marks off a cell of a Markdown table: bold, code, links."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "").replace("`", "").strip()


def rows(page: str, *head: str) -> list[Row]:
    """The rows of a page's tables that begin with these columns."""
    found: list[Row] = []
    inside = False
    for line in (DOCS / page).read_text().splitlines():
        parts = tuple(plain(cell) for cell in line.strip().strip("|").split("|"))
        inside = line.startswith("|") and (inside or parts[: len(head)] == head)
        if inside and parts[: len(head)] != head and set(parts[0]) != {"-"}:
            found.append(parts)
    return found


def written(table: Iterable[Row]) -> str:
    """What a page should have."""
    return "".join(f"| {' | '.join(row)} |\n" for row in table)


def test_the_pages_say_what_the_messages_declare_and_nothing_else() -> None:
    found = {row for page in {GENERAL, *PAGES.values()} for row in messages_of(page)}
    wanted = {row for name in PROTOCOLS for row in declared(name)}
    assert not wanted - found, f"add to the page of the protocol:\n{written(wanted - found)}"
    assert not found - wanted, f"no message declares:\n{written(found - wanted)}"


@pytest.mark.parametrize("page", [GENERAL, *sorted(set(PAGES.values()))])
def test_a_page_has_the_messages_of_its_protocols_in_the_order_in_which_they_are_sent(page: str) -> None:
    found = messages_of(page)
    assert len(found) == len(set(found))
    for name in PROTOCOLS:
        if PAGES.get(name, GENERAL) == page:
            own = [row for row in found if row in declared(name)]
            assert own == [row for row in declared(name) if row in found]
    if page == GENERAL:
        assert set(found) >= {row for name in PROTOCOLS if name not in PAGES for row in declared(name)}
    else:
        assert set(found) <= {row for name, own in PAGES.items() if own == page for row in declared(name)}


def messages_of(page: str) -> list[Row]:
    return rows(page, "message", "sender, receiver")


def test_every_number_stands_in_the_protocol_s_table() -> None:
    """In the order of numbers; here one finds which are free."""
    wanted = sorted((kind.TYPE, kind.__name__) for kind in messages())
    found = [(int(number), name) for number, name, *_ in rows("protocol.md", "number", "message")]
    assert found == wanted, written((str(number), name) for number, name in wanted)


@pytest.mark.parametrize("page", ["protocol.md", "vertical-dp.md"])
def test_a_table_of_bodies_has_the_right_numbers(page: str) -> None:
    names = {str(kind.TYPE): kind.__name__ for kind in messages()}
    found = rows(page, "type", "message")
    assert found and all(names[number] == name for number, name, *_ in found)
