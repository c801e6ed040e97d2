"""Public columns of the parties of a vertical protocol, told to the server and from there to all.

Source: docs/protocol.md, "Vertical tables".
"""

from __future__ import annotations

import numpy as np

from fastlloyd.data.bounds import Bounds
from fastlloyd.data.vertical import PartyFeatures, check_features
from fastlloyd.errors import ConfigError, PeerError
from fastlloyd.protocols.align.messages import Columns, Count
from fastlloyd.protocols.party import Gather, Party, Send
from fastlloyd.protocols.session import check_length
from fastlloyd.wire import SERVER, SETUP_ROUND, PartyId

MAX_COLUMNS = 1_000_000


def tell_columns(own: PartyFeatures) -> Party[None]:
    """Tell the server the own columns; run by each party.

    Raises
    ------
    ConfigError
        They are longer than the server takes.
    """
    columns = Columns({"names": list(own.names), "lo": own.bounds.lo.tolist(), "hi": own.bounds.hi.tolist()})
    check_length(columns, columns.MOST_BYTES, "the names and bounds of the features")
    yield Send((SERVER,), columns, SETUP_ROUND)


def gather_columns(parties: tuple[PartyId, ...]) -> Party[tuple[PartyFeatures, ...]]:
    """Collect the parties' columns; run by the server.

    Raises
    ------
    ConfigError
        Two parties call a column alike.
    PeerError
        A party's names and bounds do not fit together.
    """
    replies = yield Gather(parties, Columns, SETUP_ROUND, len(parties), Columns.FORMAT)
    features = tuple(_read(party, replies[party]) for party in parties)
    check_features(features)
    return features


def tell_count(n: int) -> Party[None]:
    """Tell rank 0 the number of records; run by an owner."""
    yield Send((SERVER,), Count({"n": n}), SETUP_ROUND)


def gather_count(owners: tuple[PartyId, ...], own: int | None) -> Party[int]:
    """Collect the owners' numbers of records, which must be alike; run by rank 0, `own` its own if it has any.

    Raises
    ------
    PeerError
        An owner has another number of records than the others.
    """
    replies = yield Gather(owners, Count, SETUP_ROUND, len(owners), Count.FORMAT)
    expected = int(replies[owners[0]].values["n"]) if own is None else own
    for party in owners:
        told = int(replies[party].values["n"])
        if told != expected or told < 1:
            raise PeerError(
                f"{party} has {told} records, expected {expected} as the other owners have; look at its version",
                rank=party.rank,
            )
    return expected


def _read(party: PartyId, message: Columns) -> PartyFeatures:
    """Check one party's columns."""
    names = tuple(str(name) for name in message.values["names"])
    try:
        if not 1 <= len(names) <= MAX_COLUMNS:
            raise ValueError(f"{len(names)} columns")
        lo, hi = (np.array(message.values[side], dtype=np.float64) for side in ("lo", "hi"))
        return PartyFeatures(names=names, bounds=Bounds(lo, hi, names))
    except (TypeError, ValueError, ConfigError) as error:
        raise PeerError(
            f"{party} described its columns in a way that does not fit: {error}; expected a name, lo and hi for each",
            rank=party.rank,
        ) from error
