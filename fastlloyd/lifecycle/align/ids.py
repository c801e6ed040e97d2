"""Parties with different columns align their records: they check that all have the same ids, or find the common ids.

**The same ids** (`check_ids`): one keyed digest of the sorted list, compared by each pair.

::

    party i                                party j
      IdTag  HKDF(s_ij; run, i, digest)  ------->   compare with its own digest's tag
      compare                            <-------   IdTag

The key is the pair's secret, so neither the server nor anybody else who sees the tags can try lists of ids. A mismatch
shows only that the lists differ, not where or in how many ids.

**The common ids** (`intersect_ids`): private set intersection.

::

    each party i      H(id) for its own ids, blinded by its secret a_i, sorted
                        --> i + 1 blinds, sorts --> ... --> i - 1 blinds, sorts: all secrets are in
    all lists            --> party 1, which keeps the points that are in every list
    party 1              --> unblinds by a_1 --> party 2 by a_2 --> ... --> party S: H(id) of the common ids
    party S              --> every other party, which looks them up among its own

Sorting by a blinded value is a random order, so a point's place reveals nothing. Every list is padded to the public
bound N with points that belong to no id, so that no length and no byte count depends on the number of ids, which is
released only with noise. A point that belongs to no id takes as much time as one that does, for the same reason.

Where the number of common ids is public between the parties and its order of magnitude to the network (vertical-he),
the lists of common ids are padded to a multiple of a step instead; those before them still have N points. Who learns
what:

* every party: the common ids, which is the purpose;
* party 1, for S > 2, also how many ids each group of parties has in common, not which;
* the server: nothing, it takes no part;
* two parties that collude learn more: with S = 3 parties 1 and 2 can find which of their own ids party 3
  holds. All parties follow the protocol.

Source: after Agrawal, Evfimievski, Srikant (2003), §4, in a ring; docs/protocol.md, "Alignment".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from fastlloyd.crypto.blinding import POINT_BYTES, Blinding, hash_to_point
from fastlloyd.errors import ConfigError, DataError, InternalError, PeerError
from fastlloyd.lifecycle.align.columns import Columns, RecordCount
from fastlloyd.lifecycle.shared_secrets import SetupBytes
from fastlloyd.masking.pairwise import PairSecrets
from fastlloyd.party.declaration import MESSAGE_COST, MOST_MESSAGE_BYTES, OfPlan, Seen
from fastlloyd.party.effects import Party, Receive, Send
from fastlloyd.party.message import NoPayload
from fastlloyd.randomness import domains
from fastlloyd.randomness.prg import derive
from fastlloyd.randomness.secret import SecretRandom
from fastlloyd.wire.header import SETUP_ROUND, PartyId


class IdTag(SetupBytes):
    """A tag that shows two parties only whether their ids are equal."""

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
    """A list of points of 32 bytes; `format` is their number, or a step of which it is a multiple, and the most."""

    MOST_BYTES = OfPlan(lambda plan: POINT_BYTES * plan.n_total)
    points: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Join the points."""
        return b"".join(self.points)

    @classmethod
    def read(cls, body: bytes, format: int | tuple[int, int]) -> Self:
        """Check the length, and that no point is repeated (each hides another id)."""
        count, rest = divmod(len(body), POINT_BYTES)
        step, most = format if isinstance(format, tuple) else (format, format)
        if rest or count != _padded(count, step, most):
            several = f"{most}, or a smaller multiple of {step}," if step < most else f"{most}"
            raise ValueError(f"expected {several} points of {POINT_BYTES} bytes, got {len(body)} bytes")
        points = tuple(body[i : i + POINT_BYTES] for i in range(0, len(body), POINT_BYTES))
        if len(set(points)) != count:
            raise ValueError("a blinded id is repeated")
        return cls(points)


@dataclass(frozen=True, slots=True)
class BlindedIds(_Points):
    """To the next party, or party 1: random points for a party that lacks one of the secrets."""

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
    """From the last party: the common ids, as hashes that each party knows already, and padding."""

    TYPE = 99
    SEEN = ()


MOST_LISTED = MOST_MESSAGE_BYTES // POINT_BYTES
"""Largest public N of an intersection."""
ALIGNMENT = (Columns, RecordCount, IdTag, BlindedIds, OpenedIds)
"""Messages that may be sent before the plan."""


def check_listed(most: int) -> None:
    """Refuse a public N whose lists do not fit into a message.

    Raises
    ------
    ConfigError
        Says the largest N.
    """
    if most > MOST_LISTED:
        raise ConfigError(
            f"--n-total: expected at most {MOST_LISTED:,} with vertical.align = intersect, got {most:,}: every list of "
            "ids has as many entries, and has to fit into one message; lower --n-total to the number of people that "
            "a party may have, or bring the same people in the same order and use vertical.align = check"
        )


def _padded(count: int, step: int, most: int) -> int:
    """Return the length of a list of `count` points: the next multiple of a step (one at least), or the most."""
    return min(most, step * max(1, -(-count // step)))


def lists_ahead(parties: int, most: int) -> int:
    """Return the bytes from one party that may wait at a slower one: a list of `most` ids for each other party."""
    return parties * (POINT_BYTES * most + MESSAGE_COST)


def check_ids(raw_ids: Sequence[str], pairs: PairSecrets, *, run_id: bytes) -> Party[None]:
    """Compare this party's ids with every other party's; run by each party.

    Parameters
    ----------
    raw_ids : sequence of str
        Ascending, each once (`VerticalTable.raw_ids`).
    pairs : PairSecrets
    run_id : bytes

    Raises
    ------
    DataError
        Another party holds different ids.

    Notes
    -----
    Sees: each pair learns whether its two lists are equal; the server learns nothing unless a party ends the run.
    """
    digest = digest_ids(raw_ids)
    for party, shared in pairs.secrets.items():
        yield Send((party,), IdTag(_tag(shared, run_id, pairs.me, digest)), SETUP_ROUND)
    differing = []
    for party, shared in pairs.secrets.items():
        message = yield Receive(party, IdTag, SETUP_ROUND)
        if not hmac.compare_digest(message.value, _tag(shared, run_id, party, digest)):
            differing.append(party)
    if differing:
        others = " and ".join(map(str, differing))
        raise DataError(
            f"{pairs.me} and {others} do not hold the same ids: expected one record for each person at every party; "
            "compare the id columns (spelling, leading zeros, missing rows), or let the parties keep the common ids "
            "with --set vertical.align=intersect"
        )


def digest_ids(raw_ids: Sequence[str]) -> bytes:
    """Return the 32-byte digest of a list of ids.

    Raises
    ------
    InternalError
        The list is not strictly ascending.
    """
    state = hashlib.sha256(domains.IDS)
    before = None
    for name in raw_ids:
        if before is not None and not before < name:
            raise InternalError("the ids are not sorted before they are compared")
        text = name.encode()
        state.update(struct.pack("<I", len(text)) + text)
        before = name
    return state.digest()


def _tag(shared: bytes, run_id: bytes, sender: PartyId, digest: bytes) -> bytes:
    """Bind secret, run, sender and ids."""
    return derive(shared, domains.ID_CONFIRMATION, run_id + struct.pack("<I", sender.rank) + digest)


def intersect_ids(
    me: PartyId,
    parties: tuple[PartyId, ...],
    raw_ids: Sequence[str],
    *,
    run_id: bytes,
    most: int,
    step: int | None = None,
    secret: SecretRandom,
) -> Party[tuple[str, ...]]:
    """Find the ids that all parties hold; run by each party.

    Parameters
    ----------
    me : PartyId
    parties : tuple of PartyId
        All, at least two, in the order of the ring.
    raw_ids : sequence of str
        Own ids, each once.
    run_id : bytes
    most : int
        Public bound on the number of ids of a party.
    step : int, optional
        The lists of common ids have a multiple of it as their length, which shows their number to whoever sees it; by
        default they have `most` points, too.
    secret : SecretRandom

    Returns
    -------
    tuple of str, ascending

    Raises
    ------
    DataError
        No id is common to all.
    PeerError
        A party sent points that no honest party sends, or the same list twice.
    """
    if len(raw_ids) > most:
        raise DataError(f"{len(raw_ids)} ids, expected at most the public N = {most}; agree on a larger --n-total")
    blinding = Blinding(secret)
    hashed = {hash_to_point(name, run_id): name for name in raw_ids}
    own = _filled(list(hashed), most, secret)
    known = _KnownLists(parties[parties.index(me) - 1], own)
    held = yield from _blind_by_all(me, parties, own, blinding, known)
    common = yield from _keep_common(me, parties, held, known)
    lengths = (most if step is None else min(step, most), most)
    if me == parties[0]:
        common = _filled(common, _padded(len(common), *lengths), secret)
    found = yield from _open(me, parties, common, blinding, lengths=lengths, known=known)
    opened = [point for point in found if point in hashed]
    if not opened:
        raise DataError(
            "no id is common to all parties: expected the same people at every party; compare the id columns "
            "(spelling, leading zeros); if they have common ids, a party sent other points than the protocol's"
        )
    return tuple(sorted(hashed[point] for point in opened))


def _filled(points: list[bytes], most: int, secret: SecretRandom) -> list[bytes]:
    """Pad a list with points of random names, which no party holds and which look like any other."""
    return points + [hash_to_point(secret.bytes(POINT_BYTES).hex(), b"") for _ in range(most - len(points))]


class _KnownLists:
    """The lists that a party has from the one before it in the ring, and its own: each blinded one from there is new.

    No honest party is named. Let the lists that one has taken, and its own, all be different. It sends their images
    under one injective map, so they are all different where they come. The receiver's own list, and what it unblinds
    at the end, can be one of them only if somebody applied its secret, or that secret twice, without having it. (The
    opened ids may be the receiver's own list.)

    Parameters
    ----------
    sender : PartyId
    own : list of bytes
        Before it is blinded.
    """

    def __init__(self, sender: PartyId, own: list[bytes]) -> None:
        self._sender = sender
        self.length = len(own)
        self._own = _digest_points(own)
        self._digests: set[bytes] = set()

    def check(self, message: _Points, sender: PartyId) -> None:
        """Refuse a list of this sender that is known."""
        if sender != self._sender:
            return
        digest = _digest_points(message.points)
        if digest in self._digests or (digest == self._own and not isinstance(message, OpenedIds)):
            raise PeerError(
                f"{sender} sent a list of ids again, or this party's own, in place of the next one; check its version",
                rank=sender.rank,
            )
        self._digests.add(digest)


def _digest_points(points: Iterable[bytes]) -> bytes:
    """Return a digest of a list, whatever its order."""
    return hashlib.sha256(b"".join(sorted(points))).digest()


def _blind_by_all(
    me: PartyId, parties: tuple[PartyId, ...], points: list[bytes], blinding: Blinding, known: _KnownLists
) -> Party[list[bytes]]:
    """Pass lists around the ring until the held one is blinded by every party."""
    place = parties.index(me)
    after, before = parties[(place + 1) % len(parties)], parties[place - 1]
    held = sorted(blinding.blind(points))
    for _ in range(len(parties) - 1):
        yield Send((after,), BlindedIds(tuple(held)), SETUP_ROUND)
        message = yield Receive(before, BlindedIds, SETUP_ROUND, known.length)
        known.check(message, before)
        held = sorted(_multiplied(blinding.blind, message, before))
    return held


def _keep_common(
    me: PartyId, parties: tuple[PartyId, ...], held: list[bytes], known: _KnownLists
) -> Party[list[bytes]]:
    """Collect the lists at the first party, which keeps the points that are in all of them."""
    first = parties[0]
    if me != first:
        yield Send((first,), BlindedIds(tuple(held)), SETUP_ROUND)
        return []
    common = set(held)
    for party in parties[1:]:
        message = yield Receive(party, BlindedIds, SETUP_ROUND, known.length)
        known.check(message, party)
        common &= set(message.points)
    return sorted(common)


def _open(
    me: PartyId,
    parties: tuple[PartyId, ...],
    common: list[bytes],
    blinding: Blinding,
    *,
    lengths: tuple[int, int],
    known: _KnownLists,
) -> Party[list[bytes]]:
    """Remove the blinding, one party after the other; the last one sends the result to all."""
    place, last = parties.index(me), parties[-1]
    if place > 0:
        message = yield Receive(parties[place - 1], BlindedIds, SETUP_ROUND, lengths)
        known.check(message, parties[place - 1])
        common = _multiplied(blinding.unblind, message, parties[place - 1])
    else:
        common = sorted(blinding.unblind(common))
    if me == last:
        yield Send(parties[:-1], OpenedIds(tuple(sorted(common))), SETUP_ROUND)
        return common
    yield Send((parties[place + 1],), BlindedIds(tuple(sorted(common))), SETUP_ROUND)
    opened: OpenedIds = yield Receive(last, OpenedIds, SETUP_ROUND, lengths)
    known.check(opened, last)
    return list(opened.points)


def _multiplied(step: Callable[[Iterable[bytes]], list[bytes]], message: BlindedIds, sender: PartyId) -> list[bytes]:
    """Apply one step to a peer's points and blame the peer for invalid ones."""
    try:
        return step(message.points)
    except ValueError as error:
        raise PeerError(
            f"{sender} sent a blinded id that is not a point of the curve; check its version", rank=sender.rank
        ) from error
