"""Clients with a common secret prove to each other, through an untrusted server, that they all have the same values.

::

    client i                                   server
      tag_i, own_i             ------------->    who has another tag?  digest of own_1 | .. | own_M
      compare the digest       <-------------  proof

Tag and own bytes are pieces of one stream, whose key is derived from the secret and the value to compare. All clients
with the same value have the same tag. Only client i sends own_i, but every client can compute the own bytes of all. So
only a server that received bytes of the same stream from all clients can make the digest: it cannot claim equality
where there is none. It can claim a difference where there is none, which ends the run. Each client sends and receives
one message, for any number of clients and of values that are compared at once; each value has its own stream.

Source: docs/protocol.md, "Comparison through the server".
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from fastlloyd.errors import PeerTimeout, SecurityError
from fastlloyd.party.declaration import OfPlan, Seen, common
from fastlloyd.party.effects import Gather, Party, Receive, Send
from fastlloyd.party.message import FixedBytes, NoPayload, Several, check_size
from fastlloyd.randomness.prg import KEY_BYTES, NONCE_BYTES, derive, keystream
from fastlloyd.wire.header import SERVER, PartyId, decode_included, encode_included

THINGS = 2
"""The clients compare two things at the end: what they received, and the result."""
_PROOF = struct.Struct(f"<I{KEY_BYTES}s")


def proof_bytes(clients: int, things: int = 1) -> int:
    """Return the length of a proof in bytes, for the number of clients and of things that they compare."""
    return (clients + 7) // 8 + things * _PROOF.size


@dataclass(frozen=True, slots=True)
class Tag(FixedBytes):
    """Two pieces of one stream, which only clients can make.

    Attributes
    ----------
    tag : bytes of length 32
        Equal at all clients that have the same value.
    own : bytes of length 32
        This client's own bytes.
    """

    SIZES = (KEY_BYTES, KEY_BYTES)
    tag: bytes = field(repr=False)
    own: bytes = field(repr=False)


class EqualityTag(Several[Tag]):
    """One `Tag` for each thing that is compared."""

    __slots__ = ()
    TYPE = 23
    PIECE = Tag
    MOST_BYTES = Tag.MOST_BYTES * THINGS
    SEEN = Seen(
        "client, server",
        "check that all clients have the same seed, and in the end that all received, and have, the same",
        server="random numbers: whether the clients have the same seed, received the same, and have the same result",
        others="that all have the same, or who differs as the server says",
        when=common,
    )


@dataclass(frozen=True, slots=True)
class EqualityProof(NoPayload):
    """The same answer for all clients: whether they are equal. Who differs is only the server's word.

    Attributes
    ----------
    included : tuple of PartyId
        The clients whose own bytes are in the digests.
    clients : int
        The number of all clients.
    odds : tuple of int
        For each thing that is compared: rank of the first client whose tag differs from the tag that more than half of
        the required clients have; 0 for nobody.
    digests : tuple of bytes of length 32
        For each thing: SHA-256 of the pieces (`Tag.own`) of the included clients, in the order of ranks.
    """

    TYPE = 24
    MOST_BYTES = OfPlan(lambda plan: proof_bytes(plan.clients, THINGS))
    SEEN = ()
    included: tuple[PartyId, ...]
    clients: int
    odds: tuple[int, ...]
    digests: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """Return the bitmap of those included, then the odd one's rank and the digest for each thing."""
        answers = [_PROOF.pack(odd, digest) for odd, digest in zip(self.odds, self.digests, strict=True)]
        return encode_included(self.included, self.clients) + b"".join(answers)

    @classmethod
    def read(cls, body: bytes, format: tuple[int, int]) -> Self:
        """Decode the server's answer; `format` is the number of clients and of things that they compare.

        Raises
        ------
        ValueError
            Wrong length, or the rank of a client that does not exist.
        """
        clients, things = format
        check_size(body, proof_bytes(clients, things))
        answers = things * _PROOF.size
        odds, digests = zip(*_PROOF.iter_unpack(body[-answers:]), strict=True)
        if max(odds) > clients:
            raise ValueError(f"expected the rank of one of {clients} clients or 0, got {max(odds)}")
        return cls(decode_included(body[:-answers], clients), clients, odds, digests)


class NotEqual(SecurityError):
    """The clients do not all have the same.

    Attributes
    ----------
    odd : PartyId
        The party that differs from most, as the server says; the server itself if it names nobody.
    purpose : bytes
        Label of the thing in which they differ.
    """

    def __init__(self, text: str, odd: PartyId, purpose: bytes) -> None:
        super().__init__(text, rank=odd.rank)
        self.odd = odd
        self.purpose = purpose


def prove_equality(
    me: PartyId,
    clients: tuple[PartyId, ...],
    required: Collection[PartyId],
    *,
    secret: bytes,
    things: Mapping[bytes, bytes],
    round_: int,
) -> Party[None]:
    """Prove that this client has the same values as the others, and check their proof; run by each client.

    Parameters
    ----------
    me : PartyId
    clients : tuple of PartyId
        All clients, in the order of ranks, `me` among them.
    required : collection of PartyId
        The clients that must be in the proof.
    secret : bytes
        Unknown to the server.
    things : mapping from bytes to bytes
        What is compared: a stream's label to the value that all clients should have.
    round_ : int
        Round number of the two messages.

    Raises
    ------
    NotEqual
        The proof does not verify; names the first thing for which it does not.
    SecurityError
        The proof lacks a required client: an honest server sends no such proof.

    Notes
    -----
    Sees: each client learns that the others have the same secret and values; the server, whether they have.
    """
    if len(clients) < 2:
        return
    length = KEY_BYTES * (1 + len(clients))
    streams = {
        purpose: keystream(derive(secret, purpose, content), bytes(NONCE_BYTES), length)
        for purpose, content in things.items()
    }
    tags = tuple(Tag(stream[:KEY_BYTES], _piece(stream, me)) for stream in streams.values())
    yield Send((SERVER,), EqualityTag(tags), round_)
    proof: EqualityProof = yield Receive(SERVER, EqualityProof, round_, (len(clients), len(things)))
    for (purpose, stream), odd, digest in zip(streams.items(), proof.odds, proof.digests, strict=True):
        expected = hashlib.sha256(b"".join(_piece(stream, party) for party in proof.included)).digest()
        if not hmac.compare_digest(digest, expected):
            raise NotEqual("the clients do not all have the same", PartyId(odd), purpose)
    missing = sorted(set(required) - set(proof.included))
    if missing:
        raise SecurityError(
            f"the server's proof that all clients have the same lacks {missing[0]}, which took part: the server "
            "dropped its tag or did not wait for it",
            rank=SERVER.rank,
        )


def collect_tags(
    clients: tuple[PartyId, ...], required: Collection[PartyId], late: Collection[PartyId], round_: int, things: int = 1
) -> Party[None]:
    """Collect the clients' tags and send the proof to all; run by the server.

    Parameters
    ----------
    clients : tuple of PartyId
        All, in the order of ranks.
    required : collection of PartyId
        Clients that must send tags. If another client's tags differ from theirs, it is left out, so it cannot cost
        them the result.
    late : collection of PartyId
        The other clients that the server does not wait for.
    round_ : int
    things : int
        The number of things that they compare.

    Raises
    ------
    PeerTimeout, PeerGone
        A required client sends nothing.
    """
    if len(clients) < 2:
        return
    messages: dict[PartyId, EqualityTag] = yield Gather(
        clients, EqualityTag, round_, len(required), things, frozenset(late)
    )
    missing = sorted(set(required) - set(messages))
    if missing:
        raise PeerTimeout(
            f"{missing[0]} took part but did not send its equality tag, so nobody goes on; check that party",
            rank=missing[0].rank,
        )
    tags = {party: [piece.tag for piece in message.pieces] for party, message in messages.items()}
    counted = [Counter(tags[party][thing] for party in required).most_common(1)[0] for thing in range(things)]
    usual = [tag for tag, _ in counted]
    there = tuple(sorted(party for party, own in tags.items() if party in required or own == usual))
    odds, digests = [], []
    for thing, (tag, votes) in enumerate(counted):
        clear = 2 * votes > len(required)  # without a majority nobody knows which one is odd
        odds.append(next((party.rank for party in there if clear and tags[party][thing] != tag), 0))
        digests.append(hashlib.sha256(b"".join(messages[party].pieces[thing].own for party in there)).digest())
    yield Send(clients, EqualityProof(there, len(clients), tuple(odds), tuple(digests)), round_)


def _piece(stream: bytes, party: PartyId) -> bytes:
    """Return one client's own bytes; the tag comes before all of them."""
    return stream[KEY_BYTES * party.rank : KEY_BYTES * (party.rank + 1)]
