"""The messages before a vertical protocol begins; none of them is payload.

::

    party i                        party j / server
      Columns     ----------->       the server: names and bounds of this party's columns (public)
      IdTag       ----------->       party j, over the link i-j: equal ids at both?
    and, where the ids may differ:
      BlindedIds  ----------->       the next party of the ring (or party 1, which compares)
      OpenedIds   ----------->       every other party, from the last one: the common ids, hashed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Self

from fastlloyd.crypto.blinding import POINT_BYTES
from fastlloyd.lifecycle.hello import Document, Names
from fastlloyd.lifecycle.seed import SetupBytes
from fastlloyd.party.declaration import OfPlan, Seen
from fastlloyd.party.message import NoPayload
from fastlloyd.wire.decode import Within

MAX_RECORDS = 1 << 40


@dataclass(frozen=True, slots=True)
class Columns(Document):
    """Public: names of a party's columns, and their bounds."""

    TYPE = 96
    MOST_BYTES = 1 << 20
    LEADS_TO_PLAN = True
    SEEN = Seen(
        "party to server",
        "names and bounds of this party's columns",
        server="names and bounds of its columns",
        others="the same, in the plan",
    )
    names: Names
    lo: tuple[float, ...]
    hi: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RecordCount(Document):
    """The number of records, public between the parties of vertical-he."""

    TYPE = 100
    MOST_BYTES = 64
    LEADS_TO_PLAN = True
    SEEN = Seen("owner to rank 0", "how many records this owner has", server="the number of common records", others="-")
    n: Annotated[int, Within(1, MAX_RECORDS)]


class IdTag(SetupBytes):
    """Tells two parties whether their ids are equal, no more."""

    __slots__ = ()
    TYPE = 97
    SEEN = Seen(
        "party to party",
        "compare the lists of ids",
        server="nothing, but that the run ends if ids differ",
        others="whether its ids equal the sender's",
    )


@dataclass(frozen=True, slots=True)
class _Points(NoPayload):
    """A list of points of 32 bytes each; `format` is how many there must be."""

    MOST_BYTES = OfPlan(lambda plan: POINT_BYTES * plan.n_total)
    points: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Join the points."""
        return b"".join(self.points)

    @classmethod
    def read(cls, body: bytes, format: int) -> Self:
        """Check the length, and that no point stands twice (each hides another id)."""
        count, rest = divmod(len(body), POINT_BYTES)
        if rest or count != format:
            raise ValueError(f"expected {format} points of {POINT_BYTES} bytes, got {len(body)} bytes")
        points = tuple(body[i : i + POINT_BYTES] for i in range(0, len(body), POINT_BYTES))
        if len(set(points)) != count:
            raise ValueError("a blinded id stands twice")
        return cls(points)


@dataclass(frozen=True, slots=True)
class BlindedIds(_Points):
    """To the next party, or party 1. Random points for whoever lacks one of the secrets."""

    TYPE = 98
    SEEN = Seen(
        "party to party",
        "find the people whom all parties have",
        server="nothing; all lists have N points, so not the number of common ids either",
        others="the common ids (see below)",
        network="length: N points each, whatever is in them",
        variant="intersect",
        when=lambda facts: facts.get("align") == "intersect",
    )


@dataclass(frozen=True, slots=True)
class OpenedIds(_Points):
    """From the last party: the common ids, as hashes that each party knows already, among points of nobody."""

    TYPE = 99
    SEEN = ()


ALIGNMENT = (Columns, RecordCount, IdTag, BlindedIds, OpenedIds)
"""What may come before the plan."""
