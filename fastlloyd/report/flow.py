"""What stays at a site, what leaves it in which message, and who has the result, in one protocol.

Source: docs/security.md and the protocols' own pages, "Who sees what"; docs/operations.md, "What a run writes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastlloyd.party.declaration import Messages, Seen, rows_of

NO_LABELS = "no message carries the cluster of a person"
OWN_LABELS = (
    "each client labels its own records, in a file that only its owner can read (mode 0600). Labels are computed from "
    "the records themselves: they are not private and are sent to nobody"
)
RELEASED = "the released centroids and noisy sizes of the clusters"

LINKS = (
    Seen(
        "client, server",
        "who is ready, and how the run ended",
        server="rank, reason, code, run id",
        others="the verdict: rank, reason, code",
        network="the same, in clear",
        frames="START, VERDICT, ABORT, DONE",
    ),
    Seen(
        "any pair",
        "the keys of a demonstration, which nobody has checked",
        server="the certificate",
        others="the certificate",
        network="the certificate",
        frames="CERTIFICATE",
        variant="no roster",
        when=lambda facts: not facts.get("roster"),
    ),
    Seen(
        "any pair",
        "that both ends have the same public values",
        server="the client's public configuration",
        others="its digest, and the server's public configuration",
        frames="confirmation",
    ),
)
"""The first messages on the links of every protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """The data flow in a run of one protocol.

    Attributes
    ----------
    records : str
        The form in which anything of a record leaves its owner.
    labels : str
        Who learns the clusters of records.
    result : str
        Who has the result.
    messages : tuple
        All messages, roughly in order (`party/declaration.py`).
    readers : tuple of str
        The parties of `Seen.server` and `Seen.others`.
    further : tuple of (str, str)
        Further data, and where they go.
    server_noise : bool
        Whether only the server draws the noise.
    """

    records: str
    labels: str
    result: str
    messages: Messages
    readers: tuple[str, str] = ("server", "other clients")
    further: tuple[tuple[str, str], ...] = ()
    server_noise: bool = False

    @property
    def rows(self) -> tuple[Seen, ...]:
        """All rows of messages, those of links first."""
        return (*LINKS, *rows_of(self.messages))

    def sent(self, facts: Mapping[str, Any]) -> Iterator[Seen]:
        """Yield the rows of a run with these public facts."""
        return (one for one in self.rows if one.when(facts))
