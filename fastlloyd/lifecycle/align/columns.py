"""Public columns of the parties of a vertical protocol, sent to the server and from there to all.

::

    party i                        server
      Columns     ----------->       names and bounds of this party's columns (public)
      RecordCount ----------->       of an owner of vertical-he: the number of its records

None of it is payload.

Source: docs/protocol.md, "Vertical tables".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures as PartyFeatures  # noqa: PLC0414 protocols import it from here
from fastlloyd.data.vertical import check_features
from fastlloyd.errors import ConfigError, DataError, PeerError, RangeError, Reason, format_count
from fastlloyd.lifecycle.hello import Document, Names, check_length
from fastlloyd.party.declaration import Seen
from fastlloyd.party.effects import Gather, Party, Send
from fastlloyd.wire.decode import Within
from fastlloyd.wire.header import SERVER, SETUP_ROUND, PartyId

MAX_RECORDS = 1 << 40
P = TypeVar("P")


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


def describe_features(own: PartyFeatures) -> Columns:
    """Describe a party's columns; `read_features` is the inverse."""
    return Columns(own.names, tuple(own.bounds.lo.tolist()), tuple(own.bounds.hi.tolist()))


def send_columns(own: PartyFeatures) -> Party[None]:
    """Send this party's columns to the server; run by each party.

    Raises
    ------
    ConfigError
        They are longer than the server accepts.
    """
    columns = describe_features(own)
    check_length(columns, "the names and bounds of the features take")
    yield Send((SERVER,), columns, SETUP_ROUND)


def gather_columns(parties: tuple[PartyId, ...]) -> Party[tuple[PartyFeatures, ...]]:
    """Collect the parties' columns; run by the server.

    Raises
    ------
    ConfigError
        Two parties have a column of the same name.
    PeerError
        A party's names and bounds do not match.
    """
    replies = yield Gather(parties, Columns, SETUP_ROUND, len(parties))
    features = []
    for party in parties:
        try:
            features.append(read_features(replies[party]))
        except ValueError as error:
            raise PeerError(
                f"{party} sent columns that do not fit together: {error}; expected a name, lo and hi for each",
                rank=party.rank,
            ) from error
    check_features(features)
    return tuple(features)


def plan_columns(
    parties: tuple[PartyId, ...], features: Sequence[PartyFeatures], make: Callable[[Sequence[PartyFeatures]], P]
) -> P:
    """Make the plan of the columns that parties have announced; run by the server.

    Parameters
    ----------
    parties : tuple of PartyId
        Who has announced columns; the last of `features` are theirs.
    features : sequence of PartyFeatures
        All columns, those of the server itself first.
    make : callable
        Makes the plan; raises ConfigError or RangeError if there is none.

    Raises
    ------
    PeerError
        There is a plan for one column of each, and none for these: names the party that announced most.
    ConfigError, RangeError
        There is none for so few either.
    """
    try:
        return make(features)
    except (ConfigError, RangeError) as error:
        theirs = dict(zip(parties, features[-len(parties) :], strict=True))
        widest = max(theirs, key=lambda party: len(theirs[party].names))
        width = len(theirs[widest].names)
        if width < max(len(own.names) for own in features) or not _is_planned([_first(own) for own in features], make):
            raise
        raise PeerError(
            f"{widest} announced {format_count(width, 'column')}, for which there is no plan: {error}",
            rank=widest.rank,
            reason=Reason.CONFIG_MISMATCH,
        ) from error


def _first(own: PartyFeatures) -> PartyFeatures:
    """Return the first column of a party."""
    return features_of(own.names[:1], own.bounds.lo[:1].tolist(), own.bounds.hi[:1].tolist())


def _is_planned(features: Sequence[PartyFeatures], make: Callable[[Sequence[PartyFeatures]], object]) -> bool:
    """Whether there is a plan for these columns."""
    try:
        make(features)
    except (ConfigError, RangeError):
        return False
    return True


def send_count(n: int) -> Party[None]:
    """Send the number of records to rank 0; run by an owner."""
    yield Send((SERVER,), RecordCount(n), SETUP_ROUND)


def gather_count(owners: tuple[PartyId, ...], own: int | None, *, most: int) -> Party[int]:
    """Collect the owners' numbers of records, which must be equal and at most the public N; run by rank 0.

    Parameters
    ----------
    owners : tuple of PartyId
    own : int or None
        Rank 0's own number of records, if it has any.
    most : int
        The public N.

    Raises
    ------
    PeerError
        An owner's number of records differs from the others', or exceeds N.
    """
    replies = yield Gather(owners, RecordCount, SETUP_ROUND, len(owners))
    expected = replies[owners[0]].n if own is None else own
    for party in owners:
        count = replies[party].n
        if count > most:
            raise PeerError(
                f"{party} has {count} records, expected at most the public N = {most}; agree on a larger --n-total",
                rank=party.rank,
            )
        if count != expected:
            raise PeerError(
                f"{party} has {count} records, expected {expected} as the other owners have; look at its version",
                rank=party.rank,
            )
    return expected


def features_of(names: tuple[str, ...], lo: Sequence[float], hi: Sequence[float]) -> PartyFeatures:
    """Return a party's features from their names and bounds."""
    bounds = Bounds(np.array(lo, dtype=np.float64), np.array(hi, dtype=np.float64), names)
    return PartyFeatures(names=names, bounds=bounds)


def read_features(columns: Columns) -> PartyFeatures:
    """Return the features that a message describes.

    Raises
    ------
    ValueError
        Names and bounds do not match: the sender is at fault.
    """
    try:
        return features_of(columns.names, columns.lo, columns.hi)
    except (ConfigError, DataError) as error:
        raise ValueError(str(error)) from error
