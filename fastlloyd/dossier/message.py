"""One class of messages, and the words that its rows share.

Source: docs/security.md, "Who sees what".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SECURITY, FEDDP, SECFC = "security.md", "feddp.md", "secfc.md"
VERTICAL_DP, VERTICAL_HE = "vertical-dp.md", "vertical-he-privacy.md"
FAMILY = ("fastlloyd", "fastlloyd-plus", "glloyd", "sulloyd", "lloyd")
PRIVATE_FAMILY = FAMILY[:-1]
SKETCHES = ("vertical-dp", "vertical-plain")
HORIZONTAL = (*FAMILY, "feddp", "kfed", "secfc")
VERTICAL = (*SKETCHES, "vertical-he")
ALL = (*HORIZONTAL, *VERTICAL)
UP, DOWN, ACROSS = "client to server", "server to clients", "client to client"
OWNERS = "party to party"


def always(facts: Mapping[str, Any]) -> bool:
    """Whether a message that every run has is sent."""
    return True


def pairwise(facts: Mapping[str, Any]) -> bool:
    """Whether masks are pairwise."""
    return facts.get("masking") == "pairwise"


def common(facts: Mapping[str, Any]) -> bool:
    """Whether masks are common."""
    return not pairwise(facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One class of messages.

    Attributes
    ----------
    name : str
        As the protocol's pages call it.
    about : str
        What it is for, in plain words.
    route : str
        From whom to whom.
    server : str
        What the server (rank 0) can read in it; in vertical-he the computing party.
    others : str
        What another party can read in it; in vertical-he the key holder and further owners.
    types : tuple of int
        Its numbers in `wire.numbers`; empty for frames that are no message of a protocol.
    page : str
        The document that has this row.
    protocols : tuple of str
    when : callable
        Whether it is sent at all, from the run's public facts.
    """

    name: str
    about: str
    route: str
    server: str
    others: str
    types: tuple[int, ...] = ()
    page: str = SECURITY
    protocols: tuple[str, ...] = ALL
    when: Callable[[Mapping[str, Any]], bool] = field(default=always, repr=False)
