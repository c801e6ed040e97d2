"""What stays at a site, what leaves it in which message, and who has the result: the words of one protocol.

Source: docs/security.md and the protocols' own pages, "Who sees what"; docs/operations.md, "What a run writes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

UP, DOWN, ACROSS = "client to server", "server to clients", "client to client"
NO_LABELS = "no message carries the cluster of a person"
OWN_LABELS = (
    "each client labels its own records, in a file that only its owner can read (mode 0600). Labels are computed from "
    "the records themselves: they are not private and are sent to nobody"
)
RELEASED = "the released centroids and noisy sizes of the clusters"


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
class MessageClass:
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
    when : callable
        Whether it is sent at all, from the run's public facts.
    """

    name: str
    about: str
    route: str
    server: str
    others: str
    types: tuple[int, ...] = ()
    when: Callable[[Mapping[str, Any]], bool] = field(default=always, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Where data are and go in a run of one protocol.

    Attributes
    ----------
    records : str
        In which form anything of a record leaves its owner.
    labels : str
        Who comes to know the clusters of records.
    result : str
        Who has the result.
    messages : tuple of MessageClass
        All that it knows, in about the order in which they are sent.
    readers : tuple of str
        Whom `MessageClass.server` and `MessageClass.others` speak of.
    further : tuple of (str, str)
        What else there is, and where it goes.
    server_noise : bool
        Whether the server alone draws the noise.
    """

    records: str
    labels: str
    result: str
    messages: tuple[MessageClass, ...]
    readers: tuple[str, str] = ("server", "other clients")
    further: tuple[tuple[str, str], ...] = ()
    server_noise: bool = False

    def sent(self, facts: Mapping[str, Any]) -> Iterator[MessageClass]:
        """Yield the messages of a run with these public facts."""
        return (one for one in self.messages if one.when(facts))
